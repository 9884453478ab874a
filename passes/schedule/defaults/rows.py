# SPDX-License-Identifier: Apache-2.0
"""Softmax, normalisations and reductions along memory: everything for one row at a time, in cache.

The last stage is a map over rows, or over rows and the reduced axis; all other stages are computed at the row loop. Reductions
along the contiguous axis get partial accumulators, one a lane, so that they run on vectors.
"""

from collections.abc import Iterator

from tilewright.ir.expr import Var
from tilewright.ir.loop import Kernel
from tilewright.ir.stage import Stage
from tilewright.ir.target import Target
from tilewright.passes.lower.split_reduction import is_splittable
from tilewright.passes.schedule.defaults.elementwise import cost_of_point, vector_loop
from tilewright.passes.schedule.defaults.template import (
    TASK_WORK,
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
    Parallel,
    Reorder,
    SplitReduction,
    Vectorize,
)

REGISTER_CELLS = 64
"""The largest buffer of partial results that is kept in registers."""


class Rows(Template):
    """A chain of maps and reductions that share their outer axes (the rows) and reduce the contiguous one."""

    priority = 30

    def schedules(self, kernel: Kernel, target: Target) -> Iterator[Schedule]:
        reductions = [s for s in kernel.stages if s.kind == "reduce"]
        if not reductions or any(s.kind not in ("map", "reduce") for s in kernel.stages):
            return
        if len(kernel.outputs) != 1 or not all(_along_memory(s) for s in reductions):
            return
        steps = self._stage_steps(kernel, target)
        staged = apply(kernel, steps)
        root = staged.stages[-1]
        if root.kind != "map" or root.output not in kernel.outputs:
            return
        yield (*steps, *self._loop_steps(staged, root, target))

    def _stage_steps(self, kernel: Kernel, target: Target) -> list[Step]:
        steps: list[Step] = []
        last = kernel.stages[-1]
        if last.kind == "reduce":
            steps.append(CacheWrite(last.name))
        for s in kernel.stages:
            if s.kind != "reduce" or not is_splittable(s) or len(s.reduce_axes) != 1:
                continue
            axis = s.reduce_axes[0]
            lanes = target.lanes(s.output.dtype.bytes)
            if is_static(axis) and extent(axis) < 2 * lanes:
                continue
            if not is_static(axis) or extent(axis) >= 8 * lanes:
                steps.append(SplitReduction(s.name, axis.name, 4 * lanes))
                steps.append(SplitReduction(s.name, f"{s.name}_l", lanes))
            else:
                steps.append(SplitReduction(s.name, axis.name, lanes))
        return steps

    def _loop_steps(self, kernel: Kernel, root: Stage, target: Target) -> list[Step]:
        order = memory_order(root)
        row_axes, inner = self._rows_of(kernel, root, order)
        steps: list[Step] = [Reorder(tuple(v.name for v in order))] if len(order) > 1 else []
        tasks = target.cores * TASKS_PER_CORE
        if not row_axes:
            return self._single_row(kernel, root, inner, target)
        name, count = row_axes[0].name, extent(row_axes[0])
        for v in row_axes[1:]:
            if not is_static(v):
                break
            steps.append(Fuse(name, v.name))
            name, count = f"{name}_f", count * extent(v)
        work = sum(points(s) * cost_of_point(s) for s in kernel.stages)
        rows = max(1, -(-count // tasks), min(count, TASK_WORK * count // max(work, 1)))
        steps.append(Chunk(name, rows))
        steps += self._place(kernel, root, f"{name}_i", target)
        steps += [v for a in inner for v in _vector(a.name, a, target, root)]
        return [*steps, Parallel(f"{name}_o")]

    def _rows_of(self, kernel: Kernel, root: Stage, order: list[Var]) -> tuple[list[Var], list[Var]]:
        """The axes of the root that reductions keep, and those along a reduced axis."""
        ranks = [len(s.axes) for s in kernel.stages if s.kind == "reduce" and not s.name.endswith("_p")]
        keep = min(ranks)
        return order[:keep], order[keep:]

    def _single_row(self, kernel: Kernel, root: Stage, inner: list[Var], target: Target) -> list[Step]:
        return []

    def _place(self, kernel: Kernel, root: Stage, loop: str, target: Target) -> list[Step]:
        steps: list[Step] = []
        for s in reversed(kernel.stages[:-1]):
            scope = "register" if _cells(s, root) <= REGISTER_CELLS else "workspace"
            steps.append(ComputeAt(s.name, scope, (loop,)))
            lane = s.axes[-1] if s.axes else None
            if s.kind == "reduce":
                if lane is not None and lane.name.endswith("_l"):
                    # The accumulators are the innermost loop, all lanes at once.
                    steps.append(Reorder((*(v.name for v in s.reduce_axes), lane.name)))
                    steps += [Vectorize(lane.name), Vectorize(f"{lane.name}_init")]
            elif lane is not None and lane.name not in (r.name for r in root.axes):
                steps += _vector(lane.name, lane, target, s)
        return steps


def _vector(name: str, axis: Var, target: Target, stage: Stage) -> list[Step]:
    lanes = target.lanes(stage.output.dtype.bytes)
    return vector_loop(name, extent(axis) if is_static(axis) else None, lanes)


def _cells(stage: Stage, root: Stage) -> int:
    """How many cells of a stage one row has; large for a symbolic row."""
    lane = [v for v in stage.axes if v.name.endswith("_l")]
    rank = min(len(stage.axes), len(root.axes))
    if lane:
        return extent(lane[-1])
    own = stage.axes[-1] if len(stage.axes) == rank and rank > 1 else None
    if own is None:
        return 1
    return extent(own) if is_static(own) else REGISTER_CELLS + 1


def _along_memory(stage: Stage) -> bool:
    """True if the stage reduces the contiguous axis of what it reads."""
    axis = stage.reduce_axes[-1] if stage.reduce_axes else None
    if axis is None:
        return False
    big = [r for r in stage.reads() if r.buffer.rank]
    return any(str(stride_along(r.buffer, r.indices, axis)) == "1" for r in big)
