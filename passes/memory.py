# SPDX-License-Identifier: Apache-2.0
"""Planning of intermediate buffers into one arena, at compile time, for all values of the symbols.

A size in bytes is factored into ``coefficient * base``: the content of its polynomial and the
primitive part, an expression that is never negative (1 for a static size). Buffers of one base are
planned like static ones, on their coefficients, by greedy best fit (Pisarchyk and Lee, "Efficient
Memory Management for Deep Neural Net Inference", 2020); each base has a region of its own in the
arena. An offset is thus a sum of non-negative multiples of bases, and two buffers that are disjoint
by coefficients are disjoint whatever the symbols are.

Nothing here knows graphs: a buffer is a key with a size and a lifetime.
"""

import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from tilewright.ir.errors import PassError
from tilewright.ir.expr import ONE, ZERO, Expr, add, mul, polynomial, terms_of

ALIGNMENT = 64


@dataclass(frozen=True)
class Lifetime:
    """A buffer of ``size`` bytes that holds data from step ``first`` to step ``last``, both
    included.
    """

    key: Hashable
    size: Expr
    first: int
    last: int

    def overlaps(self, other: "Lifetime") -> bool:
        """True if both hold data at some step."""
        return self.first <= other.last and other.first <= self.last


@dataclass(frozen=True)
class Slot:
    """Where a buffer lies: ``start * base`` bytes into the region of ``base``, ``length * base``
    bytes long.
    """

    base: Expr
    start: int
    length: int


@dataclass(frozen=True)
class Plan:
    """A slot for each key, and the regions in arena order as (base, length in bases)."""

    slots: dict[Hashable, Slot]
    regions: tuple[tuple[Expr, int], ...]

    @property
    def size(self) -> Expr:
        """The bytes of the arena."""
        return _bytes(self.regions)

    def offset(self, key: Hashable) -> Expr:
        """The bytes from the start of the arena to the buffer of that key."""
        slot = self.slots[key]
        before = [base for base, _ in self.regions].index(slot.base)
        return add(_bytes(self.regions[:before]), mul(slot.base, slot.start))


def plan_memory(buffers: Sequence[Lifetime]) -> Plan:
    """Give every buffer a slot so that no two buffers that hold data at one step share a byte."""
    regions: dict[Expr, list[tuple[Lifetime, int]]] = {}
    for buffer in buffers:
        base, length = factor(buffer.size)
        regions.setdefault(base, []).append((buffer, length))
    slots: dict[Hashable, Slot] = {}
    lengths: list[tuple[Expr, int]] = []
    for base, members in regions.items():
        starts, peak = min((_best_fit(members, o) for o in _ORDERS), key=lambda found: found[1])
        for (buffer, length), start in zip(members, starts, strict=True):
            slots[buffer.key] = Slot(base, start, length)
        lengths.append((base, peak))
    return Plan(slots, tuple(lengths))


def lower_bound(buffers: Sequence[Lifetime]) -> int:
    """The largest sum of static sizes that hold data at one step: no plan can be smaller."""
    steps = sorted({b.first for b in buffers})
    sizes = [(b, factor(b.size)[1]) for b in buffers if factor(b.size)[0] is ONE]
    return max((sum(s for b, s in sizes if b.first <= t <= b.last) for t in steps), default=0)


