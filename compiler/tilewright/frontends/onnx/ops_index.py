# SPDX-License-Identifier: Apache-2.0
"""Gathering and scattering by index tensors."""

from typing import Literal

import numpy as np

from tilewright.frontends.onnx import compose
from tilewright.frontends.onnx.context import NodeContext
from tilewright.frontends.onnx.registry import handler
from tilewright.ir.dtypes import I64
from tilewright.ir.graph import Value
from tilewright.ir.ops.gather import Gather, GatherElements
from tilewright.ir.ops.gather_nd import GatherNd
from tilewright.ir.ops.scatter import ScatterElements, ScatterNd

Reduction = Literal["none", "add", "mul", "min", "max"]
_REDUCTIONS: tuple[Reduction, ...] = ("none", "add", "mul", "min", "max")


def _axis(ctx: NodeContext, default: int = 0) -> int:
    return ctx.axis(ctx.attributes.integer("axis", default), ctx.operand(0).rank)


def _reduction(ctx: NodeContext) -> Reduction:
    return ctx.attributes.choice("reduction", _REDUCTIONS, "none")


@handler("Gather")
def _gather(ctx: NodeContext) -> Value:
    return ctx.emit(Gather(_axis(ctx)), ctx.value(0), ctx.value(1))


@handler("GatherElements", since=11)
def _gather_elements(ctx: NodeContext) -> Value:
    return ctx.emit(GatherElements(_axis(ctx)), ctx.value(0), ctx.value(1))


@handler("GatherND", since=11)
def _gather_nd(ctx: NodeContext) -> Value:
    batch_dims = ctx.attributes.integer("batch_dims", 0)
    return ctx.emit(GatherNd(batch_dims), ctx.value(0), ctx.value(1))


@handler("ScatterElements", "Scatter", since=9)
def _scatter_elements(ctx: NodeContext) -> Value:
    op = ScatterElements(_axis(ctx), _reduction(ctx))
    return ctx.emit(op, ctx.value(0), ctx.value(1), ctx.value(2))


@handler("ScatterND", since=11)
def _scatter_nd(ctx: NodeContext) -> Value:
    return ctx.emit(ScatterNd(_reduction(ctx)), ctx.value(0), ctx.value(1), ctx.value(2))


@handler("Compress", since=9)
def _compress(ctx: NodeContext) -> Value:
    """With a condition known at import, a Gather of the positions where it holds."""
    x = ctx.value(0)
    condition = ctx.contents(1, "condition").reshape(-1)
    if "axis" not in ctx.attributes:
        x = compose.reshape(ctx, x, (x.type.size,))
    axis = ctx.axis(ctx.attributes.integer("axis", 0), x.type.rank)
    positions = np.nonzero(np.array([bool(c) for c in condition]))[0]
    return ctx.emit(Gather(axis), x, ctx.constant(positions, I64))
