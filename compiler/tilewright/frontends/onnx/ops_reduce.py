# SPDX-License-Identifier: Apache-2.0
"""Reductions: sums, extremes, norms, positions of extremes, cumulative sums."""

from collections.abc import Callable

from tilewright.frontends.dims import size_of
from tilewright.frontends.onnx import compose
from tilewright.frontends.onnx.context import NodeContext
from tilewright.frontends.onnx.registry import handler
from tilewright.ir.dtypes import BOOL, F64, U8
from tilewright.ir.graph import Value
from tilewright.ir.ops.arg_reduce import Argmax, Argmin
from tilewright.ir.ops.binary import Add, Div, Mul, Sub
from tilewright.ir.ops.comparison import Equal
from tilewright.ir.ops.cumsum import Cumsum
from tilewright.ir.ops.dim_values import DimValues
from tilewright.ir.ops.reduce import ReduceMax, ReduceMean, ReduceMin, ReduceProd, ReduceSum
from tilewright.ir.ops.unary import Abs, Exp, Isinf, Log, Sqrt
from tilewright.ir.ops.where import Where

Reducer = Callable[[NodeContext, Value, tuple[int, ...], bool], Value]


def _axes(ctx: NodeContext, since: int, rank: int) -> tuple[int, ...]:
    """The axes: an attribute at first, an input since that version; all if none are given."""
    axes = ctx.attributes.integers("axes")
    if ctx.version >= since:
        axes = ctx.static_integers(1, "axes") if ctx.has(1) else None
    if axes:
        return ctx.axes(axes, rank)
    return () if ctx.attributes.integer("noop_with_empty_axes", 0) else tuple(range(rank))


def _register(name: str, since: int, reducer: Reducer) -> None:
    @handler(name)
    def reduce(ctx: NodeContext) -> Value:
        x = ctx.value(0)
        keep = bool(ctx.attributes.integer("keepdims", 1))
        return reducer(ctx, x, _axes(ctx, since, x.type.rank), keep)


def _sum(ctx: NodeContext, x: Value, axes: tuple[int, ...], keep: bool) -> Value:
    return ctx.emit(ReduceSum(axes, keep), x) if axes else x


def _max(ctx: NodeContext, x: Value, axes: tuple[int, ...], keep: bool) -> Value:
    if not axes or not x.type.dtype.is_bool:
        return ctx.emit(ReduceMax(axes, keep), x) if axes else x
    narrow = ctx.emit(ReduceMax(axes, keep), compose.cast(ctx, x, U8))
    return compose.cast(ctx, narrow, BOOL)


def _min(ctx: NodeContext, x: Value, axes: tuple[int, ...], keep: bool) -> Value:
    if not axes or not x.type.dtype.is_bool:
        return ctx.emit(ReduceMin(axes, keep), x) if axes else x
    narrow = ctx.emit(ReduceMin(axes, keep), compose.cast(ctx, x, U8))
    return compose.cast(ctx, narrow, BOOL)


def _prod(ctx: NodeContext, x: Value, axes: tuple[int, ...], keep: bool) -> Value:
    return ctx.emit(ReduceProd(axes, keep), x) if axes else x


def _mean(ctx: NodeContext, x: Value, axes: tuple[int, ...], keep: bool) -> Value:
    if not axes:
        return x
    if x.type.dtype.is_float:
        return ctx.emit(ReduceMean(axes, keep), x)
    count = size_of([x.type.shape[a] for a in axes])
    divisor = compose.cast(
        ctx, compose.reshape(ctx, ctx.emit(DimValues((count,))), ()), x.type.dtype
    )
    return ctx.emit(Div(), _sum(ctx, x, axes, keep), divisor)


def _l1(ctx: NodeContext, x: Value, axes: tuple[int, ...], keep: bool) -> Value:
    return _sum(ctx, ctx.emit(Abs(), x), axes, keep)


def _sum_square(ctx: NodeContext, x: Value, axes: tuple[int, ...], keep: bool) -> Value:
    return _sum(ctx, ctx.emit(Mul(), x, x), axes, keep)


