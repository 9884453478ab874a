# SPDX-License-Identifier: Apache-2.0
"""Contractions: matrix products, convolutions, Einsum."""

import re
from collections.abc import Sequence

from tilewright.frontends.onnx import compose
from tilewright.frontends.onnx.context import NodeContext
from tilewright.frontends.onnx.registry import handler
from tilewright.frontends.onnx.windows import (
    LARGEST,
    WindowAttributes,
    read_windows,
    spatial_kernel,
    with_pads,
)
from tilewright.ir import simplify
from tilewright.ir.expr import ZERO, Const, Expr, index, mul
from tilewright.ir.graph import Value
from tilewright.ir.ops.binary import Add, Mul
from tilewright.ir.ops.conv import Conv
from tilewright.ir.ops.conv_transpose import ConvTranspose
from tilewright.ir.ops.domain import accumulator_dtype
from tilewright.ir.ops.einsum import Einsum
from tilewright.ir.ops.matmul import Matmul

_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


def product(ctx: NodeContext, a: Value, b: Value) -> Value:
    """The matrix product as numpy has it: a vector is a row on the left, a column on the right."""
    ctx.require(
        a.type.rank > 0 and b.type.rank > 0, "A matrix product needs operands of rank 1 or more."
    )
    row, column = a.type.rank == 1, b.type.rank == 1
    left = compose.unsqueeze(ctx, a, [0]) if row else a
    right = compose.unsqueeze(ctx, b, [1]) if column else b
    result = ctx.emit(Matmul(), left, right)
    rank = result.type.rank
    dropped = [rank - 2] * row + [rank - 1] * column
    return compose.squeeze(ctx, result, dropped) if dropped else result


@handler("MatMul")
def _matmul(ctx: NodeContext) -> Value:
    return product(ctx, ctx.value(0), ctx.value(1))


@handler("Gemm", since=7)
def gemm(ctx: NodeContext) -> Value:
    """``alpha * A' * B' + beta * C`` with C broadcast.

    All is computed in the type that products are accumulated in, while A and B stay in theirs: the
    weights of a model keep their size.
    """
    a, b = ctx.value(0), ctx.value(1)
    ctx.require(a.type.rank == 2 and b.type.rank == 2, "Its operands A and B must be matrices.")
    if ctx.attributes.integer("transA", 0):
        a = compose.transpose(ctx, a, (1, 0))
    if ctx.attributes.integer("transB", 0):
        b = compose.transpose(ctx, b, (1, 0))
    dtype = a.type.dtype
    wide = accumulator_dtype(dtype)
    product = ctx.emit(Matmul(None if wide is dtype else wide), a, b)
    result = _scaled(ctx, product, ctx.attributes.number("alpha", 1.0))
    beta = ctx.attributes.number("beta", 1.0)
    if ctx.has(2) and beta != 0.0:
        bias = ctx.value(2)
        ctx.require(bias.type.rank <= 2, f"Its operand C has rank {bias.type.rank}; 2 is the most.")
        result = ctx.emit(Add(), result, _scaled(ctx, compose.cast(ctx, bias, wide), beta))
    return compose.cast(ctx, result, dtype)


def _scaled(ctx: NodeContext, x: Value, factor: float) -> Value:
    if factor == 1.0:
        return x
    ctx.require(
        x.type.dtype.is_float or factor.is_integer(),
        f"The factor {factor} of integers is a fraction.",
    )
    return ctx.emit(Mul(), x, compose.like(ctx, factor, x))


def _groups(ctx: NodeContext) -> int:
    groups = ctx.attributes.integer("group", 1)
    ctx.require(0 < groups <= LARGEST, f"Its group is {groups}, but must be from 1 to {LARGEST}.")
    return groups


@handler("Conv")
def _conv(ctx: NodeContext) -> Value:
    weight = ctx.value(1)
    windows = read_windows(ctx, spatial_kernel(ctx, weight))
    x, pads = with_pads(ctx, ctx.value(0), windows, 0)
    groups = _groups(ctx)
    bias = [ctx.value(2)] if ctx.has(2) else []
    return ctx.emit(Conv(windows.strides, pads, windows.dilations, groups), x, weight, *bias)


