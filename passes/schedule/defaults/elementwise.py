# SPDX-License-Identifier: Apache-2.0
"""Kernels of one map: a nest in the memory order of the output, its innermost axis on vectors.

Where an operand lies the other way round, as in a transposition, the nest goes in tiles of a cache
line by some vectors, so that every line of it is used whole while it is in L1. A plain copy goes
in squares that are turned in registers, and reads every line once.
"""

from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass

from tilewright.ir.expr import Read, free_variables
from tilewright.ir.loop import Kernel
from tilewright.ir.stage import Stage
from tilewright.ir.target import Target
from tilewright.passes.schedule.defaults.plan import (
    MOST_CUTS,
    Plan,
    condition_changes,
    extent,
    is_static,
    memory_order,
    points,
)
from tilewright.passes.schedule.defaults.template import (
    Template,
    cost_of_point,
    default_tasks,
    is_contiguous,
    task_counts,
)
from tilewright.passes.schedule.steps import Chunk, Parallel, Partition, Split, Unroll, Vectorize

LINE = 64
"""Bytes of a cache line."""

LINES = 4
"""The cache lines of a side of a tile of squares."""

SQUARE = 16
"""The longest side of a square that is turned in registers: more would not hold it."""

SHORTEST_TILE = 8
"""The least extent of an axis for which tiles pay."""


@dataclass(frozen=True)
class _Tasks:
    """The number of tasks that is wanted, and others worth trying."""

    default: int
    options: tuple[int, ...]

    def choose(self, plan: Plan, effect: Callable[[int], Hashable]) -> int:
        return plan.choose("tasks", self.default, self.options, effect)


class Elementwise(Template):
    """Reorder to memory order, cut tasks off the outer axes, vectorise the innermost."""

    priority = 10

    def plans(self, kernel: Kernel, target: Target, choices: Mapping[str, int]) -> Iterator[Plan]:
        if len(kernel.stages) != 1 or kernel.stages[0].kind != "map" or not kernel.stages[0].axes:
            return
        stage = kernel.stages[0]
        order = [v.name for v in memory_order(stage)]
        lanes = target.lanes(stage.output.dtype.bytes)
        work = points(stage) * cost_of_point(stage)
        tasks = _Tasks(default_tasks(work, target), (1, *task_counts(target)))
        plan = Plan(kernel, choices)
        plan.reorder(*order)
        if len(order) == 1:
            self._flat(plan, order[0], tasks, lanes)
        else:
            self._nest(plan, stage, order, tasks, lanes)
        yield plan

    def _flat(self, plan: Plan, name: str, tasks: _Tasks, lanes: int) -> None:
        """One axis: tasks are pieces of it."""
        size = plan.size(name)

        def piece(wanted: int) -> int:
            return -(-size // (wanted * 4 * lanes)) * 4 * lanes

        pieces = plan.do(Chunk(name, piece(tasks.choose(plan, piece))))
        plan.vectorize(pieces.inner, lanes)
        plan.do(Parallel(pieces.outer))

    def _nest(self, plan: Plan, stage: Stage, order: list[str], tasks: _Tasks, lanes: int) -> None:
        """Several axes; one whose conditions change (of a concatenation, say) is cut and goes
        inside the task loop.
        """
        *outer, inner = order
        axis = next((n for n in reversed(order) if self._changes(plan, stage, n)), "")
        across = self._across(stage, inner) if not axis else ""
        if across:
            line = max(1, LINE // stage.output.dtype.bytes)
            rest = [n for n in outer if n != across]
            if isinstance(stage.values[0], Read):
                side = min(lanes, line, SQUARE)
                for v in stage.axes:
                    if v.name in (across, inner) and is_static(v):
                        side = min(side, 1 << (extent(v).bit_length() - 1))
                self._squares(plan, rest, (across, inner), line, side, tasks)
            else:
                self._tiles(plan, rest, (across, line), (inner, lanes), tasks)
            return
        if axis and axis != inner and len(outer) == 1:
            size = plan.size(inner)
            wanted = tasks.choose(plan, lambda n: -(-size // n))
            chunks = plan.do(Chunk(inner, -(-size // wanted)))
            outer, inner = [chunks.outer], chunks.inner
            plan.reorder(*outer, axis, inner)
        else:
            if axis and axis != inner:
                outer.remove(axis)
                plan.reorder(*outer, axis, inner)
            wanted = tasks.choose(plan, lambda n: plan.task_loops(outer, n))
        task, _ = plan.tasks(outer, wanted)
        pieces = plan.cut_at_conditions(stage.name, axis, inner) if axis else [inner]
        for piece in pieces:
            plan.vectorize(piece, lanes)
        plan.do(Parallel(task))

    @staticmethod
    def _across(stage: Stage, inner: str) -> str:
        """The axis along which an operand lies that is read across the innermost one; both long."""
        axes = {v.name: v for v in stage.axes if extent(v) >= SHORTEST_TILE or not is_static(v)}
        if inner not in axes:
            return ""
        for read in stage.reads():
            if axes[inner] in free_variables(read) and not is_contiguous(read, axes[inner]):
                for name, v in axes.items():
                    if name != inner and is_contiguous(read, v):
                        return name
        return ""

    @staticmethod
    def _tiles(
        plan: Plan, outer: list[str], rows: tuple[str, int], columns: tuple[str, int], tasks: _Tasks
    ) -> None:
        """Go in tiles of rows and columns, given as loops and sizes."""
        across, along = plan.do(Chunk(*rows)), plan.do(Chunk(*columns))
        plan.reorder(*outer, across.outer, along.outer, across.inner, along.inner)
        heads = [*outer, across.outer]
        wanted = tasks.choose(plan, lambda n: plan.task_loops(heads, n))
        task, _ = plan.tasks(heads, wanted)
        plan.vectorize(along.inner, columns[1])
        plan.do(Parallel(task))

    @staticmethod
    def _squares(
        plan: Plan, outer: list[str], loops: tuple[str, str], line: int, side: int, tasks: _Tasks
    ) -> None:
        """Go in tiles of a few cache lines by as many, so that few pages are in use at a time, and
        in these in squares that are turned in registers: ``side`` rows, unrolled, around a vector.
        """
        rows, columns = (plan.do(Chunk(name, LINES * line)) for name in loops)
        plan.reorder(*outer, rows.outer, columns.outer, rows.inner, columns.inner)
        heads = [*outer, rows.outer]
        # In tasks that end inside the constant loops the last pieces of both axes lie anywhere: the
        # proof of that has no end.
        wanted = tasks.choose(plan, lambda n: plan.task_loops(heads, n, even=True))
        task, _ = plan.tasks(heads, wanted, even=True)
        bands = plan.do(Partition(rows.inner, side, "t"))
        if bands.apart:
            plan.vectorize(bands.twin(columns.inner), side)
        if bands.main:
            row = plan.do(Split(bands.main, side))
            plan.reorder(row.outer, columns.inner, row.inner)
            parts = plan.do(Partition(columns.inner, side, "s"))
            if parts.main:
                column = plan.do(Split(parts.main, side))
                plan.reorder(column.outer, row.inner, column.inner)
                plan.do(Unroll(row.inner))
                plan.do(Vectorize(column.inner))
        plan.do(Parallel(task))

    @staticmethod
    def _changes(plan: Plan, stage: Stage, loop: str) -> bool:
        var = plan.loop(loop)
        front, back = (
            condition_changes(plan.kernel, stage.name, var) if var is not None else ([], [])
        )
        return 0 < len(front) + len(back) <= MOST_CUTS
