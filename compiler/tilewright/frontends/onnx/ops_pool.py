# SPDX-License-Identifier: Apache-2.0
"""Pooling over windows and over whole planes."""

import math
from typing import Any

from tilewright.frontends.onnx import compose
from tilewright.frontends.onnx.context import NodeContext
from tilewright.frontends.onnx.registry import handler
from tilewright.frontends.onnx.windows import WindowAttributes, read_windows, with_pads
from tilewright.ir.graph import Value
from tilewright.ir.ops.binary import Div, Mul, Pow
from tilewright.ir.ops.pool import AvgPool, MaxPool, SumPool
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
    return ctx.emit(
        MaxPool(windows.kernel, windows.strides, pads, windows.dilations, windows.ceil), x
    )


@handler("AveragePool")
def _average_pool(ctx: NodeContext) -> Value:
    return average(ctx, ctx.value(0), bool(ctx.attributes.integer("count_include_pad", 0)))


def average(ctx: NodeContext, x: Value, include_pad: bool) -> Value:
    """The mean over windows; padding that had to be made by a node of its own is counted apart."""
    windows = _windows(ctx)
    padded, pads = with_pads(ctx, x, windows, 0)
    op = AvgPool(
        windows.kernel, windows.strides, pads, windows.dilations, windows.ceil, include_pad
    )
    result = ctx.emit(op, padded)
    if padded is x or include_pad:
        return result
    ones = compose.full(ctx, 1, x.type)
    counted, _ = with_pads(ctx, ones, windows, 0)
    return ctx.emit(Div(), result, ctx.emit(op, counted))


@handler("LpPool")
def _lp_pool(ctx: NodeContext) -> Value:
    """``(sum of |x| ** p) ** (1 / p)``."""
    x = ctx.value(0)
    p = _degree(ctx)
    windows = _windows(ctx)
    powered, pads = with_pads(ctx, _power(ctx, x, p), windows, 0)
    op = SumPool(windows.kernel, windows.strides, pads, windows.dilations, windows.ceil)
    return _root(ctx, ctx.emit(op, powered), p)


def _degree(ctx: NodeContext) -> float:
    """p, which was a float in version 1."""
    p = ctx.attributes.number("p", 2.0) if ctx.version < 2 else ctx.attributes.integer("p", 2)
    ctx.require(0 < p < math.inf, f"Its p is {p}, not a number above 0.")
    return p


def _power(ctx: NodeContext, x: Value, p: float) -> Value:
    if p == 2:
        return ctx.emit(Mul(), x, x)
    absolute = ctx.emit(Abs(), x)
    return absolute if p == 1 else ctx.emit(Pow(), absolute, compose.like(ctx, p, x))


def _root(ctx: NodeContext, x: Value, p: float) -> Value:
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
    p = _degree(ctx)
    return _root(ctx, ctx.emit(ReduceSum(_plane(ctx, x), True), _power(ctx, x, p)), p)