@handler("ConvTranspose")
def _conv_transpose(ctx: NodeContext) -> Value:
    x, weight = ctx.value(0), ctx.value(1)
    windows = read_windows(ctx, spatial_kernel(ctx, weight))
    rank = windows.rank
    ctx.require(x.type.rank == rank + 2, f"Its input has rank {x.type.rank}, not {rank + 2}.")
    extra = tuple(ctx.attributes.integers("output_padding") or (0,) * rank)
    ctx.require(
        len(extra) == rank and all(0 <= e <= LARGEST for e in extra),
        f"Its output_padding {list(extra)} must be {rank} numbers from 0 to {LARGEST}.",
    )
    groups = _groups(ctx)
    bias = [ctx.value(2)] if ctx.has(2) else []
    pads = _transposed_pads(ctx, x.type.shape[2:], windows, extra)
    if all(isinstance(p, Const) for p in pads):
        known = tuple(int(str(p)) for p in pads)
        op = ConvTranspose(windows.strides, known, windows.dilations, groups, extra)
        return ctx.emit(op, x, weight, *bias)
    wide = accumulator_dtype(x.type.dtype) if bias else x.type.dtype
    x, weight = compose.cast(ctx, x, wide), compose.cast(ctx, weight, wide)
    op = ConvTranspose(windows.strides, (0,) * (2 * rank), windows.dilations, groups, extra)
    cut = [mul(p, index(-1)) for p in pads]
    begins, ends = [ZERO, ZERO, *cut[:rank]], [ZERO, ZERO, *cut[rank:]]
    result = compose.pad(ctx, ctx.emit(op, x, weight), begins, ends, 0)
    for each in bias:
        column = compose.reshape(ctx, each, (*each.type.shape, *(1,) * rank))
        result = ctx.emit(Add(), result, compose.cast(ctx, column, wide))
    return compose.cast(ctx, result, ctx.operand(0).dtype)


def _transposed_pads(
    ctx: NodeContext, extents: Sequence[Expr], windows: WindowAttributes, extra: Sequence[int]
) -> list[Expr]:
    """What is cut off the full result, all begins, then all ends; where it is to be larger than
    that, negative: zeros are put there.
    """
    wanted = _transposed_shape(ctx, extents, windows)
    if wanted is None:
        assert windows.pads is not None
        return [index(p) for p in windows.pads]
    begins: list[Expr] = []
    ends: list[Expr] = []
    for axis, (extent, dim) in enumerate(zip(extents, wanted)):
        full = (extent - 1) * windows.strides[axis] + (windows.reach(axis) + extra[axis])
        total = full - dim
        half = simplify.floordiv(total, 2)
        begins.append(half if windows.mode == "SAME_UPPER" else total - half)
        ends.append(total - half if windows.mode == "SAME_UPPER" else half)
    return begins + ends


def _transposed_shape(
    ctx: NodeContext, extents: Sequence[Expr], windows: WindowAttributes
) -> list[Expr] | None:
    """The spatial dims of the result that the node asks for; None if its pads decide."""
    rank = windows.rank
    given = ctx.attributes.integers("output_shape")
    if given:
        ctx.require(
            len(given) in (rank, rank + 2) and all(0 < d <= LARGEST for d in given),
            f"Its output_shape {given} must be {rank} numbers from 1 to {LARGEST}.",
        )
        return [index(d) for d in given[-rank:]]
    if not windows.mode.startswith("SAME"):
        return None
    return [d * s for d, s in zip(extents, windows.strides)]


@handler("Einsum", since=12)
def _einsum(ctx: NodeContext) -> Value:
    """The equation in plain form: without spaces and ellipses, the output written out."""
    values = ctx.values()
    equation = ctx.attributes.text("equation").replace(" ", "")
    ctx.require(
        len(equation) <= 1000 and bool(re.fullmatch(r"[A-Za-z.,]*(->[A-Za-z.]*)?", equation)),
        "Its equation is not made of letters, commas, '...' and '->'.",
    )
    left, arrow, right = equation.partition("->")
    terms = left.split(",")
    ctx.require(
        len(terms) == len(values), f"Its equation has {len(terms)} terms for {len(values)} inputs."
    )
    spare = [c for c in _LETTERS if c not in equation]
    ranks = [
        v.type.rank - len(t.replace("...", "")) if "..." in t else 0 for t, v in zip(terms, values)
    ]
    broadcast = max(ranks, default=0)
    ctx.require(
        min(ranks, default=0) >= 0 and broadcast <= len(spare),
        "Its equation does not fit the ranks.",
    )
    shared = "".join(spare[:broadcast])
    expanded = [t.replace("...", shared[broadcast - r :]) for t, r in zip(terms, ranks)]
    if arrow:
        result = right.replace("...", shared)
    else:
        joined = "".join(t.replace("...", "") for t in terms)
        result = shared + "".join(sorted(c for c in set(joined) if joined.count(c) == 1))
    ctx.require("." not in "".join(expanded) + result, "Its equation has a stray '.'.")
    return ctx.emit(Einsum(f"{','.join(expanded)}->{result}"), *values)
