# SPDX-License-Identifier: Apache-2.0
"""Conversion between element types.

Float to integer truncates and saturates, and NaN gives 0. Integers wrap to narrower ones. Anything
but zero is true. A float that is too large for an 8-bit float becomes the greatest of it if
``saturate`` is set, else infinity or NaN.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.ir.dtypes import (
    ALL,
    BF16,
    BOOL,
    F4E2M1,
    F8E4M3FN,
    F8E4M3FNUZ,
    F8E5M2,
    F8E5M2FNUZ,
    F16,
    F32,
    F64,
    I4,
    I8,
    I32,
    I64,
    INDEX,
    STRING,
    U4,
    U8,
    DType,
    from_numpy,
)
from tilewright.ir.expr import Binary, Compare, Expr, Symbol, const
from tilewright.ir.expr import Cast as CastExpr
from tilewright.ir.op import Array, Sample
from tilewright.ir.ops.elementwise import Elementwise
from tilewright.ir.types import tensor
from tilewright.ir.value_expr import cast

# The greatest finite values of the 8-bit floats.
_GREATEST = {F8E4M3FN: 448.0, F8E4M3FNUZ: 240.0, F8E5M2: 57344.0, F8E5M2FNUZ: 57344.0}
_N = Symbol("N", 1, 64, 1, 4)


@dataclass(frozen=True)
class Cast(Elementwise):
    """Converts to ``dtype``."""

    name = "cast"
    accepts = frozenset(
        d for d in ALL if d is not INDEX and d is not STRING and d.kind != "complex"
    )
    dtype: DType
    saturate: bool = True

    def result_dtype(self, dtypes: Sequence[DType]) -> DType:
        for dtype in (dtypes[0], self.dtype):
            self.require(
                dtype in self.accepts or dtypes[0] is self.dtype,
                f"No conversion from {dtypes[0]} to {self.dtype}; only numbers and bools convert.",
            )
        return self.dtype

    def scalar(self, *x: Expr) -> Expr:
        value = x[0]
        if self.dtype is BOOL and not value.dtype.is_bool:
            return Compare("ne", value, const(0, value.dtype))
        if self.saturate and self.dtype in _GREATEST and value.dtype.is_float:
            if value.dtype.bits < 32:
                value = cast(value, F32)
            end = const(_GREATEST[self.dtype], value.dtype)
            low = const(-_GREATEST[self.dtype], value.dtype)
            value = Binary("max", Binary("min", value, end, value.dtype), low, value.dtype)
        return value if value.dtype is self.dtype else CastExpr(value, self.dtype)

    def compute(self, *x: Array) -> Array:
        value = x[0]
        if value.dtype.kind == "f" and self.dtype.is_integer:
            return truncated(value, self.dtype)
        if value.dtype.kind == "f" and self.saturate and self.dtype in _GREATEST:
            end = _GREATEST[self.dtype]
            return np.clip(value, -end, end).astype(np.float32)
        if self.dtype.is_bool and from_numpy(value.dtype) in (I4, U4):
            return np.not_equal(value.astype(np.int8), 0)
        return value

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        types = (F64, F32, F16, BF16, I64, I32, I8, U8, BOOL)
        for source in types:
            for dtype in types:
                fill = "bool" if source is BOOL else "special"
                yield Sample(cls(dtype), (tensor(source, (40,)),), fill)
        for dtype in (F8E4M3FN, F8E4M3FNUZ, F8E5M2, F8E5M2FNUZ):
            for saturate in (True, False):
                yield Sample(cls(dtype, saturate), (tensor(F32, (40,)),), "special")
            yield Sample(cls(dtype), (tensor(F16, (40,)),), "special")
            yield Sample(cls(F32), (tensor(dtype, (40,)),), "special")
        for dtype in (I4, U4):
            yield Sample(cls(dtype), (tensor(I32, (40,)),), "indices:20")
            yield Sample(cls(I32), (tensor(dtype, (40,)),), "integers")
        yield Sample(cls(F4E2M1), (tensor(F32, (40,)),), "integers")
        yield Sample(cls(I32), (tensor(F32, (_N, 3)),))


def truncated(value: Array, dtype: DType) -> Array:
    """Floats as integers: truncated, held within the range of ``dtype``, NaN as 0."""
    least, greatest = int(dtype.min), int(dtype.max)
    whole = np.trunc(np.where(np.isnan(value), 0, value))
    low, high = whole <= float(least), whole >= float(greatest)
    held = np.where(low | high, 0, whole)
    wide = held.astype(np.uint64 if dtype.kind == "uint" else np.int64)
    wide = np.where(low, np.asarray(least, wide.dtype), wide)
    return np.where(high, np.asarray(greatest, wide.dtype), wide)
