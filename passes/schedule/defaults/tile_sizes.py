# SPDX-License-Identifier: Apache-2.0
"""Sizes for the schedule of a contraction or a windowed reduction: how many rows a tile has, what a
task takes, and where producers are computed.

A tile has as many accumulators as registers hold. Tasks are blocks of rows, or panels of the vector
axis when the weights are large (each core then streams its own part of the weights once); their
boxes stay in cache.
"""

from tilewright.ir.expr import Const, Var, free_variables, index
from tilewright.ir.stage import Stage
from tilewright.ir.target import Target
from tilewright.passes.schedule.defaults.contraction import Form
from tilewright.passes.schedule.defaults.plan import Plan, extent, is_static, memory_order, points
from tilewright.passes.schedule.defaults.template import (
    default_tasks,
    is_contiguous,
    is_contraction,
    stride_along,
    task_counts,
)


def vector_block(form: Form, target: Target, grouped: bool = False) -> int:
    """How many points of the vector axis one tile has; 1 if nothing is contiguous along it."""
    lanes = target.lanes(form.reduction.output.dtype.bytes)
    operand = form.operand()
    if operand is None:
        if form.strided() is None or extent(form.vector) < lanes:
            return 1
        # With few rows only vectors are chains of their own.
        rows = extent(form.row) if form.row is not None else 1
        return min(max(1, 4 // rows), extent(form.vector) // lanes) * lanes
    for _, factor in operand.buffer.layout.blocks:
        return factor
    size = extent(form.vector)
    if not is_static(form.vector):
        return 2 * lanes
    if grouped:
        return _group_block(size, lanes)
    # Part of a vector whose lanes are no power of two is slow: the lanes that are too many are
    # masked.
    part = 1 << (size - 1).bit_length()
    most = min(2 * lanes, part if size < lanes else size)
    return next((b for b in (2 * lanes, lanes) if size % b == 0), most)


def _group_block(size: int, lanes: int) -> int:
    """The part of a group that one tile has: one or two vectors, whichever wastes fewer lanes.

    The last part of a group may be masked: vectors whose lanes are no power of two are slow.
    """
    if size <= 2 * lanes and not size & (size - 1):
        return size
    return min((2 * lanes, lanes), key=lambda block: -(-size // block) * block)


def shared_rows(form: Form, target: Target, block: int) -> int:
    """How many neighbouring rows share a vector of few channels: 1 unless their points lie one
    after another in memory, as in a depthwise convolution that steps by one.
    """
    lanes = target.lanes(form.reduction.output.dtype.bytes)
    if form.row is None or form.is_blocked or block <= 1 or lanes % block:
        return 1
    if not is_static(form.vector) or extent(form.vector) != block:
        return 1
    row, size = form.twin[form.row], index(block)
    along = [r for r in form.reduction.reads() if row in free_variables(r)]
    written = stride_along(form.root.output, form.root.targets, form.row)
    if written is not size or any(
        not is_contiguous(r, form.twin[form.vector])
        or stride_along(r.buffer, r.indices, row) is not size
        for r in along
    ):
        return 1
    return lanes // block


class TileSizes:
    """Decides for a recognised form of which one tile has ``block`` points of the vector axis."""

    def __init__(self, plan: Plan, form: Form, target: Target, block: int) -> None:
        self.plan, self.form, self.target, self.block = plan, form, target, block
        self.contraction = is_contraction(form.reduction)
        packs = [f"{form.total.name}_{b.name}" for b in plan.kernel.inputs]
        self.packed = [s for s in form.before if s.name in packs]
        self.windows = [s for s in form.before if s not in self.packed]
        self.vectors = -(-block // target.lanes(form.reduction.output.dtype.bytes))
        self.tasks = default_tasks(points(form.reduction), target)

    def panels_first(self, panel: str) -> bool:
        """True if each task should take some panels of the weights and all rows."""
        operand = self.form.operand()
        if not panel or operand is None or not self.contraction:
            return False
        if free_variables(operand) & (
            set(self.form.twin.values()) - {self.form.twin[self.form.vector]}
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

    def chunks_panels(self, panel: str) -> bool:
        """True if a task should take several panels and all rows, though no weights are read along
        them: strided reads are slow under a mask, which all panels but the last can do without.
        """
        return bool(panel) and self.form.strided() is not None and self.panel_block(panel) > 1

    def panel_block(self, panel: str) -> int:
        """How many panels a task takes."""
        size = self.plan.size(panel)
        counts = task_counts(self.target)
        options = (max(1, size // n) for n in counts)
        return self.plan.choose("panel_block", max(1, size // self.tasks), options)

    def row_block(self, outer: list[str]) -> int:
        """How many iterations of the innermost outer loop a task takes: halo is shared, but tasks
        must be enough.
        """
        others = 1
        for name in outer[:-1]:
            others *= self.plan.size(name)
        size = self.plan.size(outer[-1])
        fit = size
        for s in self.windows:
            budget = self.target.l1 * 3 // 2 if self.goes_by_panel(s) else self.target.l2 // 2
            fit = min(fit, max(1, budget // self._bytes_per_row(s)))

        def share(tasks: int) -> int:
            return min(fit, max(1, size * others // tasks))

        options = {share(n) for n in task_counts(self.target)}
        options |= {n for n in (1, 2, 4, 7, 8, 14) if n <= size}
        return self.plan.choose("row_block", share(self.tasks), options)

    def _bytes_per_row(self, s: Stage) -> int:
        """The bytes of a producer's box for one more row of the root: all its inner axes, or one
        panel of them.
        """
        total = s.output.dtype.bytes
        rows = self._row_axes(s)
        for v in s.axes:
            total *= 1 if v in rows else extent(v)
        if self.goes_by_panel(s):
            total = max(1, total // extent(self.form.vector)) * self.block
        strides = max((extent(v) for v in rows), default=1)
        heights = max((extent(v) for v in self.form.order[:-2]), default=1)
        return total * max(1, strides // max(1, heights))

    def _row_axes(self, s: Stage) -> list[Var]:
        """The axes of a producer along which the loops outside a row of the root move."""
        outside = {self.form.twin[v] for v in self.form.order[:-2] if v in self.form.twin}
        read = next(r for r in self.form.reduction.reads() if r.buffer in s.outputs)
        return [
            v for v, i in zip(s.axes, read.indices, strict=True) if outside & set(free_variables(i))
        ]

    def divides_rows(self, row: str, panel: str) -> bool:
        """True if a task of a plain matrix product should take some rows: if they are many, or
        their number is not known and the panels are too few for the cores.
        """
        if self.plan.static_size(row) is None and self.plan.size(panel) < self.target.cores:
            return True
        return self.flat_block(row) < self.plan.size(row)

    def flat_block(self, row: str) -> int:
        """How many rows of a plain matrix product a task takes: a multiple of the tile, its operand
        within L2.
        """
        depth = points(self.form.reduction) // points(self.form.root)
        tile = self.tile_rows(row)
        fit = self.target.l2 // 2 // (4 * depth)
        size = self.plan.size(row)

        # Of an unknown number of rows, more than the hint says may come.
        least = tile if self.plan.static_size(row) is not None else 4 * tile

        def share(tasks: int) -> int:
            return -(-max(least, min(fit, -(-size // tasks))) // tile) * tile

        options = {share(n) for n in task_counts(self.target)}
        options |= {n * tile for n in (1, 2, 4, 8, 16, 32)}
        # All blocks that hold every row are one.
        return self.plan.choose("row_block", share(self.tasks), options, lambda n: min(n, size))

    def tile_rows(self, row: str, shared: int = 1) -> int:
        """Rows of a tile: as many accumulators as registers allow, balanced over a constant row
        loop; whole vectors of rows where so many share one.
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
            return max(1, most // shared) * shared
        size = max(1, size // shared)
        options = range(1, min(most, size) + 1)
        default = min(options, key=lambda t: (_tile_cost(size, t, vectors), -t))
        return self.plan.choose("tile_rows", default, options) * shared

    def goes_by_panel(self, s: Stage) -> bool:
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
        return row <= self.target.l1 // 2 and all(axis in free_variables(r) for r in reads)


def _tile_cost(size: int, tile: int, vectors: int) -> float:
    """Cycles of one reduction step over all tiles of a row: multiply-adds, loads, or the latency of
    too few chains.
    """

    def one(rows: int) -> float:
        return max(rows * vectors / 2, (rows + vectors) / 2, 4.4) + 0.2

    return (size // tile) * one(tile) + (one(size % tile) if size % tile else 0)
