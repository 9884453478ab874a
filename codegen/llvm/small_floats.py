# SPDX-License-Identifier: Apache-2.0
"""Floating-point types below 32 bits: stored as bits, computed in float32.

A value of such a type is held as a float32 that the type can represent. Rounding after each
operation gives the correctly rounded result, since float32 has more than twice their precision.
Encoding and decoding are integer and float32 arithmetic without branches, for any number of lanes
and any target; IEEE half precision uses the processor's conversions where it has them.
"""

from dataclasses import dataclass

from tilewright.codegen.llvm.builder import Builder, Value
from tilewright.ir.dtypes import (
    BF16,
    F4E2M1,
    F8E4M3FN,
    F8E4M3FNUZ,
    F8E5M2,
    F8E5M2FNUZ,
    F16,
    DType,
)
from tilewright.ir.target import Target


@dataclass(frozen=True)
class Format:
    """``special``: ``ieee`` (infinities and NaN), ``fn`` (NaN is all ones, no infinity), ``fnuz``
    (NaN is the code of minus zero), ``finite`` (saturates).
    """

    bits: int
    mantissa: int
    bias: int
    special: str

    @property
    def top(self) -> int:
        """The code, without sign, of the greatest finite number."""
        codes = (1 << (self.bits - 1)) - 1
        if self.special == "ieee":
            return codes - (1 << self.mantissa)
        return codes - 1 if self.special == "fn" else codes

    @property
    def not_a_number(self) -> int:
        if self.special == "fnuz":
            return 1 << (self.bits - 1)
        codes = (1 << (self.bits - 1)) - 1
        if self.special == "ieee":
            return codes - (1 << self.mantissa) + (1 << (self.mantissa - 1))
        return codes


FORMATS: dict[DType, Format] = {
    F16: Format(16, 10, 15, "ieee"),
    BF16: Format(16, 7, 127, "ieee"),
    F8E4M3FN: Format(8, 3, 7, "fn"),
    F8E4M3FNUZ: Format(8, 3, 8, "fnuz"),
    F8E5M2: Format(8, 2, 15, "ieee"),
    F8E5M2FNUZ: Format(8, 2, 16, "fnuz"),
    F4E2M1: Format(4, 1, 1, "finite"),
}


def has_half_conversions(target: Target) -> bool:
    """True if the processor converts between half precision and float32."""
    return target.arch == "aarch64" or "f16c" in target.features


def decode(b: Builder, stored: Value, dtype: DType) -> Value:
    """The float32 of stored bits (an integer, or ``half`` where the target converts it)."""
    if stored.element == "half":
        return b.convert("fpext", stored, "float")
    form = FORMATS[dtype]
    wide = b.convert("zext", stored, "i32")
    if dtype is BF16:
        return b.bitcast(b.op("shl", wide, b.like(16, wide)), "float")
    magnitude = b.op("and", wide, b.like((1 << (form.bits - 1)) - 1, wide))
    shifted = b.bitcast(b.op("shl", magnitude, b.like(23 - form.mantissa, wide)), "float")
    scaled = b.mul(shifted, b.like(2.0 ** (127 - form.bias), shifted))
    sign = b.op("shl", b.op("lshr", wide, b.like(form.bits - 1, wide)), b.like(31, wide))
    bits = b.bitcast(scaled, "i32")
    if form.special == "ieee":
        special = b.compare("ugt", magnitude, b.like(form.top, wide))
        infinite = b.op("or", bits, b.like(0x7F800000, wide))
        bits = b.select(special, infinite, bits)
    elif form.special == "fn":
        special = b.compare("ugt", magnitude, b.like(form.top, wide))
        bits = b.select(special, b.like(0x7FC00000, wide), bits)
    bits = b.op("or", bits, sign)
    if form.special == "fnuz":
        special = b.compare("eq", wide, b.like(form.not_a_number, wide))
        bits = b.select(special, b.like(0x7FC00000, wide), bits)
    return b.bitcast(bits, "float")


