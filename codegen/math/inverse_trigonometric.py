# SPDX-License-Identifier: Apache-2.0
"""asin, acos and atan by polynomials on a short interval around 0."""

from tilewright.codegen.llvm.builder import Builder, Value
from tilewright.codegen.math.evaluation import absolute, polynomial, with_sign

_HALF_PI = 1.5707963267948966
_PI_LOW = {"float": -4.371139000186241e-8, "double": 6.123233995736766e-17}


def _asin_parts(b: Builder, x: Value) -> tuple[Value, Value]:
    """Whether ``|x|`` is large, and there ``asin(sqrt((1 - |x|)/2))``, else ``asin(|x|)``."""
    magnitude = absolute(b, x)
    half = b.like(0.5, x)
    # From here on the root's angle is below 1/2, so doubling it costs no more than its own error.
    far = b.compare("ogt", magnitude, b.like(0.55, x))
    square = b.select(
        far, b.mul(b.sub(b.like(1.0, x), magnitude), half), b.mul(magnitude, magnitude)
    )
    root = b.select(far, b.intrinsic("sqrt", square), magnitude)
    return far, b.fma(b.mul(root, square), polynomial(b, "ASIN", square), root)


def asin(b: Builder, x: Value) -> Value:
    far, part = _asin_parts(b, x)
    rest = b.sub(b.like(_PI_LOW[x.element], x), b.add(part, part))
    return with_sign(b, b.select(far, b.add(b.like(_HALF_PI, x), rest), part), x)


def acos(b: Builder, x: Value) -> Value:
    far, part = _asin_parts(b, x)
    negative = b.compare("olt", x, b.like(0.0, x))
    low = _PI_LOW[x.element]
    signed = b.select(negative, b.neg(part), part)
    near = b.add(b.like(_HALF_PI, x), b.sub(b.like(low, x), signed))
    doubled = b.add(part, part)
    left = b.add(b.like(2 * _HALF_PI, x), b.sub(b.like(2 * low, x), doubled))
    return b.select(far, b.select(negative, left, doubled), near)


def atan(b: Builder, x: Value) -> Value:
    """``pi/2 - atan(1/|x|)`` beyond 1; double moves the argument to ``|t| <= tan(pi/8)`` also
    around 1.
    """
    a = absolute(b, x)
    one, zero = b.like(1.0, x), b.like(0.0, x)
    if x.element == "float":
        beyond = b.compare("ogt", a, one)
        t = b.select(beyond, b.div(b.like(-1.0, x), a), a)
        square = b.mul(t, t)
        part = b.fma(b.mul(t, square), polynomial(b, "ATAN", square), t)
        far = b.add(b.like(_HALF_PI, x), b.add(part, b.like(_PI_LOW["float"], x)))
        return with_sign(b, b.select(beyond, far, part), x)
    middle = b.compare("ogt", a, b.like(0.41421356237309503, x))
    outer = b.compare("ogt", a, b.like(2.414213562373095, x))
    numerator = b.select(outer, b.like(-1.0, x), b.select(middle, b.sub(a, one), a))
    denominator = b.select(outer, a, b.select(middle, b.add(a, one), one))
    t = b.div(numerator, denominator)
    square = b.mul(t, t)
    part = b.fma(b.mul(t, square), polynomial(b, "ATAN", square), t)
    low = _PI_LOW[x.element]
    base = b.select(outer, b.like(_HALF_PI, x), b.select(middle, b.like(_HALF_PI / 2, x), zero))
    rest = b.select(outer, b.like(low, x), b.select(middle, b.like(low / 2, x), zero))
    return with_sign(b, b.add(base, b.add(part, rest)), x)
