# SPDX-License-Identifier: Apache-2.0
"""Dataflow: what every read finds in memory is what its stage wants.

For one memory, the loops outside its allocation are parameters: every iteration has fresh cells, so
a value cannot come from another one. Inside, isl's array dataflow analysis (Feautrier, *Dataflow
analysis of array and scalar references*, 1991) gives for every read the last earlier write of its
cell. Writes that start a value (a map, the init of a reduction, a copy) are its sources; updates of
a reduction modify a value in place and are readers themselves.

Logical cells name values: a source *has* the final value of a cell, or the start of a reduction at
it; a read *wants* one. Where some pair of a read and its source disagree, or a read has no source,
that pair is the counter-example. What the kernel returns is read once more after its end.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Any

import islpy as isl

from tilewright.ir.buffer import Buffer
from tilewright.ir.errors import ScheduleError
from tilewright.ir.expr import Expr, Var, free_variables, index, reads
from tilewright.ir.stage import Stage
from tilewright.passes.schedule.proof import report
from tilewright.passes.schedule.proof.accesses import Instance, Memory, Program, point_ranges
from tilewright.passes.schedule.proof.facts import Facts
from tilewright.passes.schedule.proof.isl_expr import (
    Domain,
    Frame,
    closure,
    index_parts,
    opaque_atoms,
)
from tilewright.passes.schedule.proof.match import Demand, roles


@dataclass(eq=False)
class Access:
    """A write or a read of one memory, as the analysis sees it.

    ``kind``: ``start`` (of a reduction or scan), ``write`` (of a whole value), ``update``, ``read``
    or ``final`` (the read after the end). ``cell`` is the logical cell of ``buffer`` that it has or
    wants; ``stage`` the stage that computes it, for all but reads and copies.
    """

    kind: str
    indices: tuple[Expr, ...]
    buffer: Buffer
    cell: tuple[Expr, ...]
    instance: Instance | None = None
    stage: Stage | None = None
    variables: tuple[Var, ...] = ()
    conditions: tuple[Expr, ...] = ()
    domain: Domain = field(init=False)

    @property
    def is_source(self) -> bool:
        return self.kind in ("start", "write")


class Flow:
    """The accesses of one memory and where their values come from; ``depth`` loops are
    parameters.
    """

    def __init__(
        self, program: Program, memory: Memory, accesses: Sequence[Access], depth: int, facts: Facts
    ) -> None:
        self.program = program
        self.memory = memory
        self.depth = depth
        self.facts = facts
        self.accesses = [copy(a) for a in accesses]
        self.by_name: dict[str, Access] = {}
        self._build()
        self.sources = [a for a in self.accesses if a.is_source]
        self.sinks = [a for a in self.accesses if not a.is_source]
        self.dependence: Any = None

    # --- isl objects ---

    def _build(self) -> None:
        outer = [loop.var for loop in self.memory.loops[: self.depth]]
        asked: list[Expr] = list(outer)
        dims: list[list[Expr]] = []
        parameters: dict[Expr, None] = dict.fromkeys(outer)
        for access in self.accesses:
            inner: list[Expr] = list(access.variables[self.depth :])
            parts = [
                *access.indices,
                *access.cell,
                *self._points(access),
                *(v.extent for v in access.variables[self.depth :]),
            ]
            parts += [p for c in access.conditions for p in index_parts(c)]
            parts += [e for pair in self.ranges(access) for e in pair]
            opaque = dict.fromkeys(o for e in parts for o in opaque_atoms(e))
            moving = set(inner)
            for o in opaque:
                if free_variables(o) & moving or reads(o):
                    self._require_known(access, o)
                    inner.append(o)
                else:
                    parameters[o] = None
            dims.append(inner)
            asked += parts
        inside = {d for group in dims for d in group}
        for e in closure([*asked, *parameters]):
            if e not in inside:
                parameters.setdefault(e)
        self.frame = Frame(self.facts.names, list(parameters))
        for number, (access, group) in enumerate(zip(self.accesses, dims, strict=True)):
            access.domain = self.domain_of(access, self._name(access, number), group)
            self.by_name[access.domain.name] = access

    def _points(self, access: Access) -> tuple[Expr, ...]:
        return access.instance.point if access.instance is not None else ()

    def _name(self, access: Access, number: int) -> str:
        """Writes are named after their instance, so that flows of several memories can be
        compared.
        """
        if access.instance is None or access.kind == "read":
            return f"R{number}"
        name = f"I{access.instance.number}"
        while name in self.by_name:
            name += "+"
        return name

    def domain_of(self, access: Access, name: str, dims: Sequence[Expr]) -> Domain:
        """The iterations of an access, over ``dims``: its own, and perhaps more."""
        domain = Domain(self.frame, name, dims, dims)
        for condition in access.conditions:
            domain.set = domain.where(domain.set, condition)
        if (access.is_source or access.kind == "update") and not domain.exact:
            self._require_known(access, None)
        if access.kind == "read":
            for e, extent in self.ranges(access):
                domain.set = domain.within(domain.set, e, extent)
        return domain

    def _require_known(self, access: Access, opaque: Expr | None) -> None:
        """Which iterations a write has must be known; which cell one update of a scatter hits need
        not.
        """
        if access.instance is None or access.kind in ("read", "final"):
            return
        if opaque is not None and access.stage is not None and access.stage.kind == "scatter":
            parts = [p for c in access.conditions for p in index_parts(c)]
            parts += [v.extent for v in access.variables]
            if not any(opaque in opaque_atoms(e) for e in parts):
                return
        what = "a condition on values" if opaque is None else f"the value of '{opaque}'"
        raise ScheduleError(
            f"Where block '{access.instance.name}' writes depends on {what}, so that it is not "
            "known "
            "which cells it reaches. Put the condition into the value that it stores."
        )

    def ranges(self, access: Access) -> list[tuple[Expr, Expr]]:
        """Where an access matters: the coordinates of its instance's point with their extents."""
        return (
            []
            if access.instance is None
            else point_ranges(self.program, access.instance, access.buffer)
        )

    def may_follow(self, first: Access, second: Access) -> bool:
        """False only if ``second`` never happens after ``first`` within one allocation."""
        if first.instance is None or second.instance is None:
            return first.instance is not None
        a, b = first.instance.place, second.instance.place
        if a.loops[self.depth : self.depth + 1] == b.loops[self.depth : self.depth + 1] != ():
            return True
        return a.position[self.depth] < b.position[self.depth]

    def before(self, relation: Any) -> Any:
        """The part of a relation between accesses whose first comes before its second."""
        return relation.intersect(self.schedule.lex_lt_union_map(self.schedule))

    def touched(self, access: Access) -> Any:
        """The map from an access's iterations to the memory's cells."""
        return access.domain.map(access.indices, "M").intersect_domain(access.domain.set)

    def _stamp(self, access: Access) -> list[Expr]:
        """When an access happens, relative to the loops outside the allocation."""
        if access.instance is None:
            return [index(1 << 30)]
        place = access.instance.place
        stamp: list[Expr] = [index(place.position[self.depth])]
        for number in range(self.depth, len(place.loops)):
            stamp += [place.variables[number], index(place.position[number + 1])]
        return stamp

    def _schedule(self) -> Any:
        """The map from all iterations to time vectors; a write comes just after the reads of its
        block.
        """
        stamps = [self._stamp(a) for a in self.accesses]
        length = max(map(len, stamps))
        for access, stamp in zip(self.accesses, stamps, strict=True):
            stamp += [index(0)] * (length - len(stamp))
            stamp.append(index(1 if access.is_source else 0))
        return _joined(a.domain.map(s, "T") for a, s in zip(self.accesses, stamps, strict=True))

    # --- analysis ---

    def solve(self) -> None:
        """Find the source of every read; ScheduleError if one has none, or the wrong one."""
        if not self.sinks:
            return
        sinks = _joined(self.touched(a) for a in self.sinks).intersect_params(self.frame.known)
        self.schedule = self._schedule()
        info = isl.UnionAccessInfo.from_sink(sinks)
        if self.sources:
            info = info.set_must_source(_joined(self.touched(a) for a in self.sources))
        flow = info.set_schedule_map(self.schedule).compute_flow()
        self.dependence = flow.get_must_dependence()
        self._check_orphans(flow.get_must_no_source().domain())
        self._check_sources()

    def _check_orphans(self, orphans: Any) -> None:
        for piece in pieces(orphans, "get_set_list"):
            access = self.by_name[piece.get_tuple_name()]
            if access.kind == "update" and access.instance is not None:
                domain = access.domain
                for e, extent in self.ranges(access)[: len(access.instance.point)]:
                    piece = domain.within(piece, e, extent)
            if piece.is_empty():
                continue
            values = report.values_of(piece.sample_point(), access.domain)
            raise ScheduleError(
                f"{self.reader(access, values)}, but nothing has written "
                f"{report.cell(self.memory.buffer, access.indices, values)} "
                f"before{report.symbols(values)}. "
                "Compute that cell first, in the same iteration of the loops outside its buffer."
            )

    def _check_sources(self) -> None:
        wants = []
        for access in self.sinks:
            if access.kind == "update":
                assert access.stage is not None
                wants.append(access.domain.map(access.cell, f"start {access.stage.name}"))
                continue
            wants.append(access.domain.map(access.cell, f"final {access.buffer.name}"))
            for stage in self.program.kernel.stages:
                if stage.kind in ("reduce", "scatter") and access.buffer in stage.outputs:
                    wants.append(access.domain.map(access.cell, f"start {stage.name}"))
        has = []
        for access in self.sources:
            label = f"final {access.buffer.name}"
            if access.kind == "start" and access.stage is not None:
                label = f"start {access.stage.name}"
            has.append(access.domain.map(access.cell, label))
        if not has:
            return
        agreeing = _joined(has).apply_range(_joined(wants).reverse())
        wrong = self.example(self.dependence.subtract(agreeing))
        if wrong is not None:
            source, before, sink, values = wrong
            assert source.instance is not None
            writer = report.instance(source.instance, {**values, **before})
            raise ScheduleError(
                f"{self.reader(sink, values)}, but "
                f"{report.cell(self.memory.buffer, sink.indices, values)} was last "
                "written by "
                f"{writer}{report.symbols(values)}. "
                "Reorder, or compute the cell again before it is read."
            )

    def example(self, relation: Any) -> tuple[Access, report.Values, Access, report.Values] | None:
        """Two instances that a relation between accesses holds, each with the values at which it
        does; None for an empty relation.
        """
        for piece in pieces(relation, "get_map_list"):
            first = self.by_name[piece.get_tuple_name(isl.dim_type.in_)]
            second = self.by_name[piece.get_tuple_name(isl.dim_type.out)]
            point = piece.wrap().sample_point()
            values = report.values_of(point, first.domain)
            others = report.values_of(point, second.domain, len(first.domain.dims))
            return first, values, second, others
        return None

    def reader(self, access: Access, values: report.Values) -> str:
        """The beginning of a sentence about a read."""
        wanted = report.cell(access.buffer, access.cell, values)
        if access.instance is None:
            return f"The kernel returns {wanted}"
        if access.kind == "update":
            return f"Block {report.instance(access.instance, values)} updates {wanted}"
        return f"Block {report.instance(access.instance, values)} needs {wanted}"


