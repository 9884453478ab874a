# SPDX-License-Identifier: Apache-2.0
"""Convolutions with few outputs: these fill no vector, so that its lanes are something else.

They are channels, in channels-last memory, or positions, in row-major memory. One output is a sum
for each position, and so are a few where windows are one point; such a convolution does with either
order, and nothing need be turned around for it.
"""

from tilewright.ir.bounds import known_lt
from tilewright.ir.expr import ONE, index
from tilewright.ir.graph import Node, Value
from tilewright.ir.layout import Layout, channels_last
from tilewright.ir.ops.conv import Conv
from tilewright.ir.ops.reshape import Reshape
from tilewright.ir.ops.transpose import Transpose
from tilewright.passes.op_kinds import POOLS, carried_layout

_FEW = index(4)
"""A convolution with windows of one point is narrow with fewer outputs."""


def is_narrow(node: Node) -> bool:
    """True for a convolution that may read any order, unless its operand is channels-last for
    another convolution or pool, or by itself.
    """
    if not isinstance(node.op, Conv):
        return False
    x = node.operands[0]
    users = {u for u, position in x.uses if position == 0}
    return all(map(_reads_any, users | {node})) and not _lies_in(channels_last(x.type.rank), x)


def _reads_any(node: Node) -> bool:
    """True for a convolution that may read any order, and for ops that are no convolution or
    pool.
    """
    op = node.op
    if not isinstance(op, Conv):
        return op.name not in POOLS and op.name != "conv_transpose"
    outputs, _, *window = node.operands[1].type.shape
    if outputs is ONE:
        return True
    plain = op.groups == 1 and not any(op.pads) and set(op.strides) == {1}
    return plain and all(d is ONE for d in window) and known_lt(outputs, _FEW) is True


def _lies_in(layout: Layout, value: Value) -> bool:
    """True if a value that is a transposition needs no copy in that layout."""
    node = value.producer
    if node is None:
        return False
    if isinstance(node.op, Reshape):
        (x,) = node.operands
        carried = carried_layout(value.type.with_layout(layout), x.type.shape)
        return carried is not None and _lies_in(carried, x)
    if not isinstance(node.op, Transpose):
        return False
    moved = [node.op.perm[a] for a in layout.order if value.type.shape[a] is not ONE]
    return moved == sorted(moved)
