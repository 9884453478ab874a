# SPDX-License-Identifier: Apache-2.0
"""erf: ``x + x*P(x^2)`` below 1, else ``1 - 2^Q(|x| - 1)``: Q is the binary logarithm of erfc."""

from tilewright.codegen.llvm.builder import Builder, Value
from tilewright.codegen.math.evaluation import (
    absolute,
    at_most,
    nearest_shifted,
    polynomial,
    times_power,
    with_sign,
)

# From where on the result is 1.
_LAST = {"float": 4.0, "double": 6.0}


def erf(b: Builder, x: Value) -> Value:
    magnitude = absolute(b, x)
    square = b.mul(x, x)
    near = b.fma(magnitude, polynomial(b, "ERF", square), magnitude)
    inside = at_most(b, magnitude, _LAST[x.element])
    one = b.like(1.0, x)
    logarithm = polynomial(b, "ERFC_LOG2", b.sub(inside, one))
    number, shifted = nearest_shifted(b, logarithm, 1.0)
    rest = b.sub(logarithm, number)
    power = b.fma(rest, polynomial(b, "EXP2_ERF", rest), one)
    far = b.sub(one, times_power(b, power, shifted))
    return with_sign(b, b.select(b.compare("ult", magnitude, one), near, far), x)
