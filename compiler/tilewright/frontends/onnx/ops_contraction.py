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
from tilewright.ir.expr import Const, Expr, index
from tilewright.ir.graph import Value
from tilewright.ir.ops.binary import Add, Mul
from tilewright.ir.ops.conv import Conv
from tilewright.ir.ops.conv_transpose import ConvTranspose
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


@handler("Gemm")
def _gemm(ctx: NodeContext) -> Value:
    """``alpha * A' * B' + beta * C`` with C broadcast."""
    a, b = ctx.value(0), ctx.value(1)
    ctx.require(a.type.rank == 2 and b.type.rank == 2, "Its operands A and B must be matrices.")
    if ctx.attributes.integer("transA", 0):
        a = compose.transpose(ctx, a, (1, 0))
    if ctx.attributes.integer("transB", 0):
        b = compose.transpose(ctx, b, (1, 0))
    result = _scaled(ctx, ctx.emit(Matmul(), a, b), ctx.attributes.number("alpha", 1.0))
    beta = ctx.attributes.number("beta", 1.0)
    if not ctx.has(2) or beta == 0.0:
        return result
    bias = ctx.value(2)
    ctx.require(bias.type.rank <= 2, f"Its operand C has rank {bias.type.rank}; 2 is the most.")
    return ctx.emit(Add(), result, _scaled(ctx, bias, beta))


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
    wanted = _transposed_shape(ctx, x, windows.strides, windows.mode)
    pads = windows.pads
    if wanted is not None:
        pads, extra = _cut_to(ctx, x.type.shape[2:], wanted, windows, extra)
    assert pads is not None
    groups = _groups(ctx)
    op = ConvTranspose(windows.strides, pads, windows.dilations, groups, extra)
    return ctx.emit(op, x, weight, *([ctx.value(2)] if ctx.has(2) else []))


def _transposed_shape(
    ctx: NodeContext, x: Value, strides: Sequence[int], mode: str
) -> list[Expr] | None:
    """The spatial dims of the result that the node asks for; None if its pads decide."""
    rank = len(strides)
    given = ctx.attributes.integers("output_shape")
    if given:
        ctx.require(
            len(given) in (rank, rank + 2) and all(0 < d <= LARGEST for d in given),
            f"Its output_shape {given} must be {rank} numbers from 1 to {LARGEST}.",
        )
        return [index(d) for d in given[-rank:]]
    if not mode.startswith("SAME"):
        return None
    return [d * s for d, s in zip(x.type.shape[2:], strides)]


def _cut_to(
    ctx: NodeContext,
    extents: Sequence[Expr],
    wanted: Sequence[Expr],
    windows: WindowAttributes,
    extra: Sequence[int],
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Pads that cut the full result to the wanted one, and the output padding that fills it up."""
    begins: list[int] = []
    ends: list[int] = []
    filled: list[int] = []
    for axis, (extent, dim) in enumerate(zip(extents, wanted)):
        full = (extent - 1) * windows.strides[axis] + (windows.reach(axis) + extra[axis])
        surplus = full - dim
        if not isinstance(surplus, Const):
            ctx.needs_sizes("padding for this output_shape", surplus)
        total = max(int(surplus.literal), 0)
        small, large = total // 2, total - total // 2
        begins.append(small if windows.mode == "SAME_UPPER" else large)
        ends.append(large if windows.mode == "SAME_UPPER" else small)
        filled.append(extra[axis] + max(-int(surplus.literal), 0))
    return tuple(begins + ends), tuple(filled)


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
