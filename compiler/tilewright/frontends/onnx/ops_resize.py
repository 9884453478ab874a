# SPDX-License-Identifier: Apache-2.0
"""Resize in its five versions, and Upsample, which was its first form."""

import math
from dataclasses import dataclass
from fractions import Fraction

from tilewright.frontends import elements
from tilewright.frontends.onnx.context import NodeContext
from tilewright.frontends.onnx.registry import handler
from tilewright.ir import simplify
from tilewright.ir.dtypes import F32, I64
from tilewright.ir.expr import Const, Expr, index, mul
from tilewright.ir.graph import Value
from tilewright.ir.ops.resize import COORDINATES, MODES, ROUNDINGS, Resize

_POLICIES = ("stretch", "not_larger", "not_smaller")
_LARGEST_SCALE = 1 << 16
_LARGEST_EXACT = 1 << 8


@dataclass(frozen=True)
class _Extents:
    """The dims of the result, and the scale of each axis where it is not the ratio of the dims."""

    shape: tuple[Expr, ...]
    scales: tuple[float | None, ...]


@handler("Upsample", since=7)
def _upsample_attributes(ctx: NodeContext) -> Value:
    """Up to version 8: scales are an attribute."""
    scales = ctx.attributes.numbers("scales")
    ctx.require(scales is not None, "It has no scales.")
    return upsampled(ctx, ctx.value(0), list(scales or []))


@handler("Upsample", since=9)
@handler("Resize", since=10)
def _resize_simple(ctx: NodeContext) -> Value:
    """Scales are an input; positions are asymmetric."""
    return upsampled(ctx, ctx.value(0), list(ctx.contents(1, "scales").reshape(-1)))


def upsampled(ctx: NodeContext, x: Value, scales: list[object]) -> Value:
    """``x`` scaled along each axis, with the positions of the first forms."""
    extents = _scaled(ctx, x, scales, list(range(x.type.rank)))
    mode = ctx.attributes.choice("mode", ("nearest", "linear", "bilinear"), "nearest")
    # Nearest rounds down where it magnifies and up where it shrinks, as ONNX Runtime has it.
    shrinks = any(s is not None and s < 1 for s in extents.scales)
    rounding = "ceil" if shrinks else "floor"
    word = "linear" if mode == "bilinear" else mode
    return ctx.emit(Resize(extents.shape, word, "asymmetric", rounding, extents.scales), x)


@handler("Resize", since=11)
def _resize(ctx: NodeContext) -> Value:
    x = ctx.value(0)
    axes = _axes(ctx, x.type.rank)
    coordinate = ctx.attributes.choice("coordinate_transformation_mode", COORDINATES, "half_pixel")
    cropped = coordinate == "tf_crop_and_resize"
    extents = _extents(ctx, x, axes)
    op = Resize(
        extents.shape,
        ctx.attributes.choice("mode", MODES, "nearest"),
        coordinate,
        ctx.attributes.choice("nearest_mode", ROUNDINGS, "round_prefer_floor"),
        extents.scales,
        ctx.attributes.number("cubic_coeff_a", -0.75),
        bool(ctx.attributes.integer("exclude_outside", 0)),
        bool(ctx.attributes.integer("antialias", 0)),
        _region(ctx, axes, x.type.rank) if cropped else (),
        ctx.attributes.number("extrapolation_value", 0.0) if cropped else 0.0,
    )
    return ctx.emit(op, x)


def _axes(ctx: NodeContext, rank: int) -> list[int]:
    """The axes that scales, sizes and roi speak of, in their order."""
    given = ctx.attributes.integers("axes")
    if given is None:
        return list(range(rank))
    ctx.axes(given, rank)
    return [ctx.axis(a, rank) for a in given]


def _is_given(ctx: NodeContext, position: int) -> bool:
    """True for an input that is present and not an empty stand-in."""
    return ctx.has(position) and ctx.operand(position).shape != (index(0),)


