# SPDX-License-Identifier: Apache-2.0
"""Element types: one immutable :class:`DType` each, with its text name and numpy counterpart.

``index`` is the type of loop variables, symbolic dims and buffer indices: a 64-bit integer that the
compiler takes to be free of overflow, while arithmetic on ``i64`` wraps as numpy's does.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np


@dataclass(frozen=True, eq=False)
class DType:
    """An element type: one object each, compared with ``is``.

    ``name`` is the text of the IR (``f32``), ``full_name`` numpy's (``float32``), ``kind`` one of
    ``float int uint bool complex string index``, ``bits`` the stored width.
    """

    name: str
    full_name: str
    kind: str
    bits: int

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[Any, ...]:
        return _by_name, (self.name,)

    @property
    def is_float(self) -> bool:
        return self.kind == "float"

    @property
    def is_integer(self) -> bool:
        return self.kind in ("int", "uint", "index")

    @property
    def is_signed(self) -> bool:
        return self.kind in ("int", "index", "float")

    @property
    def is_bool(self) -> bool:
        return self.kind == "bool"

    @property
    def bytes(self) -> int:
        """Stored size of one element in bytes; four-bit types round up."""
        return max(1, self.bits // 8)

    @cached_property
    def numpy(self) -> "np.dtype[Any]":
        """The numpy dtype; the small floats and four-bit integers come from ml_dtypes."""
        if self.kind == "index":
            return np.dtype(np.int64)
        if self.kind == "string":
            return np.dtype(object)
        if hasattr(np, self.full_name) and self.full_name != "bool":
            return np.dtype(self.full_name)
        if self.full_name == "bool":
            return np.dtype(np.bool_)
        import ml_dtypes

        extension: type = getattr(ml_dtypes, self.full_name)
        return np.dtype(extension)

    @property
    def min(self) -> int | float:
        """The least finite-or-infinite value: the identity of a maximum."""
        if self.kind in ("int", "index"):
            return -(1 << (self.bits - 1))
        return float("-inf") if self.is_float else 0

    @property
    def max(self) -> int | float:
        """The greatest value: the identity of a minimum."""
        if self.kind in ("int", "index"):
            return int((1 << (self.bits - 1)) - 1)
        if self.kind == "uint":
            return int((1 << self.bits) - 1)
        return float("inf") if self.is_float else 1


F64 = DType("f64", "float64", "float", 64)
F32 = DType("f32", "float32", "float", 32)
F16 = DType("f16", "float16", "float", 16)
BF16 = DType("bf16", "bfloat16", "float", 16)
F8E4M3FN = DType("f8e4m3fn", "float8_e4m3fn", "float", 8)
F8E4M3FNUZ = DType("f8e4m3fnuz", "float8_e4m3fnuz", "float", 8)
F8E5M2 = DType("f8e5m2", "float8_e5m2", "float", 8)
F8E5M2FNUZ = DType("f8e5m2fnuz", "float8_e5m2fnuz", "float", 8)
F4E2M1 = DType("f4e2m1", "float4_e2m1fn", "float", 4)
I64 = DType("i64", "int64", "int", 64)
I32 = DType("i32", "int32", "int", 32)
I16 = DType("i16", "int16", "int", 16)
I8 = DType("i8", "int8", "int", 8)
I4 = DType("i4", "int4", "int", 4)
U64 = DType("u64", "uint64", "uint", 64)
U32 = DType("u32", "uint32", "uint", 32)
U16 = DType("u16", "uint16", "uint", 16)
U8 = DType("u8", "uint8", "uint", 8)
U4 = DType("u4", "uint4", "uint", 4)
BOOL = DType("bool", "bool", "bool", 8)
C64 = DType("c64", "complex64", "complex", 64)
C128 = DType("c128", "complex128", "complex", 128)
STRING = DType("string", "string", "string", 64)
INDEX = DType("index", "index", "index", 64)

ALL: tuple[DType, ...] = (
    F64, F32, F16, BF16, F8E4M3FN, F8E4M3FNUZ, F8E5M2, F8E5M2FNUZ, F4E2M1,
    I64, I32, I16, I8, I4, U64, U32, U16, U8, U4, BOOL, C64, C128, STRING, INDEX,
)  # fmt: skip
BY_NAME: dict[str, DType] = {d.name: d for d in ALL} | {d.full_name: d for d in ALL}


def _by_name(name: str) -> DType:
    return BY_NAME[name]


def from_numpy(dtype: "np.dtype[Any] | type") -> DType:
    """The element type of a numpy dtype; raises KeyError with its name if there is none."""
    dtype = np.dtype(dtype)
    if dtype.kind in "OUS":
        return STRING
    return BY_NAME[dtype.name]
