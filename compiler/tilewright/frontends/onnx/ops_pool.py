# SPDX-License-Identifier: Apache-2.0
"""Pooling over windows and over whole planes."""

import math
from typing import Any

from tilewright.frontends.onnx import compose
from tilewright.frontends.onnx.context import NodeContext
from tilewright.frontends.onnx.registry import handler
from tilewright.frontends.onnx.windows import WindowAttributes, read_windows, with_pads
from tilewright.ir.expr import Const
from tilewright.ir.graph import Value
from tilewright.ir.ops.binary import Div, Mul, Pow
from tilewright.ir.ops.pool import AvgPool, MaxPool
from tilewright.ir.ops.reduce import ReduceMax, ReduceMean, ReduceSum
from tilewright.ir.ops.unary import Abs, Sqrt


def _windows(ctx: NodeContext) -> WindowAttributes:
    kernel = ctx.attributes.integers("kernel_shape")
    ctx.require(bool(kernel), "It has no kernel_shape.")
    return read_windows(ctx, kernel or ())


@handler("MaxPool")
def _max_pool(ctx: NodeContext) -> Value:
    if ctx.outputs > 1:
        ctx.unsupported("the positions of the maxima are asked for")
    windows = _windows(ctx)
    x = ctx.value(0)
    lowest: Any = x.type.dtype.min
    x, pads = with_pads(ctx, x, windows, lowest)
    ceil = bool(ctx.attributes.integer("ceil_mode", 0))
    return ctx.emit(MaxPool(windows.kernel, windows.strides, pads, windows.dilations, ceil), x)


@handler("AveragePool")
def _average_pool(ctx: NodeContext) -> Value:
    return average(ctx, ctx.value(0), bool(ctx.attributes.integer("count_include_pad", 0)))


def average(ctx: NodeContext, x: Value, include_pad: bool) -> Value:
    """The mean over windows; padding that had to be made by a node of its own is counted apart."""
    windows = _windows(ctx)
    ceil = bool(ctx.attributes.integer("ceil_mode", 0))
    padded, pads = with_pads(ctx, x, windows, 0)
    op = AvgPool(windows.kernel, windows.strides, pads, windows.dilations, ceil, include_pad)
    result = ctx.emit(op, padded)
    if padded is x or include_pad:
        return result
    ones = compose.full(ctx, 1, x.type)
    counted, _ = with_pads(ctx, ones, windows, 0)
    return ctx.emit(Div(), result, ctx.emit(op, counted))


@handler("LpPool")
def _lp_pool(ctx: NodeContext) -> Value:
    """``(sum of |x| ** p) ** (1 / p)``, the sum as a mean over windows times their size."""
    x = ctx.value(0)
    p = ctx.attributes.integer("p", 2)
    ctx.require(p > 0, f"Its p is {p}, below 1.")
    windows = _windows(ctx)
    powered = _power(ctx, x, p)
    if ctx.attributes.integer("ceil_mode", 0):
        powered = _extended(ctx, powered, windows)
        op = AvgPool(
            windows.kernel,
            windows.strides,
            (0,) * (2 * windows.rank),
            windows.dilations,
            False,
            True,
        )
        mean = ctx.emit(op, powered)
    else:
        padded, pads = with_pads(ctx, powered, windows, 0)
        op = AvgPool(windows.kernel, windows.strides, pads, windows.dilations, False, True)
        mean = ctx.emit(op, padded)
    total = ctx.emit(Mul(), mean, compose.like(ctx, math.prod(windows.kernel), x))
    return _root(ctx, total, p)


def _extended(ctx: NodeContext, x: Value, windows: WindowAttributes) -> Value:
    """The input padded far enough at the end for the windows that ceil_mode adds."""
    if windows.pads is None:
        return with_pads(ctx, x, windows, 0)[0]
    rank = windows.rank
    begins, ends = [0, 0], [0, 0]
    for axis, extent in enumerate(x.type.shape[2:]):
        if not isinstance(extent, Const):
            ctx.unsupported("its ceil_mode on symbolic dims")
        low, high = windows.pads[axis], windows.pads[rank + axis]
        free = int(extent.literal) + low + high - windows.reach(axis)
        begins.append(low)
        ends.append(high + (-free) % windows.strides[axis])
    return compose.pad(ctx, x, begins, ends, 0)


def _power(ctx: NodeContext, x: Value, p: int) -> Value:
    if p == 2:
        return ctx.emit(Mul(), x, x)
    absolute = ctx.emit(Abs(), x)
    return absolute if p == 1 else ctx.emit(Pow(), absolute, compose.like(ctx, p, x))


def _root(ctx: NodeContext, x: Value, p: int) -> Value:
    if p == 1:
        return x
    return ctx.emit(Sqrt(), x) if p == 2 else ctx.emit(Pow(), x, compose.like(ctx, 1.0 / p, x))


def _plane(ctx: NodeContext, x: Value) -> tuple[int, ...]:
    ctx.require(x.type.rank >= 3, f"Its input has rank {x.type.rank}; at least 3 is needed.")
    return tuple(range(2, x.type.rank))


@handler("GlobalAveragePool")
def _global_average_pool(ctx: NodeContext) -> Value:
    x = ctx.value(0)
    return ctx.emit(ReduceMean(_plane(ctx, x), True), x)


@handler("GlobalMaxPool")
def _global_max_pool(ctx: NodeContext) -> Value:
    x = ctx.value(0)
    return ctx.emit(ReduceMax(_plane(ctx, x), True), x)


@handler("GlobalLpPool")
def _global_lp_pool(ctx: NodeContext) -> Value:
    x = ctx.value(0)
    p = ctx.attributes.integer("p", 2)
    ctx.require(p > 0, f"Its p is {p}, below 1.")
    return _root(ctx, ctx.emit(ReduceSum(_plane(ctx, x), True), _power(ctx, x, p)), p)
