# SPDX-License-Identifier: Apache-2.0
"""Normalisations: batch, instance, layer, group, RMS, local response; softmax and its relatives in
both generations.
"""

from collections.abc import Callable, Sequence

from tilewright.frontends.dims import exact_quotient, size_of
from tilewright.frontends.onnx import compose
from tilewright.frontends.onnx.context import NodeContext
from tilewright.frontends.onnx.registry import handler
from tilewright.frontends.onnx.windows import LARGEST
from tilewright.ir.dtypes import F32
from tilewright.ir.expr import index
from tilewright.ir.graph import Value
from tilewright.ir.ops.arg_reduce import Argmax
from tilewright.ir.ops.binary import Add, Div, Mul, Pow, Sub
from tilewright.ir.ops.channel_norm import BatchNorm, GroupNorm, InstanceNorm
from tilewright.ir.ops.comparison import Equal
from tilewright.ir.ops.domain import accumulator_dtype
from tilewright.ir.ops.layer_norm import LayerNorm, RmsNorm
from tilewright.ir.ops.pool import AvgPool
from tilewright.ir.ops.reduce import ReduceMean
from tilewright.ir.ops.softmax import LogSoftmax, Softmax
from tilewright.ir.ops.unary import Rsqrt, Sqrt


@handler("BatchNormalization", since=7)
def batch_norm(ctx: NodeContext) -> object:
    """Stays one op, which a pass folds into a conv; the batch gives statistics in training."""
    x = ctx.value(0)
    dtype = x.type.dtype
    if not ctx.attributes.integer("spatial", 1):
        ctx.unsupported("it is not spatial")
    scale, bias, mean, variance = (ctx.value(i) for i in range(1, 5))
    op = BatchNorm(ctx.attributes.number("epsilon", 1e-5))
    training = ctx.version >= 14 and ctx.attributes.integer("training_mode", 0)
    # Until there was an attribute for it, a node that names more results trained.
    if (ctx.outputs if ctx.version >= 14 else ctx.named) > 1 and not training:
        ctx.unsupported("its results beyond the first exist only in training mode")
    scale, bias = compose.cast(ctx, scale, dtype), compose.cast(ctx, bias, dtype)
    if not training:
        statistics = (compose.cast(ctx, mean, dtype), compose.cast(ctx, variance, dtype))
        return ctx.emit(op, x, scale, bias, *statistics)
    axes = (0, *range(2, x.type.rank))
    own_mean, own_variance = _moments(ctx, x, axes)
    y = ctx.emit(op, x, scale, bias, own_mean, own_variance)
    momentum = ctx.attributes.number("momentum", 0.9)
    running = [
        _blend(ctx, old, new, momentum) for old, new in ((mean, own_mean), (variance, own_variance))
    ]
    return [y, *running]


def _moments(ctx: NodeContext, x: Value, axes: tuple[int, ...]) -> tuple[Value, Value]:
    """Mean and variance over axes, as vectors over the rest."""
    mean = ctx.emit(ReduceMean(axes, True), x)
    centred = ctx.emit(Sub(), x, mean)
    variance = ctx.emit(ReduceMean(axes, False), ctx.emit(Mul(), centred, centred))
    return compose.squeeze(ctx, mean, axes), variance


def _blend(ctx: NodeContext, old: Value, new: Value, momentum: float) -> Value:
    kept = ctx.emit(Mul(), old, compose.like(ctx, momentum, old))
    fresh = compose.cast(ctx, new, old.type.dtype)
    return ctx.emit(Add(), kept, ctx.emit(Mul(), fresh, compose.like(ctx, 1.0 - momentum, old)))


@handler("InstanceNormalization")
def _instance_norm(ctx: NodeContext) -> Value:
    epsilon = ctx.attributes.number("epsilon", 1e-5)
    return ctx.emit(InstanceNorm(epsilon), ctx.value(0), ctx.value(1), ctx.value(2))


@handler("GroupNormalization", since=18)
def _group_norm_by_group(ctx: NodeContext) -> Value:
    """Version 18 has one scale and bias for each group."""
    x = ctx.value(0)
    groups = _groups(ctx)
    per_group = exact_quotient(x.type.shape[1], index(groups))
    ctx.require(
        per_group is not None, f"Its {x.type.shape[1]} channels do not split into {groups} groups."
    )
    assert per_group is not None

    def spread(v: Value) -> Value:
        column = compose.reshape(ctx, v, (groups, 1))
        return compose.reshape(
            ctx, compose.broadcast(ctx, column, (groups, per_group)), x.type.shape[1:2]
        )

    op = GroupNorm(groups, ctx.attributes.number("epsilon", 1e-5))
    return ctx.emit(op, x, spread(ctx.value(1)), spread(ctx.value(2)))


@handler("GroupNormalization", since=21)
def _group_norm(ctx: NodeContext) -> Value:
    op = GroupNorm(_groups(ctx), ctx.attributes.number("epsilon", 1e-5))
    return ctx.emit(op, ctx.value(0), ctx.value(1), ctx.value(2))


@handler("MeanVarianceNormalization", since=9)
def _mean_variance_norm(ctx: NodeContext) -> Value:
    given = ctx.attributes.integers("axes")
    return mean_variance_norm(ctx, (0, 2, 3) if given is None else given, True)


