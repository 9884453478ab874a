# SPDX-License-Identifier: Apache-2.0
"""Building blocks of the math library: polynomials, exact sums and products, bits of floating-
point numbers.
"""

import math
from dataclasses import dataclass

from tilewright.codegen.llvm.builder import Builder, Value
from tilewright.codegen.math.coefficients import COEFFICIENTS


@dataclass(frozen=True)
class Format:
    """What algorithms need to know of float32 or double: field widths and split constants.

    ``shifter`` is 1.5 * 2^mantissa: adding it leaves the nearest integer in the low bits.
    ``ln2_high`` has so few bits that its product with an exponent is exact.
    """

    element: str
    integer: str
    mantissa: int
    bias: int
    shifter: float
    ln2_high: float
    ln2_low: float
    log2e: float = 1.4426950408889634


FORMATS = {
    "float": Format("float", "i32", 23, 127, 1.5 * 2**23, 0.693359375, -2.12194440054690583e-4),
    "double": Format(
        "double",
        "i64",
        52,
        1023,
        1.5 * 2**52,
        6.93147180369123816490e-01,
        1.90821492927058770002e-10,
    ),
}


def polynomial(b: Builder, name: str, x: Value) -> Value:
    """The polynomial of that name at ``x``, by Horner's rule."""
    coefficients = COEFFICIENTS[name, x.element]
    result = b.like(coefficients[-1], x)
    for c in reversed(coefficients[:-1]):
        result = b.fma(result, x, b.like(c, x))
    return result


def clamp(b: Builder, x: Value, low: float, high: float) -> Value:
    """``x`` moved into ``[low, high]``; NaN stays NaN."""
    least, greatest = b.like(low, x), b.like(high, x)
    x = b.select(b.compare("uge", x, least), x, least)
    return b.select(b.compare("ule", x, greatest), x, greatest)


def absolute(b: Builder, x: Value) -> Value:
    return b.intrinsic("fabs", x)


def with_sign(b: Builder, x: Value, sign: Value) -> Value:
    """``x`` with the sign of ``sign``."""
    return b.intrinsic("copysign", x, sign)


def bits_of(b: Builder, x: Value) -> Value:
    """The representation as an integer."""
    return b.bitcast(x, FORMATS[x.element].integer)


def power_of_two(b: Builder, exponent: Value, element: str) -> Value:
    """2 to an integer exponent in the range of normal numbers."""
    form = FORMATS[element]
    biased = b.add(exponent, b.like(form.bias, exponent))
    return b.bitcast(b.op("shl", biased, b.like(form.mantissa, exponent)), element)


def at_most(b: Builder, x: Value, bound: float) -> Value:
    """The smaller of ``x`` and a number; that number for NaN."""
    limit = b.like(bound, x)
    return b.select(b.compare("olt", x, limit), x, limit)


def nearest_shifted(b: Builder, x: Value, factor: float) -> tuple[Value, Value]:
    """The integer nearest to ``x*factor``, and the number whose low bits hold it."""
    shifter = b.like(FORMATS[x.element].shifter, x)
    shifted = b.fma(x, b.like(factor, x), shifter) if factor != 1 else b.add(x, shifter)
    return b.sub(shifted, shifter), shifted


def times_power(b: Builder, x: Value, shifted: Value) -> Value:
    """``x`` times 2 to the integer in the low bits of ``shifted``; both, and the result, are
    normal.
    """
    mantissa = FORMATS[x.element].mantissa
    bits = bits_of(b, shifted)
    exponent = b.op("shl", bits, b.like(mantissa, bits))
    return b.bitcast(b.add(bits_of(b, x), exponent), x.element)


def nearest_integer(b: Builder, x: Value, factor: float) -> tuple[Value, Value]:
    """The integer nearest to ``x*factor``, as a number and as an integer; for magnitudes below
    2^22 (2^51).
    """
    form = FORMATS[x.element]
    number, shifted = nearest_shifted(b, x, factor)
    shifter_bits = constant_bits(form, form.shifter)
    bits = bits_of(b, shifted)
    return number, b.sub(bits, b.like(shifter_bits, bits))


def constant_bits(form: Format, value: float) -> int:
    """The representation of a positive power of two times 1 or 1.5."""
    fraction, exponent = math.frexp(value)
    return ((exponent - 1 + form.bias) << form.mantissa) | int(
        (2 * fraction - 1) * 2**form.mantissa
    )


# --- pairs of numbers whose sum is the value ------------------------------------------------------

Pair = tuple[Value, Value]


def two_sum(b: Builder, x: Value, y: Value) -> Pair:
    """``x + y`` exactly, as the rounded sum and its error (Knuth)."""
    total = b.add(x, y)
    moved = b.sub(total, x)
    return total, b.add(b.sub(x, b.sub(total, moved)), b.sub(y, moved))


def fast_two_sum(b: Builder, x: Value, y: Value) -> Pair:
    """As :func:`two_sum` where ``x`` is not smaller than ``y`` (Dekker)."""
    total = b.add(x, y)
    return total, b.sub(y, b.sub(total, x))


def two_product(b: Builder, x: Value, y: Value) -> Pair:
    """``x * y`` exactly: with a fused multiply-add, else by splitting the factors (Veltkamp,
    Dekker).
    """
    product = b.mul(x, y)
    if b.target.has_fma:
        return product, b.fma(x, y, b.neg(product))
    (xh, xl), (yh, yl) = _split(b, x), _split(b, y)
    error = b.sub(b.mul(xh, yh), product)
    error = b.add(b.add(error, b.mul(xh, yl)), b.mul(xl, yh))
    return product, b.add(error, b.mul(xl, yl))


def _split(b: Builder, x: Value) -> Pair:
    """``x`` as a number with half of the bits and the rest."""
    bits = bits_of(b, x)
    low = 27 if x.element == "double" else 12
    high = b.bitcast(b.op("and", bits, b.like(-(1 << low), bits)), x.element)
    return high, b.sub(x, high)


def pair_product(b: Builder, x: Pair, y: Pair) -> Pair:
    """The product of two pairs, to about twice the precision."""
    high, low = two_product(b, x[0], y[0])
    low = b.add(low, b.add(b.mul(x[0], y[1]), b.mul(x[1], y[0])))
    return fast_two_sum(b, high, low)


def pair_sum(b: Builder, x: Pair, y: Pair) -> Pair:
    """The sum of two pairs."""
    high, low = two_sum(b, x[0], y[0])
    return fast_two_sum(b, high, b.add(low, b.add(x[1], y[1])))
