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

from tilewright.ir.expr import Const, Var, free_variables
from tilewright.ir.loop import Kernel
from tilewright.ir.stage import Stage
from tilewright.ir.target import Target
from tilewright.passes.schedule.defaults.contraction import Form, recognise
from tilewright.passes.schedule.defaults.long_reductions import (
    block_reduction,
    outer_order,
    reduce_order,
)
from tilewright.passes.schedule.defaults.plan import Plan, extent, is_static, memory_order
from tilewright.passes.schedule.defaults.template import Template, is_contiguous
from tilewright.passes.schedule.defaults.tile_sizes import TileSizes, shared_rows, vector_block
from tilewright.passes.schedule.handles import Placed
from tilewright.passes.schedule.steps import (
    CacheRead,
    CacheWrite,
    Chunk,
    ComputeAt,
    Fuse,
    Pack,
    PadAxis,
    Parallel,
    Partition,
    Split,
    SplitAxis,
    StoreOrder,
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
        group = form.group()
        if group:
            plan.do(SplitAxis(form.reduction.name, form.twin[form.vector].name, group))
            plan.do(SplitAxis(form.root.name, form.vector.name, group))
            form = recognise(plan.kernel)
            assert form is not None
        lined_up = _line_up(plan, form)
        packed = _pack(plan, form, target)
        if packed or lined_up:
            form = recognise(plan.kernel)
            assert form is not None
        block = (
            2 * target.lanes(form.reduction.output.dtype.bytes)
            if packed
            else vector_block(form, target, bool(group))
        )
        vector = form.twin[form.vector]
        operand = form.operand()
        stored = {f for _, f in operand.buffer.layout.blocks} if operand is not None else set()
        whole = is_static(vector) and extent(vector) % block == 0
        if (packed or (block in stored and is_static(vector))) and not whole:
            plan.do(PadAxis(form.reduction.name, vector.name, block))
            form = recognise(plan.kernel)
            assert form is not None
        blocks = block_reduction(plan, form)
        if blocks:
            form = recognise(plan.kernel, blocks)
            assert form is not None
        _Tiling(plan, form, target, block).build()
        yield plan


def _line_up(plan: Plan, form: Form) -> bool:
    """Let the operand of a convolution of one output lie along the vector axis where its channels
    are innermost: what the window is copied to, or else a copy of it.
    """
    read = form.varying()
    if read is None or form.operand() is not None or form.strided() is not None:
        return False
    axis = form.twin[form.vector]
    dims = [d for d, i in enumerate(read.indices) if axis in free_variables(i)]
    if len(dims) != 1 or read.indices[dims[0]] is axis:
        return False
    producer = next((s for s in form.before if read.buffer in s.outputs), None)
    if producer is None:
        copy = plan.do(CacheRead(form.reduction.name, read.buffer.name))
        producer = plan.kernel.stage(copy)
    if producer.targets != producer.axes:
        return False
    others = [v.name for v in memory_order(producer) if v is not producer.axes[dims[0]]]
    plan.do(StoreOrder(producer.name, (*others, producer.axes[dims[0]].name)))
    return True


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
        self.rows = 1  # of a tile
        self.shared = shared_rows(form, target, block)  # of a vector

    def build(self) -> None:
        plan, form = self.plan, self.form
        plan.reorder(*(v.name for v in form.order))
        panel, lane = self._cut_vector_axis()
        row = form.row.name if form.row is not None else ""
        weights = form.operand() or form.varying()
        used = free_variables(weights) if weights is not None else frozenset()
        outer = [v for v in form.order if v.name not in (form.vector.name, row)]
        # Groups are outermost: each has weights, and reads channels, of its own.
        outer.sort(key=lambda v: form.twin.get(v) not in used)
        loops = self._outer_loops([v.name for v in outer], row, panel, lane)
        tiles = self._tile_loops(loops, lane)
        if form.is_blocked:
            tiles = self._totals(tiles)
        for tile in plan.do(ComputeAt(form.reduction.name, "register", tuple(tiles))):
            self._reduction(tile)
        if form.is_blocked:
            for loop in tiles:
                plan.peel(loop)
        for s in reversed(form.before):
            self._producer(s, loops)
        if loops.panel != loops.task and plan.loop(loops.panel) is not None:
            # Of the last panel some lanes do not exist; the others need no mask.
            plan.peel(loops.panel, at_least=2, suffix="e")
        plan.do(Parallel(loops.task))

    def _cut_vector_axis(self) -> tuple[str, str]:
        """Split the vector axis, even where there is one panel: its loop may be the outermost one.

        Returns the loop over panels and the loop over lanes (empty if there is none).
        """
        v = self.form.vector.name
        if self.block == 1:
            return v, ""
        halves = self.plan.do(Split(v, self.block))
        return halves.outer, halves.inner

    def _outer_loops(self, outer: list[str], row: str, panel: str, lane: str) -> _Loops:
        """Order the loops outside a tile and make the task loop."""
        plan = self.plan
        if self.sizes.panels_first(panel):
            task = panel
            per_task = self.sizes.panel_block(panel)
            if per_task > 1:
                chunks = plan.do(Chunk(panel, per_task))
                task, panel = chunks.outer, chunks.inner
            plan.reorder(*dict.fromkeys((task, panel)), *outer, row, lane)
            return _Loops(task, task, row, panel)
        if outer:
            size = self.sizes.row_block(outer)
            inner = ""
            if size > 1:
                chunks = plan.do(Chunk(outer[-1], size))
                outer, inner = [*outer[:-1], chunks.outer], chunks.inner
            heads, rest = outer, [panel, inner, row, lane]
        elif row and self.sizes.divides_rows(row, panel):
            chunks = plan.do(Chunk(row, self.sizes.flat_block(row)))
            heads, rest, row = [chunks.outer], [panel, chunks.inner, lane], chunks.inner
        elif self.sizes.chunks_panels(panel):
            chunks = plan.do(Chunk(panel, self.sizes.panel_block(panel)))
            plan.reorder(chunks.outer, chunks.inner, row, lane)
            return _Loops(chunks.outer, chunks.outer, row, chunks.inner)
        else:
            first = panel or row or lane
            plan.reorder(panel, row, lane)
            return _Loops(first, first, row, panel)
        plan.reorder(*heads, *rest)
        fusible = [*heads, panel] if panel and not self.sizes.windows else heads
        task, block = plan.tasks(fusible, self.target.cores * 2)
        return _Loops(task, block, row, panel)

    def _tile_loops(self, loops: _Loops, lane: str) -> list[str]:
        """Cut rows into tiles; returns the loops of whose iterations each is a tile."""
        plan, row = self.plan, loops.row
        if plan.loop(row) is None:
            around = loops.panel if plan.loop(loops.panel) is not None else loops.block
            return [self._vectorized_lane(lane, around)]
        tile = self.rows = self.sizes.tile_rows(row, self.shared)
        if tile == 1:
            return [self._vectorized_lane(lane, row)]
        whole, rest, rest_lane = row, "", ""
        if plan.static_size(row) is None or plan.size(row) % tile:
            parts = plan.do(Partition(row, tile, "t"))
            whole, rest, rest_lane = parts.main, parts.apart, parts.twin(lane)
        tiles: list[str] = []
        if whole:
            tiles.append(self._unrolled_tile(whole, tile, lane))
        if rest:
            size = plan.static_size(rest)
            # How many rows are left is known, or each of them is a tile.
            tiles.append(
                self._unrolled_tile(rest, size, rest_lane)
                if size is not None
                else self._vectorized_lane(rest_lane, rest)
            )
        return tiles

    def _totals(self, tiles: list[str]) -> list[str]:
        """Keep the sums of the blocks of a tile, in L1 unless registers hold them too; the loops of
        whose iterations each is a block.
        """
        plan, total, reduction = self.plan, self.form.total, self.form.reduction
        vectors = self.rows * self.sizes.vectors
        wide = vectors * total.output.dtype.bytes // reduction.output.dtype.bytes
        fits = vectors + wide + self.sizes.vectors < self.target.registers
        found: list[str] = []
        vector = self.form.total_axis(self.form.twin[self.form.vector])
        for placed in plan.do(
            ComputeAt(total.name, "register" if fits else "workspace", tuple(tiles))
        ):
            steps = [placed.over(v.name) for v in outer_order(self.form)]
            self._tile_inside(placed, total, vector, steps)
            found.append(steps[-1])
        return found

    def _tile_inside(self, tile: Placed, stage: Stage, vector: Var, steps: list[str]) -> None:
        """Put the points of a tile inside the loops over reduce axes: rows unrolled, the vector
        axis on vectors.
        """
        plan = self.plan
        rows = [v.name for v in stage.axes if v is not vector]
        plan.reorder(*steps, *map(tile.over, rows), tile.over(vector.name))
        for of in (tile.over, tile.first_over):
            lane = of(vector.name)
            if self.form.row is not None and self.shared > 1:
                plan.reorder(*map(of, rows), lane)
                lane = self._share_vectors(of(self.form.twin[self.form.row].name), lane)
            for name in rows:
                plan.unroll(of(name))
            if self.block > 1 and lane:
                plan.do(Vectorize(lane))

    def _unrolled_tile(self, row: str, size: int, lane: str) -> str:
        """Make tiles of so many rows of a loop over rows, its lanes on vectors; their loop."""
        halves = self.plan.do(Split(row, size))
        lane = self._share_vectors(halves.inner, lane)
        self.plan.unroll(halves.inner)
        return self._vectorized_lane(lane, halves.outer)

    def _share_vectors(self, row: str, lane: str) -> str:
        """Let rows of a tile share vectors, if these have room; the loop over lanes."""
        size = self.plan.static_size(row)
        if self.shared == 1 or size is None or size % self.shared or self.plan.loop(row) is None:
            return lane
        pair = self.plan.do(Split(row, self.shared))
        self.plan.unroll(pair.outer)
        return self.plan.do(Fuse(pair.inner, lane))

    def _vectorized_lane(self, lane: str, loop: str) -> str:
        if lane:
            self.plan.do(Vectorize(lane))
        return loop

    def _reduction(self, tile: Placed) -> None:
        """Inside a tile: initialise, then the reduce loops around an unrolled tile of vectors."""
        form = self.form
        steps = [tile.over(v.name) for v in reduce_order(form)]
        self._tile_inside(tile, form.reduction, form.twin[form.vector], steps)
        self._unroll_reduction(steps)

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
            plan.do(Unroll(plan.do(Split(names[-1], factor)).inner))

    def _producer(self, s: Stage, loops: _Loops) -> None:
        """Compute padding (or another map in front) where its box stays in cache, in memory order
        and on vectors.
        """
        at_panel = self.plan.loop(loops.panel) is not None and self.sizes.goes_by_panel(s)
        where = loops.panel if at_panel else loops.block
        (placed,) = self.plan.do(ComputeAt(s.name, "workspace", (where,)))
        present = [n for v in memory_order(s) if (n := placed.over(v.name))]
        self.plan.reorder(*present)
        if not present:
            return
        *outer, inner = present
        pieces = self.plan.cut_at_conditions(s.name, outer[-1], inner) if outer else [inner]
        for piece in pieces:
            self.plan.vectorize(piece, self.target.lanes(s.output.dtype.bytes))
