# SPDX-License-Identifier: Apache-2.0
"""Tensor types: element type, shape and layout.

Text: ``f32[batch,64,56,56]``, with a layout where it is not row-major:
``f32[1,64,56,56]{0,2,3,1}``.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from tilewright.ir.dtypes import DType
from tilewright.ir.expr import Const, Expr, Operand, index, mul
from tilewright.ir.interning import Term
from tilewright.ir.layout import Layout, row_major


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class TensorType(Term):
    """Build it with :func:`tensor`.

    ``shape`` holds index expressions, ``layout`` is always present.
    """

    dtype: DType
    shape: tuple[Expr, ...]
    layout: Layout

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def is_static(self) -> bool:
        return all(isinstance(d, Const) for d in self.shape)

    @property
    def static_shape(self) -> tuple[int, ...]:
        """The shape as ints; ValueError if a dim is symbolic."""
        if not self.is_static:
            raise ValueError(f"The shape of {self} is symbolic.")
        return tuple(int(str(d)) for d in self.shape)

    @property
    def size(self) -> Expr:
        """The number of logical elements."""
        total: Expr = index(1)
        for d in self.shape:
            total = mul(total, d)
        return total

    def with_layout(self, layout: Layout) -> "TensorType":
        return TensorType(self.dtype, self.shape, layout)

    def with_dtype(self, dtype: DType) -> "TensorType":
        return TensorType(dtype, self.shape, self.layout)

    def __str__(self) -> str:
        dims = ",".join(map(str, self.shape))
        return f"{self.dtype}[{dims}]{'' if self.layout.is_row_major else self.layout}"

    __repr__ = __str__


def tensor(dtype: DType, shape: Iterable[Operand] = (), layout: Layout | None = None) -> TensorType:
    """A tensor type; row-major unless a layout is given."""
    dims = tuple(index(d) for d in shape)
    return TensorType(dtype, dims, layout or row_major(len(dims)))
