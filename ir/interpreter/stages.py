# SPDX-License-Identifier: Apache-2.0
"""Evaluation of stages: the meaning of a computation before any loop exists.

A stage is evaluated on the grid of its axes at once: an axis is an ``arange`` along its own
dimension, an expression becomes an array by numpy's broadcasting, a read is an indexed gather.
Reductions go through their points in row-major order, as :mod:`tilewright.ir.stage` says; where the
combination is ``acc OP e`` a strictly sequential ``accumulate`` does many points in one call with
the same roundings. Arrays are logical: layouts play no part here.
"""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tilewright.ir.errors import InterpreterError
from tilewright.ir.expr import Binary, Expr, free_variables
from tilewright.ir.interpreter.grid import Grid
from tilewright.ir.interpreter.loops import run_body
from tilewright.ir.op import Array
from tilewright.ir.rewrite import evaluate
from tilewright.ir.stage import Stage

# Elements of one evaluation of a reduction: bounds memory.
_CHUNK = 1 << 20
_ACCUMULATE = {
    "add": np.add,
    "mul": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}


def run_stages(
    stages: Sequence[Stage], buffers: Mapping[str, Array], symbols: Mapping[str, int]
) -> dict[str, Array]:
    """All buffers after the stages ran in order, by name.

    ``buffers`` holds the inputs in logical shape, ``symbols`` the values of symbols by name.
    InterpreterError if a read is out of bounds.
    """
    memory = dict(buffers)
    with np.errstate(all="ignore"):
        for stage in stages:
            _run_stage(stage, memory, symbols)
    return memory


def _run_stage(stage: Stage, memory: dict[str, Array], symbols: Mapping[str, int]) -> None:
    if stage.kind == "opaque":
        _run_opaque(stage, memory, symbols)
        return
    for output in stage.outputs:
        shape = [evaluate(d, symbols) for d in output.shape]
        memory[output.name] = np.zeros(shape, dtype=output.dtype.numpy)
    grid = Grid(stage, memory, symbols)
    if stage.kind == "map":
        for output, value in zip(stage.outputs, stage.values, strict=True):
            grid.store(output, stage.targets, grid.value(value))
    elif stage.kind == "reduce":
        _run_reduce(stage, grid)
    elif stage.kind == "scan":
        _run_scan(stage, grid)
    else:
        _run_scatter(stage, grid)


def _run_opaque(stage: Stage, memory: dict[str, Array], symbols: Mapping[str, int]) -> None:
    if stage.body is None:
        raise InterpreterError(f"The opaque stage '{stage.name}' has no body to run.")
    outputs = run_body(stage.name, stage.body, stage.outputs, memory, symbols)
    memory.update(outputs)


def _points(extents: Sequence[int]) -> "itertools.product[tuple[int, ...]]":
    return itertools.product(*(range(n) for n in extents))


def _run_reduce(stage: Stage, grid: Grid) -> None:
    state = {
        a.name: grid.full(grid.value(i), a.dtype.numpy)
        for a, i in zip(stage.accumulators, stage.init, strict=True)
    }
    split = _accumulated(stage)
    if split is not None:
        state[stage.accumulators[0].name] = _accumulate(stage, grid, *split)
    else:
        for point in _points([grid.extent(v) for v in stage.reduce_axes]):
            state = _step(stage, grid, dict(zip(stage.reduce_axes, point, strict=True)), state)
    for output, accumulator in zip(stage.outputs, stage.accumulators, strict=False):
        grid.store(output, stage.targets, state[accumulator.name])


def _step(
    stage: Stage, grid: Grid, fixed: Mapping[Expr, int], state: Mapping[str, Any]
) -> dict[str, Any]:
    grid.fix(fixed, state)
    return {
        a.name: grid.full(grid.value(v), a.dtype.numpy)
        for a, v in zip(stage.accumulators, stage.values, strict=True)
    }


def _accumulated(stage: Stage) -> tuple[str, Expr] | None:
    """(op, e) if the reduction is ``acc op e`` with ``e`` free of the accumulator."""
    if len(stage.values) != 1 or not stage.reduce_axes:
        return None
    (value,), (accumulator,) = stage.values, stage.accumulators
    if not isinstance(value, Binary) or value.op not in _ACCUMULATE or value.dtype.bits < 8:
        return None
    for mine, e in ((value.x, value.y), (value.y, value.x)):
        if mine is accumulator and accumulator not in free_variables(e):
            return value.op, e
    return None


def _accumulate(stage: Stage, grid: Grid, op: str, e: Expr) -> Array:
    (accumulator,), (init,) = stage.accumulators, stage.init
    total = grid.full(grid.value(init), accumulator.dtype.numpy)
    extents = [grid.extent(v) for v in stage.reduce_axes]
    if total.size == 0:
        return total
    # As many of the innermost axes at once as memory allows; the rest one point at a time.
    outer, size = len(extents), max(1, total.size)
    while outer and size * max(1, extents[outer - 1]) <= _CHUNK:
        outer -= 1
        size *= max(1, extents[outer])
    inner_axes = stage.reduce_axes[outer:]
    for point in _points(extents[:outer]):
        fixed: dict[Expr, int] = dict(zip(stage.reduce_axes[:outer], point, strict=True))
        block = grid.extended(inner_axes, fixed)
        items = block.full(block.value(e), total.dtype).reshape(-1, *total.shape)
        sequence = np.concatenate([total[None], items])
        total = _ACCUMULATE[op].accumulate(sequence, axis=0)[-1]
    return np.asarray(total)


def _run_scan(stage: Stage, grid: Grid) -> None:
    scanned = stage.axes[-1]
    # ``init`` is evaluated at the first step; it does not mention the scanned axis.
    slices = Grid(stage, grid.memory, grid.symbols, stage.axes[:-1])
    slices.fixed[scanned] = 0
    state = {
        a.name: slices.full(slices.value(i), a.dtype.numpy)
        for a, i in zip(stage.accumulators, stage.init, strict=True)
    }
    for step in range(grid.extent(scanned)):
        before = state
        state = _step(stage, slices, {scanned: step}, state)
        stored = before if stage.exclusive else state
        for output, accumulator in zip(stage.outputs, stage.accumulators, strict=False):
            slices.store(output, stage.targets, stored[accumulator.name])


def _run_scatter(stage: Stage, grid: Grid) -> None:
    for output, init in zip(stage.outputs, stage.init, strict=True):
        grid.memory[output.name][...] = grid.value(init)
    for point in _points([grid.extent(v) for v in stage.reduce_axes]):
        fixed: dict[Expr, int] = dict(zip(stage.reduce_axes, point, strict=True))
        cell = Grid(stage, grid.memory, grid.symbols, (), fixed)
        place = tuple(int(cell.value(t)) for t in stage.targets)
        cell.check(stage.output, stage.targets, place, None)
        for output, accumulator in zip(stage.outputs, stage.accumulators, strict=True):
            cell.bound[accumulator.name] = grid.memory[output.name][place]
        results = [cell.value(v) for v in stage.values]
        for output, result in zip(stage.outputs, results, strict=True):
            grid.memory[output.name][place] = result
