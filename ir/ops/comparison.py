# SPDX-License-Identifier: Apache-2.0
"""Elementwise comparisons, with numpy broadcasting; a comparison with NaN is false, unless it is
``not_equal``.
"""

from collections.abc import Iterator, Sequence
from typing import ClassVar

import numpy as np

from tilewright.ir.dtypes import BF16, BOOL, F16, F32, I8, I64, STRING, U8, DType
from tilewright.ir.expr import Compare, Expr, Symbol
from tilewright.ir.op import Array, Sample
from tilewright.ir.ops.domain import NUMERIC, NUMERIC_OR_BOOL
from tilewright.ir.ops.elementwise import Elementwise
from tilewright.ir.ops.shapes import expect_dtype
from tilewright.ir.types import tensor

_N = Symbol("N", 1, 64, 1, 4)


class _Comparison(Elementwise):
    """An op whose scalar is the :class:`Compare` named in ``expression``."""

    arity = 2
    accepts = NUMERIC
    expression: ClassVar[str] = ""

    def result_dtype(self, dtypes: Sequence[DType]) -> DType:
        expect_dtype(self, dtypes, self.accepts)
        return BOOL

    def scalar(self, *x: Expr) -> Expr:
        return Compare(self.expression, x[0], x[1])

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        for dtype in (F32, F16, BF16, I64, I8, U8, BOOL):
            if dtype in cls.accepts:
                fill = "bool" if dtype is BOOL else "special" if dtype.is_float else "indices:2"
                yield Sample(cls(), (tensor(dtype, (6, 9)), tensor(dtype, (6, 9))), fill)
        yield Sample(cls(), (tensor(F32, (_N, 3)), tensor(F32, (1, 3))), "integers")
        yield Sample(cls(), (tensor(F32, (_N, 3)), tensor(F32, ())), "integers")


class Equal(_Comparison):
    """x == y."""

    name = "equal"
    expression = "eq"
    accepts = NUMERIC_OR_BOOL | {STRING}

    def compute(self, *x: Array) -> Array:
        return np.equal(*x)


class NotEqual(_Comparison):
    """x != y."""

    name = "not_equal"
    expression = "ne"
    accepts = NUMERIC_OR_BOOL | {STRING}

    def compute(self, *x: Array) -> Array:
        return np.not_equal(*x)


class Less(_Comparison):
    """x < y."""

    name = "less"
    expression = "lt"

    def compute(self, *x: Array) -> Array:
        return np.less(*x)


class LessEqual(_Comparison):
    """x <= y."""

    name = "less_equal"
    expression = "le"

    def compute(self, *x: Array) -> Array:
        return np.less_equal(*x)


class Greater(_Comparison):
    """x > y."""

    name = "greater"
    expression = "gt"

    def compute(self, *x: Array) -> Array:
        return np.greater(*x)


class GreaterEqual(_Comparison):
    """x >= y."""

    name = "greater_equal"
    expression = "ge"

    def compute(self, *x: Array) -> Array:
        return np.greater_equal(*x)
