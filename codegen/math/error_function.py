# SPDX-License-Identifier: Apache-2.0
"""erf: ``x + x*P(x^2)`` below 1, else ``1 - exp(Q(|x| - 1))``: Q is the logarithm of the
complement.
"""

from tilewright.codegen.llvm.builder import Builder, Value
from tilewright.codegen.math.evaluation import absolute, clamp, polynomial, with_sign
from tilewright.codegen.math.exponential import exp_of_moderate

# From where on the result is 1.
_LAST = {"float": 4.0, "double": 6.0}


def erf(b: Builder, x: Value) -> Value:
    magnitude = absolute(b, x)
    square = b.mul(x, x)
    near = b.fma(x, polynomial(b, "ERF", square), x)
    inside = clamp(b, magnitude, 0.99, _LAST[x.element])
    exponent = polynomial(b, "ERFC_LOG", b.sub(inside, b.like(1.0, x)))
    far = with_sign(b, b.sub(b.like(1.0, x), exp_of_moderate(b, exponent)), x)
    return b.select(b.compare("olt", magnitude, b.like(1.0, x)), near, far)
