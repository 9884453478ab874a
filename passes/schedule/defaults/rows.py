# SPDX-License-Identifier: Apache-2.0
"""Softmax, normalisations and reductions along memory: everything for one row at a time, in cache.

The last stage is a map over rows, or over rows and the reduced axis; all other stages are computed
at the row loop. Reductions along the contiguous axis get partial accumulators, one a lane of a
vector or of four, so that they run on vectors.
"""

from collections.abc import Iterator, Mapping

from tilewright.ir.expr import Const, Var, free_variables
from tilewright.ir.loop import Kernel
from tilewright.ir.stage import Stage
from tilewright.ir.target import Target
from tilewright.passes.lower.split_reduction import is_splittable
from tilewright.passes.schedule.defaults.plan import Plan, extent, is_static, memory_order, points
from tilewright.passes.schedule.defaults.template import (
    Template,
    cost_of_point,
    default_tasks,
    is_contiguous,
    task_counts,
)
from tilewright.passes.schedule.loops import find_loop
from tilewright.passes.schedule.region import region_read
from tilewright.passes.schedule.steps import (
    CacheWrite,
    Chunk,
    ComputeAt,
    Fuse,
    Parallel,
    SplitReduction,
    Vectorize,
)

REGISTER_CELLS = 64
"""The largest buffer of partial results that is kept in registers."""


class Rows(Template):
    """A chain of maps and reductions that share their outer axes (the rows) and reduce the
    contiguous one.
    """

    priority = 30

    def plans(self, kernel: Kernel, target: Target, choices: Mapping[str, int]) -> Iterator[Plan]:
        reductions = [s for s in kernel.stages if s.kind == "reduce"]
        if not reductions or any(s.kind not in ("map", "reduce") for s in kernel.stages):
            return
        if len(kernel.outputs) != 1 or not all(_reduces_along_memory(s) for s in reductions):
            return
        plan = Plan(kernel, choices)
        lanes = target.lanes(kernel.outputs[0].dtype.bytes)
        if kernel.stages[-1].kind == "reduce":
            plan.do(CacheWrite(kernel.stages[-1].name))
        for s in reductions:
            _split(plan, s, lanes)
        root = plan.kernel.stages[-1]
        rows = row_axes(root, plan.kernel)
        if root.kind != "map" or not rows:
            return
        _schedule(plan, root, rows, lanes, target)
        yield plan


def _reduces_along_memory(stage: Stage) -> bool:
    axis = stage.reduce_axes[-1] if stage.reduce_axes else None
    return axis is not None and any(is_contiguous(r, axis) for r in stage.reads() if r.buffer.rank)


def row_axes(root: Stage, kernel: Kernel) -> list[Var]:
    """The axes of the root that every reduction keeps: those that index what was reduced; all if
    nothing else is left.
    """
    order = memory_order(root)
    rank = {b: len(s.axes) for s in kernel.stages for b in s.outputs}
    reduced = [r for r in root.reads() if rank.get(r.buffer, len(order)) < len(order)]
    return [v for v in order if all(v in free_variables(r) for r in reduced)]


def _split(plan: Plan, s: Stage, lanes: int) -> None:
    """Give a reduction partial accumulators: four vectors of them if the axis is long."""
    if not is_splittable(s) or len(s.reduce_axes) != 1:
        return
    axis = s.reduce_axes[0]
    if is_static(axis) and extent(axis) < 2 * lanes:
        return
    if not is_static(axis) or extent(axis) >= 8 * lanes:
        plan.do(SplitReduction(s.name, axis.name, 4 * lanes))
        (partial,) = plan.kernel.stage(s.name).reduce_axes
        plan.do(SplitReduction(s.name, partial.name, lanes))
    else:
        plan.do(SplitReduction(s.name, axis.name, lanes))


def _schedule(plan: Plan, root: Stage, rows: list[Var], lanes: int, target: Target) -> None:
    kernel = plan.kernel
    plan.reorder(*(v.name for v in rows), *(v.name for v in memory_order(root) if v not in rows))
    name = rows[0].name
    for v in rows[1:]:
        if plan.static_size(v.name) is None:
            break
        name = plan.do(Fuse(name, v.name))
    work = sum(points(s) * cost_of_point(s) for s in kernel.stages)
    size = plan.size(name)
    tasks = plan.choose(
        "tasks", default_tasks(work, target), (1, *task_counts(target)), lambda n: -(-size // n)
    )
    chunks = plan.do(Chunk(name, -(-size // tasks)))
    for s in reversed(kernel.stages[:-1]):
        _place(plan, s, chunks.inner, lanes)
    for v in root.axes:
        if v not in rows:
            plan.vectorize(v.name, lanes)
    plan.do(Parallel(chunks.outer))


def _place(plan: Plan, s: Stage, loop: str, lanes: int) -> None:
    """Compute a stage at the row loop; its innermost axis on vectors."""
    cells = _row_cells(plan, s, loop)
    scope = "register" if cells <= REGISTER_CELLS else "workspace"
    (placed,) = plan.do(ComputeAt(s.name, scope, (loop,)))
    axes = [v.name for v in memory_order(s) if placed.over(v.name)]
    inner = [placed.over(a) for a in axes]
    if not inner:
        return
    if s.kind == "map":
        plan.vectorize(inner[-1], lanes)
    elif cells <= REGISTER_CELLS:
        # The accumulators are the innermost loop, all lanes at once.
        plan.reorder(*(placed.over(v.name) for v in s.reduce_axes), *inner)
        plan.do(Vectorize(inner[-1]))
        plan.do(Vectorize(placed.first_over(axes[-1])))


def _row_cells(plan: Plan, s: Stage, loop: str) -> int:
    """The cells of a stage that one row needs; more than registers hold if that is symbolic."""
    region = region_read(find_loop(plan.kernel.body, loop).body, s.outputs)
    total = 1
    for e in region.extent if region is not None else ():
        total *= int(e.literal) if isinstance(e, Const) else REGISTER_CELLS + 1
    return total
