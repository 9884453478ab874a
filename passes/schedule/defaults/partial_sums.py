# SPDX-License-Identifier: Apache-2.0
"""Reductions along memory: partial results on vectors, in short chains, combined in a fixed tree.

One chain of additions is slow, as each waits for the one before, and inaccurate: it is off by up
to as many roundings as it has terms. So a reduction over an axis that lies along memory gets one
accumulator a lane, for one to four vectors; float32 sums run over them in chains of ``CHAIN``
terms, which are added up in float64; in the end fours of lanes are combined until one is left. With
chains of 8 the error is within (8 + log2 n) roundings of the sum of the terms' absolute values for
n terms, however many there are, and memory sets the speed. The tree follows from shape and target
alone, so that results have the same bits on any number of threads.

:func:`divide` does the steps on stages, :func:`place` those on loops.
"""

from dataclasses import dataclass

from tilewright.ir.dtypes import F32
from tilewright.ir.expr import Binary, Var
from tilewright.ir.stage import Stage
from tilewright.passes.lower.split_reduction import is_splittable
from tilewright.passes.schedule.defaults.plan import Plan, extent, is_static
from tilewright.passes.schedule.handles import Placed
from tilewright.passes.schedule.steps import (
    BlockReduction,
    ComputeAt,
    SplitReduction,
    Vectorize,
)

CHAIN = 8
"""The terms of a float sum that are added one after another; see the module for why 8."""

UNCUT = 12
"""One chain of so many terms is within that error too."""

SHORTEST = 5
"""The least extent of an axis for which partial results pay."""

FAN_IN = 4
"""How many lanes are combined at a time."""

_MOST_VECTORS = 4


@dataclass(frozen=True)
class Tree:
    """The stages that a reduction was divided into: its own, which combines the last lanes; those
    that combine more of them, the widest last; and that of the blocks, if there is one.
    """

    root: str
    levels: tuple[str, ...] = ()
    blocks: str = ""


def is_float_sum(stage: Stage) -> bool:
    """True for a reduction that adds up floating-point terms."""
    combine = stage.values[0]
    is_sum = isinstance(combine, Binary) and combine.op == "add" and combine.dtype.is_float
    return is_sum and is_splittable(stage)


def is_long_sum(stage: Stage, width: int = 1) -> bool:
    """True for a float sum of which one of ``width`` accumulators may get more than a chain."""
    terms = 1
    for axis in stage.reduce_axes:
        terms *= extent(axis)
    static = all(map(is_static, stage.reduce_axes))
    most = UNCUT if width == 1 else CHAIN * width
    return is_float_sum(stage) and (not static or terms > most)


def wide_type(stage: Stage) -> str:
    """The type in which blocks of a float sum are added up: one step wider than float32."""
    return "f64" if stage.init[0].dtype is F32 else "same"


def block_sum(plan: Plan, stage: Stage, axis: Var, lanes: int = 1) -> str:
    """Reduce an axis in short chains, added up in the wide type; the stage of the chains."""
    steps = min(CHAIN, -(-extent(axis) // lanes)) if is_static(axis) else CHAIN
    dtype = wide_type(stage) if is_float_sum(stage) else "same"
    return plan.do(BlockReduction(stage.name, axis.name, steps, lanes, dtype))


def divide(plan: Plan, stage: Stage, lanes: int) -> Tree:
    """Divide the last reduce axis of a stage, which lies along memory, over vectors."""
    if not is_splittable(stage) or not stage.reduce_axes:
        return Tree(stage.name)
    axis = stage.reduce_axes[-1]
    if is_static(axis) and extent(axis) < SHORTEST:
        return Tree(stage.name)
    width = _width(axis, lanes)
    blocks = ""
    if is_long_sum(stage, width):
        blocks = block_sum(plan, stage, axis, width)
        axis = plan.kernel.stage(stage.name).reduce_axes[-1]
    levels = [plan.do(SplitReduction(stage.name, axis.name, width))]
    while width > FAN_IN:
        width = lanes if width > lanes else max(FAN_IN, width // FAN_IN)
        (axis,) = plan.kernel.stage(stage.name).reduce_axes
        levels.append(plan.do(SplitReduction(stage.name, axis.name, width)))
    return Tree(stage.name, tuple(reversed(levels)), blocks)


def _width(axis: Var, lanes: int) -> int:
    """How many partial results: four vectors of a long axis, fewer of a short one."""
    size = extent(axis)
    if not is_static(axis):
        return _MOST_VECTORS * lanes
    if size < lanes:
        return 1 << (size.bit_length() - 1)
    vectors = next((n for n in (4, 2) if size >= CHAIN * n * lanes), 1)
    return vectors * lanes


def place(plan: Plan, tree: Tree, *loops: str, row: str = "") -> None:
    """Compute a divided reduction in one iteration of a loop, or of each of several; ``row`` is the
    axis of the reduction along which there are several of them in an iteration. Its partial results
    are in registers.
    """
    inner: list[str] = []
    for loop, root in zip(loops, plan.do(ComputeAt(tree.root, "register", loops)), strict=True):
        _unroll_steps(plan, root, tree.root, row)
        inner.append(root.over(row) or loop)
    for level in tree.levels[:-1]:
        for placed in plan.do(ComputeAt(level, "register", tuple(inner))):
            _unroll_steps(plan, placed, level)
    if not tree.levels:
        return
    widest = tree.levels[-1]
    for placed in plan.do(ComputeAt(widest, "register", tuple(inner))):
        steps = _lanes_inside(plan, placed, widest)
        if not tree.blocks:
            plan.peel(steps[-1])
            continue
        # The loop over the one vector of lanes is innermost, the one over blocks around it.
        over_blocks = steps[-2] if len(steps) > 1 else steps[-1]
        (block,) = plan.do(ComputeAt(tree.blocks, "register", (over_blocks,)))
        plan.unroll_short(_lanes_inside(plan, block, tree.blocks))
        plan.peel(over_blocks)


def _lanes_inside(plan: Plan, placed: Placed, name: str) -> list[str]:
    """Put the accumulators of a placed reduction innermost, all lanes at once; the loops over its
    reduce axes.
    """
    stage = plan.kernel.stage(name)
    steps = [placed.over(v.name) for v in stage.reduce_axes]
    lane = stage.axes[-1].name if stage.axes else ""
    if placed.over(lane):
        plan.reorder(*steps, placed.over(lane))
        plan.do(Vectorize(placed.over(lane)))
        plan.do(Vectorize(placed.first_over(lane)))
    return steps


def _unroll_steps(plan: Plan, placed: Placed, name: str, row: str = "") -> None:
    if placed.over(row):  # what has rows has no lanes: each of its rows is a sum of its own
        plan.unroll_short(placed.over(v.name) for v in plan.kernel.stage(name).reduce_axes)
    else:
        plan.unroll_short(_lanes_inside(plan, placed, name))
