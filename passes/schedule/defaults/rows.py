# SPDX-License-Identifier: Apache-2.0
"""Softmax, normalisations and reductions along memory: everything for one row at a time, in cache.

The last stage is a map over rows, or over rows and the reduced axis; all other stages are computed
at the row loop, reductions in partial results (:mod:`.partial_sums`).
"""

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from tilewright.ir.expr import ONE, Const, Read, Var, free_variables
from tilewright.ir.loop import Kernel
from tilewright.ir.stage import Stage
from tilewright.ir.target import Target
from tilewright.passes.schedule.defaults.partial_sums import Tree, divide, place
from tilewright.passes.schedule.defaults.plan import Plan, memory_order, points
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
    Enclose,
    Fuse,
    Parallel,
    Partition,
    Split,
    Vectorize,
)

DEAR = 10
"""The cost of a point from which on a map of sums is done for a vector of them at a time."""

REGISTER_CELLS = 64
"""The largest buffer of partial results that is kept in registers."""


class Rows(Template):
    """A chain of maps and reductions that share their outer axes (the rows) and reduce the
    contiguous one.
    """

    priority = 14

    def plans(self, kernel: Kernel, target: Target, choices: Mapping[str, int]) -> Iterator[Plan]:
        chain = recognise(kernel, choices, reduces_along_memory)
        if chain is None:
            return
        plan, reductions, _, rows = chain
        if not rows and any(s.axes for s in reductions):
            return
        trees = {
            s.name: divide(plan, s, target.lanes(s.output.dtype.bytes))
            for s in reductions
            if len(s.axes) <= len(rows)
        }
        _schedule(plan, trees, rows, target)
        yield plan


class Chain(NamedTuple):
    """A plan for a kernel of maps and reductions, its reductions, the map that ends it, and the
    axes of that which all reductions keep (:func:`row_axes`).
    """

    plan: Plan
    reductions: list[Stage]
    root: Stage
    kept: list[Var]


def recognise(
    kernel: Kernel, choices: Mapping[str, int], fits: Callable[[Stage], bool]
) -> Chain | None:
    """The chain that a kernel of one output is, if all its reductions fit; else None."""
    reductions = [s for s in kernel.stages if s.kind == "reduce"]
    if not reductions or any(s.kind not in ("map", "reduce") for s in kernel.stages):
        return None
    if len(kernel.outputs) != 1 or not all(map(fits, reductions)):
        return None
    plan = Plan(kernel, choices)
    if kernel.stages[-1].kind == "reduce":
        plan.do(CacheWrite(kernel.stages[-1].name))
    root = plan.kernel.stages[-1]
    return (
        Chain(plan, reductions, root, row_axes(root, plan.kernel)) if root.kind == "map" else None
    )


def reduces_along_memory(stage: Stage) -> bool:
    """True if a read of all points of the stage is contiguous along the last reduce axis: no
    element is used twice.
    """
    axis = stage.reduce_axes[-1] if stage.reduce_axes else None
    points = {v for v in (*stage.axes, *stage.reduce_axes) if v.extent is not ONE}
    return axis is not None and any(
        is_contiguous(r, axis) and points <= free_variables(r) and is_plain(r)
        for r in stage.reads()
    )


def is_plain(read: Read) -> bool:
    """True if each index moves with one axis: points that differ read different elements."""
    moving = ([v for v in free_variables(i) if isinstance(v, Var)] for i in read.indices)
    return all(len(axes) <= 1 for axes in moving)


def row_axes(root: Stage, kernel: Kernel) -> list[Var]:
    """The axes of the root that every reduction keeps: those that index what was reduced; all if
    nothing else is left.
    """
    order = memory_order(root)
    rank = {b: len(s.axes) for s in kernel.stages for b in s.outputs}
    reduced = [r for r in root.reads() if rank.get(r.buffer, len(order)) < len(order)]
    return [v for v in order if all(v in free_variables(r) for r in reduced)]