def _through_float(ctx: NodeContext, x: Value, function: Callable[[Value], Value]) -> Value:
    """Apply a function of floats; integers go through f64 and back."""
    if x.type.dtype.is_float:
        return function(x)
    return compose.cast(ctx, function(compose.cast(ctx, x, F64)), x.type.dtype)


def _l2(ctx: NodeContext, x: Value, axes: tuple[int, ...], keep: bool) -> Value:
    return _through_float(ctx, x, lambda v: ctx.emit(Sqrt(), _sum_square(ctx, v, axes, keep)))


def _log_sum(ctx: NodeContext, x: Value, axes: tuple[int, ...], keep: bool) -> Value:
    return _through_float(ctx, x, lambda v: ctx.emit(Log(), _sum(ctx, v, axes, keep)))


def _log_sum_exp(ctx: NodeContext, x: Value, axes: tuple[int, ...], keep: bool) -> Value:
    """``m + log(sum(exp(x - m)))`` with the largest element m, or 0 where that is infinite."""

    def stable(v: Value) -> Value:
        if not axes:
            return v
        largest = ctx.emit(ReduceMax(axes, True), v)
        zero = compose.like(ctx, 0, v)
        shift = ctx.emit(Where(), ctx.emit(Isinf(True, True), largest), zero, largest)
        total = ctx.emit(ReduceSum(axes, True), ctx.emit(Exp(), ctx.emit(Sub(), v, shift)))
        result = ctx.emit(Add(), ctx.emit(Log(), total), shift)
        return result if keep else compose.squeeze(ctx, result, axes)

    return _through_float(ctx, x, stable)


_register("ReduceSum", 13, _sum)
for _name, _reducer in (
    ("ReduceMax", _max),
    ("ReduceMin", _min),
    ("ReduceProd", _prod),
    ("ReduceMean", _mean),
    ("ReduceL1", _l1),
    ("ReduceL2", _l2),
    ("ReduceLogSum", _log_sum),
    ("ReduceLogSumExp", _log_sum_exp),
    ("ReduceSumSquare", _sum_square),
):
    _register(_name, 18, _reducer)


def _register_position(name: str, op: type[Argmax] | type[Argmin]) -> None:
    @handler(name)
    def position(ctx: NodeContext) -> Value:
        x = ctx.value(0)
        axis = ctx.axis(ctx.attributes.integer("axis", 0), x.type.rank)
        keep = bool(ctx.attributes.integer("keepdims", 1))
        last = bool(ctx.attributes.integer("select_last_index", 0))
        return ctx.emit(op(axis, keep, last), x)


_register_position("ArgMax", Argmax)
_register_position("ArgMin", Argmin)


@handler("CumSum", since=11)
def _cumsum(ctx: NodeContext) -> Value:
    x = ctx.value(0)
    axes = ctx.static_integers(1, "axis")
    ctx.require(len(axes) == 1, f"Its axis must be one number, not {len(axes)}.")
    exclusive = bool(ctx.attributes.integer("exclusive", 0))
    reverse = bool(ctx.attributes.integer("reverse", 0))
    return ctx.emit(Cumsum(ctx.axis(axes[0], x.type.rank), exclusive, reverse), x)


@handler("LpNormalization")
def _lp_normalization(ctx: NodeContext) -> Value:
    x = ctx.value(0)
    axis = ctx.axis(ctx.attributes.integer("axis", -1), x.type.rank)
    p = ctx.attributes.integer("p", 2)
    ctx.require(p in (1, 2), f"Its p is {p}, neither 1 nor 2.")
    norm = (_l1 if p == 1 else _l2)(ctx, x, (axis,), True)
    zero = compose.like(ctx, 0, x)
    # A vector of zeros stays one.
    safe = ctx.emit(Where(), ctx.emit(Equal(), norm, zero), compose.like(ctx, 1, x), norm)
    return ctx.emit(Div(), x, safe)
