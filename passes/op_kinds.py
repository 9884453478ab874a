# SPDX-License-Identifier: Apache-2.0
"""What graph passes need to know of ops beyond their definitions: which access elements how.

Every op is one of: *constant*; *map* (each element of the result comes from a few elements of the
operands, at indices that need no loop); *reduction*; *contraction* (a sum of products); *group*;
*opaque* (all others: kernels of their own). Maps are *elementwise* (all operands at the same,
broadcast index) or *index maps* (they move elements).
"""

from tilewright.ir.expr import ONE, ZERO, Const, Expr
from tilewright.ir.graph import Node, Value
from tilewright.ir.layout import Layout, row_major
from tilewright.ir.op import Op
from tilewright.ir.ops.elementwise import Elementwise
from tilewright.ir.ops.slice import Slice
from tilewright.ir.ops.transpose import Transpose
from tilewright.ir.types import TensorType

INDEX_MAPS = frozenset(
    (
        "broadcast_to",
        "concat",
        "dim_values",
        "gather",
        "gather_elements",
        "gather_nd",
        "iota",
        "pad",
        "relayout",
        "reshape",
        "resize",
        "slice",
        "transpose",
    )
)
REDUCTIONS = frozenset(
    (
        "argmax",
        "argmin",
        "avg_pool",
        "group_norm",
        "index_fault",
        "instance_norm",
        "layer_norm",
        "log_softmax",
        "max_pool",
        "reduce_max",
        "reduce_mean",
        "reduce_min",
        "reduce_prod",
        "reduce_sum",
        "rms_norm",
        "softmax",
        "sum_pool",
    )
)
POOLS = frozenset(("avg_pool", "max_pool", "sum_pool"))
CONTRACTIONS = frozenset(("conv", "conv_transpose", "einsum", "matmul"))

# Scalar functions that cost many times an addition.
EXPENSIVE = frozenset(
    (
        "acos", "acosh", "asin", "asinh", "atan", "atanh", "cos", "cosh", "div", "erf", "exp",
        "exp2", "expm1", "fmod", "log", "log1p", "log2", "mod", "pow", "rsqrt", "sigmoid", "sin",
        "sinh", "sqrt", "tan", "tanh",
    )
)  # fmt: skip


def is_elementwise(node: Node) -> bool:
    """True for ops that compute each element of the result from one element of each operand."""
    return isinstance(node.op, Elementwise)


def is_index_map(node: Node) -> bool:
    """True for ops that move elements without computing."""
    return node.op.name in INDEX_MAPS


def is_map(node: Node) -> bool:
    """True for elementwise ops and index maps."""
    return is_elementwise(node) or is_index_map(node)


def is_reduction(node: Node) -> bool:
    """True for reductions, normalisations and pooling."""
    return node.op.name in REDUCTIONS


def is_contraction(node: Node) -> bool:
    """True for matrix multiplications and convolutions."""
    return node.op.name in CONTRACTIONS


def is_alias(node: Node) -> bool:
    """True for a reshape or transposition whose result is the same bytes in the same order.

    That is a reshape of row-major to row-major, one that only adds or drops dims of 1, a
    transposition that the layouts undo: channels-last ``[n,c,h,w]`` is row-major ``[n,h,w,c]``, and
    a slice of a blocked layout that turns what it leaves out into padding.
    """
    if len(node.operands) != 1:
        return False
    before, after = node.operands[0].type, node.results[0].type
    if isinstance(node.op, Slice):
        return _leaves_padding(node.op, before, after)
    if before.layout.blocks or after.layout.blocks:
        return False
    if isinstance(node.op, Transpose):
        moved = [node.op.perm[a] for a in after.layout.order if after.shape[a] is not ONE]
        return moved == _order_without_units(before)
    if node.op.name != "reshape":
        return False
    if before.layout.is_row_major and after.layout.is_row_major:
        return True
    layout = carried_layout(before, after.shape)
    return layout is not None and _order_without_units(after) == _order_without_units(
        after.with_layout(layout)
    )


def _leaves_padding(op: Slice, before: TensorType, after: TensorType) -> bool:
    layout = after.layout
    return (
        bool(layout.blocks)
        and before.layout is layout
        and all(start is ZERO for start in op.starts)
        and all(step == 1 for step in op.steps)
        and layout.physical_shape(before.shape) == layout.physical_shape(after.shape)
    )


def _order_without_units(t: TensorType) -> list[int]:
    return [a for a in t.layout.order if t.shape[a] is not ONE]


def carried_layout(before: TensorType, shape: tuple[Expr, ...]) -> Layout | None:
    """The layout under which a reshape of ``before`` to ``shape`` moves nothing in memory.

    None unless the two shapes differ in dims of 1 alone.
    """
    kept = [a for a, d in enumerate(before.shape) if d is not ONE]
    there = [a for a, d in enumerate(shape) if d is not ONE]
    if before.layout.blocks or [before.shape[a] for a in kept] != [shape[a] for a in there]:
        return None
    place = dict(zip(kept, there, strict=True))
    units = [a for a, d in enumerate(shape) if d is ONE]
    order = (*units, *(place[a] for a in before.layout.order if a in place))
    if list(order[len(units) :]) == sorted(there):
        return row_major(len(shape))
    return Layout(order)


def memory_of(value: Value) -> Value:
    """The value whose memory ``value`` is: itself, or the operand of a chain of aliases."""
    while value.producer is not None and is_alias(value.producer):
        value = value.producer.operands[0]
    return value


def has_symbolic_attributes(op: Op) -> bool:
    """True if an attribute depends on symbols."""
    for attribute in op.attributes().values():
        items = attribute if isinstance(attribute, tuple) else (attribute,)
        if any(isinstance(i, Expr) and not isinstance(i, Const) for i in items):
            return True
    return False
