# SPDX-License-Identifier: Apache-2.0
"""Move transpositions down until a contraction takes them as its access map.

Before ``%1 = transpose(q) {perm=(0, 2, 1, 3)}; %2 = mul(%1, c); %3 = matmul(%2, %k)``, after ``%1 =
mul(q, c); %3 = einsum(%1, %k) {equation="abcd,abde..."}``: the einsum reads ``q`` as it lies in
memory. A transposition after a contraction becomes the order of its result, and one of a merged
reshape goes in front of it, where it meets others. What cannot be taken stays a transposition.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from string import ascii_lowercase
from typing import ClassVar

from tilewright.ir.dtypes import DType
from tilewright.ir.expr import ONE, Expr
from tilewright.ir.graph import Builder, Module, Node, Value
from tilewright.ir.ops.concat import Concat
from tilewright.ir.ops.einsum import Einsum
from tilewright.ir.ops.elementwise import Elementwise
from tilewright.ir.ops.matmul import Matmul
from tilewright.ir.ops.reshape import Reshape
from tilewright.ir.ops.transpose import Transpose
from tilewright.passes.manager import Pass, PassContext
from tilewright.passes.rewriter import rewrite_module
from tilewright.passes.rules.matching import only_use
from tilewright.passes.rules.movement import reshape_chain, transpose_chain
from tilewright.passes.rules.sinking import elementwise_of_reshape
from tilewright.passes.rules.unit_dims import (
    elementwise_of_unsqueeze,
    squeezed_matmul,
    squeezed_transpose,
)


@dataclass(frozen=True)
class SinkTransposes(Pass):
    """Transpositions into contractions."""

    name: ClassVar[str] = "sink-transposes"

    def run(self, module: Module, context: PassContext) -> bool:
        rules = (
            transpose_chain,
            reshape_chain,
            squeezed_transpose,
            squeezed_matmul,
            elementwise_of_unsqueeze,
            transpose_of_merge,
            split_of_transpose,
            elementwise_of_transpose,
            concat_of_transposes,
            elementwise_of_reshape,
            contraction_of_transpose,
            transpose_of_contraction,
        )
        return rewrite_module(module, {"*": rules})


def transpose_of_merge(node: Node, builder: Builder) -> Value | None:
    """``transpose(reshape(x))`` of a reshape that only merges dims becomes
    ``reshape(transpose(x))``.

    So transpositions meet, and ``[n,c,h,w]`` to ``[n,h*w,c]`` starts with one that is free where
    the layout is channels-last. Not where a product takes the transposition as it is.
    """
    source = _transposed(node)
    if source is None or not isinstance(source.op, Reshape) or not isinstance(node.op, Transpose):
        return None
    x = source.operands[0]
    merges = len(_without_units(x.type.shape)) > len(_without_units(node.result.type.shape))
    if not only_use(source.result) or not merges:
        return None
    if _transposed_value(x) is None and any(_labels(user) for user in node.result.users):
        return None
    groups = merged_dims(x.type.shape, source.result.type.shape)
    if groups is None:
        return None
    perm = tuple(axis for a in node.op.perm for axis in groups[a])
    moved = builder(Transpose(perm), x)
    return builder(Reshape(node.result.type.shape), moved)


def split_of_transpose(node: Node, builder: Builder) -> Value | None:
    """``reshape(transpose(x))`` of a reshape that only splits dims becomes
    ``transpose(reshape(x))``.

    Dims of 1 that the reshape adds are left to a reshape after that.
    """
    if not isinstance(node.op, Reshape):
        return None
    source = _transposed_value(node.operands[0])
    if source is None or not isinstance(source.op, Transpose) or not only_use(source.result):
        return None
    moved, shape = source.result.type.shape, _without_units(node.result.type.shape)
    groups = merged_dims(shape, moved) if len(shape) > len(_without_units(moved)) else None
    if groups is None:
        return None
    order = [source.op.perm.index(a) for a in range(len(moved))]
    axes = [axis for a in order for axis in groups[a]]
    split = builder(Reshape(tuple(shape[axis] for axis in axes)), source.operands[0])
    result = builder(Transpose(tuple(axes.index(axis) for axis in range(len(axes)))), split)
    whole = node.result.type.shape
    return result if shape == whole else builder(Reshape(whole), result)


def _without_units(shape: Sequence[Expr]) -> tuple[Expr, ...]:
    return tuple(d for d in shape if d is not ONE)


def _transposed(node: Node) -> Node | None:
    return node.operands[0].producer if isinstance(node.op, Transpose) else None


def _transposed_value(value: Value) -> Node | None:
    """The transposition that makes ``value``."""
    node = value.producer
    return node if node is not None and isinstance(node.op, Transpose) else None


def merged_dims(shape: Sequence[Expr], merged: Sequence[Expr]) -> list[tuple[int, ...]] | None:
    """For each dim of ``merged`` the neighbouring dims of ``shape`` of which it is the product;
    None if it is not.
    """
    groups: list[tuple[int, ...]] = []
    position = 0
    for dim in merged:
        product: Expr = ONE
        start = position
        while product is not dim and position < len(shape):
            product = product * shape[position]
            position += 1
        if product is not dim:
            return None
        groups.append(tuple(range(start, position)))
    # Dims of 1 at the end belong to the last group.
    if any(d is not ONE for d in shape[position:]) or not groups:
        return None
    groups[-1] = (*groups[-1], *range(position, len(shape)))
    return groups


def elementwise_of_transpose(node: Node, builder: Builder) -> Value | None:
    """An elementwise op goes in front of the transposition of its operands.

    Operands that are not transposed alike must be free to move: scalars, and tensors of which only
    dims of 1 change places.
    """
    if not isinstance(node.op, Elementwise) or len(node.results) != 1:
        return None
    rank = node.result.type.rank
    sources = [_transposed_value(v) for v in node.operands]
    perms = [
        s.op.perm
        for s, v in zip(sources, node.operands, strict=True)
        if s is not None and isinstance(s.op, Transpose) and only_use(v)
    ]
    if not perms or len(perms[0]) != rank:
        return None
    perm = perms[0]
    operands: list[Value] = []
    for value, source in zip(node.operands, sources, strict=True):
        alike = source is not None and isinstance(source.op, Transpose) and source.op.perm == perm
        moved = source.operands[0] if source is not None and alike else None
        moved = moved or _moved_units(value, perm, builder)
        if moved is None:
            return None
        operands.append(moved)
    return builder(Transpose(perm), builder(node.op, *operands))


def _moved_units(value: Value, perm: tuple[int, ...], builder: Builder) -> Value | None:
    """A value that broadcasts to the result of ``perm`` in the order before it, if that is a
    reshape.
    """
    shape = value.type.shape
    if all(d is ONE for d in shape) and len(shape) <= 1:
        return value
    aligned: list[Expr] = [ONE] * (len(perm) - len(shape)) + list(shape)
    kept = [axis for axis, d in zip(perm, aligned, strict=True) if d is not ONE]
    if kept != sorted(kept) or not value.type.layout.is_row_major:
        return None
    before = [aligned[perm.index(axis)] for axis in range(len(perm))]
    while before and before[0] is ONE:
        before.pop(0)
    return value if tuple(before) == shape else builder(Reshape(tuple(before)), value)


def concat_of_transposes(node: Node, builder: Builder) -> Value | None:
    """A concat of values that are transposed alike is transposed afterwards."""
    if not isinstance(node.op, Concat):
        return None
    sources = [_transposed_value(v) for v in node.operands]
    perms = {s.op.perm for s in sources if s is not None and isinstance(s.op, Transpose)}
    whole = [s.operands[0] for s in sources if s is not None]
    if len(perms) != 1 or len(whole) != len(sources) or not all(map(only_use, node.operands)):
        return None
    perm = perms.pop()
    return builder(Transpose(perm), builder(Concat(perm[node.op.axis]), *whole))


def contraction_of_transpose(node: Node, builder: Builder) -> Value | None:
    """A product of transposed operands reads them as they lie, if the dim that lies innermost is
    not a batch.
    """
    labels = _labels(node)
    if labels is None:
        return None
    terms, result = labels
    changed = False
    operands: list[Value] = []
    for position, value in enumerate(node.operands):
        source = _transposed_value(value)
        if source is not None and isinstance(source.op, Transpose):
            perm = source.op.perm
            inner = "".join(terms[position][perm.index(a)] for a in range(len(perm)))
            others = "".join(t for i, t in enumerate(terms) if i != position)
            # A label of all terms and of the result is a batch.
            batch = inner[-1] in others and inner[-1] in result
            if not batch:
                terms[position], value, changed = inner, source.operands[0], True
        operands.append(value)
    if not changed:
        return None
    return builder(Einsum(f"{','.join(terms)}->{result}", _result_dtype(node)), *operands)


def transpose_of_contraction(node: Node, builder: Builder) -> Value | None:
    """A transposition that leaves the innermost dim in place is the order of the result of a
    product.
    """
    source = _transposed(node)
    if source is None or not isinstance(node.op, Transpose) or not only_use(source.results[0]):
        return None
    labels = _labels(source)
    perm = node.op.perm
    if labels is None or perm[-1] != len(perm) - 1:
        return None
    terms, result = labels
    moved = "".join(result[a] for a in perm)
    return builder(Einsum(f"{','.join(terms)}->{moved}", _result_dtype(source)), *source.operands)


def _result_dtype(node: Node) -> DType | None:
    """The type that a product is asked for, if it is not that of its operands."""
    return node.op.dtype if isinstance(node.op, Matmul | Einsum) else None


def _labels(node: Node) -> tuple[list[str], str] | None:
    """The labels of a product of two operands: a letter for each dim."""
    if isinstance(node.op, Matmul):
        a, b = (v.type.rank for v in node.operands)
        rank = max(a, b)
        batch = ascii_lowercase[: rank - 2]
        m, k, n = (ascii_lowercase[rank - 2 + i] for i in range(3))
        terms = [batch[rank - a :] + m + k, batch[rank - b :] + k + n]
        return terms, batch + m + n
    if isinstance(node.op, Einsum) and len(node.operands) == 2:
        terms_text, arrow, result = node.op.equation.replace(" ", "").partition("->")
        if arrow and "." not in node.op.equation:
            return terms_text.split(","), result
    return None
