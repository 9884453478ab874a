# SPDX-License-Identifier: Apache-2.0
"""Reductions: between the start of an accumulator and a read of it, every update runs exactly once.

Dataflow has shown that an update modifies a cell whose value was started by the ``init`` of the
same reduction at the same point. So the updates between two starts of a cell form a group that
belongs to one point, named by its init instance. Shown here:

* no update runs at a reduce point that the reduction does not have;
* within a group no reduce point runs twice;
* a group whose value is read has all reduce points, and none of them runs after the read;
* where order matters, a group runs in the order of the reduce axes.

Order does not matter for one operation on each accumulator that is associative and commutative:
minima, maxima, and, or, xor, integer sums and products; for floating-point sums and products if the
numeric policy allows.

A **scatter** is the same with every cell in one group: each update may modify any of them. In a
**scan** the group of a carried value is read by each of its updates, so that they must run in order
and without a gap.
"""

from typing import Any

import islpy as isl

from tilewright.ir.errors import ScheduleError
from tilewright.ir.expr import Binary, Compare, Expr, Scalar, Var, free_variables
from tilewright.ir.rewrite import substitute
from tilewright.ir.stage import Stage
from tilewright.passes.schedule.proof import report
from tilewright.passes.schedule.proof.accesses import Instance, Program
from tilewright.passes.schedule.proof.dataflow import Access, Flow, pieces, union
from tilewright.passes.schedule.proof.isl_expr import opaque_atoms

_ALWAYS = ("min", "max", "and", "or", "xor")


def check_reductions(program: Program, flow: Flow, allow_reorder: bool) -> None:
    """ScheduleError with a counter-example where a reduction misses, repeats or adds an update."""
    for stage in program.kernel.stages:
        updates = [a for a in flow.sinks if a.kind == "update" and a.stage is stage]
        if stage.kind == "scan" and updates:
            _Group(flow, stage, updates).check_scan()
        elif stage.kind in ("reduce", "scatter") and (updates or _starts(flow, stage)):
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
    return [a for a in flow.sources if a.stage is stage and a.kind == "start"]


