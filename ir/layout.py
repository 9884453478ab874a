# SPDX-License-Identifier: Apache-2.0
"""Layouts: how the logical indices of a tensor map to memory.

A layout is an order of the logical axes, plus integer blocks that are split off an axis and stored
innermost, in sequence. A blocked axis is padded to a multiple of its block; the padding lanes of a
constant are zero. Row-major is the identity order without blocks.

Text: ``{0,2,3,1}`` is channels-last for a logical NCHW tensor; ``{0,2,3,1;0:16}`` stores a logical
OIHW weight as [O/16][H][W][I][16].
"""

from dataclasses import dataclass

from tilewright.ir.expr import Expr, Operand, add, index, mul
from tilewright.ir.interning import Term
from tilewright.ir.simplify import ceildiv, floordiv, mod


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Layout(Term):
    """``order``: logical axes, ``blocks``: (axis, factor) pairs, both outermost first."""

    order: tuple[int, ...]
    blocks: tuple[tuple[int, int], ...] = ()

    @property
    def is_row_major(self) -> bool:
        return not self.blocks and self.order == tuple(range(len(self.order)))

    def __str__(self) -> str:
        order = ",".join(map(str, self.order))
        blocks = ",".join(f"{axis}:{factor}" for axis, factor in self.blocks)
        return f"{{{order};{blocks}}}" if blocks else f"{{{order}}}"

    def physical_shape(self, shape: tuple[Expr, ...]) -> tuple[Expr, ...]:
        """The dims in memory order, padding included."""
        factor = self._factors()
        outer = [ceildiv(shape[a], factor.get(a, 1)) for a in self.order]
        return (*outer, *(index(f) for _, f in self.blocks))

    def physical_indices(self, indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
        """The indices in memory order of the element at logical ``indices``."""
        factor = self._factors()
        inner: list[Expr] = []
        divisor = dict.fromkeys(factor, 1)
        for axis, block in reversed(self.blocks):
            inner.append(mod(floordiv(indices[axis], divisor[axis]), block))
            divisor[axis] *= block
        outer = [floordiv(indices[a], factor.get(a, 1)) for a in self.order]
        return (*outer, *reversed(inner))

    def strides(self, shape: tuple[Expr, ...]) -> tuple[Expr, ...]:
        """The strides, in elements, of the memory-order dims."""
        physical = self.physical_shape(shape)
        strides: list[Expr] = []
        step: Expr = index(1)
        for extent in reversed(physical):
            strides.append(step)
            step = mul(step, extent)
        return tuple(reversed(strides))

    def offset(self, shape: tuple[Expr, ...], indices: tuple[Expr, ...]) -> Expr:
        """The position, in elements from the start, of the element at logical ``indices``."""
        total: Expr = index(0)
        for i, stride in zip(self.physical_indices(indices), self.strides(shape), strict=True):
            total = add(total, mul(i, stride))
        return total

    def size(self, shape: tuple[Expr, ...]) -> Expr:
        """The number of elements in memory, padding included."""
        total: Expr = index(1)
        for extent in self.physical_shape(shape):
            total = mul(total, extent)
        return total

    def _factors(self) -> dict[int, int]:
        factor: dict[int, int] = {}
        for axis, block in self.blocks:
            factor[axis] = factor.get(axis, 1) * block
        return factor


def row_major(rank: int) -> Layout:
    """The identity layout of a tensor of ``rank`` dims."""
    return Layout(tuple(range(rank)))


def channels_last(rank: int) -> Layout:
    """Batch first, channels (axis 1) innermost."""
    return Layout((0, *range(2, rank), 1)) if rank > 2 else row_major(rank)


def shape_of(dims: "tuple[Operand, ...] | list[Operand]") -> tuple[Expr, ...]:
    """A shape as index expressions."""
    return tuple(index(d) for d in dims)
