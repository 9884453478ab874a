# SPDX-License-Identifier: Apache-2.0
"""Operators that make tensors or tell about their shapes: Constant, Shape, Size, ConstantOfShape,
Range, EyeLike, OneHot.
"""

import math

import numpy as np

from tilewright.frontends import elements
from tilewright.frontends.dims import Unknown, size_of
from tilewright.frontends.onnx import compose
from tilewright.frontends.onnx.context import NodeContext
from tilewright.frontends.onnx.operand import Operand
from tilewright.frontends.onnx.registry import handler
from tilewright.frontends.onnx.tensors import check_rank, dtype_of, sparse_to_array, to_array
from tilewright.ir.dtypes import I64
from tilewright.ir.expr import Const, Expr, index
from tilewright.ir.graph import Value
from tilewright.ir.op import Array
from tilewright.ir.ops.binary import Add, Mul, Sub
from tilewright.ir.ops.comparison import Equal, GreaterEqual, Less, LessEqual
from tilewright.ir.ops.dim_values import DimValues
from tilewright.ir.ops.where import Where


@handler("Constant")
def _constant(ctx: NodeContext) -> Operand:
    return ctx.importer.constant_operand(
        ctx.node.output[0] if ctx.node.output else "", _constant_data(ctx)
    )


def _constant_data(ctx: NodeContext) -> Array:
    attributes, importer = ctx.attributes, ctx.importer
    given = [n for n in attributes.names if n.startswith(("value", "sparse_value"))]
    ctx.require(len(given) == 1, f"It has {len(given)} values where one is needed.")
    (name,) = given
    match name:
        case "value":
            proto = attributes.tensor(name)
            assert proto is not None
            return to_array(proto, importer.loaded.external, importer.limits)
        case "sparse_value":
            sparse = attributes.sparse_tensor(name)
            assert sparse is not None
            return sparse_to_array(sparse, importer.loaded.external, importer.limits)
        case "value_float":
            return np.array(attributes.number(name), np.float32)
        case "value_floats":
            return np.array(attributes.numbers(name), np.float32)
        case "value_int":
            return np.array(attributes.integer(name), np.int64)
        case "value_ints":
            return np.array(attributes.integers(name), np.int64)
    return ctx.unsupported("strings are not supported")


def _elements(dims: tuple[Expr, ...]) -> np.ndarray[tuple[int], np.dtype[np.object_]]:
    """Dims as elements: constants are plain ints."""
    elements = np.empty(len(dims), object)
    for position, dim in enumerate(dims):
        elements[position] = int(dim.literal) if isinstance(dim, Const) else dim
    return elements


@handler("Shape")
def _shape(ctx: NodeContext) -> Operand:
    dims = _elements(ctx.operand(0).shape)
    start = ctx.attributes.integer("start", 0)
    end = ctx.attributes.integer("end", len(dims))
    return ctx.known_result(dims[slice(start, end)], I64)


@handler("Size")
def _size(ctx: NodeContext) -> Operand:
    total = _elements((size_of(ctx.operand(0).shape),))
    return ctx.known_result(total.reshape(()), I64)


@handler("ConstantOfShape")
def _constant_of_shape(ctx: NodeContext) -> Value | Operand:
    dims = ctx.integers(0, "shape")
    ctx.require(
        all(isinstance(d, Expr) or d >= 0 for d in dims), f"The shape {dims} has a negative dim."
    )
    proto = ctx.attributes.tensor("value")
    fill = np.zeros(1, np.float32)
    if proto is not None:
        fill = to_array(proto, ctx.importer.loaded.external, ctx.importer.limits)
        ctx.require(fill.size == 1, f"Its value has {fill.size} elements where one is needed.")
    number = fill.reshape(())
    check_rank(len(dims), f"The result of node {ctx.where}")
    static = [d for d in dims if isinstance(d, int)]
    if len(static) == len(dims) and math.prod(static) <= ctx.importer.limits.contents:
        return ctx.importer.constant_operand("", np.full(static, number))
    return compose.broadcast(
        ctx, ctx.importer.materialise(ctx.importer.constant_operand("", number)), dims
    )


