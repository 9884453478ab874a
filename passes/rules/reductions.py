# SPDX-License-Identifier: Apache-2.0
"""Simplification of reductions and pools that reduce nothing."""

from tilewright.ir.expr import ONE
from tilewright.ir.graph import Builder, Node, Value
from tilewright.ir.ops.pool import MaxPool
from tilewright.ir.ops.reshape import Reshape
from tilewright.passes.rewriter import Rule

_REDUCTIONS = ("reduce_max", "reduce_mean", "reduce_min", "reduce_prod", "reduce_sum")


def unit_axes(node: Node, builder: Builder) -> Value | None:
    """A reduction over dims of 1 is a reshape."""
    if node.op.name not in _REDUCTIONS:
        return None
    x = node.operands[0]
    if x.type.dtype.is_float and node.op.name in ("reduce_sum", "reduce_mean"):
        # 0.0 + -0.0 is 0.0.
        return None
    axes = node.op.attributes()["axes"]
    if not all(x.type.shape[a] is ONE for a in axes):
        return None
    return builder(Reshape(node.result.type.shape), x)


def unit_window(node: Node, builder: Builder) -> Value | None:
    """A maximum over windows of one element is its operand."""
    if not isinstance(node.op, MaxPool):
        return None
    single = all(k == 1 for k in node.op.kernel) and all(s == 1 for s in node.op.strides)
    return node.operands[0] if single and not any(node.op.pads) else None


RULES: tuple[Rule, ...] = (unit_axes, unit_window)
