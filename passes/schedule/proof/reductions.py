# SPDX-License-Identifier: Apache-2.0
"""Reductions: between the start of an accumulator and a read of it, every update runs exactly once.

Dataflow has shown that an update modifies a cell whose value was started by the ``init`` of the same reduction at the same point. So
the updates between two starts of a cell form a group that belongs to one point, named by its init instance. Shown here:

* no update runs at a reduce point that the reduction does not have;
* within a group no reduce point runs twice;
* a group whose value is read has all reduce points, and none of them runs after the read;
* where order matters, a group runs in the order of the reduce axes;
* the accumulators of a tuple are started by the same init.

Order does not matter for one operation on each accumulator that is associative and commutative: minima, maxima, and, or,
xor, integer sums and products; for floating-point sums and products if the numeric policy allows.
"""

from typing import Any

import islpy as isl

from tilewright.ir.errors import ScheduleError
from tilewright.ir.expr import Binary, Expr, Scalar, Var, free_variables
from tilewright.ir.simplify import substitute
from tilewright.ir.stage import Stage
from tilewright.passes.schedule.proof import report
from tilewright.passes.schedule.proof.accesses import Program
from tilewright.passes.schedule.proof.dataflow import Access, Flow, pieces, union

_ALWAYS = ("min", "max", "and", "or", "xor")


def check_reductions(program: Program, flow: Flow, allow_reorder: bool) -> None:
    """ScheduleError with a counter-example where a reduction misses, repeats or adds an update."""
    for stage in program.kernel.stages:
        updates = [a for a in flow.sinks if a.kind == "update" and a.stage is stage]
        if stage.kind == "reduce" and (updates or _starts(flow, stage)):
            _Group(flow, stage, updates).check(allow_reorder)


def is_reorderable(stage: Stage, allow_reorder: bool) -> bool:
    """True if the updates of a reduction may run in any order."""
    return all(
        _commutes(value, accumulator, stage, allow_reorder)
        for value, accumulator in zip(stage.values, stage.accumulators, strict=True)
    )


def _commutes(value: Expr, accumulator: Scalar, stage: Stage, allow_reorder: bool) -> bool:
    if not isinstance(value, Binary):
        return False
    other = value.y if value.x is accumulator else value.x
    if accumulator not in (value.x, value.y) or free_variables(other) & set(stage.accumulators):
        return False
    if value.op in _ALWAYS:
        return True
    return value.op in ("add", "mul") and (allow_reorder or not value.dtype.is_float)


def _starts(flow: Flow, stage: Stage) -> list[Access]:
    return [a for a in flow.sources if a.stage is stage]


