# SPDX-License-Identifier: Apache-2.0
"""Contractions and windowed reductions: a tile of accumulators in registers, its reduction around it.

Matrix products, convolutions of all kinds and pooling are one form: the reduction ``r`` feeds a map ``e`` that writes the output.
The innermost axis of the output in memory is the vector axis, the next one the row axis; a tile of rows x vectors of ``r`` is
computed at the tile loop of ``e`` in registers, and ``e`` stores it. Padding is copied at the loop over blocks of rows, where it stays in
cache. Tasks are blocks of rows, or panels of the vector axis when the weights are large (each core then streams its own
part of the weights once).
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from tilewright.ir.expr import Binary, Const, Expr, Read, Var, free_variables, reads, walk
from tilewright.ir.loop import Kernel
from tilewright.ir.stage import Stage
from tilewright.ir.target import Target
from tilewright.passes.schedule.defaults.template import (
    TASKS_PER_CORE,
    Template,
    extent,
    is_static,
    memory_order,
    points,
    stride_along,
)
from tilewright.passes.schedule.schedule import Schedule, Step, apply
from tilewright.passes.schedule.steps import (
    CacheWrite,
    Chunk,
    ComputeAt,
    Fuse,
    PadAxis,
    Parallel,
    Partition,
    Reorder,
    Split,
    Unroll,
    Vectorize,
)


@dataclass
class _Form:
    """What was recognised: the reduction, the map that stores it, stages before, and the axes of both."""

    kernel: Kernel
    reduction: Stage
    root: Stage
    before: list[Stage]
    order: list[Var]
    """The root's axes in memory order; the last is the vector axis."""
    twin: dict[Var, Var] = field(default_factory=dict)
    """The reduction's axis for each axis of the root."""


class Tiled(Template):
    """One main reduction, a map after it, and padding (or other maps) before it."""

    priority = 20

    def schedules(self, kernel: Kernel, target: Target) -> Iterator[Schedule]:
        reductions = [s for s in kernel.stages if s.kind == "reduce"]
        if len(reductions) != 1 or any(s.kind not in ("map", "reduce") for s in kernel.stages):
            return
        prepare: list[Step] = []
        if reductions[0].output in kernel.outputs:
            if len(reductions[0].outputs) != 1:
                return
            prepare.append(CacheWrite(reductions[0].name))
        form = _recognise(apply(kernel, prepare))
        if form is None or len(form.order) == 0:
            return
        block = _block(form, target)
        if block > 1 and is_contraction(form.reduction):
            vector = form.twin[form.order[-1]]
            if int(str(vector.extent)) % block if is_static(vector) else True:
                prepare.append(PadAxis(form.reduction.name, vector.name, block))
                form = _recognise(apply(kernel, prepare))
                assert form is not None
        yield (*prepare, *_Plan(form, target, block).steps())


def is_contraction(stage: Stage) -> bool:
    """True for a sum of products of two reads."""
    combine = stage.values[0]
    product = combine.y if isinstance(combine, Binary) and combine.op == "add" else None
    return (
        isinstance(product, Binary)
        and product.op == "mul"
        and all(any(isinstance(n, Read) for n in walk(side)) for side in (product.x, product.y))
    )


def _recognise(kernel: Kernel) -> _Form | None:
    reduction = next(s for s in kernel.stages if s.kind == "reduce")
    at = kernel.stages.index(reduction)
    before, after = list(kernel.stages[:at]), list(kernel.stages[at + 1 :])
    if len(after) != 1 or after[0].kind != "map" or after[0].output not in kernel.outputs:
        return None
    root = after[0]
    cells = {r.indices for r in root.reads() if r.buffer in reduction.outputs}
    if len(cells) != 1:
        return None
    (cell,) = cells
    twin: dict[Var, Var] = {}
    for i, axis in zip(cell, reduction.axes, strict=True):
        if not isinstance(i, Var) or i in twin:
            return None
        twin[i] = axis
    order = memory_order(root)
    if any(v not in twin for v in order[-1:]):
        return None
    return _Form(kernel, reduction, root, before, order, twin)


def _operand_along(form: _Form, axis: Var) -> Read | None:
    """The read of the reduction that is contiguous along one of its axes."""
    for value in form.reduction.values:
        for read in reads(value):
            if any(axis in free_variables(i) for i in read.indices) and _contiguous(read, axis):
                return read
    return None


