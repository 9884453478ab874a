# SPDX-License-Identifier: Apache-2.0
"""What graph passes need to know of ops beyond their definitions: which access elements how.

Every op is one of: *constant*; *map* (each element of the result comes from a few elements of the
operands, at indices that need no loop); *reduction*; *contraction* (a sum of products); *group*;
*opaque* (all others: kernels of their own). Maps are *elementwise* (all operands at the same,
broadcast index) or *index maps* (they move elements).
"""

from tilewright.ir.expr import ONE, Const, Expr
from tilewright.ir.graph import Node, Value
from tilewright.ir.op import Op
from tilewright.ir.ops.elementwise import Elementwise
from tilewright.ir.ops.transpose import Transpose

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
    )
)
POOLS = frozenset(("avg_pool", "max_pool"))
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

    A transposition is one where the layouts undo it: channels-last ``[n,c,h,w]`` is row-major
    ``[n,h,w,c]``.
    """
    if node.op.name == "reshape":
        return all(v.type.layout.is_row_major for v in (*node.operands, *node.results))
    if not isinstance(node.op, Transpose):
        return False
    before, after = node.operands[0].type, node.result.type
    if before.layout.blocks or after.layout.blocks:
        return False
    order = [a for a in before.layout.order if before.shape[a] is not ONE]
    moved = [node.op.perm[a] for a in after.layout.order if after.shape[a] is not ONE]
    return order == moved


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
