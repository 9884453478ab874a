# SPDX-License-Identifier: Apache-2.0
"""The base class of schedule templates, and the facts of stages that their decisions rest on."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from tilewright.ir.buffer import Buffer
from tilewright.ir.errors import ScheduleError
from tilewright.ir.expr import ONE, ZERO, Binary, Call, Expr, Read, Var, sub, walk
from tilewright.ir.loop import Kernel
from tilewright.ir.rewrite import substitute
from tilewright.ir.stage import Stage
from tilewright.ir.target import Target
from tilewright.passes.schedule.defaults.plan import Decision, Plan
from tilewright.passes.schedule.findings import Refusal
from tilewright.passes.schedule.schedule import Schedule

TASKS_PER_CORE = 4
"""Tasks that a parallel loop should have for each core, so that cores finish together."""

TASK_WORK = 20_000
"""The least number of scalar operations worth a task of its own: some microseconds of vector code.
"""


def default_tasks(work: int, target: Target) -> int:
    """How many tasks a kernel of so many scalar operations should have."""
    return min(target.cores * TASKS_PER_CORE, 1 + work // TASK_WORK)


def task_counts(target: Target) -> tuple[int, ...]:
    """Numbers of tasks worth trying."""
    return tuple(target.cores * n for n in (1, 2, 4, 8))


@dataclass(frozen=True)
class Candidate:
    """A schedule and the kernel that it makes."""

    schedule: Schedule
    kernel: Kernel
    template: str
    decisions: Mapping[str, Decision]


class Template:
    """A form of kernel with its schedules for one ``kind`` of target. ``priority`` orders the
    templates, low first.

    ``plans`` may raise ScheduleError where its recipe does not fit: the next template is asked.
    """

    kind: ClassVar[str] = "cpu"
    priority: ClassVar[int] = 0
    registry: ClassVar[list[type["Template"]]] = []

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        Template.registry.append(cls)
        Template.registry.sort(key=lambda t: t.priority)

    def plans(self, kernel: Kernel, target: Target, choices: Mapping[str, int]) -> Iterator[Plan]:
        """Finished plans for the kernel, best first; none if it is not of this form.

        ``choices`` overrides decisions of the template by name.
        """
        raise NotImplementedError


def default_candidates(
    kernel: Kernel,
    target: Target,
    choices: Mapping[str, int] | None = None,
    refused: list[Refusal] | None = None,
) -> Iterator[Candidate]:
    """Schedules for a kernel, best first; the last is the plain nest. None of them is proven yet.

    ``choices`` overrides decisions of the templates by name, as the autotuner does. To ``refused``
    are added, as the candidates are asked for, the templates whose recipe does not fit.
    """
    templates = [t for t in Template.registry if t.kind == target.kind]
    if any(v.extent is ZERO for s in kernel.stages for v in (*s.axes, *s.reduce_axes)):
        templates = templates[-1:]  # there is nothing to tile, and little to do
    for template in templates:
        try:
            for plan in template().plans(kernel, target, choices or {}):
                yield Candidate(
                    plan.schedule, plan.kernel, template.__name__.lower(), plan.decisions
                )
        except ScheduleError as error:
            # The recipe stops at a step that this kernel does not allow: the next, simpler template
            # is asked.
            if refused is not None:
                refused.append(Refusal(template.__name__.lower(), str(error)))


def stride_along(b: Buffer, indices: tuple[Expr, ...], v: Var) -> Expr:
    """How far apart in memory, in elements, two reads of ``b`` are when ``v`` goes from 0 to 1."""
    first, second = (
        b.layout.offset(b.shape, tuple(substitute(i, {v: n}) for i in indices)) for n in (ZERO, ONE)
    )
    return sub(second, first)


def is_contiguous(read: Read, v: Var) -> bool:
    """True if a read moves by one element when ``v`` grows by one."""
    return stride_along(read.buffer, read.indices, v) is ONE


def cost_of_point(stage: Stage) -> int:
    """A rough cost of one point in scalar operations: math functions count for ten."""
    nodes = [e for v in stage.values for e in walk(v)]
    return sum(10 if isinstance(e, Call) else 1 for e in nodes)


def is_contraction(stage: Stage) -> bool:
    """True for a sum of products of two reads."""
    combine = stage.values[0]
    product = combine.y if isinstance(combine, Binary) and combine.op == "add" else None
    return (
        isinstance(product, Binary)
        and product.op == "mul"
        and all(any(isinstance(n, Read) for n in walk(side)) for side in (product.x, product.y))
    )
