# SPDX-License-Identifier: Apache-2.0
"""Interpolation kernels: the weight of an element by its distance from a position.

Linear: the triangle ``1 - |d|``. Cubic: the convolution kernel of Keys (1981), "Cubic convolution
interpolation for digital image processing", with a free coefficient. With antialiasing the kernel
is stretched to cover as many elements as one element of the smaller result stands for.
"""

import math
from fractions import Fraction

from tilewright.ir.dtypes import DType
from tilewright.ir.expr import Expr, binary, const
from tilewright.ir.simplify import compare
from tilewright.ir.value_expr import select


def kernel_weight(mode: str, distance: float, coefficient: float) -> float:
    """The weight of an element ``distance`` elements away; ``coefficient`` is that of the cubic
    kernel.
    """
    d = abs(distance)
    if mode == "linear":
        return max(0.0, 1.0 - d)
    if d < 1:
        return ((coefficient + 2) * d - (coefficient + 3)) * d * d + 1
    if d < 2:
        return ((coefficient * d - 5 * coefficient) * d + 8 * coefficient) * d - 4 * coefficient
    return 0.0


def kernel_expression(mode: str, distance: Expr, coefficient: float) -> Expr:
    """:func:`kernel_weight` of an expression."""
    dtype: DType = distance.dtype
    zero, one, two = (const(n, dtype) for n in (0, 1, 2))
    d = select(compare("lt", distance, zero), zero - distance, distance)
    if mode == "linear":
        return binary("max", one - d, zero)
    near, far = _near(d, coefficient), _far(d, coefficient)
    return select(compare("lt", d, one), near, select(compare("lt", d, two), far, zero))


def cubic_weights(fraction: Expr, coefficient: float) -> list[Expr]:
    """The weights of the four elements around a position that is ``fraction`` behind the second."""
    one = const(1, fraction.dtype)
    rest = one - fraction
    return [
        _far(fraction + one, coefficient),
        _near(fraction, coefficient),
        _near(rest, coefficient),
        _far(rest + one, coefficient),
    ]


def _near(d: Expr, a: float) -> Expr:
    """The cubic kernel at distances below 1."""
    dtype = d.dtype
    return (const(a + 2, dtype) * d - const(a + 3, dtype)) * d * d + const(1, dtype)


def _far(d: Expr, a: float) -> Expr:
    """The cubic kernel at distances from 1 to 2."""
    dtype = d.dtype
    inner = (const(a, dtype) * d - const(5 * a, dtype)) * d + const(8 * a, dtype)
    return inner * d - const(4 * a, dtype)


def kernel_radius(mode: str) -> int:
    """The distance beyond which a kernel has no weight."""
    return 1 if mode == "linear" else 2


def taps_on_one_side(mode: str, ratio: Fraction) -> int:
    """How many elements on each side of a position have weight; ``ratio`` below 1 stretches the
    kernel.
    """
    return math.ceil(kernel_radius(mode) / min(ratio, Fraction(1)))
