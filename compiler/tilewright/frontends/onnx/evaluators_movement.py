# SPDX-License-Identifier: Apache-2.0
"""How operators that move elements act on contents known at import."""

from typing import Any

import numpy as np

from tilewright.frontends import elements
from tilewright.frontends.dims import Unknown
from tilewright.frontends.elements import Element
from tilewright.frontends.onnx.context import NodeContext
from tilewright.frontends.onnx.evaluators import elementwise
from tilewright.frontends.onnx.registry import Contents, evaluator
from tilewright.ir.dtypes import I64, DType
from tilewright.ir.expr import Expr
from tilewright.ir.op import MAX_ARRAY_RANK

Inputs = list[Any]
_MOST_CHOICES = 16
"""Elements of which one may be chosen by a position that follows from dims."""


def static_integers(contents: Contents | None) -> list[int]:
    """The elements as plain integers; Unknown if they are not."""
    if contents is None or not all(isinstance(x, int) for x in contents.reshape(-1)):
        raise Unknown
    return [int(x) for x in contents.reshape(-1)]


def known_axes(ctx: NodeContext, inputs: Inputs, since: int) -> list[int] | None:
    """Axes from the attribute, or from input 1 since that version."""
    if ctx.version < since:
        return ctx.attributes.integers("axes")
    return static_integers(inputs[1]) if len(inputs) > 1 and inputs[1] is not None else None


@evaluator("Identity")
def _identity(ctx: NodeContext, inputs: Inputs) -> Contents:
    return np.array(inputs[0], object)


@evaluator("Gather")
def _gather(ctx: NodeContext, inputs: Inputs) -> Contents:
    data, positions = inputs
    axis = ctx.axis(ctx.attributes.integer("axis", 0), data.ndim)
    extent = data.shape[axis] if data.ndim else 0
    rows = np.moveaxis(data, axis, 0)
    result: Contents = np.empty((*positions.shape, *rows.shape[1:]), object)
    for place in np.ndindex(positions.shape):
        row = _row(rows, positions[place], extent, ctx.operand(0).dtype)
        result[place] = row if row.ndim else row[()]
    lead = tuple(range(positions.ndim))
    return np.moveaxis(result, lead, tuple(axis + a for a in lead))


def _row(rows: Contents, position: Element, extent: int, dtype: DType) -> Contents:
    """The row at a position, which may follow from dims and count from the end."""
    if not isinstance(position, Expr):
        if not -extent <= position < extent:
            raise Unknown
        return np.asarray(rows[int(position)], object)
    if extent > _MOST_CHOICES:
        raise Unknown
    row: Contents = np.asarray(rows[-1], object)
    for place in range(extent - 1):
        same = (elements.compare("eq", position, p, I64) for p in (place, place - extent))
        here = elements.disjunction(*same)
        row = elementwise(lambda x, y, c=here: elements.choose(c, x, y, dtype), rows[place], row)
    return row


@evaluator("Concat")
def _concat(ctx: NodeContext, inputs: Inputs) -> Contents:
    default = 1 if ctx.version < 4 else None
    axis = ctx.axis(ctx.attributes.integer("axis", default), inputs[0].ndim)
    if any(i is None for i in inputs):
        raise Unknown
    try:
        return np.asarray(np.concatenate(inputs, axis), object)
    except ValueError as error:
        raise Unknown from error


@evaluator("Unsqueeze")
def _unsqueeze(ctx: NodeContext, inputs: Inputs) -> Contents:
    axes = known_axes(ctx, inputs, 13) or []
    rank = inputs[0].ndim + len(axes)
    if rank > MAX_ARRAY_RANK:
        raise Unknown
    return np.expand_dims(inputs[0], ctx.axes(axes, rank))


@evaluator("Squeeze")
def _squeeze(ctx: NodeContext, inputs: Inputs) -> Contents:
    axes = known_axes(ctx, inputs, 13)
    chosen = (
        ctx.axes(axes, inputs[0].ndim)
        if axes is not None
        else tuple(a for a, d in enumerate(inputs[0].shape) if d == 1)
    )
    if any(inputs[0].shape[a] != 1 for a in chosen):
        raise Unknown
    return np.asarray(np.squeeze(inputs[0], chosen), object)


