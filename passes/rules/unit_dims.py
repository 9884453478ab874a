# SPDX-License-Identifier: Apache-2.0
"""Rules that take dims of 1 out of ops, so that transpositions and products show their plain
form.
"""

from collections.abc import Sequence

from tilewright.ir.expr import ONE, Expr
from tilewright.ir.graph import Builder, Node, Value
from tilewright.ir.ops.elementwise import Elementwise
from tilewright.ir.ops.matmul import Matmul
from tilewright.ir.ops.reshape import Reshape
from tilewright.ir.ops.transpose import Transpose
from tilewright.passes.op_kinds import is_contraction, is_elementwise
from tilewright.passes.rules.matching import only_use, producer_of


def squeezed_transpose(node: Node, builder: Builder) -> Value | None:
    """``transpose`` of ``[1,n,6,64]`` as a reshape, a transposition of ``[n,6,64]`` and a
    reshape.
    """
    if not isinstance(node.op, Transpose):
        return None
    x = node.operands[0]
    kept = [a for a, d in enumerate(x.type.shape) if d is not ONE]
    if len(kept) == x.type.rank or not x.type.layout.is_row_major:
        return None
    perm = tuple(kept.index(a) for a in node.op.perm if a in kept)
    plain = builder(Reshape(tuple(x.type.shape[a] for a in kept)), x)
    return builder(Reshape(node.result.type.shape), builder(Transpose(perm), plain))


def squeezed_matmul(node: Node, builder: Builder) -> Value | None:
    """A product with leading dims of 1 on both sides without them."""
    if not isinstance(node.op, Matmul):
        return None
    a, b = (v.type.shape for v in node.operands)
    common = 0
    while min(len(a), len(b)) - common > 2 and a[common] is ONE and b[common] is ONE:
        common += 1
    if common == 0 or len(a) != len(b):
        return None
    left, right = (builder(Reshape(v.type.shape[common:]), v) for v in node.operands)
    return builder(Reshape(node.result.type.shape), builder(node.op, left, right))


def elementwise_of_unsqueeze(node: Node, builder: Builder) -> Value | None:
    """An elementwise op after a product or a transposition goes in front of a reshape that only
    adds dims of 1.
    """
    if not isinstance(node.op, Elementwise) or len(node.results) != 1:
        return None
    shape = node.result.type.shape
    for value in node.operands:
        source = producer_of(value, "reshape")
        if source is None or value.type.shape != shape or not only_use(value):
            continue
        inner = source.operands[0]
        maker = inner.producer
        added = added_dims(inner.type.shape, shape)
        computed = maker is not None and (
            is_contraction(maker) or is_elementwise(maker) or isinstance(maker.op, Transpose)
        )
        if added and computed:
            operands = [
                inner if v is value else _without(v, added, shape, builder) for v in node.operands
            ]
            return builder(Reshape(shape), builder(node.op, *operands))
    return None


def added_dims(plain: Sequence[Expr], shape: Sequence[Expr]) -> tuple[int, ...]:
    """The places of the dims of 1 that ``shape`` has over ``plain``; empty if that is not the
    difference.
    """
    added: list[int] = []
    position = 0
    for axis, dim in enumerate(shape):
        if position < len(plain) and plain[position] is dim:
            position += 1
        elif dim is ONE:
            added.append(axis)
        else:
            return ()
    return tuple(added) if position == len(plain) else ()


def _without(
    value: Value, added: tuple[int, ...], shape: Sequence[Expr], builder: Builder
) -> Value:
    """An operand that broadcasts to ``shape`` without the dims at ``added``, which are 1."""
    lead = len(shape) - value.type.rank
    kept = tuple(d for a, d in enumerate(value.type.shape) if a + lead not in added)
    return value if len(kept) == value.type.rank else builder(Reshape(kept), value)
