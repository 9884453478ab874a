# SPDX-License-Identifier: Apache-2.0
"""Planning of intermediate buffers into one arena, at compile time, for all values of the symbols.

A size in bytes is factored into ``coefficient * base``: the content of its polynomial and the
primitive part, an expression that is never negative (1 for a static size). Buffers of one base are
planned like static ones, on their coefficients, by greedy best fit (Pisarchyk and Lee, "Efficient
Memory Management for Deep Neural Net Inference", 2020); each base has a region of its own in the
arena. An offset is thus a sum of non-negative multiples of bases, and two buffers that are disjoint
by coefficients are disjoint whatever the symbols are.

Coefficients are multiples of the alignment. Where rounding them up would cost much, as for the 4
bytes of ``f32[n,m]``, the base is what they have in common, in units of the alignment:
``(4*n*m + 63) // 64``.

Nothing here knows graphs: a buffer is a key with a size and a lifetime.
"""

import bisect
import heapq
import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from tilewright.ir.bounds import known_le
from tilewright.ir.errors import PassError
from tilewright.ir.expr import ONE, ZERO, Expr, add, mul, polynomial, sub, terms_of
from tilewright.ir.simplify import ceildiv

ALIGNMENT = 64
_MOST_ROUNDING = 1.25


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


Member = tuple[Lifetime, int]


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
    regions: dict[Expr, list[Member]] = {}
    for base, members in _by_base(buffers).items():
        aligned, lengths_of = _aligned(base, [content for _, content in members])
        into = regions.setdefault(aligned, [])
        into += [(b, length) for (b, _), length in zip(members, lengths_of, strict=True)]
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
    sizes = [(b, round_up(factor(b.size)[1])) for b in buffers if factor(b.size)[0] is ONE]
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
    _check_apart(buffers, plan)
    for _, length in plan.regions:
        if length % ALIGNMENT:
            raise PassError(f"A region of the arena is not a multiple of {ALIGNMENT} bytes long.")


def _check_apart(buffers: Sequence[Lifetime], plan: Plan) -> None:
    """PassError if two buffers that hold data at one step share memory.

    A sweep over the steps: what holds data at one step is apart by what was checked before, so it
    has one order in memory, and a buffer that comes in need only be held against its neighbours.
    """
    alive: dict[Expr, list[tuple[int, int, int]]] = {}  # (start, stop, number), for each base
    ending: list[tuple[int, int]] = []
    numbered = sorted(enumerate(buffers), key=lambda item: item[1].first)
    for number, buffer in numbered:
        while ending and ending[0][0] < buffer.first:
            _, gone = heapq.heappop(ending)
            slot = plan.slots[buffers[gone].key]
            alive[slot.base].remove((slot.start, slot.start + slot.length, gone))
        slot = plan.slots[buffer.key]
        row = (slot.start, slot.start + slot.length, number)
        rows = alive.setdefault(slot.base, [])
        at = bisect.bisect(rows, row)
        for start, stop, other in rows[max(at - 1, 0) : at + 1]:
            if row[0] < stop and start < row[1]:
                raise PassError(
                    f"Buffers '{buffers[other].key}' and '{buffer.key}' both hold data at step "
                    f"{buffer.first} and share memory."
                )
        rows.insert(at, row)
        heapq.heappush(ending, (buffer.last, number))


def factor(size: Expr) -> tuple[Expr, int]:
    """``size`` as (base, coefficient); (1, 1) at least."""
    terms = terms_of(size)
    content = math.gcd(*(c for _, c in terms)) if terms else 0
    if content == 0:
        return ONE, 1
    return polynomial({m: c // content for m, c in terms}), content


def _by_base(buffers: Iterable[Lifetime]) -> dict[Expr, list[Member]]:
    """The buffers with their coefficients."""
    groups: dict[Expr, list[Member]] = {}
    for b in buffers:
        base, content = factor(b.size)
        groups.setdefault(base, []).append((b, content))
    return groups


def _aligned(base: Expr, contents: Sequence[int]) -> tuple[Expr, list[int]]:
    """A base, and for each content an aligned length that holds that much of the given one."""
    rounded = [round_up(content) for content in contents]
    if base is ONE or sum(rounded) <= _MOST_ROUNDING * sum(contents):
        return base, rounded
    unit = math.gcd(*contents)
    lengths = [content // unit * ALIGNMENT for content in contents]
    aligned = ceildiv(mul(base, unit), ALIGNMENT)
    # Bounds of a quotient may be too loose to show what is so by construction.
    shown = all(_fits(mul(base, c), Slot(aligned, 0, n)) for c, n in zip(contents, lengths))
    return (aligned, lengths) if shown else (base, rounded)


def round_up(length: int) -> int:
    """The next multiple of the alignment."""
    return -(-length // ALIGNMENT) * ALIGNMENT


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
    taken = _Taken(members)
    peak = 0
    for current in sorted(range(len(members)), key=lambda i: (order(members[i]), i)):
        starts[current] = taken.place(*members[current])
        peak = max(peak, starts[current] + members[current][1])
    return starts, peak


class _Taken:
    """What is placed, as rows of (start, stop, first step, last step) in the order of the starts.

    Rows of an array, since a model of thousands of buffers asks thousands of times which of them
    hold data at the same time.
    """

    def __init__(self, members: Sequence[Member]) -> None:
        most = sum(length for _, length in members)
        # Sizes of nonsensical models are more than 64 bits hold.
        self._rows = np.empty((4, len(members)), np.int64 if most < 1 << 62 else object)
        self._count = 0

    def place(self, buffer: Lifetime, length: int) -> int:
        """The start of the smallest hole that holds ``length`` between what holds data at the same
        time, or the end of all that does; taken from now on.
        """
        rows = self._rows[:, : self._count]
        rivals = rows[:2, (rows[2] <= buffer.last) & (rows[3] >= buffer.first)]
        start = 0
        if rivals.shape[1]:
            ends = np.maximum.accumulate(rivals[1])
            before = np.concatenate((ends[:1] * 0, ends[:-1]))
            holes = rivals[0] - before
            fitting = np.flatnonzero(holes >= length)
            best = fitting[np.argmin(holes[fitting])] if fitting.size else None
            start = int(ends[-1] if best is None else before[best])
        self._insert(start, (start, start + length, buffer.first, buffer.last))
        return start

    def _insert(self, start: int, row: tuple[int, int, int, int]) -> None:
        at = int(np.searchsorted(self._rows[0, : self._count], start, "right"))
        self._rows[:, at + 1 : self._count + 1] = self._rows[:, at : self._count].copy()
        self._rows[:, at] = row
        self._count += 1


def _fits(size: Expr, slot: Slot) -> bool:
    """True if ``size`` is at most the slot: the rest is a non-negative multiple of the base, or
    else bounded below by 0.
    """
    whole = mul(slot.base, slot.length)
    spare = dict(terms_of(sub(whole, size)))
    base = dict(terms_of(slot.base))
    if spare.keys() <= base.keys():
        ratios = {Fraction(spare.get(m, 0), c) for m, c in base.items()}
        if len(ratios) == 1:
            return min(ratios) >= 0
    return known_le(size, whole)


def _bytes(regions: Iterable[tuple[Expr, int]]) -> Expr:
    total: Expr = ZERO
    for base, length in regions:
        total = add(total, mul(base, length))
    return total