@evaluator("Reshape")
def _reshape(ctx: NodeContext, inputs: Inputs) -> Contents:
    if ctx.version < 5:
        wanted = list(ctx.attributes.integers("shape") or [])
    else:
        wanted = static_integers(inputs[1])
    if not ctx.attributes.integer("allowzero", 0):
        if any(d == 0 and a >= inputs[0].ndim for a, d in enumerate(wanted)):
            raise Unknown
        wanted = [inputs[0].shape[a] if d == 0 else d for a, d in enumerate(wanted)]
    try:
        return np.asarray(inputs[0].reshape(wanted), object)
    except ValueError as error:
        raise Unknown from error


@evaluator("Flatten")
def _flatten(ctx: NodeContext, inputs: Inputs) -> Contents:
    axis = ctx.attributes.integer("axis", 1)
    if not -inputs[0].ndim <= axis <= inputs[0].ndim or inputs[0].size == 0:
        raise Unknown
    rows = int(np.prod(inputs[0].shape[:axis], dtype=int))
    return np.asarray(inputs[0].reshape(rows, inputs[0].size // rows), object)


@evaluator("Transpose")
def _transpose(ctx: NodeContext, inputs: Inputs) -> Contents:
    perm = ctx.attributes.integers("perm")
    if perm is not None and sorted(perm) != list(range(inputs[0].ndim)):
        raise Unknown
    return np.transpose(inputs[0], perm)


@evaluator("Slice")
def _slice(ctx: NodeContext, inputs: Inputs) -> Contents:
    rank = inputs[0].ndim
    if ctx.version < 10:
        starts = ctx.attributes.integers("starts") or []
        ends = ctx.attributes.integers("ends") or []
        axes = ctx.attributes.integers("axes")
        steps = None
    else:
        starts, ends = static_integers(inputs[1]), static_integers(inputs[2])
        axes, steps = (
            static_integers(inputs[i]) if len(inputs) > i and inputs[i] is not None else None
            for i in (3, 4)
        )
    axes = list(range(len(starts))) if axes is None else axes
    steps = [1] * len(starts) if steps is None else steps
    if not len(starts) == len(ends) == len(axes) == len(steps) or 0 in steps:
        raise Unknown
    window = [slice(None)] * rank
    # Python's slices clamp as ONNX's do, but for a start before the beginning that goes backward.
    for start, end, axis, step in zip(starts, ends, axes, steps):
        chosen = ctx.axis(axis, rank)
        begin = max(start, -inputs[0].shape[chosen]) if step < 0 else start
        window[chosen] = slice(begin, end, step)
    return np.array(inputs[0][tuple(window)], object)


@evaluator("Split")
def _split(ctx: NodeContext, inputs: Inputs) -> list[Contents]:
    axis = ctx.axis(ctx.attributes.integer("axis", 0), inputs[0].ndim)
    if ctx.version < 2:
        raise Unknown
    parts, extent = len(ctx.node.output), inputs[0].shape[axis]
    if ctx.version < 13:
        sizes = ctx.attributes.integers("split")
    else:
        has_sizes = len(inputs) > 1 and inputs[1] is not None
        sizes = static_integers(inputs[1]) if has_sizes else None
    if sizes is None:
        if extent % parts:
            raise Unknown
        sizes = [extent // parts] * parts
    if len(sizes) != parts or sum(sizes) != extent or min(sizes) < 0:
        raise Unknown
    return np.split(inputs[0], np.cumsum(sizes)[:-1], axis)


@evaluator("Tile")
def _tile(ctx: NodeContext, inputs: Inputs) -> Contents:
    if ctx.version < 6:
        raise Unknown  # one axis, by its handler
    repeats = static_integers(inputs[1])
    _check_size(ctx, [inputs[0].size, *repeats])
    return np.tile(inputs[0], repeats)


@evaluator("Expand")
def _expand(ctx: NodeContext, inputs: Inputs) -> Contents:
    wanted = static_integers(inputs[1])
    _check_size(ctx, wanted)
    try:
        shape = np.broadcast_shapes(inputs[0].shape, tuple(wanted))
    except ValueError as error:
        raise Unknown from error
    return np.array(np.broadcast_to(inputs[0], shape), object)


def _check_size(ctx: NodeContext, factors: list[int]) -> None:
    """Unknown if the product of the factors is more than is followed."""
    total = 1
    for factor in factors:
        total *= factor
        if factor < 0 or total > ctx.importer.limits.contents:
            raise Unknown