class _Group:
    """The updates of one stage in one memory, grouped by the init instance that started their cell."""

    def __init__(self, flow: Flow, stage: Stage, updates: list[Access]) -> None:
        self.flow = flow
        self.stage = stage
        self.updates = updates
        self.starts = _starts(flow, stage)
        self.readers = [a for a in flow.sinks if a.kind != "update" and a.buffer in stage.outputs]

    def check(self, allow_reorder: bool) -> None:
        """All of the checks, cheapest first."""
        for access in self.updates:
            self._check_range(access)
        if not self.starts or not self.readers:
            return
        starts = union(isl.UnionSet.from_set(a.domain.set) for a in self.starts)
        started = self.flow.dependence.intersect_domain(starts)
        readers = union(isl.UnionSet.from_set(a.domain.set) for a in self.readers)
        read = started.intersect_range(readers)
        if read.is_empty():
            return
        grouped: Any = None
        if self.updates:
            members = union(isl.UnionSet.from_set(a.domain.set) for a in self.updates)
            grouped = started.intersect_range(members)
            self._check_once(grouped)
            self._check_after(grouped, read)
            if not is_reorderable(self.stage, allow_reorder):
                self._check_order(grouped)
        self._check_all(grouped, read)

    def _reduce_point(self, access: Access) -> tuple[Expr, ...]:
        assert access.instance is not None
        return access.instance.point[len(self.stage.axes) :]

    def _points(self) -> Any:
        """The map from updates to their reduce points."""
        return union(
            isl.UnionMap.from_map(a.domain.map(self._reduce_point(a), "R")) for a in self.updates
        )

    def _check_range(self, access: Access) -> None:
        """No update of a point in the domain runs at a reduce point outside it."""
        assert access.instance is not None
        domain, subject = access.domain, access.domain.set
        ranges = self.flow.ranges(access)
        for e, extent in ranges[: len(self.stage.axes)]:
            subject = domain.within(subject, e, extent)
        inside = subject
        for e, extent in ranges[len(self.stage.axes) :]:
            inside = domain.within(inside, e, extent)
        outside = subject.subtract(inside).intersect_params(self.flow.frame.known)
        if not outside.is_empty():
            values = report.values_of(outside.sample_point(), domain)
            raise ScheduleError(
                f"Block {report.instance(access.instance, values)} runs an update that reduction "
                f"'{self.stage.name}' does not have{report.symbols(values)}. Guard it, or shorten its loop."
            )

    def _check_once(self, grouped: Any) -> None:
        """No reduce point runs twice within a group."""
        group_and_point = grouped.reverse().range_product(self._points())
        if group_and_point.is_injective():
            return
        same = group_and_point.apply_range(group_and_point.reverse())
        twice = same.subtract(same.domain().identity())
        first, second, values, others = self._two(twice)
        raise ScheduleError(
            f"Block {report.instance(first, values)} and block {report.instance(second, others)} add the same update to "
            f"the same accumulator{report.symbols(values)}. Start the accumulator again between them, or run one of them."
        )

    def _two(self, relation: Any) -> Any:
        """Two instances that a relation between accesses holds, with the values at which it does."""
        for piece in pieces(relation, "get_map_list"):
            first = self.flow.by_name[piece.get_tuple_name(isl.dim_type.in_)]
            second = self.flow.by_name[piece.get_tuple_name(isl.dim_type.out)]
            point = piece.wrap().sample_point()
            values = report.values_of(point, first.domain)
            others = report.values_of(point, second.domain, len(first.domain.dims))
            return first.instance, second.instance, values, others
        raise AssertionError("The relation is empty.")

    def _check_after(self, grouped: Any, read: Any) -> None:
        """No update of a group runs after the group was read."""
        candidates = [
            (r, u) for r in self.readers for u in self.updates if self.flow.may_follow(r, u)
        ]
        if not candidates:
            return
        together = read.reverse().apply_range(grouped)
        late = self.flow.before(together)
        for piece in pieces(late, "get_map_list"):
            reader = self.flow.by_name[piece.get_tuple_name(isl.dim_type.in_)]
            update = self.flow.by_name[piece.get_tuple_name(isl.dim_type.out)]
            point = piece.wrap().sample_point()
            values = report.values_of(point, reader.domain)
            others = report.values_of(point, update.domain, len(reader.domain.dims))
            assert update.instance is not None
            raise ScheduleError(
                f"{self.flow.reader(reader, values)} before update {report.instance(update.instance, others)} has run"
                f"{report.symbols(values)}. Move the read after the loops of the reduction."
            )

    def _check_all(self, grouped: Any, read: Any) -> None:
        """A group that is read has every reduce point."""
        needed = union(isl.UnionMap.from_map(self._required(a)) for a in self.starts)
        needed = needed.intersect_domain(read.domain())
        if grouped is not None:
            needed = needed.subtract(grouped.apply_range(self._points()))
        for piece in pieces(needed, "get_map_list"):
            start = self.flow.by_name[piece.get_tuple_name(isl.dim_type.in_)]
            point = piece.wrap().sample_point()
            values = report.values_of(point, start.domain)
            count = len(start.domain.dims)
            missing = [
                point.get_coordinate_val(isl.dim_type.set, count + n).to_python()
                for n in range(len(self.stage.reduce_axes))
            ]
            assert start.instance is not None
            where = ", ".join(map(str, (*report.numbers(start.instance.point, values), *missing)))
            raise ScheduleError(
                f"Update '{self.stage.name}.update({where})' is missing: the value that "
                f"{report.instance(start.instance, values)} starts is read without it{report.symbols(values)}. "
                "Run the loops over its whole range, tails included, before the read."
            )

    def _required(self, start: Access) -> Any:
        """The map from an init in the domain to the reduce points that its group must have."""
        assert start.instance is not None
        known: dict[Expr, Expr] = dict(zip(self.stage.axes, start.instance.point))
        points = []
        for axis in self.stage.reduce_axes:
            known[axis] = Var(f"{axis.name}?", substitute(axis.extent, known))
            points.append(known[axis])
        wide = self.flow.domain_of(start, "", (*start.domain.dims, *points))
        for e, extent in self.flow.ranges(start):
            wide.set = wide.within(wide.set, e, extent)
        own = wide.map(start.domain.dims, start.domain.name).intersect_domain(wide.set)
        return own.reverse().apply_range(wide.map(points, "R"))

    def _check_order(self, grouped: Any) -> None:
        """A group runs in the order of the reduce axes."""
        together = self.flow.before(grouped.reverse().apply_range(grouped))
        points = self._points()
        wrong = together.intersect(points.lex_gt_union_map(points))
        if not wrong.is_empty():
            first, second, values, others = self._two(wrong)
            raise ScheduleError(
                f"Block {report.instance(first, values)} runs before block {report.instance(second, others)}, but reduction "
                f"'{self.stage.name}' depends on their order{report.symbols(values)}. Keep the order of its loops."
            )
