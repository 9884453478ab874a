# SPDX-License-Identifier: Apache-2.0
"""pow: ``2^(y * log2 |x|)``, the logarithm with so many extra bits that its error does not show.

For float32 double precision is enough. For double the logarithm and the product are pairs of
doubles. Special values and signs follow C: ``pow(1, y)`` and ``pow(x, 0)`` are 1 even for NaN, a
negative base needs an integer exponent.
"""

from tilewright.codegen.llvm.builder import Builder, Value
from tilewright.codegen.math.evaluation import (
    Pair,
    absolute,
    clamp,
    fast_two_sum,
    nearest_integer,
    pair_product,
    pair_sum,
    polynomial,
    power_of_two,
    two_product,
    two_sum,
    with_sign,
)
from tilewright.codegen.math.exponential import scaled
from tilewright.codegen.math.logarithm import decompose, normalised

_LOG2E = 1.4426950408889634
_LOG2E_LOW = 2.0355273740931033e-17
_THIRD = (0.6666666666666666, 3.700743415417188e-17)


def pow(b: Builder, x: Value, y: Value) -> Value:
    magnitude = absolute(b, x)
    one, zero, infinity = b.like(1.0, x), b.like(0.0, x), b.like(float("inf"), x)
    # Where the core's logarithm has no meaning, the result is 0, infinity or NaN by the sign of y.
    edge = b.op("or", b.compare("oeq", magnitude, zero), b.compare("ueq", magnitude, infinity))
    base = b.select(edge, one, magnitude)
    value = _core_float(b, base, y) if x.element == "float" else _core_double(b, base, y)
    grows = b.compare("ogt", y, zero)
    to_infinity = b.op("xor", grows, b.compare("oeq", magnitude, zero))
    at_edge = b.select(to_infinity, infinity, zero)
    value = b.select(edge, at_edge, value)
    is_nan = b.op("or", b.compare("uno", x, x), b.compare("uno", y, y))
    value = b.select(is_nan, b.like(float("nan"), x), value)
    value = _with_sign_of_power(b, value, x, y)
    unit = b.op("or", b.compare("oeq", x, one), b.compare("oeq", y, zero))
    infinite_y = b.compare("oeq", absolute(b, y), infinity)
    unit = b.op("or", unit, b.op("and", infinite_y, b.compare("oeq", magnitude, one)))
    return b.select(unit, one, value)


def _with_sign_of_power(b: Builder, value: Value, x: Value, y: Value) -> Value:
    """Negative for a negative base and an odd exponent; NaN for a finite negative base and a
    broken one.
    """
    whole = b.compare("oeq", _truncated(b, y), y)
    half = b.mul(y, b.like(0.5, y))
    odd = b.op("and", whole, b.compare("une", _truncated(b, half), half))
    value = b.select(odd, with_sign(b, value, x), value)
    negative = b.compare("olt", x, b.like(0.0, x))
    finite = b.compare("ogt", x, b.like(float("-inf"), x))
    broken = b.op("and", b.op("and", negative, finite), b.op("xor", whole, b.like(True, whole)))
    return b.select(broken, b.like(float("nan"), x), value)


def _truncated(b: Builder, x: Value) -> Value:
    """The integral part: of numbers below 2^mantissa by adding and subtracting that, others have
    no fraction.
    """
    limit = b.like(2.0 ** (52 if x.element == "double" else 23), x)
    a = absolute(b, x)
    near = b.sub(b.add(a, limit), limit)
    near = b.sub(near, b.select(b.compare("ogt", near, a), b.like(1.0, x), b.like(0.0, x)))
    return b.select(b.compare("olt", a, limit), with_sign(b, near, x), x)


def _core_float(b: Builder, base: Value, y: Value) -> Value:
    """The power of a positive finite float32, in double precision."""
    x, exponent = b.convert("fpext", base, "double"), b.convert("fpext", y, "double")
    k, f = decompose(b, x)
    s = b.div(f, b.add(f, b.like(2.0, f)))
    z = b.mul(s, s)
    natural = b.fma(b.mul(s, z), polynomial(b, "LOG_POWER", z), b.add(s, s))
    logarithm = b.fma(natural, b.like(_LOG2E, f), b.convert("sitofp", k, "double"))
    product = clamp(b, b.mul(logarithm, exponent), -200.0, 200.0)
    number, integer = nearest_integer(b, product, 1.0)
    r = b.sub(product, number)
    value = b.fma(r, polynomial(b, "EXP2_POWER", r), b.like(1.0, r))
    return b.convert("fptrunc", b.mul(value, power_of_two(b, integer, "double")), "float")


def _core_double(b: Builder, base: Value, y: Value) -> Value:
    """The power of a positive finite double."""
    up, moved = normalised(b, base)
    k, f = decompose(b, up)
    log_high, log_low = _log_pair(b, f)
    scaled_log = pair_product(b, (log_high, log_low), (b.like(_LOG2E, f), b.like(_LOG2E_LOW, f)))
    number = b.sub(b.convert("sitofp", k, "double"), moved)
    high, low = two_sum(b, number, scaled_log[0])
    logarithm = fast_two_sum(b, high, b.add(low, scaled_log[1]))
    # Beyond 2^64 the result is 0 or infinity, or the logarithm is 0.
    bounded = clamp(b, y, -(2.0**64), 2.0**64)
    product, error = two_product(b, logarithm[0], bounded)
    error = b.fma(logarithm[1], bounded, error)
    inside = clamp(b, product, -1100.0, 1100.0)
    error = b.select(b.compare("oeq", inside, product), error, b.like(0.0, error))
    whole, integer = nearest_integer(b, inside, 1.0)
    r = b.add(b.sub(inside, whole), error)
    value = b.fma(r, polynomial(b, "EXP2", r), b.like(1.0, r))
    return scaled(b, value, integer)


def _log_pair(b: Builder, f: Value) -> Pair:
    """``log(1 + f) = 2s + s^3 (2/3 + s^2 P(s^2))`` with ``s = f/(2 + f)``, as a pair."""
    zero = b.like(0.0, f)
    denominator = two_sum(b, b.like(2.0, f), f)
    quotient = b.div(f, denominator[0])
    check = two_product(b, quotient, denominator[0])
    rest = b.sub(b.sub(b.sub(f, check[0]), check[1]), b.mul(quotient, denominator[1]))
    s = fast_two_sum(b, quotient, b.div(rest, denominator[0]))
    square = pair_product(b, s, s)
    tail = b.mul(square[0], polynomial(b, "LOG_TAIL", square[0]))
    inner = pair_sum(b, (b.like(_THIRD[0], f), b.like(_THIRD[1], f)), (tail, zero))
    cube = pair_product(b, square, s)
    return pair_sum(b, (b.add(s[0], s[0]), b.add(s[1], s[1])), pair_product(b, cube, inner))
