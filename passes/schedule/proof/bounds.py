# SPDX-License-Identifier: Apache-2.0
"""Bounds: every access is inside its buffer, under the conditions and guards around it.

Bounds of index expressions decide most accesses at once; a condition such as ``8*i + l < n`` is
tried as a fact about the index; isl decides the rest. A read may also touch the padding lanes of a
blocked axis, which exist in memory; a write may not, since contractions rely on them being zero.
Both arms of a ``select`` may be evaluated, so that its condition protects nothing; that of a
``guard`` does.
"""

from collections.abc import Sequence

from tilewright.ir.buffer import Buffer
from tilewright.ir.errors import ScheduleError
from tilewright.ir.expr import Expr, mul, sub
from tilewright.ir.simplify import ceildiv
from tilewright.passes.schedule.proof import report
from tilewright.passes.schedule.proof.accesses import Place, Program, guarded_reads
from tilewright.passes.schedule.proof.facts import Facts
from tilewright.passes.schedule.proof.inequalities import is_at_least_zero, known_facts


def check_bounds(program: Program, facts: Facts) -> None:
    """ScheduleError with the access and the iteration where one leaves its buffer."""
    checker = _Checker(facts)
    for evaluation in program.evaluations:
        checker.reads(evaluation.value, evaluation.place, "An index or condition")
    for instance in program.instances:
        who = f"Block '{instance.name}'"
        for write in instance.writes:
            checker.access(write.memory.buffer, write.indices, instance.place, (), f"{who} writes")
            for e in (*write.indices, write.value):
                checker.reads(e, instance.place, who)


class _Checker:
    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self._done: set[tuple[Place, Expr, Expr, tuple[Expr, ...]]] = set()

    def reads(self, e: Expr, place: Place, who: str) -> None:
        for read, conditions in guarded_reads(e):
            if read.buffer not in place.memories:
                raise ScheduleError(
                    f"{who} reads '{read.buffer.name}', which is neither an argument nor allocated."
                )
            self.access(read.buffer, read.indices, place, conditions, f"{who} reads")

    def access(
        self,
        buffer: Buffer,
        indices: Sequence[Expr],
        place: Place,
        conditions: tuple[Expr, ...],
        who: str,
    ) -> None:
        extents = padded_shape(buffer) if who.endswith("reads") else buffer.shape
        if len(indices) != len(extents):
            raise ScheduleError(
                f"{who} '{buffer.name}' of rank {buffer.rank} at {len(indices)} indices."
            )
        for e, extent in zip(indices, extents, strict=True):
            key = (place, e, extent, conditions)
            if key in self._done:
                continue
            self._done.add(key)
            known = known_facts((*place.conditions, *conditions))
            below = sub(sub(extent, 1), e)
            if is_at_least_zero(e, known) and is_at_least_zero(below, known):
                continue
            values = self.facts.outside(place, conditions, e, extent)
            if values is not None:
                at = report.cell(buffer, indices, values)
                shape = report.at(extents, values)
                raise ScheduleError(
                    f"{who} {at}, outside the shape [{shape}]{report.setting(values)}. "
                    "Enlarge the buffer, or guard the access."
                )


def padded_shape(buffer: Buffer) -> tuple[Expr, ...]:
    """The extents of a buffer with blocked axes padded to a multiple of their blocks."""
    factors: dict[int, int] = {}
    for axis, factor in buffer.layout.blocks:
        factors[axis] = factors.get(axis, 1) * factor
    return tuple(
        mul(ceildiv(extent, factors[axis]), factors[axis]) if axis in factors else extent
        for axis, extent in enumerate(buffer.shape)
    )