def encode(b: Builder, x: Value, dtype: DType) -> Value:
    """The stored bits of a float32, rounded to nearest even."""
    if dtype is F16 and has_half_conversions(b.target):
        return b.convert("fptrunc", x, "half")
    form = FORMATS[dtype]
    stored = "i16" if form.bits == 16 else "i8"
    return b.convert("trunc", _encoded(b, x, form), stored)


def _encoded(b: Builder, x: Value, form: Format) -> Value:
    """The code in an i32."""
    bits = b.bitcast(x, "i32")
    sign = b.op("lshr", b.op("and", bits, b.like(-0x80000000, bits)), b.like(32 - form.bits, bits))
    magnitude = b.op("and", bits, b.like(0x7FFFFFFF, bits))
    drop = 23 - form.mantissa
    odd = b.op("and", b.op("lshr", magnitude, b.like(drop, bits)), b.like(1, bits))
    rounded = b.op("add", b.op("add", magnitude, odd), b.like((1 << (drop - 1)) - 1, bits))
    code = b.op("lshr", rounded, b.like(drop, bits))
    code = b.op("sub", code, b.like((127 - form.bias) << form.mantissa, bits))
    if form.bias != 127:
        # Below the least normal number, adding a power of two whose last bit is worth the least
        # subnormal rounds to a multiple of it.
        magic = 2.0 ** (1 - form.bias - form.mantissa + 23)
        absolute = b.bitcast(magnitude, "float")
        moved = b.bitcast(b.add(absolute, b.like(magic, absolute)), "i32")
        magic_bits = (1 - form.bias - form.mantissa + 23 + 127) << 23
        small = b.op("sub", moved, b.like(magic_bits, bits))
        is_small = b.compare("olt", absolute, b.like(2.0 ** (1 - form.bias), absolute))
        code = b.select(is_small, small, code)
    return _with_specials(b, x, form, code, sign)


def _with_specials(b: Builder, x: Value, form: Format, code: Value, sign: Value) -> Value:
    beyond = b.compare("sgt", code, b.like(form.top, code))
    is_nan = b.compare("uno", x, x)
    if form.special == "ieee":
        code = b.select(beyond, b.like(form.top + 1, code), code)
        code = b.select(is_nan, b.like(form.not_a_number, code), code)
        return b.op("or", code, sign)
    if form.special == "finite":
        code = b.select(beyond, b.like(form.top, code), code)
        return b.op("or", b.select(is_nan, b.like(0, code), code), sign)
    lost = b.op("or", beyond, is_nan)
    if form.special == "fn":
        return b.op("or", b.select(lost, b.like(form.not_a_number, code), code), sign)
    zero = b.compare("eq", code, b.like(0, code))
    signed = b.select(zero, b.like(0, code), b.op("or", code, sign))
    return b.select(lost, b.like(form.not_a_number, code), signed)


def round_to(b: Builder, x: Value, dtype: DType) -> Value:
    """A float32 rounded to the nearest number of a small type, still as a float32."""
    return decode(b, encode(b, x, dtype), dtype)


def narrow_to_odd(b: Builder, x: Value) -> Value:
    """A double as a float32 rounded to odd, which a second rounding cannot spoil."""
    near = b.convert("fptrunc", x, "float")
    back = b.convert("fpext", near, "double")
    bits = b.bitcast(near, "i32")
    even = b.compare("eq", b.op("and", bits, b.like(1, bits)), b.like(0, bits))
    inexact = b.compare("one", back, x)
    above = b.compare("ogt", b.intrinsic("fabs", back), b.intrinsic("fabs", x))
    step = b.select(above, b.like(-1, bits), b.like(1, bits))
    moved = b.bitcast(b.op("add", bits, step), "float")
    return b.select(b.op("and", even, inexact), moved, near)


def narrow(b: Builder, x: Value, dtype: DType) -> Value:
    """A float32 or double rounded to a small type, as a float32."""
    single = narrow_to_odd(b, x) if x.element == "double" else x
    return round_to(b, single, dtype)