@handler("Range", since=11)
def _range(ctx: NodeContext) -> Value:
    """``start + step * iota``; the count is folded from what is known of the three, in their own
    type.
    """
    given = ctx.original
    start, limit, step = (
        given.element(i, name) for i, name in enumerate(("start", "limit", "step"))
    )
    ctx.require(step != 0, "Its step is 0.")
    try:
        count = elements.count(start, limit, step, given.operand(0).dtype)
    except Unknown:
        ctx.fail(f"From {start} to {limit} by {step} it has no finite length.")
    assert isinstance(count, int | Expr)
    ctx.importer.limits.check(
        "The length of a Range", count if isinstance(count, int) else 0, "elements"
    )
    # Steps of narrow floats add up in the wide type, as repeated rounding would drift.
    result = compose.iota(ctx, [count], 0, ctx.operand(0).dtype)
    if step != 1:
        result = ctx.emit(Mul(), result, _scalar_input(ctx, 2))
    return result if start == 0 else ctx.emit(Add(), result, _scalar_input(ctx, 0))


def _scalar_input(ctx: NodeContext, position: int) -> Value:
    return compose.reshape(ctx, ctx.value(position), ())


@handler("EyeLike")
def _eye_like(ctx: NodeContext) -> Value:
    like = ctx.operand(0)
    ctx.require(like.rank == 2, f"Its input has rank {like.rank}, not 2.")
    code = ctx.attributes.integer("dtype", 0)
    dtype = dtype_of(code, f"The result of node {ctx.where}") if code else like.dtype
    diagonal = _difference(ctx, like.shape, 0, 1)
    k = compose.scalar(ctx, ctx.attributes.integer("k", 0), I64)
    return compose.cast(ctx, ctx.emit(Equal(), diagonal, k), dtype)


def _difference(ctx: NodeContext, shape: tuple[Expr, ...], row: int, column: int) -> Value:
    """Column minus row of each element of the last two dims."""
    return ctx.emit(Sub(), compose.iota(ctx, shape, column), compose.iota(ctx, shape, row))


@handler("Trilu", since=14)
def _trilu(ctx: NodeContext) -> Value:
    x = ctx.value(0)
    rank = x.type.rank
    ctx.require(rank >= 2, f"Its input has rank {rank}; at least 2 is needed.")
    diagonal = _difference(ctx, x.type.shape[-2:], 0, 1)
    k = _scalar_input(ctx, 1) if ctx.has(1) else compose.scalar(ctx, 0, I64)
    upper = bool(ctx.attributes.integer("upper", 1))
    kept = ctx.emit(GreaterEqual() if upper else LessEqual(), diagonal, k)
    return ctx.emit(Where(), kept, x, compose.like(ctx, 0, x))


@handler("OneHot")
def _one_hot(ctx: NodeContext) -> Value:
    """Indices compared with counts; negative ones count from the end, others out of range match
    nothing.
    """
    indices = compose.cast(ctx, ctx.value(0), I64)
    element = ctx.element(1, "depth")
    depth = index(elements.convert(element, ctx.operand(1).dtype, I64))
    axis = ctx.axis(ctx.attributes.integer("axis", -1), indices.type.rank + 1)
    bound = compose.reshape(ctx, ctx.emit(DimValues((depth,))), ())
    negative = ctx.emit(Less(), indices, compose.scalar(ctx, 0, I64))
    wrapped = ctx.emit(Where(), negative, ctx.emit(Add(), indices, bound), indices)
    expanded = compose.unsqueeze(ctx, wrapped, [axis])
    column = [index(1)] * (indices.type.rank + 1)
    column[axis] = depth
    hit = ctx.emit(Equal(), expanded, compose.iota(ctx, column, axis))
    values = ctx.value(2)
    ctx.require(values.type.rank == 1, "Its values must be a list of two.")
    off, on = (compose.reshape(ctx, compose.slice_axis(ctx, values, 0, i, 1), ()) for i in (0, 1))
    return ctx.emit(Where(), hit, on, off)
