# SPDX-License-Identifier: Apache-2.0
"""Reshape: the same elements in row-major order under other dims.

The index map is found group by group: the dims of operand and result are cut where their products
agree, so that dims that stay keep their index and only split or merged ones pay a division.
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tilewright.ir.bounds import is_nonnegative, known_equal, known_le
from tilewright.ir.buffer import Buffer
from tilewright.ir.dtypes import F32, I64
from tilewright.ir.expr import ONE, ZERO, Expr, Symbol, index, mul
from tilewright.ir.op import Array, Op, Requirement, Sample
from tilewright.ir.ops.domain import axes, clamped, read_held
from tilewright.ir.ops.shapes import check_dims, equal_requirement, product, static_dims
from tilewright.ir.simplify import floordiv, maximum, mod
from tilewright.ir.stage import Stage, map_stage
from tilewright.ir.types import TensorType, tensor

Dims = tuple[Expr, ...]

_N = Symbol("N", 0, 64, 1, 4)
_M = Symbol("M", 1, 64, 1, 3)


@dataclass(frozen=True)
class Reshape(Op):
    """The operand under the dims of ``shape``, which hold as many elements."""

    name = "reshape"
    shape: tuple[Expr, ...]

    def infer(self, operands: Sequence[TensorType]) -> tuple[TensorType, ...]:
        self.expect_operands(operands, 1)
        (x,) = operands
        check_dims(self, self.shape)
        result = tensor(x.dtype, self.shape)
        self.require(
            known_equal(x.size, result.size) is not False,
            f"Operand {x} has {x.size} elements, {result} has {result.size}; they must be equal.",
        )
        return (result,)

    def requirements(self, operands: Sequence[TensorType]) -> tuple[Requirement, ...]:
        size = product(self.shape)
        message = "A tensor of {0} elements cannot take a shape of {1} elements."
        return equal_requirement(operands[0].size, size, message)

    def reference(self, *operands: Array) -> tuple[Array, ...]:
        return (operands[0].reshape(static_dims(self, self.shape)),)

    def stages(self, operands: Sequence[Buffer], results: Sequence[Buffer]) -> tuple[Stage, ...]:
        (x,), (result,) = operands, results
        point = axes("i", result.shape)
        source = reshape_indices(x.shape, result.shape, point)
        places = [
            i if in_bounds(i, d) else clamped(i, d) for i, d in zip(source, x.shape, strict=True)
        ]
        return (map_stage(self.name, point, result, read_held(x, places, source)),)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        cases: list[tuple[Sequence[Expr | int], Sequence[Expr | int]]] = [
            ((2, 3, 4), (2, 12)),
            ((2, 12), (2, 3, 4)),
            ((6, 4), (8, 3)),
            ((1, 6, 1), (6,)),
            ((6,), (1, 2, 1, 3)),
            ((1,), ()),
            ((), (1, 1)),
            ((2, 0, 3), (0, 5)),
            ((4, 6, 5), (2, 12, 5)),
            ((_N, 3, 4), (_N, 12)),
            ((_N, _M, 8), (_N, _M, 2, 4)),
            ((_N, _M, 2, 4), (_N * _M, 8)),
            ((_N * _M, 8), (_N, _M, 8)),
            ((_N, 6), (_N * 2, 3)),
            ((_N, _M), (_M, _N)),
        ]
        for before, after in cases:
            shape = tuple(index(d) for d in after)
            yield Sample(cls(shape), (tensor(F32, before),))
        yield Sample(cls((index(3), index(2))), (tensor(I64, (2, 3)),))


def reshape_indices(before: Dims, after: Dims, point: Sequence[Expr]) -> Dims:
    """Where the element at ``point`` of a tensor of dims ``after`` lies in the same tensor of dims
    ``before``.

    >>> n = Symbol("n", 1, 64)
    >>> shape = (n, index(4), index(6))
    >>> reshape_indices((n, index(24)), shape, axes("i", shape))
    (i0, 6*i1 + i2)
    """
    # Dims of 1 carry no index; they would also make cuts ambiguous.
    sources = [a for a, d in enumerate(before) if not known_equal(d, ONE)]
    targets = [a for a, d in enumerate(after) if not known_equal(d, ONE)]
    indices: list[Expr] = [ZERO] * len(before)
    groups = match_dims([before[a] for a in sources], [after[a] for a in targets])
    for (i, i_end), (j, j_end) in groups:
        linear: Expr = ZERO
        for a in targets[j:j_end]:
            linear = linear * after[a] + point[a]
        stride: Expr = ONE
        for a in reversed(sources[i:i_end]):
            outermost = a == sources[i]
            # A dim of 0 makes the whole tensor empty, and then no point asks for an index; but only
            # a divisor that is positive by its form gives one that is known to be inside.
            quotient = floordiv(linear, maximum(stride, ONE))
            indices[a] = quotient if outermost else mod(quotient, maximum(before[a], ONE))
            stride = mul(stride, before[a])
    return tuple(indices)


def in_bounds(i: Expr, dim: Expr) -> bool:
    """True if ``0 <= i < dim`` is proven."""
    return is_nonnegative(i) and known_le(i + 1, dim)


def match_dims(
    before: Sequence[Expr], after: Sequence[Expr]
) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Ranges of dims of both shapes with equal products, as small as can be told; they cover both
    shapes.

    >>> match_dims([index(2), index(12), index(5)], [index(4), index(6), index(5)])
    [((0, 2), (0, 2)), ((2, 3), (2, 3))]
    """
    cuts = [(0, 0)]
    cuts += _cuts(before, after)
    # From the end as well: products may be known to agree there although the totals are not.
    back = [(len(before) - i, len(after) - j) for i, j in _cuts(before[::-1], after[::-1])]
    cuts += [(i, j) for i, j in reversed(back) if i > cuts[-1][0] and j > cuts[-1][1]]
    end = len(before), len(after)
    if cuts[-1] != end:
        cuts = [c for c in cuts if c[0] < end[0] and c[1] < end[1]] or [(0, 0)]
        cuts.append(end)
    return [((i, i_end), (j, j_end)) for (i, j), (i_end, j_end) in itertools.pairwise(cuts)]


def _cuts(before: Sequence[Expr], after: Sequence[Expr]) -> list[tuple[int, int]]:
    """The pairs of positions, from the front, at which the products of the dims before them are
    identical.
    """
    products: dict[Expr, int] = {}
    total: Expr = ONE
    for i, d in enumerate(before):
        total = mul(total, d)
        products.setdefault(total, i + 1)
    found: list[tuple[int, int]] = []
    total = ONE
    for j, d in enumerate(after):
        total = mul(total, d)
        i = products.get(total, 0)
        if i > (found[-1][0] if found else 0):
            found.append((i, j + 1))
    return found
