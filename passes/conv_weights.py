# SPDX-License-Identifier: Apache-2.0
"""How weights of contractions lie in memory, and when it pays to bring one there in every run.

Constants are packed at compile time. A weight that is computed, or an input of the model, is
converted by a kernel in front of its convolution. That costs as much as the weight is large, the
convolution as much for each position; so it pays from a few positions on.

The padding lanes of a blocked layout are read by vectors, though nobody wants what they make of
them. They are zeros here too, since denormal numbers, which other bytes may well be, are slow: the
weight gets output channels of zeros up to whole blocks, and what the convolution reads is a slice
without these, which is the same memory:

    %0: f32[16,3,1,1] = pad(%w) {begins=(0, 0, 0, 0), ends=(6, 0, 0, 0), mode=constant}
    %1: f32[16,3,1,1]{0,2,3,1;0:16} = relayout(%0) {layout={0,2,3,1;0:16}}
    %2: f32[10,3,1,1]{0,2,3,1;0:16} = slice(%1) {...}
"""

from math import prod

from tilewright.ir.expr import ZERO, index
from tilewright.ir.graph import Builder, Node, Value
from tilewright.ir.layout import Layout
from tilewright.ir.ops.pad import Pad
from tilewright.ir.ops.relayout import Relayout
from tilewright.ir.ops.slice import Slice
from tilewright.ir.rewrite import hinted

_POSITIONS = 8
"""The positions that must share a weight for its conversion to pay."""
_PRODUCTS = 1 << 13
"""Convolutions of fewer products take no longer than a kernel takes to start."""


def weight_layout(node: Node, block: int) -> Layout | None:
    """The layout in which the kernel of a contraction reads its weight; None for row-major."""
    weight = node.operands[1].type
    if node.op.name == "matmul":
        return Layout((1, 0), ((1, block),)) if weight.rank == 2 else None
    groups = int(node.op.attributes()["groups"])
    spatial = tuple(range(2, weight.rank))
    outputs, inputs = weight.static_shape[:2]
    if node.op.name == "conv_transpose":
        if groups > 1:
            return Layout((*spatial, 0, 1))
        # No vector is filled by one output: its products are summed along the inputs.
        return Layout((1, *spatial, 0), () if inputs == 1 else ((1, block),))
    if groups > 1 and inputs == 1:
        return Layout((*spatial, 0, 1))
    if outputs // groups % block and groups > 1:
        return Layout((*spatial, 1, 0))
    return Layout((0, *spatial, 1), () if outputs == 1 else ((0, block),))


def conversion_pays(node: Node) -> bool:
    """True for a convolution whose weight is worth a kernel that converts it in every run."""
    weight = node.operands[1].type
    if node.op.name not in ("conv", "conv_transpose") or not weight.is_static:
        return False
    swept = node.results[0].type if node.op.name == "conv" else node.operands[0].type
    positions = prod(hinted(d) for d in (swept.shape[0], *swept.shape[2:]))
    return positions >= _POSITIONS and positions * prod(weight.static_shape) >= _PRODUCTS


def convert_weight(builder: Builder, weight: Value, layout: Layout) -> Value:
    """A value of the weight in ``layout``, the padding zeros, made in every run."""
    kind = weight.type
    origin = weight.producer.origin if weight.producer else ""
    factors = dict(layout.blocks)
    missing = [-e % factors.get(a, 1) for a, e in enumerate(kind.static_shape)]
    value = weight
    if any(missing):
        zeros = (ZERO,) * kind.rank
        pad = Pad(zeros, tuple(map(index, missing)))
        value = builder.add(pad, value, origin=origin).result
    value = builder.add_typed(
        Relayout(layout), [value], [value.type.with_layout(layout)], origin=origin
    ).result
    if any(missing):
        part = Slice(zeros, kind.shape, (1,) * kind.rank)
        value = builder.add_typed(part, [value], [kind.with_layout(layout)], origin=origin).result
    value.name = weight.name
    return value