def accesses_of(
    program: Program,
    memory: Memory,
    demands: Sequence[Demand],
    cells: Mapping[Instance, tuple[Expr, ...]],
) -> list[Access]:
    """Every access of a memory that matters to what its cells hold.

    ``demands`` are the reads of all blocks, ``cells`` the logical cells that they write.
    """
    copied = {d.instance: d.buffer for d in demands if d.instance.part == "copy"}
    found: list[Access] = []
    for instance in program.instances:
        place = instance.place
        for number, write in enumerate(instance.writes):
            if write.memory is not memory:
                continue
            if instance.part == "copy":
                kind, buffer, cell = "write", copied[instance], instance.point
                stage = None
            else:
                stage = program.stage(instance.stage)
                role = roles(stage, instance)[number]
                kind = {"init": "start", "update": "update"}.get(instance.part, "write")
                buffer = stage.outputs[role.number] if role.output else memory.buffer
                cell = cells[instance]
                if stage.kind == "scan" and instance.part == "update":
                    kind = "write" if role.output else "update"
                    cell = cell if role.output else instance.point[:-1]
            found.append(
                Access(
                    kind, write.indices, buffer, cell, instance, stage,
                    place.variables, place.conditions,
                )
            )  # fmt: skip
    for demand in demands:
        if demand.memory is memory:
            place = demand.instance.place
            conditions = (*place.conditions, *demand.conditions)
            found.append(
                Access(
                    "read", demand.indices, demand.buffer, demand.cell, demand.instance,
                    None, place.variables, conditions,
                )
            )  # fmt: skip
    if memory.role == "output":
        for stage in program.kernel.stages:
            if memory.buffer in stage.outputs:
                cell = stage.axes if stage.kind == "scatter" else stage.targets
                found.append(Access("final", cell, memory.buffer, cell, None, stage, stage.axes))
    return found


def union(parts: Iterable[Any]) -> Any:
    """The union of union sets or union maps."""
    total: Any = None
    for part in parts:
        total = part if total is None else total.union(part)
    return total


def pieces(whole: Any, listing: str) -> Iterator[Any]:
    """The non-empty members of a union of sets or maps."""
    members = getattr(whole, listing)()
    for number in range(members.n_set() if listing == "get_set_list" else members.n_map()):
        piece = members.get_at(number)
        if not piece.is_empty():
            yield piece


def _joined(maps: Iterable[Any]) -> Any:
    return union(isl.UnionMap.from_map(m) for m in maps)