def _schedule(plan: Plan, trees: Mapping[str, Tree], rows: list[Var], target: Target) -> None:
    root = plan.kernel.stages[-1]
    stages = plan.kernel.stages
    task, row = _row_loop(plan, root, rows, target)
    if _is_dear_sum(root, trees, rows, plan.kernel):
        (tree,) = trees.values()
        _sums_side_by_side(plan, tree, row, target.lanes(root.output.dtype.bytes))
        plan.do(Parallel(task))
        return
    inside = {name for tree in trees.values() for name in (*tree.levels, tree.blocks)}
    for s in reversed(stages[:-1]):
        if s.name in trees:
            place(plan, trees[s.name], row)
        elif s.name not in inside:
            _place(plan, s, row, target)
    for v in root.axes:
        if v not in rows:
            plan.vectorize(v.name, target.lanes(root.output.dtype.bytes))
    plan.do(Parallel(task))


def _is_dear_sum(root: Stage, trees: Mapping[str, Tree], rows: list[Var], kernel: Kernel) -> bool:
    """True for one reduction to a cell a row, and a map of that which is slow on scalars."""
    parts = sum(1 + len(tree.levels) + bool(tree.blocks) for tree in trees.values())
    alone = len(trees) == 1 and len(kernel.stages) == parts + 1
    return alone and list(root.axes) == rows != [] and cost_of_point(root) >= DEAR


def _sums_side_by_side(plan: Plan, tree: Tree, row: str, lanes: int) -> None:
    """Sum up as many rows as a vector has lanes, one after another, and map them all at once."""
    reduction, root = plan.kernel.stage(tree.root), plan.kernel.stages[-1]
    (read,) = {r for r in root.reads() if r.buffer in reduction.outputs}
    axis = reduction.axes[read.indices.index(memory_order(root)[-1])]
    parts = plan.do(Partition(row, lanes, "v"))
    loops = [parts.apart] if parts.apart else []
    if parts.main:
        halves = plan.do(Split(parts.main, lanes))
        loops = [halves.outer, *loops]
    place(plan, tree, *loops, row=axis.name)
    if parts.main:
        plan.do(Vectorize(halves.inner))


def _row_loop(plan: Plan, root: Stage, rows: list[Var], target: Target) -> tuple[str, str]:
    """The loop over tasks and the loop over the rows of one."""
    if not rows:
        whole = plan.do(Enclose("whole"))
        return whole, whole
    plan.reorder(*(v.name for v in rows), *(v.name for v in memory_order(root) if v not in rows))
    name, rest = rows[0].name, [v.name for v in rows[1:]]
    while rest and plan.static_size(rest[0]) is not None:
        name = plan.do(Fuse(name, rest.pop(0)))
    work = sum(points(s) * cost_of_point(s) for s in plan.kernel.stages)
    wanted = default_tasks(work, target)
    longest = max(rest[:-1] or rest, key=plan.size, default=name)
    if plan.size(name) < min(wanted, plan.size(longest)):
        # A batch of one, say: tasks are cut off another axis, if they can off one outside a row.
        rest[rest.index(longest)] = name
        name = longest
        plan.reorder(name, *rest)
    size = plan.size(name)
    tasks = plan.choose("tasks", wanted, (1, *task_counts(target)), lambda n: -(-size // n))
    chunks = plan.do(Chunk(name, -(-size // tasks)))
    return chunks.outer, rest[-1] if rest else chunks.inner


def _place(plan: Plan, s: Stage, loop: str, target: Target) -> None:
    """Compute a stage at the row loop; its innermost axis on vectors."""
    cells = _row_cells(plan, s, loop)
    scope = "register" if cells <= REGISTER_CELLS else "workspace"
    (placed,) = plan.do(ComputeAt(s.name, scope, (loop,)))
    inner = [n for v in memory_order(s) if (n := placed.over(v.name))]
    if inner and s.kind == "map":
        plan.vectorize(inner[-1], target.lanes(s.output.dtype.bytes))


def _row_cells(plan: Plan, s: Stage, loop: str) -> int:
    """The cells of a stage that one row needs; more than registers hold if that is symbolic."""
    region = region_read(find_loop(plan.kernel.body, loop).body, s.outputs)
    total = 1
    for e in region.extent if region is not None else ():
        total *= int(e.literal) if isinstance(e, Const) else REGISTER_CELLS + 1
    return total
