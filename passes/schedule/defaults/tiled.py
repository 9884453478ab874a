# SPDX-License-Identifier: Apache-2.0
"""Contractions and windowed reductions: a tile of accumulators in registers, its reduction around
it.

Matrix products, convolutions of all kinds and pooling are one form: the reduction ``r`` feeds a map
``e`` that writes the output. The innermost axis of the output in memory is the vector axis, the
next one the row axis; a tile of rows x vectors of ``r`` is computed at the tile loop of ``e`` in
registers, and ``e`` stores it. Padding is copied at the loop over blocks of rows, where it stays in
cache. Tasks are blocks of rows, or panels of the vector axis when the weights are large (each core
then streams its own part of the weights once).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tilewright.ir.expr import Const, Expr, Read, Var, free_variables
from tilewright.ir.loop import Kernel
from tilewright.ir.stage import Stage
from tilewright.ir.target import Target
from tilewright.passes.schedule.defaults.plan import Plan, extent, is_static, memory_order, points
from tilewright.passes.schedule.defaults.template import (
    TASK_WORK,
    TASKS_PER_CORE,
    Template,
    is_contiguous,
    is_contraction,
)
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


@dataclass
class Form:
    """What was recognised: the reduction, the map that stores it, the stages before, and how their
    axes match.
    """

    reduction: Stage
    root: Stage
    before: list[Stage]
    order: list[Var]
    twin: dict[Var, Var]

    @property
    def vector(self) -> Var:
        """The root's innermost axis in memory."""
        return self.order[-1]

    @property
    def row(self) -> Var | None:
        """The root's axis of which a tile takes several points: the innermost one along which the
        operand is reused.
        """
        others = [v for v in reversed(self.order[:-1]) if v in self.twin]
        operand = self.operand() or self.varying()
        used = _variables(operand) if operand is not None else frozenset()
        return next((v for v in others if self.twin[v] not in used), others[0] if others else None)

    def varying(self) -> Read | None:
        """The read of a contraction that depends on the vector axis, contiguous or not."""
        axis = self.twin[self.vector]
        along = [r for r in self.reduction.reads() if axis in _variables(r)]
        return along[0] if len(along) == 1 and is_contraction(self.reduction) else None

    def operand(self) -> Read | None:
        """The read of the reduction that is contiguous along the vector axis: the weights of a
        contraction.
        """
        axis = self.twin[self.vector]
        along = [r for r in self.reduction.reads() if is_contiguous(r, axis)]
        return min(along, key=lambda r: len(_variables(r) & set(self.reduction.axes)), default=None)


def _variables(read: Read) -> frozenset[Expr]:
    return frozenset().union(*(free_variables(i) for i in read.indices), frozenset())


def recognise(kernel: Kernel) -> Form | None:
    """The form of a kernel of one reduction and one map that stores it; None if it is of another
    form.
    """
    reductions = [s for s in kernel.stages if s.kind == "reduce"]
    if len(reductions) != 1 or any(s.kind not in ("map", "reduce") for s in kernel.stages):
        return None
    reduction = reductions[0]
    at = kernel.stages.index(reduction)
    before, after = list(kernel.stages[:at]), list(kernel.stages[at + 1 :])
    if len(after) != 1 or after[0].kind != "map" or after[0].output not in kernel.outputs:
        return None
    cells = {r.indices for r in after[0].reads() if r.buffer in reduction.outputs}
    if len(cells) != 1:
        return None
    twin: dict[Var, Var] = {}
    for i, axis in zip(cells.pop(), reduction.axes, strict=True):
        if not isinstance(i, Var) or i in twin:
            return None
        twin[i] = axis
    order = memory_order(after[0])
    if not order or order[-1] not in twin:
        return None
    return Form(reduction, after[0], before, order, twin)


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
            2 * target.lanes(form.reduction.output.dtype.bytes) if packed else _block(form, target)
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


