# SPDX-License-Identifier: Apache-2.0
"""The entry of the math library: a call of an elementary function on float32 or double lanes.

Every function is one description for any number of lanes, emitted in place. Errors are at most 2
ULP for float32 and 4 for double over the whole range, subnormal results included; NaN, infinities
and signed zeros are as in C. Inverse hyperbolic functions of float32 are computed in double
precision.
"""

from collections.abc import Callable, Sequence

from tilewright.codegen.llvm.builder import Builder, Value
from tilewright.codegen.math.error_function import erf
from tilewright.codegen.math.exponential import cosh, exp, exp2, expm1, sigmoid, sinh, tanh
from tilewright.codegen.math.inverse_trigonometric import acos, asin, atan
from tilewright.codegen.math.logarithm import acosh, asinh, atanh, log, log1p, log2
from tilewright.codegen.math.power import pow
from tilewright.codegen.math.trigonometric import cos, sin, tan
from tilewright.ir.errors import CodegenError


def _sqrt(b: Builder, x: Value) -> Value:
    return b.intrinsic("sqrt", x)


def _rsqrt(b: Builder, x: Value) -> Value:
    return b.div(b.like(1.0, x), b.intrinsic("sqrt", x))


def _in_double(function: Callable[[Builder, Value], Value]) -> Callable[[Builder, Value], Value]:
    """A function of float32 computed in double precision."""

    def widened(b: Builder, x: Value) -> Value:
        if x.element == "double":
            return function(b, x)
        return b.convert("fptrunc", function(b, b.convert("fpext", x, "double")), "float")

    return widened


FUNCTIONS: dict[str, Callable[..., Value]] = {
    "exp": exp, "exp2": exp2, "expm1": expm1, "log": log, "log2": log2, "log1p": log1p,
    "sqrt": _sqrt, "rsqrt": _rsqrt, "sin": sin, "cos": cos, "tan": tan,
    "asin": asin, "acos": acos, "atan": atan, "sinh": sinh, "cosh": cosh, "tanh": tanh,
    "asinh": _in_double(asinh), "acosh": _in_double(acosh), "atanh": _in_double(atanh),
    "erf": erf, "sigmoid": sigmoid, "pow": pow, "fma": Builder.fma,
}  # fmt: skip


def math_call(b: Builder, function: str, args: Sequence[Value]) -> Value:
    """The value of one of ``MATH_FUNCTIONS``; all arguments have one type."""
    if function not in FUNCTIONS:
        raise CodegenError(f"Function '{function}' is not in the math library.")
    return FUNCTIONS[function](b, *args)
