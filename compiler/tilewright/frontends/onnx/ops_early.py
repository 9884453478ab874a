# SPDX-License-Identifier: Apache-2.0
"""The forms that operators had in operator sets 1 to 6, where a later one is not read alike.

Arguments were attributes that became inputs; broadcasting was asked for, and aligned one operand at
an axis of the other; normalisation and dropout had a mode. ``consumed_inputs``, by which a node
allowed its input to be overwritten, says nothing of results and is not read.
"""

from collections.abc import Callable

from tilewright.frontends.onnx import compose
from tilewright.frontends.onnx.context import NodeContext
from tilewright.frontends.onnx.ops_activation import prelu, selu
from tilewright.frontends.onnx.ops_contraction import gemm
from tilewright.frontends.onnx.ops_elementwise import BINARY, LIMITED, converted, dropped, power
from tilewright.frontends.onnx.ops_movement import concatenated, padded, reshaped, split, tiled
from tilewright.frontends.onnx.ops_norm import batch_norm
from tilewright.frontends.onnx.ops_resize import upsampled
from tilewright.frontends.onnx.registry import handler, register_handler
from tilewright.frontends.onnx.tensors import dtype_named
from tilewright.ir import bounds
from tilewright.ir.expr import ONE, Expr
from tilewright.ir.graph import Value

# --- limited broadcasting -------------------------------------------------------------------------


def _fits(of: Expr, into: Expr) -> bool:
    return of is ONE or bounds.known_equal(of, into) is not False


def _aligned(ctx: NodeContext) -> tuple[Value, Value]:
    """Both operands, the second with dims of 1 after its own, so that these stand at ``axis`` of
    the first; at its end if there is none. Without ``broadcast`` the shapes must be equal.
    """
    a, b = ctx.value(0), ctx.value(1)
    rank, rest = a.type.rank, a.type.rank - b.type.rank
    limited = bool(ctx.attributes.integer("broadcast", 0))
    axis = rest
    if limited and "axis" in ctx.attributes:
        axis = ctx.axis(ctx.attributes.integer("axis"), max(rank, 1))
    fits = (limited or not rest) and 0 <= axis <= rest
    dims = a.type.shape[axis : axis + b.type.rank]
    wanted = "" if limited else " without 'broadcast'"
    ctx.require(
        fits and all(_fits(y, x) and (limited or _fits(x, y)) for x, y in zip(dims, b.type.shape)),
        f"Its operands {a.type} and {b.type} do not fit each other{wanted}.",
    )
    column = (*b.type.shape, *(ONE,) * (rest - axis))
    return a, compose.reshape(ctx, b, column)


def _limited(name: str) -> Callable[[NodeContext], Value]:
    return lambda ctx: ctx.emit(BINARY[name], *_aligned(ctx))


for _name in LIMITED:
    register_handler(_name, _limited(_name))


@handler("Pow")
def _pow(ctx: NodeContext) -> Value:
    return power(ctx, *_aligned(ctx))


@handler("Gemm")
def _gemm(ctx: NodeContext) -> Value:
    """C is of the result's shape, or broadcast to it where that is asked for."""
    result: Value = gemm(ctx)
    if not ctx.attributes.integer("broadcast", 0):
        c = ctx.operand(2).shape
        same = len(c) == 2 and all(
            bounds.known_equal(x, y) is not False for x, y in zip(c, result.type.shape)
        )
        ctx.require(same, f"Its operand C is not of the shape {result.type} without 'broadcast'.")
    return result


@handler("PRelu")
def _prelu(ctx: NodeContext) -> Value:
    """A slope of one dim is that of each channel."""
    x, slope = ctx.value(0), ctx.value(1)
    if slope.type.rank == 1 and x.type.rank > 2:
        slope = compose.reshape(ctx, slope, (*slope.type.shape, *(1,) * (x.type.rank - 2)))
    return prelu(ctx, slope)


# --- modes ----------------------------------------------------------------------------------------


def _require_inference(ctx: NodeContext) -> None:
    """Refuse a node that is said to train. Files leave ``is_test`` out for inference, although the
    standard's default is the other mode, and its own converter takes it so.
    """
    if not ctx.attributes.integer("is_test", 1):
        ctx.unsupported("it is in training mode")


@handler("BatchNormalization")
def _batch_norm(ctx: NodeContext) -> object:
    _require_inference(ctx)
    return batch_norm(ctx)


@handler("Dropout")
def _dropout(ctx: NodeContext) -> object:
    _require_inference(ctx)
    return dropped(ctx)


# --- arguments that were attributes, or of another type -------------------------------------------


@handler("Cast")
def _cast(ctx: NodeContext) -> Value:
    """The type is told by its name."""
    target = ctx.attributes.text("to")
    return converted(ctx, dtype_named(target, f"The target of node {ctx.where}"))


@handler("Concat")
def _concat(ctx: NodeContext) -> Value:
    return concatenated(ctx, ctx.attributes.integer("axis", 1))


@handler("Pad")
def _pad(ctx: NodeContext) -> Value:
    x = ctx.value(0)
    pads = ctx.attributes.integers("paddings")
    ctx.require(pads is not None, "It has no paddings.")
    return padded(ctx, x, pads or [], compose.like(ctx, ctx.attributes.number("value", 0.0), x))


@handler("Reshape")
def _reshape(ctx: NodeContext) -> Value:
    wanted = ctx.attributes.integers("shape")
    ctx.require(wanted is not None, "It has no shape.")
    return reshaped(ctx, list(wanted or []))


@handler("Selu")
def _selu(ctx: NodeContext) -> Value:
    return selu(ctx, 1.6732, 1.0507)


@handler("Split")
def _split(ctx: NodeContext) -> list[Value]:
    """The sizes are an attribute, or an input of the data's type."""
    if not ctx.has(1):
        return split(ctx, ctx.attributes.integers("split"))
    return split(ctx, [_whole(ctx, x) for x in ctx.contents(1, "split").reshape(-1)])


@handler("Tile")
def _tile(ctx: NodeContext) -> Value:
    """One axis is repeated; it and the number are inputs of the data's type."""
    x = ctx.value(0)
    repeats: list[int | Expr] = [1] * x.type.rank
    axis = _whole(ctx, ctx.element(2, "axis"))
    ctx.require(isinstance(axis, int), "Its axis is not a number.")
    assert isinstance(axis, int)
    repeats[ctx.axis(axis, x.type.rank)] = _whole(ctx, ctx.element(1, "tiles"))
    return tiled(ctx, x, repeats)


def _whole(ctx: NodeContext, element: object) -> int | Expr:
    """A number of any type that counts something."""
    if isinstance(element, Expr):
        return element
    whole = isinstance(element, int) or (isinstance(element, float) and element.is_integer())
    ctx.require(whole, f"It has {element} where a whole number is needed.")
    assert isinstance(element, int | float)
    return int(element)


@handler("Upsample")
def _upsample(ctx: NodeContext) -> Value:
    """Images only, with one scale for their height and one for their width."""
    x = ctx.value(0)
    ctx.require(x.type.rank == 4, f"Its input has rank {x.type.rank}, not 4.")
    scales = [ctx.attributes.number(f"{side}_scale") for side in ("height", "width")]
    return upsampled(ctx, x, [1.0, 1.0, *scales])
