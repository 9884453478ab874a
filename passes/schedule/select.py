# SPDX-License-Identifier: Apache-2.0
"""Choose the schedule of a kernel: a stored one if it holds, else the first candidate that is
proven legal.

A stored schedule is only text that somebody kept: it is parsed, applied and proven like any other,
and one that fails is as good as none.
"""

from dataclasses import dataclass

from tilewright.ir.errors import ScheduleError
from tilewright.ir.expr import Const
from tilewright.ir.loop import For, Kernel, Stmt, children
from tilewright.ir.target import Target
from tilewright.passes.schedule.defaults import default_candidates
from tilewright.passes.schedule.findings import Refusal
from tilewright.passes.schedule.legality import Proof, prove
from tilewright.passes.schedule.schedule import Schedule, apply, parse_schedule

STORED = "tuned"
"""What stands for the template of a stored schedule."""

MOST_COPIES = 1 << 13
"""How often a stored schedule may repeat a statement by unrolling and by lanes: code must stay of a
bounded size.
"""


@dataclass(frozen=True)
class Scheduled:
    """A scheduled kernel, the schedule and the template that made it, the proof, and the schedules
    that were tried before and refused.
    """

    kernel: Kernel
    schedule: Schedule
    template: str
    proof: Proof
    refused: tuple[Refusal, ...] = ()


def replay_schedule(kernel: Kernel, text: str) -> Scheduled:
    """The kernel under the schedule of a text; ScheduleError if it is wrong or not proven."""
    schedule = parse_schedule(text)
    scheduled = apply(kernel, schedule)
    copies = most_copies(scheduled.body)
    if copies > MOST_COPIES:
        raise ScheduleError(
            f"The schedule repeats a statement of kernel '{kernel.name}' {copies} times. "
            f"Unroll less: {MOST_COPIES} is the most."
        )
    return Scheduled(scheduled, schedule, STORED, prove(scheduled))


def most_copies(body: Stmt) -> int:
    """How often code generation repeats the statement that is in the most unrolled and vectorized
    loops.
    """
    most = 1
    stack = [(body, 1)]
    while stack:
        s, copies = stack.pop()
        if isinstance(s, For) and s.kind in ("unrolled", "vectorized"):
            copies *= int(s.var.extent.literal) if isinstance(s.var.extent, Const) else 1
        most = max(most, copies)
        stack.extend((c, copies) for c in children(s))
    return most


def schedule_kernel(kernel: Kernel, target: Target, stored: str | None = None) -> Scheduled:
    """The kernel under its stored schedule, else its best default one that is proven.

    ScheduleError if not even the plain one is.
    """
    refused: list[Refusal] = []
    if stored is not None:
        try:
            return replay_schedule(kernel, stored)
        except ScheduleError as error:
            refused.append(Refusal(STORED, str(error)))
    last: ScheduleError | None = None
    for candidate in default_candidates(kernel, target, refused=refused):
        try:
            proof = prove(candidate.kernel)
        except ScheduleError as error:
            refused.append(Refusal(candidate.template, str(error)))
            last = error
            continue
        return Scheduled(
            candidate.kernel, candidate.schedule, candidate.template, proof, tuple(refused)
        )
    raise ScheduleError(f"No schedule of kernel '{kernel.name}' is proven legal: {last}") from last
