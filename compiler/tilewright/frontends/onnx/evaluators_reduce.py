# SPDX-License-Identifier: Apache-2.0
"""How ranges, reductions and running sums act on contents known at import."""

from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright.frontends import elements
from tilewright.frontends.dims import Unknown
from tilewright.frontends.elements import Element
from tilewright.frontends.onnx.context import NodeContext
from tilewright.frontends.onnx.evaluators import Binary, elementwise
from tilewright.frontends.onnx.evaluators_movement import known_axes, static_integers
from tilewright.frontends.onnx.operand import Operand
from tilewright.frontends.onnx.registry import Contents, evaluator
from tilewright.ir.dtypes import I64, DType
from tilewright.ir.ops.domain import accumulator_dtype

Inputs = list[Any]
_Finish = Callable[[Element, int, DType], Element]


@evaluator("Range")
def _range(ctx: NodeContext, inputs: Inputs) -> Contents:
    dtype = ctx.operand(0).dtype
    if not dtype.is_integer or any(i is None or i.size != 1 for i in inputs):
        raise Unknown
    start, limit, step = (i.reshape(-1)[0] for i in inputs)
    if step == 0:
        raise Unknown
    count = elements.count(start, limit, step, dtype)
    if not isinstance(count, int) or count > ctx.importer.limits.contents:
        raise Unknown
    result: Contents = np.empty(count, object)
    for i in range(count):
        result[i] = elements.plus(start, elements.times(i, step, dtype), dtype)
    return result


# --- reductions -----------------------------------------------------------------------------------


def _rows(data: Contents, chosen: tuple[int, ...]) -> Contents:
    """The data with the chosen axes together at the end."""
    kept = [a for a in range(data.ndim) if a not in chosen]
    if data.size == 0:
        raise Unknown
    return np.transpose(data, (*kept, *chosen)).reshape([data.shape[a] for a in kept] + [-1])


def _register_reduction(
    name: str, since: int, function: Binary, finish: _Finish | None = None
) -> None:
    @evaluator(name)
    def evaluate(ctx: NodeContext, inputs: Inputs) -> Contents:
        data: Contents = inputs[0]
        dtype = ctx.operand(0).dtype
        axes = known_axes(ctx, inputs, since)
        if not axes:
            if ctx.attributes.integer("noop_with_empty_axes", 0):
                return data
            axes = list(range(data.ndim))
        chosen = ctx.axes(axes, data.ndim)
        rows = _rows(data, chosen)
        result = np.empty(rows.shape[:-1], object)
        for position in np.ndindex(result.shape):
            result[position] = _reduced(list(rows[position]), dtype, function, finish)
        return np.expand_dims(result, chosen) if ctx.attributes.integer("keepdims", 1) else result


def _reduced(row: list[Element], dtype: DType, function: Binary, finish: _Finish | None) -> Element:
    """All elements of a row joined in order; those of the 16-bit floats in f32, rounded at the
    end.
    """
    wide = accumulator_dtype(dtype)
    total, *rest = row if wide is dtype else [elements.convert(x, dtype, wide) for x in row]
    for element in rest:
        total = function(total, element, wide)
    if finish is not None:
        total = finish(total, len(row), wide)
    return total if wide is dtype else elements.convert(total, wide, dtype)


def _mean(total: Element, count: int, dtype: DType) -> Element:
    return elements.divide(total, count, dtype)


_register_reduction("ReduceProd", 18, elements.times)
_register_reduction("ReduceSum", 13, elements.plus)
_register_reduction("ReduceMax", 18, elements.largest)
_register_reduction("ReduceMin", 18, elements.smallest)
_register_reduction("ReduceMean", 18, elements.plus, _mean)


def _register_arg(name: str, comparison: str) -> None:
    @evaluator(name)
    def evaluate(ctx: NodeContext, inputs: Inputs) -> Operand:
        data: Contents = inputs[0]
        axis = ctx.axis(ctx.attributes.integer("axis", 0), data.ndim)
        last = bool(ctx.attributes.integer("select_last_index", 0))
        better = comparison.replace("t", "e") if last else comparison
        rows = _rows(data, (axis,))
        result = np.empty(rows.shape[:-1], object)
        for position in np.ndindex(result.shape):
            result[position] = _best(list(rows[position]), better, ctx.operand(0).dtype)
        keep = ctx.attributes.integer("keepdims", 1)
        return ctx.known_result(np.expand_dims(result, axis) if keep else result, I64)


def _best(row: list[Element], better: str, dtype: DType) -> Element:
    """The position of the first element that all before and after it do not surpass."""
    place: Element = 0
    best = row[0]
    for position, element in enumerate(row[1:], 1):
        surpasses = elements.compare(better, element, best, dtype)
        place = elements.choose(surpasses, position, place, I64)
        best = elements.choose(surpasses, element, best, dtype)
    return place


_register_arg("ArgMax", "gt")
_register_arg("ArgMin", "lt")


@evaluator("NonZero")
def _nonzero(ctx: NodeContext, inputs: Inputs) -> Operand:
    dtype = ctx.operand(0).dtype
    flat = [elements.decide("ne", x, 0, dtype) for x in inputs[0].reshape(-1)]
    truth = np.array(flat, bool).reshape(inputs[0].shape)
    positions = np.array(np.nonzero(truth), np.int64)
    return ctx.known_result(positions.astype(object), I64)


@evaluator("CumSum")
def _cumsum(ctx: NodeContext, inputs: Inputs) -> Contents:
    dtype = ctx.operand(0).dtype
    (axis,) = static_integers(inputs[1])
    along = ctx.axis(axis, inputs[0].ndim)
    rows = np.moveaxis(np.array(inputs[0], object), along, 0)
    if ctx.attributes.integer("reverse", 0):
        rows = rows[::-1]
    result: Contents = np.empty(rows.shape, object)
    total: Contents = np.full(rows.shape[1:], 0, object)
    exclusive = bool(ctx.attributes.integer("exclusive", 0))
    for position, row in enumerate(rows):
        after = elementwise(lambda x, y: elements.plus(x, y, dtype), total, np.asarray(row, object))
        shown = total if exclusive else after
        result[position] = shown if shown.ndim else shown[()]
        total = after
    if ctx.attributes.integer("reverse", 0):
        result = result[::-1]
    return np.moveaxis(result, 0, along)