class _Group:
    """The updates of one stage in one memory, grouped by the init instance that started their
    cell.
    """

    def __init__(self, flow: Flow, stage: Stage, updates: list[Access]) -> None:
        self.flow = flow
        self.stage = stage
        self.updates = updates
        self.starts = _starts(flow, stage)
        # How many coordinates of an update's point say which group it belongs to.
        whole = {"reduce": stage.axes, "scan": stage.axes[:-1], "scatter": ()}
        self.outer = len(whole[stage.kind])
        self.readers = [a for a in flow.sinks if a.kind != "update" and a.buffer in stage.outputs]

    def check(self, allow_reorder: bool) -> None:
        """All of the checks, cheapest first."""
        for access in self.updates:
            self._check_range(access)
        if not self.starts or not self.readers:
            return
        started = self._started()
        readers = union(isl.UnionSet.from_set(a.domain.set) for a in self.readers)
        read = started.intersect_range(readers)
        if read.is_empty():
            return
        grouped = self._grouped(started)
        if grouped is not None:
            self._check_once(grouped)
            self._check_after(grouped, read)
            if not is_reorderable(self.stage, allow_reorder):
                self._check_order(grouped)
        self._check_all(grouped, read)

    def check_scan(self) -> None:
        """The updates of a carried value run once each, in order and without a gap."""
        for access in self.updates:
            self._check_range(access)
        if not self.starts:
            return
        grouped = self._grouped(self._started())
        self._check_once(grouped)
        self._check_order(grouped)
        self._check_gaps(grouped)

    def _started(self) -> Any:
        starts = union(isl.UnionSet.from_set(a.domain.set) for a in self.starts)
        return self.flow.dependence.intersect_domain(starts)

    def _grouped(self, started: Any) -> Any:
        """The map from starts to the updates of their groups; None without updates."""
        if not self.updates:
            return None
        members = union(isl.UnionSet.from_set(a.domain.set) for a in self.updates)
        return started.intersect_range(members)

    def _reduce_point(self, access: Access) -> tuple[Expr, ...]:
        assert access.instance is not None
        return access.instance.point[self.outer :]

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
        for e, extent in ranges[: self.outer]:
            subject = domain.within(subject, e, extent)
        inside = subject
        for e, extent in ranges[self.outer :]:
            inside = domain.within(inside, e, extent)
        outside = subject.subtract(inside).intersect_params(self.flow.frame.known)
        if not outside.is_empty():
            values = report.values_of(outside.sample_point(), domain)
            raise ScheduleError(
                f"Block {report.instance(access.instance, values)} runs an update that reduction "
                f"'{self.stage.name}' does not have{report.symbols(values)}. Guard it, or shorten "
                "its loop."
            )

    def _check_once(self, grouped: Any) -> None:
        """No reduce point runs twice within a group."""
        points = self._points()
        iterations = None
        if self.stage.kind == "scatter":
            # An update that may hit many cells is one update.
            iterations = union(self._iterations(a) for a in self.updates)
            grouped = grouped.apply_range(iterations)
            points = iterations.reverse().apply_range(points)
        group_and_point = grouped.reverse().range_product(points)
        if group_and_point.is_injective():
            return
        same = group_and_point.apply_range(group_and_point.reverse())
        twice = same.subtract(same.domain().identity())
        if iterations is not None:
            twice = iterations.apply_range(twice).apply_range(iterations.reverse())
        first, second, values, others = self._two(twice)
        raise ScheduleError(
            f"Block {report.instance(first, values)} and block {report.instance(second, others)} "
            "add the same update to "
            f"the same accumulator{report.symbols(values)}. Start the accumulator again between "
            "them, or run one of them."
        )

    def _iterations(self, access: Access) -> Any:
        """The map from an update to the iteration of its loops, whatever cell it hits."""
        loops = [d for d in access.domain.dims if isinstance(d, Var)]
        own = access.domain.map(loops, f"{access.domain.name}~")
        return isl.UnionMap.from_map(own.intersect_domain(access.domain.set))

    def _check_gaps(self, grouped: Any) -> None:
        """Where a scan is at step 1 or later, its group has the step before."""
        steps = grouped.apply_range(self._points())
        before = isl.Map.read_from_str(
            self.flow.facts.names.context, "{ R[t] -> R[t - 1] : t >= 1 }"
        )
        missing = steps.apply_range(isl.UnionMap.from_map(before)).subtract(steps)
        for piece in pieces(missing, "get_map_list"):
            start = self.flow.by_name[piece.get_tuple_name(isl.dim_type.in_)]
            point = piece.wrap().sample_point()
            values = report.values_of(point, start.domain)
            step = point.get_coordinate_val(isl.dim_type.set, len(start.domain.dims)).to_python()
            assert start.instance is not None
            raise ScheduleError(
                f"Scan '{self.stage.name}' goes past step {step} without running it after "
                f"{report.instance(start.instance, values)}{report.symbols(values)}. "
                "Run the loop over its whole range, in order."
            )

    def _two(self, relation: Any) -> tuple[Instance, Instance, report.Values, report.Values]:
        """Two instances that a relation, not empty, between accesses of blocks holds."""
        found = self.flow.example(relation)
        assert found is not None
        first, values, second, others = found
        assert first.instance is not None and second.instance is not None
        return first.instance, second.instance, values, others

    def _check_after(self, grouped: Any, read: Any) -> None:
        """No update of a group runs after the group was read."""
        candidates = [
            (r, u) for r in self.readers for u in self.updates if self.flow.may_follow(r, u)
        ]
        if not candidates:
            return
        together = read.reverse().apply_range(grouped)
        late = self.flow.example(self.flow.before(together))
        if late is not None:
            reader, values, update, others = late
            assert update.instance is not None
            raise ScheduleError(
                f"{self.flow.reader(reader, values)} before update "
                f"{report.instance(update.instance, others)} has run"
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
            first = start.instance.point[: self.outer]
            where = ", ".join(map(str, (*report.numbers(first, values), *missing)))
            raise ScheduleError(
                f"Update '{self.stage.name}.update({where})' is missing: the value that "
                f"{report.instance(start.instance, values)} starts is read without "
                f"it{report.symbols(values)}. "
                "Run the loops over its whole range, tails included, before the read."
            )

    def _required(self, start: Access) -> Any:
        """The map from an init in the domain to the reduce points that its group must have."""
        assert start.instance is not None
        known: dict[Expr, Expr] = dict(zip(self.stage.axes, start.instance.point))
        points: list[Expr] = []
        for axis in self.stage.reduce_axes:
            known[axis] = Var(f"{axis.name}?", substitute(axis.extent, known))
            points.append(known[axis])
        hit: list[Expr] = []
        if self.stage.kind == "scatter":
            # Only updates that may hit the cell: targets that read memory may be any cell.
            hit = [substitute(t, known) for t in self.stage.targets]
        opaque = dict.fromkeys(o for e in hit for o in opaque_atoms(e))
        wide = self.flow.domain_of(start, "", (*start.domain.dims, *points, *opaque))
        for e, extent in self.flow.ranges(start):
            wide.set = wide.within(wide.set, e, extent)
        for e, wanted in zip(hit, start.cell):
            wide.set = wide.where(wide.set, Compare("eq", e, wanted))
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
                f"Block {report.instance(first, values)} runs before block "
                f"{report.instance(second, others)}, but reduction "
                f"'{self.stage.name}' depends on their order{report.symbols(values)}. Keep the "
                "order of its loops."
            )