def _contiguous(read: Read, axis: Var) -> bool:
    return str(stride_along(read.buffer, read.indices, axis)) == "1"


def _block(form: _Form, target: Target) -> int:
    """How many points of the vector axis one tile has."""
    vector = form.twin[form.order[-1]]
    lanes = target.lanes(form.reduction.output.dtype.bytes)
    operand = _operand_along(form, vector)
    if operand is None:
        return 1
    for _, factor in operand.buffer.layout.blocks:
        return factor
    size = extent(vector)
    if not is_static(vector):
        return 2 * lanes
    for block in (2 * lanes, lanes):
        if size % block == 0:
            return block
    return 2 * lanes if size > 2 * lanes else lanes if size > lanes else size


class _Plan:
    """Builds the steps for a recognised form."""

    def __init__(self, form: _Form, target: Target, block: int) -> None:
        self.form, self.target, self.block = form, target, block
        self.r, self.root = form.reduction, form.root
        self.vector = form.order[-1]
        self.row = form.order[-2] if len(form.order) > 1 else None
        self.outer = form.order[:-2]
        self.contraction = is_contraction(self.r)

    def steps(self) -> list[Step]:
        """The whole schedule after the stage steps."""
        names = [v.name for v in self.form.order]
        steps: list[Step] = [Reorder(tuple(names))] if len(names) > 1 else []
        loops, more = self._outer_loops()
        steps += more
        tiles, more = self._tile_loops()
        steps += more
        steps.append(ComputeAt(self.r.name, "register", tuple(t.loop for t in tiles)))
        for number, tile in enumerate(tiles):
            steps += self._reduction_steps(tile, f"_{number}" if number else "")
        for s in reversed(self.form.before):
            steps += self._producer_steps(s, loops)
        return [*steps, Parallel(loops.task)]

    # --- outer loops ---

    def _outer_loops(self) -> "tuple[_OuterLoops, list[Step]]":
        """Cut the vector axis into blocks and the row blocks off, choose the task loop, put all loops in order."""
        steps: list[Step] = []
        v = self.vector.name
        panels = -(-extent(self.vector) // self.block)
        vector_outer, vector_inner = v, ""
        if self.block > 1 and panels > 1 or not is_static(self.vector):
            steps.append(Split(v, self.block))
            vector_outer, vector_inner = f"{v}_o", f"{v}_i"
        elif self.block > 1:
            vector_outer, vector_inner = "", v
        rows = [self.row.name] if self.row is not None else []
        outer = [a.name for a in self.outer]
        task, chunk_steps, order = self._tasks(outer, rows, vector_outer, panels)
        steps += chunk_steps
        wanted = [*order, *([vector_inner] if vector_inner else [])]
        if len(wanted) > 1:
            steps.append(Reorder(tuple(wanted)))
        steps += task.fuses
        self.vector_inner = vector_inner
        return task, steps

    def _tasks(self, outer: list[str], rows: list[str], panel: str, panels: int) -> "tuple[_OuterLoops, list[Step], list[str]]":
        wanted = self.target.cores * TASKS_PER_CORE
        steps: list[Step] = []
        weights = self._weight_bytes()
        by_panel = bool(panel) and panels >= self.target.cores * 2 and self._panels_first(weights)
        static = {a.name: is_static(a) for a in self.form.order}
        sizes = {a.name: extent(a) for a in self.form.order}
        order: list[str] = []
        if by_panel:
            per_task = max(1, panels // wanted)
            chunked = panel
            if per_task > 1:
                steps.append(Chunk(panel, per_task))
                order, chunked = [f"{panel}_o"], f"{panel}_i"
                task = f"{panel}_o"
            else:
                order, task = [], panel
            return _OuterLoops(task, task, []), steps, [*order, chunked, *outer, *rows]
        # Tasks from the outer axes and blocks of the row axis just outside the rows.
        heads = list(outer)
        inner: list[str] = []
        count = 1
        for a in heads:
            count *= sizes[a]
        if self.outer:
            block_axis = self.outer[-1]
            size = self._row_block(block_axis, wanted, count // max(1, sizes[block_axis.name]))
            if size > 1:
                steps.append(Chunk(block_axis.name, size))
                heads[-1], inner = f"{block_axis.name}_o", [f"{block_axis.name}_i"]
                static[heads[-1]] = static[block_axis.name]
                sizes[heads[-1]] = -(-sizes[block_axis.name] // size)
        elif self.row is not None and rows:
            size = self._flat_block(wanted)
            if size < sizes[self.row.name] or not static[self.row.name]:
                steps.append(Chunk(self.row.name, size))
                heads, rows = [f"{self.row.name}_o"], [f"{self.row.name}_i"]
                static[heads[0]] = static[self.row.name]
                sizes[heads[0]] = -(-sizes[self.row.name] // size)
                self.row_name = rows[0]
        if not heads:
            first = panel or (rows[0] if rows else self.vector.name)
            return _OuterLoops(first, first, []), steps, [*([panel] if panel else []), *rows]
        symbolic = [h for h in heads if not static[h]]
        if symbolic:
            lead = max(symbolic, key=lambda h: sizes[h])
            heads = [lead, *[h for h in heads if h is not lead]]
        task, fuses, total = heads[0], [], sizes[heads[0]]
        for h in heads[1:]:
            if not static[h]:
                break
            fuses.append(Fuse(task, h))
            task, total = f"{task}_f", total * sizes[h]
        if total < self.target.cores * 2 and panel and panels > 1 and len(fuses) == len(heads) - 1:
            fuses.append(Fuse(task, panel))
            task = f"{task}_f"
        return _OuterLoops(task, task, fuses), steps, [*heads, *([panel] if panel else []), *inner, *rows]

    def _weight_bytes(self) -> int:
        operand = _operand_along(self.form, self.form.twin[self.vector])
        if operand is None or not self.contraction:
            return 0
        used = frozenset().union(*(free_variables(i) for i in operand.indices), frozenset())
        if any(v in used for v in self.r.axes if v is not self.form.twin[self.vector]):
            return 0
        total = operand.buffer.dtype.bytes
        for d in operand.buffer.shape:
            total *= max(1, int(str(d)) if isinstance(d, Const) else 64)
        return total

    def _panels_first(self, weights: int) -> bool:
        rows = 1
        for a in (*self.outer, *([self.row] if self.row is not None else [])):
            rows *= extent(a)
        activations = rows * points(self.r) // max(1, rows * extent(self.vector)) * 4
        return weights > self.target.l2 or (weights > 0 and weights >= activations)

    def _row_block(self, axis: Var, wanted: int, others: int) -> int:
        """How many rows (of the axis outside the row axis) a task takes: halo is shared, but tasks must be enough."""
        size = extent(axis)
        most = max(1, size * others // wanted)
        window = 1
        for s in self.form.before:
            window = max(window, 4)
        return max(1, min(size, most, 8 if self.form.before else most)) if window else 1

    def _flat_block(self, wanted: int) -> int:
        """How many rows of a plain matrix product a task takes: a multiple of the tile, its operand within L2."""
        assert self.row is not None
        depth = 1
        for v in self.r.reduce_axes:
            depth *= extent(v)
        tile = self._tile_rows()
        fit = max(tile, self.target.l2 // 2 // (4 * depth))
        share = -(-extent(self.row) // wanted)
        size = max(tile, min(fit, share))
        return -(-size // tile) * tile

    # --- tiles ---

    def _tile_rows(self) -> int:
        """Rows of a tile: as many accumulators as registers allow, balanced over a static row axis."""
        lanes = self.target.lanes(self.r.output.dtype.bytes)
        vectors = max(1, self.block // lanes)
        most = max(1, (self.target.registers - vectors - 1) // vectors)
        if not self.contraction:
            most = max(1, min(most, 8 // vectors))
        most = min(most, {1: 10, 2: 6}.get(vectors, most))
        if self.row is None:
            return 1
        size = extent(self.row)
        if not is_static(self.row):
            return min(most, size) if size < most else most
        return min(range(1, min(most, size) + 1), key=lambda t: (_tile_cost(size, t, vectors), -t))

    def _tile_loops(self) -> "tuple[list[_Tile], list[Step]]":
        if self.row is None:
            loop = self.form.order[-1].name + "_o" if self.vector_inner.endswith("_i") else ""
            return [_Tile(loop or self._only_loop(), "", 1)], self._vectorize_root("")
        name = getattr(self, "row_name", self.row.name)
        size = extent(self.row)
        tile = self._tile_rows()
        static = is_static(self.row) and name == self.row.name
        steps: list[Step] = []
        if static and tile == size:
            steps.append(Split(name, tile))
            steps += [Unroll(f"{name}_i"), *self._vectorize_root("")]
            return [_Tile(f"{name}_o", "", tile)], steps
        if tile == 1:
            return [_Tile(name, "", 1)], self._vectorize_root("")
        steps += [Partition(name, tile, "t"), Split(name, tile), Unroll(f"{name}_i"), *self._vectorize_root("")]
        tiles = [_Tile(f"{name}_o", "", tile)]
        rest = size % tile if static else None
        if rest == 0:
            return tiles, steps
        if rest is not None:
            steps += [Split(f"{name}_t", rest), Unroll(f"{name}_t_i"), *self._vectorize_root("_t")]
            return [*tiles, _Tile(f"{name}_t_o", "_t", rest)], steps
        steps += self._vectorize_root("_t")
        return [*tiles, _Tile(f"{name}_t", "_t", 1)], steps

    def _only_loop(self) -> str:
        return self.form.order[0].name

    def _vectorize_root(self, suffix: str) -> list[Step]:
        return [Vectorize(f"{self.vector_inner}{suffix}")] if self.vector_inner else []

    def _reduction_steps(self, tile: "_Tile", mark: str) -> list[Step]:
        """Inside a tile: initialise, then the reduce loops around an unrolled tile of vectors."""
        row = self.form.twin[self.row].name if self.row is not None and self.row in self.form.twin else ""
        vector = self.form.twin[self.vector].name if self.vector_inner else ""
        inner = [n for n, present in ((row, tile.rows > 1), (vector, self.block > 1)) if present and n]
        reduce_axes = self._reduce_order()
        steps: list[Step] = []
        wanted = [f"{n}{mark}" for n in (*(v.name for v in reduce_axes), *inner)]
        if len(wanted) > 1:
            steps.append(Reorder(tuple(wanted)))
        steps += self._unroll_reduction(reduce_axes, inner, mark)
        if tile.rows > 1 and row:
            steps += [Unroll(f"{row}{mark}"), Unroll(f"{row}_init{mark}")]
        if self.block > 1 and vector:
            steps += [Vectorize(f"{vector}{mark}"), Vectorize(f"{vector}_init{mark}")]
        return steps

    def _reduce_order(self) -> list[Var]:
        """The reduce axes so that the operand along the vector axis (the weights) is read in memory order."""
        operand = _operand_along(self.form, self.form.twin[self.vector])
        if operand is None:
            return list(self.r.reduce_axes)
        position: dict[Expr, int] = {}
        for place, d in enumerate(operand.buffer.layout.order):
            for v in free_variables(operand.indices[d]):
                position.setdefault(v, place)
        return sorted(self.r.reduce_axes, key=lambda v: position.get(v, -1))

    def _unroll_reduction(self, axes: list[Var], inner: list[str], mark: str) -> list[Step]:
        if not axes or not is_static(axes[-1]):
            return []
        last, size = axes[-1], extent(axes[-1])
        name = f"{last.name}{mark}"
        if size <= 8:
            steps: list[Step] = [Unroll(name)]
            if len(axes) > 1 and is_static(axes[-2]) and size * extent(axes[-2]) <= 9:
                steps.append(Unroll(f"{axes[-2].name}{mark}"))
            return steps
        factor = next((f for f in (8, 4, 2) if size % f == 0), 1)
        if factor == 1 or not self.contraction:
            return []
        return [Split(name, factor), Unroll(f"{name}_i")]

    def _producer_steps(self, s: Stage, loops: "_OuterLoops") -> list[Step]:
        """Copy padding (or another map in front) at the task loop, on vectors along its memory."""
        order = memory_order(s)
        steps: list[Step] = [ComputeAt(s.name, "workspace", (loops.place,))]
        return steps if not order else steps


@dataclass
class _OuterLoops:
    """``task``: the outermost loop once fused; ``place``: where stages in front of the reduction are computed."""

    task: str
    place: str
    fuses: list[Step]


@dataclass
class _Tile:
    """A loop each of whose iterations is one tile of ``rows`` rows."""

    loop: str
    suffix: str
    rows: int


def _tile_cost(size: int, tile: int, vectors: int) -> float:
    """Cycles of one reduction step over all tiles of a row: multiply-adds, loads, or the latency of too few chains."""

    def one(rows: int) -> float:
        return max(rows * vectors / 2, (rows + vectors) / 2, 4.0)

    return (size // tile) * one(tile) + (one(size % tile) if size % tile else 0)