def mean_variance_norm(ctx: NodeContext, axes: Sequence[int], divide: bool) -> Value:
    """``(x - mean) / (deviation + 1e-9)``, the standard's function, or the difference alone;
    rounded to x's type once.
    """
    x = ctx.value(0)
    wide = compose.cast(ctx, x, accumulator_dtype(x.type.dtype))
    axes = ctx.axes(axes, x.type.rank)
    centred = ctx.emit(Sub(), wide, ctx.emit(ReduceMean(axes, True), wide))
    if not divide:
        return compose.cast(ctx, centred, x.type.dtype)
    variance = ctx.emit(ReduceMean(axes, True), ctx.emit(Mul(), centred, centred))
    deviation = ctx.emit(Add(), ctx.emit(Sqrt(), variance), compose.like(ctx, 1e-9, wide))
    return compose.cast(ctx, ctx.emit(Div(), centred, deviation), x.type.dtype)


def _groups(ctx: NodeContext) -> int:
    groups = ctx.attributes.integer("num_groups")
    ctx.require(
        0 < groups <= LARGEST, f"Its num_groups is {groups}, but must be from 1 to {LARGEST}."
    )
    return groups


@handler("LayerNormalization", since=17)
def _layer_norm(ctx: NodeContext) -> object:
    x, scale = ctx.value(0), ctx.value(1)
    axis = ctx.axis(ctx.attributes.integer("axis", -1), x.type.rank)
    epsilon = ctx.attributes.number("epsilon", 1e-5)
    bias = [ctx.value(2)] if ctx.has(2) else []
    y = ctx.emit(LayerNorm(axis, epsilon), x, scale, *bias)
    if ctx.outputs == 1:
        return y
    axes = tuple(range(axis, x.type.rank))
    wide = compose.cast(ctx, x, F32) if ctx.attributes.integer("stash_type", 1) == 1 else x
    mean = ctx.emit(ReduceMean(axes, True), wide)
    centred = ctx.emit(Sub(), wide, mean)
    variance = ctx.emit(ReduceMean(axes, True), ctx.emit(Mul(), centred, centred))
    shifted = ctx.emit(Add(), variance, compose.like(ctx, epsilon, variance))
    return [y, mean, ctx.emit(Rsqrt(), shifted)]


@handler("RMSNormalization", since=23)
def _rms_norm(ctx: NodeContext) -> Value:
    x, scale = ctx.value(0), ctx.value(1)
    axis = ctx.axis(ctx.attributes.integer("axis", -1), x.type.rank)
    op = RmsNorm(axis, ctx.attributes.number("epsilon", 1e-5))
    return compose.cast(
        ctx, ctx.emit(op, x, compose.cast(ctx, scale, x.type.dtype)), scale.type.dtype
    )


@handler("LRN")
def _lrn(ctx: NodeContext) -> Value:
    """``x / (bias + alpha * mean of squares over neighbouring channels) ** beta``; the window is a
    pool over channels.
    """
    x = ctx.value(0)
    size = ctx.attributes.integer("size")
    ctx.require(0 < size <= LARGEST, f"Its size is {size}, but must be from 1 to {LARGEST}.")
    ctx.require(x.type.rank >= 2, f"Its input has rank {x.type.rank}; at least 2 is needed.")
    batch, channels, *spatial = x.type.shape
    rows = compose.reshape(ctx, ctx.emit(Mul(), x, x), (batch, 1, channels, size_of(spatial)))
    before = (size - 1) // 2
    pads = (before, 0, size - 1 - before, 0)
    pool = AvgPool((size, 1), (1, 1), pads, (1, 1), False, True)
    mean = compose.reshape(ctx, ctx.emit(pool, rows), x.type.shape)
    scaled = ctx.emit(Mul(), mean, compose.like(ctx, ctx.attributes.number("alpha", 1e-4), x))
    base = ctx.emit(Add(), scaled, compose.like(ctx, ctx.attributes.number("bias", 1.0), x))
    power = ctx.emit(Pow(), base, compose.like(ctx, ctx.attributes.number("beta", 0.75), x))
    return ctx.emit(Div(), x, power)


# --- softmax and its relatives --------------------------------------------------------------------


def _hardmax(ctx: NodeContext, x: Value, axis: int) -> Value:
    """One at the first largest element along the axis, zero elsewhere."""
    best = ctx.emit(Argmax(axis, True, False), x)
    column = [index(1)] * x.type.rank
    column[axis] = x.type.shape[axis]
    hit = ctx.emit(Equal(), compose.iota(ctx, column, axis), best)
    return compose.cast(ctx, hit, x.type.dtype)


def _softmax(ctx: NodeContext, x: Value, axis: int) -> Value:
    return ctx.emit(Softmax(axis), x)


def _log_softmax(ctx: NodeContext, x: Value, axis: int) -> Value:
    return ctx.emit(LogSoftmax(axis), x)


def _register(name: str, along: Callable[[NodeContext, Value, int], Value]) -> None:
    @handler(name)
    def flattened(ctx: NodeContext) -> Value:
        """Up to version 12: over all axes from ``axis`` on, as one."""
        x = ctx.value(0)
        axis = ctx.axis(ctx.attributes.integer("axis", 1), x.type.rank)
        if all(d is index(1) for d in x.type.shape[axis + 1 :]):
            return along(ctx, x, axis)
        return compose.reshape(ctx, along(ctx, compose.as_matrix(ctx, x, axis), 1), x.type.shape)

    @handler(name, since=13)
    def plain(ctx: NodeContext) -> Value:
        x = ctx.value(0)
        return along(ctx, x, ctx.axis(ctx.attributes.integer("axis", -1), x.type.rank))


_register("Softmax", _softmax)
_register("LogSoftmax", _log_softmax)
_register("Hardmax", _hardmax)
