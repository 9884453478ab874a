# SPDX-License-Identifier: Apache-2.0
"""Elementwise choice: ``where(c, x, y)`` is ``x`` where ``c`` is true, else ``y``."""

from collections.abc import Iterator, Sequence

import numpy as np

from tilewright.ir.dtypes import ALL, BOOL, F16, F32, I64, INDEX, DType
from tilewright.ir.expr import Expr, Select, Symbol
from tilewright.ir.op import Array, Sample
from tilewright.ir.ops.elementwise import Elementwise
from tilewright.ir.ops.shapes import expect_dtype
from tilewright.ir.types import tensor

_N = Symbol("N", 1, 64, 1, 4)


class Where(Elementwise):
    """Chooses by a bool operand between two of one type, all broadcast together."""

    name = "where"
    arity = 3
    accepts = frozenset(ALL) - {INDEX}

    def result_dtype(self, dtypes: Sequence[DType]) -> DType:
        self.require(dtypes[0] is BOOL, f"The condition must be bool, not {dtypes[0]}; cast it.")
        expect_dtype(self, dtypes[1:], self.accepts)
        return dtypes[1]

    def scalar(self, *x: Expr) -> Expr:
        return Select(*x)

    def compute(self, *x: Array) -> Array:
        return np.where(*x)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        fill = ("bool", "special", "special")
        for dtype in (F32, F16, I64):
            types = tensor(BOOL, (4, 5)), tensor(dtype, (4, 5)), tensor(dtype, (4, 5))
            yield Sample(cls(), types, fill)
            types = tensor(BOOL, (_N, 1)), tensor(dtype, ()), tensor(dtype, (_N, 5))
            yield Sample(cls(), types, fill)