def check_plan(buffers: Sequence[Lifetime], plan: Plan) -> None:
    """Check a plan against the lifetimes, on its own reasoning; PassError with the two buffers at
    fault.

    Shown for each buffer: its size fits the slot, the slot is aligned and lies in its region; for
    each two that overlap in time: their slots are apart, in different regions or by coefficients.
    Bases are sizes divided by a positive number, so never negative, which makes the comparison of
    coefficients one for all symbol values.
    """
    lengths = dict(plan.regions)
    if len(lengths) != len(plan.regions):
        raise PassError("Two regions of the arena have the same base.")
    for buffer in buffers:
        slot = plan.slots[buffer.key]
        if not _fits(buffer.size, slot):
            raise PassError(f"Buffer '{buffer.key}' of {buffer.size} bytes exceeds its slot.")
        if slot.start % ALIGNMENT or slot.start < 0:
            raise PassError(f"Buffer '{buffer.key}' is not aligned to {ALIGNMENT} bytes.")
        if slot.start + slot.length > lengths.get(slot.base, -1):
            raise PassError(f"Buffer '{buffer.key}' lies outside its region of the arena.")
    ordered = sorted(buffers, key=lambda b: b.first)
    for position, one in enumerate(ordered):
        for other in ordered[position + 1 :]:
            if other.first > one.last:
                break
            if _collide(plan.slots[one.key], plan.slots[other.key]):
                raise PassError(
                    f"Buffers '{one.key}' and '{other.key}' both hold data at step {other.first} "
                    "and share memory."
                )
    for _, length in plan.regions:
        if length % ALIGNMENT:
            raise PassError(f"A region of the arena is not a multiple of {ALIGNMENT} bytes long.")


def factor(size: Expr) -> tuple[Expr, int]:
    """``size`` as (base, coefficient), the coefficient rounded up to the alignment; (1, 64) at
    least.
    """
    terms = terms_of(size)
    content = math.gcd(*(c for _, c in terms)) if terms else 0
    if content == 0:
        return ONE, ALIGNMENT
    base = polynomial({m: c // content for m, c in terms})
    return base, -(-content // ALIGNMENT) * ALIGNMENT


Member = tuple[Lifetime, int]
_ORDERS: tuple[Callable[[Member], tuple[int, int]], ...] = (
    lambda member: (-member[1], member[0].first),
    lambda member: (-member[1] * (member[0].last - member[0].first + 1), member[0].first),
    lambda member: (member[0].first, -member[1]),
)


def _best_fit(
    members: Sequence[Member], order: Callable[[Member], tuple[int, int]]
) -> tuple[list[int], int]:
    """The starts of all members, placed in ``order`` into the smallest gap that fits, and the
    peak.
    """
    starts = [0] * len(members)
    placed: list[int] = []
    peak = 0
    for current in sorted(range(len(members)), key=lambda i: (order(members[i]), i)):
        buffer, length = members[current]
        rivals = sorted(
            (starts[i], starts[i] + members[i][1]) for i in placed if members[i][0].overlaps(buffer)
        )
        starts[current] = _smallest_gap(rivals, length)
        peak = max(peak, starts[current] + length)
        placed.append(current)
    return starts, peak


def _smallest_gap(taken: Iterable[tuple[int, int]], length: int) -> int:
    """The start of the smallest hole between ``taken`` ranges that holds ``length``, or the end of
    all.
    """
    best: tuple[int, int] | None = None
    end = 0
    for start, stop in taken:
        if start - end >= length and (best is None or start - end < best[0]):
            best = (start - end, end)
        end = max(end, stop)
    return end if best is None else best[1]


def _fits(size: Expr, slot: Slot) -> bool:
    """True if ``size`` is at most the slot: the rest is a non-negative multiple of the base."""
    spare = dict(terms_of(add(mul(slot.base, slot.length), mul(size, -1))))
    base = dict(terms_of(slot.base))
    if not spare:
        return True
    if spare.keys() != base.keys():
        return False
    ratios = {Fraction(c, base[m]) for m, c in spare.items()}
    return len(ratios) == 1 and min(ratios) >= 0


def _collide(one: Slot, other: Slot) -> bool:
    if one.base is not other.base:
        return False
    return one.start < other.start + other.length and other.start < one.start + one.length


def _bytes(regions: Iterable[tuple[Expr, int]]) -> Expr:
    total: Expr = ZERO
    for base, length in regions:
        total = add(total, mul(base, length))
    return total
