# SPDX-License-Identifier: Apache-2.0
"""Dataflow of the common shapes, shown without isl.

In most scheduled kernels a read finds its value in the same iteration of the loops that it shares
with the write: a tile is filled, then used. Then the last write follows from the shape of the code.
Solve the write's indices for the read's cell (:mod:`.inversion`); the solution is one iteration of
the write's own loops, which ran before the read; what could run between is only what stands between
them in the text. Where the write covers a part of the cells (a main tile and its tail), the proof
goes on by cases. A reduction is complete if each reduce axis is a mixed-radix number of loop
variables of their own that covers the whole range.

:class:`Direct` answers True or "not shown", in which case isl decides and finds the
counter-example.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tilewright.ir.bounds import known_equal, known_le
from tilewright.ir.expr import (
    ONE,
    ZERO,
    Const,
    Expr,
    IndexOp,
    Var,
    free_variables,
    mul,
    reads,
    sub,
    terms_of,
)
from tilewright.ir.rewrite import substitute
from tilewright.ir.simplify import ceildiv
from tilewright.passes.schedule.proof.accesses import Loop, Program, point_ranges
from tilewright.passes.schedule.proof.dataflow import Access
from tilewright.passes.schedule.proof.inequalities import (
    facts_of,
    is_at_least_zero,
    is_contradiction,
    known_facts,
)
from tilewright.passes.schedule.proof.inversion import Solution, solve
from tilewright.passes.schedule.proof.reductions import is_reorderable

_LAST = 1 << 60


@dataclass(frozen=True, eq=False)
class Origin:
    """An update's value was started by ``source``, in the same iteration of the ``shared`` outer
    loops, at ``values``.
    """

    source: Access
    shared: int
    values: tuple[Expr, ...]


class Direct:
    """Tries to show that every read of one memory finds what it wants."""

    def __init__(self, program: Program, accesses: Sequence[Access], allow_reorder: bool) -> None:
        self.program = program
        self.allow_reorder = allow_reorder
        self.sources = [a for a in accesses if a.is_source]
        self.updates = [a for a in accesses if a.kind == "update"]
        self.reads = [a for a in accesses if a.kind in ("read", "final")]
        self.origins: dict[Access, list[Origin]] = {}
        self._solutions: dict[tuple[Access, Access, int], Solution | None] = {}

    def holds(self) -> bool:
        """True if all reads, and the updates they depend on, are shown to find what they want."""
        if any(u.stage is not None and u.stage.kind != "reduce" for u in self.updates):
            return False
        if not all(self._resolve(u, self._facts(u), self.sources) for u in self.updates):
            return False
        return all(self._resolve(r, self._facts(r), self.sources) for r in self.reads)

    def _facts(self, access: Access) -> list[Expr]:
        facts = known_facts(access.conditions)
        if access.kind == "read" and access.instance is not None:
            for e, extent in point_ranges(self.program, access.instance, access.buffer):
                facts += [e, sub(sub(extent, 1), e)]
        return [f for f in dict.fromkeys(facts) if not is_at_least_zero(f)]

    def _solution(self, access: Access, sink: Access, shared: int) -> Solution | None:
        """The iteration of ``access`` that touches the cell of ``sink``, in the same iteration of
        the shared loops.

        For a source the conditions around it are among the needs; those of an update are left to
        :meth:`_spans`.
        """
        key = access, sink, shared
        if key not in self._solutions:
            self._solutions[key] = _solve(access, sink, shared)
        return self._solutions[key]

    # --- the last write ---

    def _resolve(self, sink: Access, facts: list[Expr], sources: Sequence[Access]) -> bool:
        """True if the last write of the cell before ``sink``, where ``facts`` hold, is by the
        wanted point.
        """
        if len(sources) < len(self.sources) and is_contradiction(facts):
            return True
        ranked = [(shared_loops(s, sink), s) for s in sources]
        before = [(n, position(s, n), s) for n, s in ranked if position(s, n) < position(sink, n)]
        if not before:
            return False
        shared, _, source = max(before, key=lambda item: item[:2])
        found = self._solution(source, sink, shared)
        if found is None or found.free or not _wanted(source, sink, found):
            return False
        unmet = [n for n in found.needs if not is_at_least_zero(n, facts)]
        inside = [*facts, *unmet]
        others = [s for s in self.sources if s is not source]
        if any(not self._harmless(other, source, sink, shared, inside) for other in others):
            return False
        if sink.kind == "update":
            values = tuple(found.values.values())
            self.origins.setdefault(sink, []).append(Origin(source, shared, values))
        elif source.kind == "start" and not self._complete(source, sink, shared, inside):
            return False
        rest = [s for s in sources if s is not source]
        return all(
            self._resolve(sink, [*facts, *unmet[:n], sub(-1, need)], rest)
            for n, need in enumerate(unmet)
        )

    def _harmless(
        self, other: Access, source: Access, sink: Access, shared: int, facts: list[Expr]
    ) -> bool:
        """True if ``other`` does not write the cell between ``source`` and ``sink``."""
        if not _may_lie_between(other, source, sink, shared):
            return True
        found = self._solution(other, sink, shared)
        return found is not None and any(
            is_at_least_zero(sub(-1, need), facts) for need in found.needs
        )

    # --- reductions ---

    def _complete(self, start: Access, sink: Access, shared: int, facts: list[Expr]) -> bool:
        """True if every update of the value that ``start`` began ran exactly once before
        ``sink``.
        """
        stage = start.stage
        assert stage is not None and start.instance is not None
        members = [u for u in self.updates if any(o.source is start for o in self.origins[u])]
        spans: list[list[tuple[Expr, Expr]]] = []
        for update in members:
            if any(o.source is not start or o.shared != shared for o in self.origins[update]):
                return False
            if not position(start, shared) < position(update, shared) < position(sink, shared):
                return False
            if loops_of(update)[:shared] != loops_of(start)[:shared]:
                return False
            spans_of_update = self._spans(update, sink, shared, facts)
            if spans_of_update is None:
                return False
            spans.append(spans_of_update)
        if len(members) > 1 and not is_reorderable(stage, self.allow_reorder):
            return False
        known: dict[Expr, Expr] = dict(zip(stage.axes, start.instance.point))
        extents = [substitute(axis.extent, known) for axis in stage.reduce_axes]
        return _tile(spans, extents)

    def _spans(
        self, update: Access, sink: Access, shared: int, facts: list[Expr]
    ) -> list[tuple[Expr, Expr]] | None:
        """The first value and the length of each coordinate of the reduce point that an update runs
        through, for the cell that ``sink`` reads; None if it does not run through each of them
        exactly once.
        """
        stage, instance = update.stage, update.instance
        assert stage is not None and instance is not None
        if not stage.reduce_axes:
            return None
        found = self._solution(update, sink, shared)
        if found is None or any(not is_at_least_zero(n, facts) for n in found.needs):
            return None
        fixed = {v: c for v, c in found.values.items() if isinstance(c, Const)}
        point = [substitute(e, fixed) for e in instance.point[len(stage.axes) :]]
        free: set[Expr] = set(found.free)
        if any(free_variables(e) & set(found.values) for e in point):
            return None
        limits: list[Expr] = []
        private = set(update.variables[shared:])
        for condition in update.conditions:
            if condition in sink.conditions and not free_variables(condition) & private:
                continue
            parts = None if reads(condition) else facts_of(condition)
            if parts is None:
                return None
            for fact in parts:
                if free_variables(fact) & free:
                    limits.append(fact)
                elif not is_at_least_zero(found.at(fact), facts):
                    return None
        spans = []
        order: list[Var] = []
        for e in point:
            span = _span(e, free, limits, order)
            if span is None:
                return None
            spans.append(span)
        if limits or len(order) != len(free):
            return None
        if order != [v for v in update.variables if v in free] and not is_reorderable(
            stage, self.allow_reorder
        ):
            return None
        return spans


def loops_of(access: Access) -> tuple[Loop, ...]:
    return access.instance.place.loops if access.instance is not None else ()


def position(access: Access, depth: int) -> int:
    """The position of an access inside its first ``depth`` loops; the read after the end comes
    last.
    """
    return access.instance.place.position[depth] if access.instance is not None else _LAST


def shared_loops(a: Access, b: Access) -> int:
    """How many outer loops two accesses have in common."""
    count = 0
    for x, y in zip(loops_of(a), loops_of(b)):
        if x is not y:
            break
        count += 1
    return count


def _solve(access: Access, sink: Access, shared: int) -> Solution | None:
    assert access.instance is not None
    private = access.variables[shared:]
    conditions = access.conditions if access.is_source else ()
    needs: list[Expr] = []
    for condition in conditions:
        if condition in sink.conditions and not free_variables(condition) & set(private):
            continue
        facts = facts_of(condition)
        if facts is None:
            return None
        needs += facts
    others = [*access.cell, *access.instance.point, *needs]
    if any(reads(e) for e in (*access.indices, *others)):
        return None
    found = solve(private, access.indices, sink.indices, others)
    if found is None:
        return None
    return replace(found, needs=(*found.needs, *(found.at(n) for n in needs)))


def _wanted(source: Access, sink: Access, found: Solution) -> bool:
    """True if the source has the value that the sink wants, cell and kind."""
    if source.buffer is not sink.buffer:
        return False
    if sink.kind == "update" and not (source.kind == "start" and source.stage is sink.stage):
        return False
    return all(found.at(e) is wanted for e, wanted in zip(source.cell, sink.cell, strict=True))


def _may_lie_between(other: Access, source: Access, sink: Access, shared: int) -> bool:
    """False if ``other`` cannot run between two accesses of one iteration of their ``shared``
    loops.
    """
    if loops_of(other)[:shared] != loops_of(source)[:shared]:
        return False
    return position(source, shared) <= position(other, shared) <= position(sink, shared)


def _span(
    e: Expr, free: set[Expr], limits: list[Expr], order: list[Var]
) -> tuple[Expr, Expr] | None:
    """``(start, length)`` if ``e`` runs exactly once through ``start .. start + length - 1`` as its
    free variables run.

    Appends those variables to ``order``, outermost digit first, and removes from ``limits`` the one
    that cuts the range.
    """
    digits = [(c, m[0]) for m, c in terms_of(e) if len(m) == 1 and m[0] in free]
    start = e
    for coefficient, v in digits:
        start = sub(start, mul(v, coefficient))
    if free_variables(start) & free or any(v in order for _, v in digits):
        return None
    digits.sort(key=lambda d: d[0])
    size: Expr = ONE
    for weight, v in digits:
        assert isinstance(v, Var)
        if known_equal(size, weight) is not True:
            size_of_chunks = _chunked(size, weight, v)
            if size_of_chunks is None:
                return None
            size = size_of_chunks
        else:
            # The size of a chunk that shrinks at the end mentions the next digit, which must be its
            # loop.
            size = mul(v.extent, weight)
    if free_variables(size) & free:
        return None
    for fact in list(limits):
        last = fact + e
        if not free_variables(last) & free:
            length = sub(last + 1, start)
            if not known_le(length, size):
                return None
            limits.remove(fact)
            size = length
    order += [v for _, v in reversed(digits) if isinstance(v, Var)]
    return start, size


def _chunked(size: Expr, weight: int, outer: Var) -> Expr | None:
    """``min(c, n - c*o)`` iterations for each of ``ceildiv(n, c)`` values of ``o`` are ``n``
    iterations.
    """
    if not (isinstance(size, IndexOp) and size.op == "min"):
        return None
    for a, b in ((size.a, size.b), (size.b, size.a)):
        whole = b + mul(outer, weight)
        if (
            known_equal(a, weight) is True
            and outer not in free_variables(whole)
            and known_equal(outer.extent, ceildiv(whole, weight)) is True
        ):
            return whole
    return None


def _tile(spans: list[list[tuple[Expr, Expr]]], extents: list[Expr]) -> bool:
    """True if boxes, given by first values and lengths, tile the box from 0 to ``extents`` without
    overlap.

    They may differ along one axis only.
    """
    if not spans:
        return any(known_equal(e, 0) is True for e in extents)
    differing = [d for d in range(len(extents)) if any(s[d] != spans[0][d] for s in spans)]
    if len(differing) != (1 if len(spans) > 1 else 0):
        return False
    for d, extent in enumerate(extents):
        at: Expr = ZERO
        waiting = [s[d] for s in spans] if d in differing else [spans[0][d]]
        while waiting:
            following = [w for w in waiting if known_equal(w[0], at) is True]
            if len(following) != 1:
                return False
            waiting.remove(following[0])
            at = at + following[0][1]
        if known_equal(at, extent) is not True:
            return False
    return True
