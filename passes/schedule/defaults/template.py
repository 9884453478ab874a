# SPDX-License-Identifier: Apache-2.0
"""The base class of schedule templates, and what they share: the facts of a kernel that decisions rest on."""

from collections.abc import Iterator
from typing import ClassVar

from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import ONE, Const, Expr, Var, add, mul
from tilewright.ir.loop import Kernel
from tilewright.ir.simplify import hinted, substitute
from tilewright.ir.stage import Stage
from tilewright.ir.target import Target
from tilewright.passes.schedule.schedule import Schedule

TASKS_PER_CORE = 4
"""Tasks that a parallel loop should have for each core, so that cores finish together."""

TASK_WORK = 20_000
"""The least number of scalar operations worth a task of its own: about 2 microseconds of vector code."""


class Template:
    """A form of kernel with its schedules. ``priority`` orders the templates, low first."""

    priority: ClassVar[int] = 0
    registry: ClassVar[list[type["Template"]]] = []

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        Template.registry.append(cls)
        Template.registry.sort(key=lambda t: t.priority)

    def schedules(self, kernel: Kernel, target: Target) -> Iterator[Schedule]:
        """Schedules for the kernel, best first; none if it is not of this form."""
        raise NotImplementedError


def default_schedules(kernel: Kernel, target: Target) -> Iterator[Schedule]:
    """Schedules for a kernel, best first; the last one is the plain nest."""
    for template in Template.registry:
        yield from template().schedules(kernel, target)


def memory_order(stage: Stage) -> list[Var]:
    """The axes of a stage in the order in which its first output lies in memory, outermost first."""
    position = {t: d for d, t in enumerate(stage.targets)}
    if any(a not in position for a in stage.axes):
        return list(stage.axes)
    rank = {d: n for n, d in enumerate(stage.output.layout.order)}
    return sorted(stage.axes, key=lambda a: rank[position[a]])


def extent(v: Var) -> int:
    """The extent of an axis that decisions are made for: symbols at their hints."""
    return max(1, hinted(v.extent))


def is_static(v: Var) -> bool:
    """True if the extent of an axis is a constant."""
    return isinstance(v.extent, Const)


def stride_along(b: Buffer, indices: tuple[Expr, ...], v: Var) -> Expr:
    """How far apart in memory, in elements, two reads of ``b`` are when ``v`` grows by one (from 0 to 1)."""
    at = [tuple(substitute(i, {v: n}) for i in indices) for n in (Const("0", v.dtype), ONE)]
    first, second = (b.layout.offset(b.shape, i) for i in at)
    return add(second, mul(first, -1))


def points(stage: Stage) -> int:
    """How many points a stage has, symbols at their hints."""
    total = 1
    for v in (*stage.axes, *stage.reduce_axes):
        total *= extent(v)
    return total
