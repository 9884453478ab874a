# SPDX-License-Identifier: Apache-2.0
"""Contractions and windowed reductions: a tile of accumulators in registers, its reduction around
it.

The reduction ``r`` feeds a map ``e`` that writes the output, the form that :mod:`.contraction`
recognises; :mod:`.tile_sizes` says how large everything is. A tile of rows x vectors of ``r`` is
computed at the tile loop of ``e`` in registers, and ``e`` stores it. Padding is copied at the loop
over blocks of rows, or at the loop over panels where a panel reads its own part only, to stay in
cache. An operand that vectors cannot read as it lies in memory is packed first.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tilewright.ir.expr import Const, Expr, Var, free_variables
from tilewright.ir.loop import Kernel
from tilewright.ir.stage import Stage
from tilewright.ir.target import Target
from tilewright.passes.schedule.defaults.contraction import Form, recognise
from tilewright.passes.schedule.defaults.plan import Plan, extent, is_static, memory_order
from tilewright.passes.schedule.defaults.template import Template, is_contiguous
from tilewright.passes.schedule.defaults.tile_sizes import TileSizes, vector_block
from tilewright.passes.schedule.steps import (
    CacheWrite,
    Chunk,
    ComputeAt,
    Pack,
    PadAxis,
    Parallel,
    Partition,
    Split,
    Unroll,
    Vectorize,
)

REUSED_ROWS = 8
"""The rows that must share an operand for packing it to pay."""


class Tiled(Template):
    """One main reduction, a map after it, and padding (or other maps) before it."""

    priority = 20

    def plans(self, kernel: Kernel, target: Target, choices: Mapping[str, int]) -> Iterator[Plan]:
        plan = Plan(kernel, choices)
        reductions = [s for s in kernel.stages if s.kind == "reduce"]
        if len(reductions) == 1 and reductions[0].output in kernel.outputs:
            plan.do(CacheWrite(reductions[0].name))
        form = recognise(plan.kernel)
        if form is None:
            return
        packed = _pack(plan, form, target)
        if packed:
            form = recognise(plan.kernel)
            assert form is not None
        block = (
            2 * target.lanes(form.reduction.output.dtype.bytes)
            if packed
            else vector_block(form, target)
        )
        vector = form.twin[form.vector]
        operand = form.operand()
        stored = {f for _, f in operand.buffer.layout.blocks} if operand is not None else set()
        whole = is_static(vector) and extent(vector) % block == 0
        if (packed or (block in stored and is_static(vector))) and not whole:
            plan.do(PadAxis(form.reduction.name, vector.name, block))
            form = recognise(plan.kernel)
            assert form is not None
        _Tiling(plan, form, target, block).build()
        yield plan


def _pack(plan: Plan, form: Form, target: Target) -> bool:
    """Pack the operand that varies along the vector axis where it is not contiguous, or has ragged
    ends.

    Worth it where several rows share what was packed.
    """
    read = form.varying()
    if read is None or form.row is None or read.buffer not in plan.kernel.inputs:
        return False
    axis = form.twin[form.vector]
    dims = [d for d, i in enumerate(read.indices) if i is axis]
    plain = [i for i in read.indices if not isinstance(i, Var | Const)]
    if len(dims) != 1 or plain or read.buffer.layout.blocks:
        return False
    block = 2 * target.lanes(form.reduction.output.dtype.bytes)
    ragged = not is_static(axis) or extent(axis) % block != 0
    default = not is_contiguous(read, axis) or ragged
    if extent(form.row) < REUSED_ROWS or extent(axis) < block // 2:
        return False
    if not plan.choose("pack", int(default), (0, 1)):
        return False
    plan.do(Pack(form.reduction.name, read.buffer.name, dims[0], block))
    return True


@dataclass(frozen=True)
class _Loops:
    """The task loop, the loop that steps through blocks of rows, the loop over rows and that over
    panels (or empty).
    """

    task: str
    block: str
    row: str
    panel: str


class _Tiling:
    """Builds the plan of a recognised form."""

    def __init__(self, plan: Plan, form: Form, target: Target, block: int) -> None:
        self.plan, self.form, self.target, self.block = plan, form, target, block
        self.sizes = TileSizes(plan, form, target, block)

    def build(self) -> None:
        plan, form = self.plan, self.form
        plan.reorder(*(v.name for v in form.order))
        panel, lane = self._cut_vector_axis()
        row = form.row.name if form.row is not None else ""
        outer = [v.name for v in form.order if v.name not in (form.vector.name, row)]
        loops = self._outer_loops(outer, row, panel, lane)
        tiles = self._tile_loops(loops.row, lane, loops.block)
        plan.do(ComputeAt(form.reduction.name, "register", tuple(tiles)))
        for number in range(len(tiles)):
            self._reduction(f"_{number}" if number else "")
        for s in reversed(form.before):
            self._producer(s, loops)
        plan.do(Parallel(loops.task))

    def _cut_vector_axis(self) -> tuple[str, str]:
        """Split the vector axis; returns the loop over panels and the loop over lanes (empty if
        there is none).
        """
        v = self.form.vector.name
        if self.block == 1:
            return v, ""
        if self.plan.static_size(v) == self.block:
            return "", v
        self.plan.do(Split(v, self.block))
        return f"{v}_o", f"{v}_i"

    def _outer_loops(self, outer: list[str], row: str, panel: str, lane: str) -> _Loops:
        """Order the loops outside a tile and make the task loop."""
        plan = self.plan
        if self.sizes.panels_first(panel):
            task = panel
            per_task = self.sizes.panel_block(panel)
            if per_task > 1:
                plan.do(Chunk(panel, per_task))
                task, panel = f"{panel}_o", f"{panel}_i"
            plan.reorder(*dict.fromkeys((task, panel)), *outer, row, lane)
            return _Loops(task, task, row, panel)
        if outer:
            size = self.sizes.row_block(outer)
            inner = ""
            if size > 1:
                plan.do(Chunk(outer[-1], size))
                outer, inner = [*outer[:-1], f"{outer[-1]}_o"], f"{outer[-1]}_i"
            heads, rest = outer, [panel, inner, row, lane]
        elif row and (rows := self.sizes.flat_block(row)) < plan.size(row):
            plan.do(Chunk(row, rows))
            heads, rest, row = [f"{row}_o"], [panel, f"{row}_i", lane], f"{row}_i"
        else:
            first = panel or row or lane
            plan.reorder(panel, row, lane)
            return _Loops(first, first, row, panel)
        plan.reorder(*heads, *rest)
        fusible = [*heads, panel] if panel and not self.sizes.windows else heads
        task, block = plan.tasks(fusible, self.target.cores * 2)
        return _Loops(task, block, row, panel)

    def _tile_loops(self, row: str, lane: str, task: str) -> list[str]:
        """Cut rows into tiles; returns the loops of whose iterations each is a tile."""
        plan = self.plan
        if not row or plan.loop(row) is None:
            return [self._vectorized_lane(lane, self._innermost_outside(lane, task))]
        tile = self.sizes.tile_rows(row)
        if tile == 1:
            return [self._vectorized_lane(lane, row)]
        if plan.static_size(row) is None or plan.size(row) % tile:
            plan.do(Partition(row, tile, "t"))
        loops: list[str] = []
        for name, suffix in ((row, ""), (f"{row}_t", "_t")):
            if plan.loop(name) is None:
                continue
            here = f"{lane}{suffix}" if lane else ""
            size = plan.static_size(name)
            if suffix and size is None:
                loops.append(self._vectorized_lane(here, name))
                continue
            plan.do(Split(name, tile if not suffix or size is None else size), Unroll(f"{name}_i"))
            loops.append(self._vectorized_lane(here, f"{name}_o"))
        return loops

    def _vectorized_lane(self, lane: str, loop: str) -> str:
        if lane:
            self.plan.do(Vectorize(lane))
        return loop

    def _innermost_outside(self, lane: str, task: str) -> str:
        """The loop directly around the lanes when there are no rows: the panel loop or the task
        loop.
        """
        panel = f"{self.form.vector.name}_o"
        for name in (f"{panel}_i", panel):
            if lane != name and self.plan.loop(name) is not None:
                return name
        return task

    def _reduction(self, mark: str) -> None:
        """Inside a tile: initialise, then the reduce loops around an unrolled tile of vectors."""
        plan, form = self.plan, self.form
        reduce_axes = [f"{v.name}{mark}" for v in self._reduce_order()]
        lane = f"{form.twin[form.vector].name}{mark}"
        rows = [f"{v.name}{mark}" for v in form.reduction.axes if f"{v.name}{mark}" != lane]
        plan.reorder(*reduce_axes, *rows, lane)
        for name in rows:
            first = name.removesuffix(mark) + "_init" + mark if mark else f"{name}_init"
            plan.unroll(name)
            plan.unroll(first)
        if self.block > 1 and plan.loop(lane) is not None:
            plan.do(
                Vectorize(lane),
                Vectorize(lane.removesuffix(mark) + "_init" + mark if mark else f"{lane}_init"),
            )
        self._unroll_reduction(reduce_axes)

    def _reduce_order(self) -> list[Var]:
        """The reduce axes so that the operand along the vector axis (the weights) is read in memory
        order.
        """
        operand = self.form.operand()
        axes = list(self.form.reduction.reduce_axes)
        if operand is None:
            return axes
        position: dict[Expr, int] = {}
        for place, d in enumerate(operand.buffer.layout.order):
            for v in free_variables(operand.indices[d]):
                position.setdefault(v, place)
        return sorted(axes, key=lambda v: position.get(v, -1))

    def _unroll_reduction(self, names: list[str]) -> None:
        plan = self.plan
        if not names or plan.static_size(names[-1]) is None:
            return
        size = plan.size(names[-1])
        if size <= 8:
            plan.unroll(names[-1])
            if len(names) > 1 and (plan.static_size(names[-2]) or 99) * size <= 9:
                plan.unroll(names[-2])
            return
        if not self.sizes.contraction:
            return
        factors = [f for f in (8, 4, 2, 1) if size % f == 0]
        factor = plan.choose("unroll", factors[0], factors)
        if factor > 1:
            plan.do(Split(names[-1], factor), Unroll(f"{names[-1]}_i"))

    def _producer(self, s: Stage, loops: _Loops) -> None:
        """Compute padding (or another map in front) where its box stays in cache, in memory order
        and on vectors.
        """
        at_panel = self.plan.loop(loops.panel) is not None and self.sizes.goes_by_panel(s)
        self.plan.do(ComputeAt(s.name, "workspace", (loops.panel if at_panel else loops.block,)))
        order = [v.name for v in memory_order(s)]
        self.plan.reorder(*order)
        present = [n for n in order if self.plan.loop(n) is not None]
        if not present:
            return
        pieces = self.plan.cut_at_conditions(s.name, present[-2]) if len(present) > 1 else [""]
        for piece in pieces:
            self.plan.vectorize(f"{present[-1]}{piece}", self.target.lanes(s.output.dtype.bytes))
