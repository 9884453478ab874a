# SPDX-License-Identifier: Apache-2.0
"""Reductions across memory: the innermost axis is kept, and its points, the columns, are the lanes.

A sum over many rows goes through memory once, in order: a task has a tile of columns, whose totals
stay in L1; for eight rows at a time a vector of columns is summed in registers and added to its
total (float32 sums in float64, as in :mod:`.partial_sums`). Other chains, such as a softmax over a
middle axis, are computed for a few vectors of columns at a time, all rows of which stay in cache.
Few columns do not fill a vector: then neighbouring rows share one, and are combined in the end.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tilewright.ir.expr import ONE, Const, Read, Var, free_variables
from tilewright.ir.loop import Kernel
from tilewright.ir.stage import Stage
from tilewright.ir.target import Target
from tilewright.passes.lower.split_reduction import is_splittable
from tilewright.passes.schedule.defaults.partial_sums import (
    CHAIN,
    FAN_IN,
    block_sum,
    is_float_sum,
    is_long_sum,
)
from tilewright.passes.schedule.defaults.plan import Plan, extent, is_static, memory_order, points
from tilewright.passes.schedule.defaults.rows import recognise
from tilewright.passes.schedule.defaults.template import Template, cost_of_point, default_tasks
from tilewright.passes.schedule.handles import Placed
from tilewright.passes.schedule.steps import (
    Chunk,
    ComputeAt,
    Enclose,
    Fuse,
    Parallel,
    Partition,
    Split,
    SplitReduction,
    Vectorize,
)

TILE = 1024
"""The most columns of a task: their totals in float64 are a quarter of a small L1."""


@dataclass(frozen=True)
class Part:
    """A loop each of whose iterations is a block of columns, the loop over its lanes, and the loops
    between them.
    """

    block: str
    lane: str
    inside: tuple[str, ...]


class Columns(Template):
    """Maps and reductions that keep the innermost axis of what they read."""

    priority = 15

    def plans(self, kernel: Kernel, target: Target, choices: Mapping[str, int]) -> Iterator[Plan]:
        chain = recognise(kernel, choices, _keeps_innermost)
        if chain is None:
            return
        plan, reductions, root, kept = chain
        if not kept or memory_order(root)[-1] is not kept[-1]:
            return
        if any(len(s.axes) > len(kept) for s in reductions):
            return
        ColumnPlan(plan, root, kept, target).build()
        yield plan


def _keeps_innermost(stage: Stage) -> bool:
    """True if a read of each point of the stage is contiguous along an axis that it keeps."""
    wanted = {v for v in (*stage.axes, *stage.reduce_axes) if v.extent is not ONE}
    return bool(stage.reduce_axes) and any(
        wanted <= free_variables(r)
        and not r.buffer.layout.blocks
        and all(isinstance(i, Var | Const) for i in r.indices)
        and _innermost(r) in stage.axes
        for r in stage.reads()
    )


def _innermost(read: Read) -> object:
    dims = [d for d in read.buffer.layout.order if isinstance(read.indices[d], Var)]
    return read.indices[dims[-1]] if dims else None


class ColumnPlan:
    """Builds the plan: ``kept`` are the axes that all reductions keep, the columns last."""

    def __init__(self, plan: Plan, root: Stage, kept: list[Var], target: Target) -> None:
        self.plan, self.root, self.kept, self.target = plan, root, kept, target
        self.reductions = [s for s in plan.kernel.stages if s.kind == "reduce"]
        self.lanes = target.lanes(max(s.output.dtype.bytes for s in self.reductions))

    def build(self) -> None:
        columns = self.kept[-1]
        single = len(self.reductions) == 1 and len(self.plan.kernel.stages) == 2
        alone = single and len(self.root.axes) == len(self.kept)
        (reduction, *_) = self.reductions
        if alone and is_static(columns) and 2 * extent(columns) <= self.lanes:
            self._few(reduction)
        elif alone and is_splittable(reduction) and self._is_long(reduction):
            self._stream(reduction)
        else:
            self.in_blocks()

    @staticmethod
    def _is_long(stage: Stage) -> bool:
        """True for more rows than a chain has."""
        if is_float_sum(stage):
            return is_long_sum(stage)
        return points(stage) > CHAIN * points(stage.replace(reduce_axes=()))

    # --- tasks ------------------------------------------------------------------------------------

    def _tasks(self) -> tuple[str, str, str]:
        """The loop over tasks, the loop that steps through what a task does, and its columns."""
        plan, columns = self.plan, self.kept[-1].name
        others = [v.name for v in self.root.axes if v not in self.kept]
        heads = [v.name for v in self.kept[:-1]]
        plan.reorder(*heads, columns, *others)
        work = sum(points(s) * cost_of_point(s) for s in plan.kernel.stages)
        wanted = default_tasks(work, self.target)
        outside = math.prod(plan.size(n) for n in heads)
        # Columns are divided where tasks are too few, or totals too many for L1; but long pieces of
        # rows are read faster.
        unit = 4 * self.lanes
        share = -(-plan.size(columns) * outside // (min(wanted, self.target.cores) * unit)) * unit
        size = plan.static_size(columns)
        tile = plan.choose(
            "columns",
            min(TILE, max(unit, share)),
            (unit, 4 * unit, TILE),
            lambda n: n if size is None else min(n, size),
        )
        if plan.static_size(columns) is None or plan.size(columns) > tile:
            chunks = plan.do(Chunk(columns, tile))
            heads, columns = [*heads, chunks.outer], chunks.inner
            plan.reorder(*heads, columns, *others)
        if not heads:
            whole = plan.do(Enclose("whole"))
            return whole, whole, columns
        return (*plan.tasks(heads, wanted), columns)

    # --- many rows --------------------------------------------------------------------------------

    def _stream(self, s: Stage) -> None:
        """Add rows to totals in L1, a block of rows at a time."""
        plan = self.plan
        blocks = block_sum(plan, s, s.reduce_axes[-1])
        task, step, columns = self._tasks()
        (totals,) = plan.do(ComputeAt(s.name, "workspace", (step,)))
        s = plan.kernel.stage(s.name)
        column = self._column_of(s)
        over = [totals.over(v.name) for v in s.reduce_axes]
        plan.reorder(*over, totals.over(column))
        plan.vectorize(totals.first_over(column), self.lanes)
        plan.vectorize(columns, self.lanes)
        parts = self._parts(totals.over(column), 4)
        for placed in plan.do(ComputeAt(blocks, "register", tuple(p.block for p in parts))):
            self._rows_inside(placed, blocks, f"{column}_b")
        for part in parts:
            plan.do(Vectorize(part.lane))
        plan.peel(over[-1])
        plan.do(Parallel(task))

    def _rows_inside(self, placed: Placed, name: str, column: str) -> None:
        """Unroll a chain of rows around a block of columns."""
        plan = self.plan
        steps = [placed.over(v.name) for v in plan.kernel.stage(name).reduce_axes]
        plan.reorder(*steps, placed.over(column))
        plan.unroll_short(steps)
        for loop in (placed.over(column), placed.first_over(column)):
            plan.vectorize_whole(loop, self.lanes)

    def _parts(self, columns: str, vectors: int, inside: tuple[str, ...] = ()) -> list[Part]:
        """Divide a loop over columns into blocks of so many vectors, then of one, and what is left.

        Each part is code, and work for the proof, of its own: where the number of columns is not
        known, vectors of the rest are masked.
        """
        plan = self.plan
        parts: list[Part] = []
        known = plan.static_size(columns) is not None
        widths = {vectors * self.lanes, self.lanes} if known else {vectors * self.lanes}
        for number, width in enumerate(sorted(widths, reverse=True)):
            if not known and vectors == 1:
                break
            size = plan.static_size(columns)
            if size is not None and size < width:
                continue
            cut = plan.do(Partition(columns, width, f"v{number}"))
            if cut.main:
                halves = plan.do(Split(cut.main, width))
                parts.append(Part(halves.outer, halves.inner, inside))
            if not cut.apart:
                return parts
            columns, inside = cut.apart, tuple(map(cut.twin, inside))
        # Less than a vector is left: lanes that do not exist are masked.
        size = plan.static_size(columns)
        whole = size is not None and not size & (size - 1)
        halves = plan.do(Split(columns, size if size is not None and whole else self.lanes))
        return [*parts, Part(halves.outer, halves.inner, inside)]

    # --- chains -----------------------------------------------------------------------------------

    def in_blocks(self, unrolled: bool = False) -> None:
        """Compute everything for a block of columns at a time; ``unrolled`` if the loops over what
        is reduced are short.
        """
        plan = self.plan
        blocks: dict[str, str] = {}
        for s in self.reductions:
            if is_splittable(s) and is_long_sum(s):
                blocks[s.name] = block_sum(plan, s, s.reduce_axes[-1])
        before = [s for s in plan.kernel.stages[:-1] if s.name not in blocks.values()]
        twins = {s.name: self._column_of(s) for s in before}
        task, _, columns = self._tasks()
        others = tuple(v.name for v in self.root.axes if v not in self.kept)
        parts = self._parts(columns, 1, others)
        for s in reversed(before):
            loops = self._place(s, twins[s.name], blocks.get(s.name, ""), parts)
            plan.unroll_short(loops if unrolled else ())
        for part in parts:
            plan.reorder(*part.inside, part.lane)
            plan.do(Vectorize(part.lane))
            plan.unroll_short(part.inside if unrolled else ())
            if unrolled:  # strided accesses are slow where lanes are masked
                plan.peel(part.block, at_least=2, suffix="e")
        plan.do(Parallel(task))

    def _column_of(self, s: Stage) -> str:
        """The axis of a stage along which its output moves with the columns: its innermost."""
        return memory_order(s)[-1].name if s.axes else ""

    def _place(self, s: Stage, column: str, blocks: str, parts: list[Part]) -> list[str]:
        """Compute a stage at the blocks of columns; the loops around its lanes."""
        plan = self.plan
        scope = "register" if s.kind == "reduce" else "workspace"
        where = tuple(p.block for p in parts)
        innermost: list[str] = []
        around: list[str] = []
        for placed in plan.do(ComputeAt(s.name, scope, where)):
            over = [n for v in s.axes if v.name != column and (n := placed.over(v.name))]
            steps = [placed.over(v.name) for v in plan.kernel.stage(s.name).reduce_axes]
            plan.reorder(*over, *steps, placed.over(column))
            for loop in (placed.over(column), placed.first_over(column)):
                plan.vectorize_whole(loop, self.lanes)
            innermost += steps[-1:]
            around += [*over, *steps]
        if blocks:
            for placed in plan.do(ComputeAt(blocks, "register", tuple(innermost))):
                self._rows_inside(placed, blocks, f"{column}_b")
            for step in innermost:
                plan.peel(step)
        return around

    # --- few columns ------------------------------------------------------------------------------

    def _few(self, s: Stage) -> None:
        """Let neighbouring rows share vectors: lanes are pairs of a row and a column."""
        plan, columns = self.plan, extent(self.kept[-1])
        axis, column = s.reduce_axes[-1], self._column_of(s)
        rows = self._shared_rows(axis, columns)
        blocks = ""
        if is_long_sum(s, rows):
            blocks = block_sum(plan, s, axis, rows)
            axis = plan.kernel.stage(s.name).reduce_axes[-1]
        levels = [plan.do(SplitReduction(s.name, axis.name, rows))]
        if rows > FAN_IN:
            (axis,) = plan.kernel.stage(s.name).reduce_axes
            levels.append(plan.do(SplitReduction(s.name, axis.name, FAN_IN)))
        task, row, _ = self._tasks()
        (placed,) = plan.do(ComputeAt(s.name, "register", (row,)))
        self._rows_inside(placed, s.name, column)
        for level in reversed(levels):
            (placed,) = plan.do(ComputeAt(level, "register", (row,)))
            over = self._shared_lanes(placed, level)
        if not blocks:
            plan.peel(over[-1])
        else:
            # The last loop has one iteration: what its lanes are is a loop of its own.
            (placed,) = plan.do(ComputeAt(blocks, "register", (over[-2],)))
            self._shared_lanes(placed, blocks)
            plan.peel(over[-2])
        plan.vectorize(self.kept[-1].name, self.lanes)
        plan.do(Parallel(task))

    def _shared_rows(self, axis: Var, columns: int) -> int:
        """How many rows share vectors, so that these are full, up to four of them."""
        rows = self.lanes // math.gcd(self.lanes, columns)
        while 2 * rows * columns <= 4 * self.lanes:
            rows *= 2
        most = 1 << (extent(axis).bit_length() - 1) if is_static(axis) else rows
        return min(rows, most)

    def _shared_lanes(self, placed: Placed, name: str) -> list[str]:
        """Fuse the loops over rows and columns of a nest into one of lanes; those over its reduce
        axes, the short ones unrolled.
        """
        plan, stage = self.plan, self.plan.kernel.stage(name)
        # The order in memory: what is not one point is a row, then a column.
        axes = [v.name for v in memory_order(stage) if placed.over(v.name)]
        steps = [placed.over(v.name) for v in stage.reduce_axes]
        for of in (placed.over, placed.first_over):
            loops = [of(a) for a in axes]
            plan.reorder(*(steps if of == placed.over else ()), *loops)
            lanes = loops[0]
            for loop in loops[1:]:
                lanes = plan.do(Fuse(lanes, loop))
            plan.vectorize_whole(lanes, self.lanes)
        plan.unroll_short(steps)
        return steps
