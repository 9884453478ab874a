# SPDX-License-Identifier: Apache-2.0
"""log, log2, log1p and the inverse hyperbolic functions.

``x = 2^k * (1 + f)`` with ``1 + f`` around 1. float32 uses a polynomial in ``f``; double uses ``s =
f/(2 + f)`` and ``log(1 + f) = f - s*(f - R(s^2))``, whose series is shorter (as in FreeBSD's msun).
For ``log1p`` the argument enters ``f`` directly, so no digits are lost near 0.
"""

from tilewright.codegen.llvm.builder import Builder, Value
from tilewright.codegen.math.evaluation import (
    FORMATS,
    absolute,
    bits_of,
    polynomial,
    power_of_two,
    with_sign,
)

# 2/3 for float32, sqrt(1/2) for double: 1 + f lies in [that, twice that).
_LOG2E = 1.4426950408889634
_LOWEST = {"float": 0x3F2AAAAB, "double": 0x3FE6A09E667F3BCD}


def decompose(b: Builder, x: Value) -> tuple[Value, Value]:
    """The exponent k, as an integer, and f of a positive normal ``x = 2^k * (1 + f)``."""
    form = FORMATS[x.element]
    bits = bits_of(b, x)
    exponent = b.op(
        "ashr", b.sub(bits, b.like(_LOWEST[x.element], bits)), b.like(form.mantissa, bits)
    )
    significand = b.sub(bits, b.op("shl", exponent, b.like(form.mantissa, bits)))
    return exponent, b.sub(b.bitcast(significand, x.element), b.like(1.0, x))


def normalised(b: Builder, x: Value) -> tuple[Value, Value]:
    """``x`` with subnormals multiplied by a power of two, and the exponent to subtract for that."""
    form = FORMATS[x.element]
    least = 2.0 ** (1 - form.bias)
    small = b.compare("olt", x, b.like(least, x))
    up = b.select(small, b.mul(x, b.like(2.0 ** (form.mantissa + 2), x)), x)
    zero = b.like(0.0, x)
    return up, b.select(small, b.like(float(form.mantissa + 2), x), zero)


def log_tail(b: Builder, f: Value) -> Value:
    """``log(1 + f) - f``."""
    square = b.mul(f, f)
    half_square = b.mul(square, b.like(0.5, f))
    if f.element == "float":
        return b.fma(b.mul(square, f), polynomial(b, "LOG1P", f), b.neg(half_square))
    s = b.div(f, b.add(f, b.like(2.0, f)))
    z = b.mul(s, s)
    return b.sub(b.mul(s, b.fma(z, polynomial(b, "LOG", z), half_square)), half_square)


def log_of(b: Builder, exponent: Value, f: Value) -> Value:
    """``exponent*ln2 + log(1 + f)``; the exponent is a floating-point integer."""
    form = FORMATS[f.element]
    rest = b.add(b.fma(exponent, b.like(form.ln2_low, f), log_tail(b, f)), f)
    return b.fma(exponent, b.like(form.ln2_high, f), rest)


def _edges(b: Builder, x: Value, result: Value, pole: float) -> Value:
    """The result with the values at and beyond the pole, at infinity and NaN."""
    result = b.select(b.compare("oeq", x, b.like(float("inf"), x)), x, result)
    result = b.select(b.compare("ult", x, b.like(pole, x)), b.like(float("nan"), x), result)
    return b.select(b.compare("oeq", x, b.like(pole, x)), b.like(float("-inf"), x), result)


def log(b: Builder, x: Value) -> Value:
    up, moved = normalised(b, x)
    exponent, f = decompose(b, up)
    number = b.sub(b.convert("sitofp", exponent, x.element), moved)
    return _edges(b, x, log_of(b, number, f), 0.0)


def log2(b: Builder, x: Value) -> Value:
    up, moved = normalised(b, x)
    exponent, f = decompose(b, up)
    number = b.sub(b.convert("sitofp", exponent, x.element), moved)
    # log2(e) = 1 + 0.44...: f itself needs no product, so its error is that of a smaller term.
    tail = b.mul(log_tail(b, f), b.like(_LOG2E, f))
    scaled = b.add(b.fma(f, b.like(_LOG2E - 1, f), tail), f)
    return _edges(b, x, b.add(number, scaled), 0.0)


def log1p(b: Builder, x: Value) -> Value:
    form = FORMATS[x.element]
    exponent, _ = decompose(b, b.add(x, b.like(1.0, x)))
    # x * 2^-k by its bits; subnormal and zero arguments have k = 0.
    bits = bits_of(b, x)
    moved = b.sub(bits, b.op("shl", exponent, b.like(form.mantissa, bits)))
    least = b.like(form.bias - 1, exponent)
    bounded = b.intrinsic("smin", exponent, least)
    unit = power_of_two(b, b.sub(b.like(0, exponent), bounded), x.element)
    f = b.add(b.bitcast(moved, x.element), b.sub(unit, b.like(1.0, x)))
    result = log_of(b, b.convert("sitofp", exponent, x.element), f)
    tiny = b.compare(
        "olt", absolute(b, x), b.like(2.0**-30 if x.element == "float" else 2.0**-60, x)
    )
    return b.select(tiny, x, _edges(b, x, result, -1.0))


# --- inverse hyperbolic functions: in double, where nothing cancels -------------------------------


def asinh(b: Builder, x: Value) -> Value:
    """``log1p(a + a^2/(1 + sqrt(1 + a^2)))`` for ``a = |x|``; ``log(2a)`` where the square
    overflows.
    """
    a = absolute(b, x)
    huge = b.compare("oge", a, b.like(2.0**500, x))
    bounded = b.select(huge, b.like(1.0, x), a)
    square = b.mul(bounded, bounded)
    one = b.like(1.0, x)
    root = b.intrinsic("sqrt", b.add(square, one))
    near = log1p(b, b.add(bounded, b.div(square, b.add(root, one))))
    far = b.add(log(b, a), b.like(0.6931471805599453, x))
    return with_sign(b, b.select(huge, far, near), x)


def acosh(b: Builder, x: Value) -> Value:
    """``log1p(t + sqrt(2t + t^2))`` with ``t = x - 1``."""
    huge = b.compare("oge", x, b.like(2.0**500, x))
    t = b.sub(b.select(huge, b.like(1.0, x), x), b.like(1.0, x))
    root = b.intrinsic("sqrt", b.fma(t, t, b.add(t, t)))
    near = log1p(b, b.add(t, root))
    far = b.add(log(b, x), b.like(0.6931471805599453, x))
    result = b.select(huge, far, near)
    return b.select(b.compare("ult", x, b.like(1.0, x)), b.like(float("nan"), x), result)


def atanh(b: Builder, x: Value) -> Value:
    """``log1p(2a/(1 - a))/2`` for ``a = |x|``."""
    a = absolute(b, x)
    quotient = b.div(b.add(a, a), b.sub(b.like(1.0, x), a))
    half = b.mul(log1p(b, quotient), b.like(0.5, x))
    outside = b.compare("ugt", a, b.like(1.0, x))
    return b.select(outside, b.like(float("nan"), x), with_sign(b, half, x))
