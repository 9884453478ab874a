# SPDX-License-Identifier: Apache-2.0
"""Move slices up to what they cut, so that parts are computed instead of a whole and copies of it.

Before ``%1 = matmul(x, w); %2 = add(%1, b)`` and slices of ``%2`` to queries, keys and values,
after three products with slices of ``w`` and ``b``, which constant folding executes. A slice of a
transposition is a transposition of a slice, one of a reshape that splits dims a reshape of a slice.
An elementwise op or product is only cut where slices are all that uses it.
"""

from dataclasses import dataclass
from typing import ClassVar

from tilewright.ir.expr import ONE, ZERO, Expr, mul
from tilewright.ir.graph import Builder, Constant, Module, Node, Value
from tilewright.ir.ops.elementwise import Elementwise
from tilewright.ir.ops.matmul import Matmul
from tilewright.ir.ops.reshape import Reshape, match_dims
from tilewright.ir.ops.slice import Slice
from tilewright.ir.ops.transpose import Transpose
from tilewright.passes.manager import Pass, PassContext
from tilewright.passes.rewriter import rewrite_module
from tilewright.passes.rules.movement import reshape_chain, slice_chain


@dataclass(frozen=True)
class HoistSlices(Pass):
    """Slices in front of movement, elementwise ops and products."""

    name: ClassVar[str] = "hoist-slices"

    def run(self, module: Module, context: PassContext) -> bool:
        rules = (
            slice_chain,
            slice_of_transpose,
            slice_of_reshape,
            slice_of_elementwise,
            slice_of_matmul,
        )
        return rewrite_module(module, {"slice": rules, "reshape": [reshape_chain]})


def _sliced(node: Node) -> tuple[Slice, Node] | None:
    """The op of a slice and the node that it cuts."""
    source = node.operands[0].producer
    return (node.op, source) if isinstance(node.op, Slice) and source is not None else None


def _is_whole(op: Slice, shape: tuple[Expr, ...], axis: int) -> bool:
    """True if the slice takes all of an axis, in order."""
    return op.starts[axis] is ZERO and op.steps[axis] == 1 and op.sizes[axis] is shape[axis]


def slice_of_transpose(node: Node, builder: Builder) -> Value | None:
    """``slice(transpose(x))`` becomes ``transpose(slice(x))``."""
    found = _sliced(node)
    if found is None or not isinstance(found[1].op, Transpose):
        return None
    op, source = found
    perm = found[1].op.perm
    order = [perm.index(a) for a in range(len(perm))]
    moved = Slice(
        tuple(op.starts[i] for i in order),
        tuple(op.sizes[i] for i in order),
        tuple(op.steps[i] for i in order),
    )
    return builder(Transpose(perm), builder(moved, source.operands[0]))


def slice_of_reshape(node: Node, builder: Builder) -> Value | None:
    """``slice(reshape(x))`` becomes ``reshape(slice(x))`` where each cut is a range of one dim of
    ``x``.
    """
    found = _sliced(node)
    if found is None or not isinstance(found[1].op, Reshape):
        return None
    op, source = found
    x, shape = source.operands[0], source.result.type.shape
    starts = [ZERO] * x.type.rank
    sizes = list(x.type.shape)
    for (i, i_end), (j, j_end) in match_dims(x.type.shape, shape):
        cut = [a for a in range(j, j_end) if not _is_whole(op, shape, a)]
        if not cut:
            continue
        plain = [a for a in range(i, i_end) if x.type.shape[a] is not ONE]
        before = [shape[a] for a in range(j, cut[0])]
        if (
            len(cut) > 1
            or len(plain) != 1
            or op.steps[cut[0]] != 1
            or any(d is not ONE for d in before)
        ):
            return None
        inner: Expr = ONE
        for a in range(cut[0] + 1, j_end):
            inner = mul(inner, shape[a])
        starts[plain[0]] = mul(op.starts[cut[0]], inner)
        sizes[plain[0]] = mul(op.sizes[cut[0]], inner)
    piece = builder(Slice(tuple(starts), tuple(sizes), (1,) * x.type.rank), x)
    return builder(Reshape(node.result.type.shape), piece)


def slice_of_elementwise(node: Node, builder: Builder) -> Value | None:
    """Slices that are all that uses a sum become sums of slices."""
    found = _sliced(node)
    if found is None or not isinstance(found[1].op, Elementwise) or not _only_sliced(found[1]):
        return None
    op, source = found
    if not any(_leads_to_matmul(v) for v in source.operands):
        return None
    result = source.result.type.shape
    operands: list[Value] = []
    for value in source.operands:
        lead = len(result) - value.type.rank
        starts, sizes, steps = list(op.starts[lead:]), list(op.sizes[lead:]), list(op.steps[lead:])
        for a, dim in enumerate(value.type.shape):
            if dim is not result[lead + a]:
                if dim is not ONE:
                    return None
                starts[a], sizes[a], steps[a] = ZERO, ONE, 1
        plain = all(s is d for s, d in zip(sizes, value.type.shape, strict=True))
        piece = Slice(tuple(starts), tuple(sizes), tuple(steps))
        operands.append(value if plain and set(starts) <= {ZERO} else builder(piece, value))
    return builder(source.op, *operands)


def _leads_to_matmul(value: Value) -> bool:
    node = value.producer
    while node is not None and node.op.name == "reshape":
        node = node.operands[0].producer
    return node is not None and isinstance(node.op, Matmul)


def slice_of_matmul(node: Node, builder: Builder) -> Value | None:
    """Slices by columns that are all that uses a product with a constant become products with its
    columns.
    """
    found = _sliced(node)
    if found is None or not isinstance(found[1].op, Matmul) or not _only_sliced(found[1]):
        return None
    op, source = found
    shape = source.result.type.shape
    a, b = source.operands
    last = len(shape) - 1
    rows_whole = all(_is_whole(op, shape, axis) for axis in range(last))
    if not rows_whole or not isinstance(b.op, Constant) or b.type.rank != 2:
        return None
    columns = Slice((ZERO, op.starts[last]), (b.type.shape[0], op.sizes[last]), (1, op.steps[last]))
    return builder(source.op, a, builder(columns, b))


def _only_sliced(node: Node) -> bool:
    value = node.result
    return not value.returned and all(u.op.name == "slice" for u in value.users)
