# SPDX-License-Identifier: Apache-2.0
"""Simplification of ops that move elements: reshape, transpose, broadcast, slice, pad, concat,
gather.
"""

from collections.abc import Sequence

import numpy as np

from tilewright.ir.expr import ONE, ZERO, Expr, add, index, mul
from tilewright.ir.graph import Builder, Node, Value, constant_array
from tilewright.ir.ops.broadcast_to import BroadcastTo
from tilewright.ir.ops.concat import MOST, Concat
from tilewright.ir.ops.conv import Conv
from tilewright.ir.ops.gather import Gather
from tilewright.ir.ops.pad import Pad
from tilewright.ir.ops.relayout import Relayout
from tilewright.ir.ops.reshape import Reshape
from tilewright.ir.ops.slice import Slice
from tilewright.ir.ops.transpose import Transpose
from tilewright.passes.rewriter import Rule
from tilewright.passes.rules.matching import is_number, only_use, producer_of, splat


def reshape_chain(node: Node, builder: Builder) -> Value | None:
    """A reshape to the same shape goes; of two reshapes only the last stays."""
    if not isinstance(node.op, Reshape):
        return None
    x = node.operands[0]
    if x.type is node.result.type:
        return x
    inner = producer_of(x, "reshape")
    return None if inner is None else builder(node.op, inner.operands[0])


def transpose_chain(node: Node, builder: Builder) -> Value | None:
    """The identity goes; two transpositions are one; one that moves only dims of 1 is a reshape."""
    if not isinstance(node.op, Transpose):
        return None
    x = node.operands[0]
    perm = node.op.perm
    if perm == tuple(range(len(perm))):
        return x
    inner = producer_of(x, "transpose")
    if inner is not None and isinstance(inner.op, Transpose):
        composed = tuple(inner.op.perm[a] for a in perm)
        return builder(Transpose(composed), inner.operands[0])
    moved = [a for a in perm if x.type.shape[a] is not ONE]
    if moved == sorted(moved) and x.type.layout.is_row_major:
        return builder(Reshape(node.result.type.shape), x)
    return None


def broadcast_chain(node: Node, builder: Builder) -> Value | None:
    """A broadcast to the same shape goes; one that only adds dims of 1 is a reshape; two are
    one.
    """
    if not isinstance(node.op, BroadcastTo):
        return None
    x = node.operands[0]
    if x.type is node.result.type:
        return x
    inner = producer_of(x, "broadcast_to")
    if inner is not None:
        return builder(node.op, inner.operands[0])
    added = node.op.shape[: len(node.op.shape) - x.type.rank]
    if all(d is ONE for d in added) and node.op.shape[len(added) :] == x.type.shape:
        return builder(Reshape(node.op.shape), x)
    return None


def slice_chain(node: Node, builder: Builder) -> Value | None:
    """A slice of everything goes; a slice of a slice is one slice; one of a single part of a concat
    is that.
    """
    if not isinstance(node.op, Slice):
        return None
    x, op = node.operands[0], node.op
    if op.sizes == x.type.shape and _starts_at_zero(op):
        return x
    inner = producer_of(x, "slice")
    if inner is not None and isinstance(inner.op, Slice):
        first = inner.op
        starts = [
            add(a, mul(b, s)) for a, b, s in zip(first.starts, op.starts, first.steps, strict=True)
        ]
        steps = [s * t for s, t in zip(first.steps, op.steps, strict=True)]
        return builder(Slice(tuple(starts), op.sizes, tuple(steps)), inner.operands[0])
    joined = producer_of(x, "concat")
    return None if joined is None else _part_of_concat(joined, op)


def _starts_at_zero(op: Slice) -> bool:
    return all(s is ZERO for s in op.starts) and all(s == 1 for s in op.steps)


def _part_of_concat(joined: Node, op: Slice) -> Value | None:
    """The operand of a concat that a slice takes as a whole."""
    axis = int(joined.op.attributes()["axis"])
    position: Expr = ZERO
    for part in joined.operands:
        starts = tuple(position if a == axis else ZERO for a in range(len(op.starts)))
        if op.starts == starts and op.sizes == part.type.shape and set(op.steps) == {1}:
            return part
        position = add(position, part.type.shape[axis])
    return None


