# SPDX-License-Identifier: Apache-2.0
"""Operators that were experimental in operator sets 1 to 9 and left the standard with set 10, as
old image models use them.

The standard's text of them is gone; they mean here what they do in ONNX Runtime, which still runs
them.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright.frontends.onnx import compose
from tilewright.frontends.onnx.context import NodeContext
from tilewright.frontends.onnx.ops_activation import softplus
from tilewright.frontends.onnx.ops_norm import mean_variance_norm
from tilewright.frontends.onnx.registry import Handler, handler
from tilewright.ir.expr import sub
from tilewright.ir.graph import Value
from tilewright.ir.ops.binary import Add, Mul
from tilewright.ir.ops.unary import Tanh

EXPERIMENTAL = ("Affine", "Crop", "ImageScaler", "ParametricSoftplus", "Scale", "ScaledTanh")
_GONE = 10


def _experimental(name: str) -> Callable[[Handler], Handler]:
    """Register a handler for the versions that had the operator."""

    def register(function: Handler) -> Handler:
        @handler(name)
        def until_gone(ctx: NodeContext) -> Any:
            if ctx.version >= _GONE:
                ctx.unsupported(f"it left the standard with set {_GONE}")
            return function(ctx)

        return until_gone

    return register


def _scaled(ctx: NodeContext, x: Value, name: str, default: float = 1.0) -> Value:
    factor = ctx.attributes.number(name, default)
    return x if factor == 1.0 else ctx.emit(Mul(), x, compose.like(ctx, factor, x))


@_experimental("Scale")
def _scale(ctx: NodeContext) -> Value:
    return _scaled(ctx, ctx.value(0), "scale")


@_experimental("Affine")
def _affine(ctx: NodeContext) -> Value:
    x = _scaled(ctx, ctx.value(0), "alpha")
    return ctx.emit(Add(), x, compose.like(ctx, ctx.attributes.number("beta", 0.0), x))


@_experimental("ScaledTanh")
def _scaled_tanh(ctx: NodeContext) -> Value:
    return _scaled(ctx, ctx.emit(Tanh(), _scaled(ctx, ctx.value(0), "beta")), "alpha")


@_experimental("ParametricSoftplus")
def _parametric_softplus(ctx: NodeContext) -> Value:
    return _scaled(ctx, softplus(ctx, _scaled(ctx, ctx.value(0), "beta")), "alpha")


@_experimental("ImageScaler")
def _image_scaler(ctx: NodeContext) -> Value:
    """``x * scale + bias`` with a bias for each channel."""
    x = ctx.value(0)
    ctx.require(x.type.rank == 4, f"Its input has rank {x.type.rank}, not 4.")
    bias = np.array(ctx.attributes.numbers("bias") or [0.0], np.float32).reshape(-1, 1, 1)
    return ctx.emit(Add(), _scaled(ctx, x, "scale"), ctx.constant(bias, x.type.dtype))


@_experimental("Crop")
def _crop(ctx: NodeContext) -> Value:
    """Cuts ``border`` (left, top, right, bottom) off images, or with ``scale`` takes that height
    and width from the left top.
    """
    x = ctx.value(0)
    border = ctx.attributes.integers("border") or []
    ctx.require(
        x.type.rank == 4 and len(border) == 4 and min(border) >= 0,
        f"Its border {border} must be 4 numbers from 0, and its input of rank 4.",
    )
    left, top, right, bottom = border
    height, width = (sub(x.type.shape[a], b) for a, b in ((2, top + bottom), (3, left + right)))
    scale = ctx.attributes.integers("scale")
    ctx.require(scale is None or len(scale) == 2, f"Its scale {scale} must be 2 numbers.")
    sizes = scale if scale is not None else [height, width]
    rows = compose.slice_axis(ctx, x, 2, top, sizes[0])
    return compose.slice_axis(ctx, rows, 3, left, sizes[1])


@handler("MeanVarianceNormalization")
def _mean_variance_norm(ctx: NodeContext) -> Value:
    """Up to version 8: over all pixels, and over channels if that is asked for."""
    across = ctx.attributes.integer("across_channels", 0)
    axes = (0, 1, 2, 3) if across else (0, 2, 3)
    return mean_variance_norm(ctx, axes, bool(ctx.attributes.integer("normalize_variance", 1)))
