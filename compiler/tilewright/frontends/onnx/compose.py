# SPDX-License-Identifier: Apache-2.0
"""Small compositions of our ops that several handlers need: scalars, reshapes, slices, windows of a
shape.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.frontends.dims import size_of
from tilewright.frontends.onnx.context import NodeContext
from tilewright.ir.dtypes import I64, DType
from tilewright.ir.expr import ONE, ZERO, Expr, Operand, index
from tilewright.ir.graph import Value
from tilewright.ir.ops.broadcast_to import BroadcastTo
from tilewright.ir.ops.cast import Cast
from tilewright.ir.ops.iota import Iota
from tilewright.ir.ops.pad import Pad
from tilewright.ir.ops.reshape import Reshape
from tilewright.ir.ops.slice import Slice
from tilewright.ir.ops.transpose import Transpose
from tilewright.ir.types import TensorType


def scalar(ctx: NodeContext, number: Any, dtype: DType) -> Value:
    """A rank-0 constant."""
    return ctx.constant(np.asarray(number), dtype)


def like(ctx: NodeContext, number: Any, x: Value) -> Value:
    """A rank-0 constant of the dtype of ``x``."""
    return scalar(ctx, number, x.type.dtype)


def cast(ctx: NodeContext, x: Value, dtype: DType) -> Value:
    """``x`` in another dtype; itself if it has that already."""
    return x if x.type.dtype is dtype else ctx.emit(Cast(dtype), x)


def reshape(ctx: NodeContext, x: Value, shape: Sequence[Operand]) -> Value:
    """``x`` under other dims; itself if they are the same."""
    dims = tuple(index(d) for d in shape)
    return x if dims == x.type.shape else ctx.emit(Reshape(dims), x)


def unsqueeze(ctx: NodeContext, x: Value, axes: Sequence[int]) -> Value:
    """``x`` with dims of 1 put in, so that they are at ``axes`` of the result."""
    rest = iter(x.type.shape)
    rank = x.type.rank + len(axes)
    return reshape(ctx, x, [ONE if a in axes else next(rest) for a in range(rank)])


def squeeze(ctx: NodeContext, x: Value, axes: Sequence[int]) -> Value:
    """``x`` without the dims at ``axes``."""
    return reshape(ctx, x, [d for a, d in enumerate(x.type.shape) if a not in axes])


def broadcast(ctx: NodeContext, x: Value, shape: Sequence[Operand]) -> Value:
    """``x`` repeated to a shape; itself if it has that already."""
    dims = tuple(index(d) for d in shape)
    return x if dims == x.type.shape else ctx.emit(BroadcastTo(dims), x)


def full(ctx: NodeContext, number: Any, type_: TensorType) -> Value:
    """A tensor of that type filled with one number."""
    return broadcast(ctx, scalar(ctx, number, type_.dtype), type_.shape)


def transpose(ctx: NodeContext, x: Value, perm: Sequence[int]) -> Value:
    """``x`` with its axes in another order; itself if the order is the same."""
    return x if list(perm) == list(range(x.type.rank)) else ctx.emit(Transpose(tuple(perm)), x)


def slice_axis(ctx: NodeContext, x: Value, axis: int, start: Operand, size: Operand) -> Value:
    """``size`` elements of one axis from ``start``."""
    starts: list[Expr] = [ZERO] * x.type.rank
    sizes = list(x.type.shape)
    starts[axis], sizes[axis] = index(start), index(size)
    if tuple(sizes) == x.type.shape and index(start) is ZERO:
        return x
    return ctx.emit(Slice(tuple(starts), tuple(sizes), (1,) * x.type.rank), x)


def iota(ctx: NodeContext, shape: Sequence[Operand], axis: int, dtype: DType = I64) -> Value:
    """Counts 0, 1, ... along one axis of a shape."""
    return ctx.emit(Iota(tuple(index(d) for d in shape), axis, dtype))


def pad(
    ctx: NodeContext, x: Value, begins: Sequence[Operand], ends: Sequence[Operand], number: Any
) -> Value:
    """``x`` with a border of one number; itself if the border is empty."""
    low, high = tuple(index(b) for b in begins), tuple(index(e) for e in ends)
    if all(p is ZERO for p in low + high):
        return x
    return ctx.emit(Pad(low, high, "constant"), x, like(ctx, number, x))


def as_matrix(ctx: NodeContext, x: Value, axis: int) -> Value:
    """``x`` as two dims: those before ``axis``, and the rest."""
    shape = x.type.shape
    return reshape(ctx, x, [size_of(shape[:axis]), size_of(shape[axis:])])