def empty_pad(node: Node, builder: Builder) -> Value | None:
    """A pad by nothing goes."""
    if not isinstance(node.op, Pad) or node.result.type is not node.operands[0].type:
        return None
    nothing = all(p is ZERO for p in (*node.op.begins, *node.op.ends))
    return node.operands[0] if nothing else None


def pad_into_conv(node: Node, builder: Builder) -> Value | None:
    """A pad of spatial dims by zeros becomes padding of the convolution that reads it."""
    if not isinstance(node.op, Conv):
        return None
    source = producer_of(node.operands[0], "pad")
    if source is None or not isinstance(source.op, Pad) or source.op.mode != "constant":
        return None
    rank = len(source.op.begins)
    sides = [*source.op.begins, *source.op.ends]
    amounts = [p if str(p).isdigit() else None for p in sides]
    outside = [sides[a] for a in (0, 1, rank, rank + 1)]
    if None in amounts or any(p is not ZERO for p in outside):
        return None
    if len(source.operands) == 2:
        value = splat(source.operands[1], builder.constants)
        if not (is_number(value, 0.0) or is_number(value, -0.0)):
            return None
    begins = [int(str(p)) for p in source.op.begins[2:]]
    ends = [int(str(p)) for p in source.op.ends[2:]]
    pads = tuple(a + b for a, b in zip(node.op.pads, (*begins, *ends), strict=True))
    op = Conv(node.op.strides, pads, node.op.dilations, node.op.groups)
    return builder(op, source.operands[0], *node.operands[1:])


def small_concat(node: Node, builder: Builder) -> Value | None:
    """Empty parts and a concat of one part go; a concat of a concat along the same axis is one, if
    it does not get too many operands.
    """
    if not isinstance(node.op, Concat):
        return None
    axis = node.op.axis
    parts = [v for v in node.operands if v.type.shape[axis] is not ZERO]
    if len(parts) == 1 and parts[0].type.shape == node.result.type.shape:
        return parts[0]
    flat: list[Value] = []
    parts = parts or list(node.operands[:1])
    for number, part in enumerate(parts, 1):
        inner = producer_of(part, "concat")
        nested = inner is not None and inner.op == node.op and only_use(part)
        inside = inner.operands if inner is not None and nested else (part,)
        fits = len(flat) + len(inside) + len(parts) - number <= MOST
        flat.extend(inside if fits else (part,))
    return None if flat == node.operands else builder(node.op, *flat)


def gather_of_constant(node: Node, builder: Builder) -> Value | None:
    """A gather at consecutive constant indices is a slice, at a scalar one a slice and a
    reshape.
    """
    if not isinstance(node.op, Gather):
        return None
    x, at = node.operands
    indices = constant_array(at, builder.constants)
    dim = x.type.shape[node.op.axis]
    if indices is None or indices.ndim > 1 or indices.size == 0 or not str(dim).isdigit():
        return None
    extent = int(str(dim))
    flat = [int(i) for i in np.atleast_1d(indices)]
    flat = [i + extent if i < 0 else i for i in flat]
    step = flat[1] - flat[0] if len(flat) > 1 else 1
    regular = step != 0 and flat == list(range(flat[0], flat[0] + step * len(flat), step))
    if not regular or not all(0 <= i < extent for i in flat):
        return None
    piece = builder(_slice_along(x.type.shape, node.op.axis, flat[0], len(flat), step), x)
    return piece if indices.ndim else builder(Reshape(node.result.type.shape), piece)


def _slice_along(shape: Sequence[Expr], axis: int, start: int, size: int, step: int) -> Slice:
    axes = range(len(shape))
    return Slice(
        tuple(index(start) if a == axis else ZERO for a in axes),
        tuple(index(size) if a == axis else shape[a] for a in axes),
        tuple(step if a == axis else 1 for a in axes),
    )


def relayout_chain(node: Node, builder: Builder) -> Value | None:
    """A relayout to the layout that is there goes, unless it is a copy for an output; of two only
    the last stays.
    """
    if not isinstance(node.op, Relayout):
        return None
    x = node.operands[0]
    if x.type is node.result.type and not node.result.returned:
        return x
    inner = producer_of(x, "relayout")
    if inner is None:
        return None
    return builder.add_typed(node.op, [inner.operands[0]], [node.result.type]).result


RULES: tuple[Rule, ...] = (
    reshape_chain,
    transpose_chain,
    broadcast_chain,
    slice_chain,
    empty_pad,
    pad_into_conv,
    small_concat,
    gather_of_constant,
    relayout_chain,
)
