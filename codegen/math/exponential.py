# SPDX-License-Identifier: Apache-2.0
"""exp, exp2, expm1, sinh, cosh, tanh and sigmoid.

``x = n*ln2 + r`` with ``|r| <= ln2/2`` (Cody and Waite); ``exp(r) = 1 + r + r^2 P(r)``; the scale
``2^n`` is applied in two factors, so that results overflow to infinity and round into the
subnormals on their own.
"""

from tilewright.codegen.llvm.builder import Builder, Value
from tilewright.codegen.math.evaluation import (
    FORMATS,
    absolute,
    at_most,
    clamp,
    nearest_integer,
    nearest_shifted,
    polynomial,
    power_of_two,
    times_power,
    two_product,
    with_sign,
)

# Beyond these, results are infinite or round to zero.
_RANGE = {"float": (-104.5, 89.0), "double": (-746.0, 710.0)}
_RANGE2 = {"float": (-151.0, 129.0), "double": (-1077.0, 1025.0)}


def _reduced(b: Builder, x: Value) -> tuple[Value, Value]:
    """The integer n and the rest r of ``x = n*ln2 + r``."""
    number, integer = nearest_integer(b, x, FORMATS[x.element].log2e)
    return integer, _rest(b, x, number)


def _rest(b: Builder, x: Value, number: Value) -> Value:
    """``x - number*ln2``, ln2 in two parts of which the first times ``number`` is exact."""
    form = FORMATS[x.element]
    rest = b.fma(number, b.like(-form.ln2_high, x), x)
    return b.fma(number, b.like(-form.ln2_low, x), rest)


def _significand(b: Builder, r: Value) -> Value:
    """``exp(r)`` of a reduced argument."""
    tail = b.fma(b.mul(r, r), polynomial(b, "EXP", r), r)
    return b.add(tail, b.like(1.0, r))


def scaled(b: Builder, x: Value, exponent: Value) -> Value:
    """``x * 2^exponent``, rounded once, for ``x`` of about 1."""
    half = b.op("ashr", exponent, b.like(1, exponent))
    first = b.mul(x, power_of_two(b, half, x.element))
    return b.mul(first, power_of_two(b, b.sub(exponent, half), x.element))


def exp(b: Builder, x: Value) -> Value:
    integer, rest = _reduced(b, clamp(b, x, *_RANGE[x.element]))
    return scaled(b, _significand(b, rest), integer)


def exp2(b: Builder, x: Value) -> Value:
    clamped = clamp(b, x, *_RANGE2[x.element])
    number, integer = nearest_integer(b, clamped, 1.0)
    rest = b.sub(clamped, number)
    return scaled(b, _significand(b, b.mul(rest, b.like(0.6931471805599453, x))), integer)


def exp_of_moderate(b: Builder, x: Value) -> Value:
    """``exp(x)`` of a number whose result is normal."""
    number, shifted = nearest_shifted(b, x, FORMATS[x.element].log2e)
    return times_power(b, _significand(b, _rest(b, x, number)), shifted)


def expm1(b: Builder, x: Value) -> Value:
    low, high = (-18.0, 89.0) if x.element == "float" else (-40.0, 710.0)
    integer, rest = _reduced(b, clamp(b, x, low, high))
    part = b.fma(b.mul(rest, rest), polynomial(b, "EXPM1", rest), rest)
    # (2^(n-1) * part + (2^(n-1) - 1/2)) * 2: the scale stays finite where the result does.
    scale = power_of_two(b, b.sub(integer, b.like(1, integer)), x.element)
    half = b.fma(scale, part, b.sub(scale, b.like(0.5, scale)))
    result = b.add(half, half)
    tiny = b.compare(
        "olt", absolute(b, x), b.like(2.0**-30 if x.element == "float" else 2.0**-60, x)
    )
    return b.select(tiny, x, result)


def sigmoid(b: Builder, x: Value) -> Value:
    """``1/(1 + exp(-x))``, from ``exp(-|x|)`` so that nothing overflows and small results keep
    their digits.
    """
    small = exp(b, b.neg(absolute(b, x)))
    one = b.like(1.0, x)
    numerator = b.select(b.compare("olt", x, b.like(0.0, x)), small, one)
    denominator = b.add(small, one)
    quotient = b.div(numerator, denominator)
    # What numerator - quotient*(1 + small) leaves, the rounding error of the sum included, corrects
    # the
    # quotient; for that 1/denominator may be a line that is off by 4 %. So the result rises with
    # ``small``.
    lost = b.sub(small, b.sub(denominator, one))
    product, error = two_product(b, quotient, denominator)
    rest = b.sub(b.sub(b.sub(numerator, product), error), b.mul(quotient, lost))
    inverse = b.fma(denominator, b.like(-0.5, x), b.like(1.457, x))
    return b.fma(rest, inverse, quotient)


def tanh(b: Builder, x: Value) -> Value:
    """``x + x^3 P(x^2)`` near 0, else ``1 - 2/(exp(2|x|) + 1)``."""
    magnitude = absolute(b, x)
    square = b.mul(x, x)
    near = b.fma(b.mul(magnitude, square), polynomial(b, "TANH", square), magnitude)
    doubled = at_most(b, b.add(magnitude, magnitude), 44.0)
    one = b.like(1.0, x)
    quotient = b.div(b.like(2.0, x), b.add(exp_of_moderate(b, doubled), one))
    small = b.compare("ult", square, b.like(0.4, x))
    return with_sign(b, b.select(small, near, b.sub(one, quotient)), x)


def _half_exp(b: Builder, magnitude: Value) -> Value:
    """``exp(magnitude)/2``, which is finite a little longer than ``exp``."""
    high = 90.0 if magnitude.element == "float" else 711.0
    integer, rest = _reduced(b, clamp(b, magnitude, 0.0, high))
    return scaled(b, _significand(b, rest), b.sub(integer, b.like(1, integer)))


def sinh(b: Builder, x: Value) -> Value:
    magnitude = absolute(b, x)
    square = b.mul(x, x)
    near = b.fma(b.mul(x, square), polynomial(b, "SINH", square), x)
    half = _half_exp(b, magnitude)
    far = with_sign(b, b.sub(half, b.div(b.like(0.25, x), half)), x)
    return b.select(b.compare("olt", magnitude, b.like(1.0, x)), near, far)


def cosh(b: Builder, x: Value) -> Value:
    half = _half_exp(b, absolute(b, x))
    return b.add(half, b.div(b.like(0.25, x), half))