def _extents(ctx: NodeContext, x: Value, axes: list[int]) -> _Extents:
    if _is_given(ctx, 3):
        sizes = ctx.integers(3, "sizes")
        ctx.require(len(sizes) == len(axes), f"It has {len(sizes)} sizes for {len(axes)} axes.")
        policy = ctx.attributes.choice("keep_aspect_ratio_policy", _POLICIES, "stretch")
        if policy != "stretch":
            return _kept_aspect(ctx, x, axes, ctx.static_integers(3, "sizes"), policy)
        shape = list(x.type.shape)
        for axis, size in zip(axes, sizes):
            shape[axis] = index(size)
        return _Extents(tuple(shape), ())
    ctx.require(_is_given(ctx, 2), "It has neither scales nor sizes.")
    return _scaled(ctx, x, list(ctx.contents(2, "scales").reshape(-1)), axes)


def _scaled(ctx: NodeContext, x: Value, scales: list[object], axes: list[int]) -> _Extents:
    """Each dim times its scale, rounded down."""
    ctx.require(len(scales) == len(axes), f"It has {len(scales)} scales for {len(axes)} axes.")
    shape = list(x.type.shape)
    kept: list[float | None] = [1.0] * len(shape)
    for axis, scale in zip(axes, scales):
        dim = shape[axis]
        if isinstance(scale, Expr):
            shape[axis], kept[axis] = _times(dim, scale), None
            continue
        factor = float(scale) if isinstance(scale, int | float) else math.nan
        ctx.require(
            1 / _LARGEST_SCALE <= factor <= _LARGEST_SCALE,
            f"The scale {factor} is not between 1/{_LARGEST_SCALE} and {_LARGEST_SCALE}.",
        )
        shape[axis], kept[axis] = _times(dim, factor), factor
    return _Extents(tuple(shape), tuple(kept))


def _times(dim: Expr, factor: float | Expr) -> Expr:
    """The dim times the factor, rounded down; in f32, like ONNX Runtime, unless the factor is a
    number by which the product is plainly exact.
    """
    if not isinstance(factor, Expr) and not isinstance(dim, Const):
        exact = Fraction(factor)
        if exact.numerator * exact.denominator <= _LARGEST_EXACT:
            return simplify.floordiv(mul(dim, index(exact.numerator)), exact.denominator)
    product = elements.times(elements.convert(dim, I64, F32), factor, F32)
    return index(elements.convert(product, F32, I64))


def _kept_aspect(
    ctx: NodeContext, x: Value, axes: list[int], sizes: list[int], policy: str
) -> _Extents:
    """One scale for all axes: the smallest or the largest that the sizes ask for."""
    dims = [x.type.shape[a] for a in axes]
    if not all(isinstance(d, Const) for d in dims):
        ctx.needs_sizes("scale by keep_aspect_ratio_policy", *dims)
    known = [int(str(d)) for d in dims]
    ctx.require(all(known) and bool(known), "One of its dims is 0.")
    wanted = [Fraction(size, dim) for size, dim in zip(sizes, known)]
    scale = min(wanted) if policy == "not_larger" else max(wanted)
    shape = list(x.type.shape)
    kept: list[float | None] = [1.0] * len(shape)
    for axis, dim in zip(axes, known):
        shape[axis] = index(math.floor(scale * dim + Fraction(1, 2)))
        kept[axis] = float(scale)
    return _Extents(tuple(shape), tuple(kept))


def _region(ctx: NodeContext, axes: list[int], rank: int) -> tuple[float, ...]:
    """The region of interest: starts of all axes, then ends."""
    given = [float(f) for f in ctx.contents(1, "roi").reshape(-1) if isinstance(f, int | float)]
    ctx.require(
        len(given) == 2 * len(axes), f"Its roi has {len(given)} numbers for {len(axes)} axes."
    )
    starts, ends = [0.0] * rank, [1.0] * rank
    for position, axis in enumerate(axes):
        starts[axis], ends[axis] = given[position], given[len(axes) + position]
    return (*starts, *ends)