def _block(form: Form, target: Target) -> int:
    """How many points of the vector axis one tile has; 1 if nothing is contiguous along it."""
    lanes = target.lanes(form.reduction.output.dtype.bytes)
    operand = form.operand()
    if operand is None:
        return 1
    for _, factor in operand.buffer.layout.blocks:
        return factor
    size = extent(form.vector)
    if not is_static(form.vector):
        return 2 * lanes
    return next(
        (b for b in (2 * lanes, lanes) if size % b == 0), 2 * lanes if size > 2 * lanes else size
    )


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
        self.contraction = is_contraction(form.reduction)
        packs = [f"{form.reduction.name}_{b.name}" for b in plan.kernel.inputs]
        self.packed = [s for s in form.before if s.name in packs]
        self.windows = [s for s in form.before if s not in self.packed]
        self.vectors = max(1, block // target.lanes(form.reduction.output.dtype.bytes))
        work = points(form.reduction)
        wanted = min(target.cores * TASKS_PER_CORE, 1 + work // TASK_WORK)
        self.wanted = plan.choose("tasks", wanted, (target.cores * n for n in (1, 2, 4, 8)))

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

    # --- outer loops ---

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
        if self._panels_first(panel):
            task = panel
            per_task = plan.size(panel) // self.wanted
            if per_task > 1:
                plan.do(Chunk(panel, per_task))
                task, panel = f"{panel}_o", f"{panel}_i"
            plan.reorder(*dict.fromkeys((task, panel)), *outer, row, lane)
            return _Loops(task, task, row, panel)
        if outer:
            size = self._row_block(outer)
            inner = ""
            if size > 1:
                plan.do(Chunk(outer[-1], size))
                outer, inner = [*outer[:-1], f"{outer[-1]}_o"], f"{outer[-1]}_i"
            heads, rest = outer, [panel, inner, row, lane]
        elif row and self._flat_block(row) < plan.size(row):
            plan.do(Chunk(row, self._flat_block(row)))
            heads, rest, row = [f"{row}_o"], [panel, f"{row}_i", lane], f"{row}_i"
        else:
            first = panel or row or lane
            plan.reorder(panel, row, lane)
            return _Loops(first, first, row, panel)
        plan.reorder(*heads, *rest)
        fusible = [*heads, panel] if panel and not self.windows else heads
        task, block = plan.tasks(fusible, self.target.cores * 2)
        return _Loops(task, block, row, panel)

    def _panels_first(self, panel: str) -> bool:
        """True if each task should take some panels of the weights and all rows."""
        operand = self.form.operand()
        if not panel or operand is None or not self.contraction:
            return False
        if _variables(operand) & (
            set(self.form.reduction.axes) - {self.form.twin[self.form.vector]}
        ):
            return False
        if self.plan.size(panel) < 2 * self.target.cores:
            return False
        weights = 4
        for d in operand.buffer.shape:
            weights *= int(d.literal) if isinstance(d, Const) else 64
        rows = points(self.form.root) // extent(self.form.vector)
        activations = 4 * rows * points(self.form.reduction) // points(self.form.root)
        default = weights > self.target.l2 or weights >= activations
        return bool(self.plan.choose("panels_first", int(default), (0, 1)))

    def _row_block(self, outer: list[str]) -> int:
        """How many iterations of the innermost outer loop a task takes: halo is shared, but tasks
        must be enough.
        """
        others = 1
        for name in outer[:-1]:
            others *= self.plan.size(name)
        size = self.plan.size(outer[-1])
        share = max(1, size * others // self.wanted)
        rows = min(size, share)
        for s in self.windows:
            budget = self.target.l1 * 3 // 2 if self._by_panel(s) else self.target.l2 // 2
            rows = min(rows, max(1, budget // self._bytes_per_row(s)))
        return self.plan.choose("row_block", rows, (n for n in (1, 2, 4, 7, 8, 14) if n <= size))

    def _bytes_per_row(self, s: Stage) -> int:
        """The bytes of a producer's box for one more row of the root: all its inner axes, or one
        panel of them.
        """
        total = s.output.dtype.bytes
        for v in memory_order(s)[-2:]:
            total *= extent(v)
        if self._by_panel(s):
            total = total // max(1, extent(self.form.vector)) * self.block
        rows = [v for v in s.axes if v not in memory_order(s)[-2:]]
        strides = max((extent(v) for v in rows), default=1)
        heights = max((extent(v) for v in self.form.order[:-2]), default=1)
        return total * max(1, strides // max(1, heights))

    def _flat_block(self, row: str) -> int:
        """How many rows of a plain matrix product a task takes: a multiple of the tile, its operand
        within L2.
        """
        depth = 1
        for v in self.form.reduction.reduce_axes:
            depth *= extent(v)
        tile = self._tile_rows(row)
        fit = self.target.l2 // 2 // (4 * depth)
        share = -(-self.plan.size(row) // self.wanted)
        size = -(-max(tile, min(fit, share)) // tile) * tile
        return self.plan.choose("row_block", size, (n * tile for n in (1, 2, 4, 8, 16, 32)))

    # --- tiles ---

    def _tile_rows(self, row: str) -> int:
        """Rows of a tile: as many accumulators as registers allow, balanced over a constant row
        loop.
        """
        vectors = self.vectors
        most = max(1, (self.target.registers - vectors - 1) // vectors)
        most = (
            min(most, {1: 10, 2: 6}.get(vectors, most))
            if self.contraction
            else max(1, min(most, 8 // vectors))
        )
        size = self.plan.static_size(row)
        if size is None:
            return most
        options = range(1, min(most, size) + 1)
        default = min(options, key=lambda t: (_tile_cost(size, t, vectors), -t))
        return self.plan.choose("tile_rows", default, options)

    def _tile_loops(self, row: str, lane: str, task: str) -> list[str]:
        """Cut rows into tiles; returns the loops of whose iterations each is a tile."""
        plan = self.plan
        if not row or plan.loop(row) is None:
            return [self._vectorized_lane(lane, self._innermost_outside(lane, task))]
        tile = self._tile_rows(row)
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
        factors = [f for f in (8, 4, 2, 1) if size % f == 0]
        factor = plan.choose("unroll", factors[0], factors)
        if factor > 1 and self.contraction:
            plan.do(Split(names[-1], factor), Unroll(f"{names[-1]}_i"))

    def _producer(self, s: Stage, loops: _Loops) -> None:
        """Compute padding (or another map in front) where its box stays in cache, in memory order
        and on vectors.
        """
        at_panel = self.plan.loop(loops.panel) is not None and self._by_panel(s)
        self.plan.do(ComputeAt(s.name, "workspace", (loops.panel if at_panel else loops.block,)))
        order = [v.name for v in memory_order(s)]
        self.plan.reorder(*order)
        present = [n for n in order if self.plan.loop(n) is not None]
        if not present:
            return
        pieces = self.plan.cut_at_conditions(s.name, present[-2]) if len(present) > 1 else [""]
        for piece in pieces:
            self.plan.vectorize(f"{present[-1]}{piece}", self.target.lanes(s.output.dtype.bytes))

    def _by_panel(self, s: Stage) -> bool:
        """True if a panel of the vector axis reads a panel of ``s`` only, as in a depthwise
        convolution.
        """
        if s in self.packed:
            return True
        axis = self.form.twin[self.form.vector]
        reads = [r for r in self.form.reduction.reads() if r.buffer in s.outputs]
        row = s.output.dtype.bytes
        for v in memory_order(s)[-2:]:
            row *= extent(v)
        # Panels of a long row lie far apart in memory: then whole rows are copied, one after
        # another.
        return row <= self.target.l1 // 2 and all(axis in _variables(r) for r in reads)


def _tile_cost(size: int, tile: int, vectors: int) -> float:
    """Cycles of one reduction step over all tiles of a row: multiply-adds, loads, or the latency of
    too few chains.
    """

    def one(rows: int) -> float:
        return max(rows * vectors / 2, (rows + vectors) / 2, 4.4) + 0.2

    return (size // tile) * one(tile) + (one(size % tile) if size % tile else 0)
