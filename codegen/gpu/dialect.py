# SPDX-License-Identifier: Apache-2.0
"""What differs between the C-like languages of GPUs: a :class:`Dialect` is asked for every word
that they do not share.
"""

import struct
from typing import ClassVar

from tilewright.ir.dtypes import (
    BOOL,
    F32,
    F64,
    I8,
    I16,
    I32,
    I64,
    INDEX,
    U8,
    U16,
    U32,
    U64,
    DType,
)
from tilewright.ir.errors import CodegenError
from tilewright.passes.loop.threads import LaunchShape

_TYPES = {
    F32: "float", F64: "double", BOOL: "bool", I8: "signed char", I16: "short", I32: "int",
    U8: "unsigned char", U16: "unsigned short", U32: "unsigned int",
}  # fmt: skip


class Dialect:
    """Base of the dialects. ``wide`` is the signed 64-bit integer; ``function`` starts a function
    of the module.
    """

    wide: ClassVar[str]
    function: ClassVar[str]
    wide_suffix: ClassVar[str]
    shared: ClassVar[str]
    memory: ClassVar[str] = ""
    restrict: ClassVar[str]
    barrier: ClassVar[str]

    def type(self, dtype: DType) -> str:
        """The type that values of ``dtype`` are computed in; CodegenError if there is none."""
        if dtype in (I64, INDEX):
            return self.wide
        if dtype is U64:
            return f"unsigned {self.wide}"
        if dtype not in _TYPES:
            raise CodegenError(f"Values of type '{dtype}' have no code for GPUs.")
        return _TYPES[dtype]

    def element(self, dtype: DType) -> str:
        """The type that values are stored as."""
        return "unsigned char" if dtype is BOOL else self.type(dtype)

    def literal(self, value: float, dtype: DType) -> str:
        """A floating-point constant; infinities and NaN from their bits."""
        if value - value == 0.0:
            return f"{value!r}{'f' if dtype is F32 else ''}"
        packed = struct.pack("<f" if dtype is F32 else "<d", value)
        return self.from_bits(f"0x{int.from_bytes(packed, 'little'):x}", dtype)

    def integer(self, value: int, dtype: DType) -> str:
        """An integer constant of ``dtype``."""
        suffix = "" if dtype.is_signed or dtype.bits < 32 else "u"
        suffix += self.wide_suffix if dtype.bits == 64 else ""
        if value < 0:
            return f"(-{-value - 1}{suffix} - 1)" if value == dtype.min else f"(-{-value}{suffix})"
        return f"{value}{suffix}"

    def pointer(self, dtype: DType, constant: bool) -> str:
        """A pointer into global memory that no other pointer of the kernel overlaps."""
        return f"{self.memory}{'const ' if constant else ''}{self.element(dtype)} *{self.restrict}"

    def from_bits(self, bits: str, dtype: DType) -> str:
        """The number with the bits of an integer literal."""
        raise NotImplementedError

    def head(self, name: str, parameters: list[str], shape: LaunchShape) -> str:
        """The kernel's signature."""
        raise NotImplementedError

    def block_index(self, axis: int) -> str:
        """The number of the block along an axis."""
        raise NotImplementedError

    def thread_index(self, axis: int) -> str:
        """The number of the thread in its block along an axis."""
        raise NotImplementedError
