# SPDX-License-Identifier: Apache-2.0
"""Buffers: named memory that kernels read and write, addressed by logical indices.

Buffers stay multi-dimensional until code generation, which flattens indices through the layout.
"""

from dataclasses import dataclass

from tilewright.ir.dtypes import DType
from tilewright.ir.expr import Expr
from tilewright.ir.interning import Term
from tilewright.ir.layout import Layout
from tilewright.ir.types import TensorType

SCOPES = ("global", "workspace", "register", "shared")


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Buffer(Term):
    """``scope``: ``global`` (kernel argument), ``workspace`` (scratch of one task), ``register``
    (every index is constant once loops are unrolled, so that it lives in SSA values), ``shared``
    (of a GPU block).

    Names are unique within a kernel.
    """

    name: str
    dtype: DType
    shape: tuple[Expr, ...]
    layout: Layout
    scope: str = "global"

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def type(self) -> TensorType:
        return TensorType(self.dtype, self.shape, self.layout)

    def __str__(self) -> str:
        return f"{self.name}: {self.type}" + ("" if self.scope == "global" else f" @{self.scope}")

    __repr__ = __str__


def buffer(name: str, type: TensorType, scope: str = "global") -> Buffer:
    """A buffer of a tensor type."""
    return Buffer(name, type.dtype, type.shape, type.layout, scope)
