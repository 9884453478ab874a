# SPDX-License-Identifier: Apache-2.0
"""What the operators of value expressions mean, on numpy scalars and arrays alike.

The meaning is that of :mod:`tilewright.ir.expr`: every operation is done, and rounded, in its own
type; integers wrap; integer division truncates, and division or remainder by zero gives 0; shifts
are taken modulo the width; minimum and maximum give NaN if an operand is NaN. Functions of the math
library are computed in float64 and rounded once, which makes them an oracle for faster versions.
"""

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from tilewright.ir.dtypes import F64, INDEX, DType

COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}
_erf = np.frompyfunc(math.erf, 1, 1)


def _sigmoid(x: Any) -> Any:
    return 1.0 / (1.0 + np.exp(-x))


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "rsqrt": lambda x: 1.0 / np.sqrt(x),
    "erf": lambda x: np.asarray(_erf(x), dtype=np.float64),
    "sigmoid": _sigmoid,
    "pow": np.power,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    **{
        name: getattr(np, name)
        for name in (
            "exp", "exp2", "expm1", "log", "log2", "log1p", "sqrt", "sin", "cos", "tan",
            "sinh", "cosh", "tanh",
        )
    },
}  # fmt: skip


def constant(literal: str, dtype: DType) -> Any:
    """A constant as a scalar of its type; an index as an int."""
    if dtype is INDEX:
        return int(literal)
    if dtype.is_bool:
        return literal == "true"
    number = float(literal) if dtype.is_float else int(literal)
    return np.asarray(number).astype(dtype.numpy)[()]


def wrap(x: Any, dtype: DType) -> Any:
    """Integers as their low ``dtype.bits`` bits."""
    if dtype.bits >= 8:
        return np.asarray(x).astype(dtype.numpy)
    low = np.asarray(x).astype(np.int64) & ((1 << dtype.bits) - 1)
    if dtype.is_signed:
        half = 1 << (dtype.bits - 1)
        low = (low ^ half) - half
    return low.astype(dtype.numpy)


def _narrow(x: Any, dtype: DType) -> Any:
    """Four-bit operands widened, so that numpy has operators for them."""
    return np.asarray(x).astype(np.int64) if dtype.bits < 8 and dtype.is_integer else x


def unary(op: str, x: Any, dtype: DType) -> Any:
    """A unary operation; ``dtype`` is the operand's type."""
    if op == "not":
        return np.logical_not(x)
    if op in ("isnan", "isinf"):
        return (np.isnan if op == "isnan" else np.isinf)(x)
    if dtype.is_integer and op in ("ceil", "floor", "round", "trunc"):
        return x
    function = {
        "neg": np.negative,
        "abs": np.abs,
        "sign": np.sign,
        "ceil": np.ceil,
        "floor": np.floor,
        "round": np.rint,
        "trunc": np.trunc,
        "bitwise_not": np.invert,
    }[op]
    result = function(_narrow(x, dtype))
    return wrap(result, dtype) if dtype.bits < 8 and dtype.is_integer else result


_PLAIN: dict[str, Callable[[Any, Any], Any]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}


def binary(op: str, x: Any, y: Any, dtype: DType) -> Any:
    """A binary operation on two operands of type ``dtype``."""
    if dtype.is_integer:
        result = _integer_binary(op, _narrow(x, dtype), _narrow(y, dtype), dtype)
        return wrap(result, dtype) if dtype.bits < 8 else result
    if op in _PLAIN:
        return _PLAIN[op](x, y)
    return {"div": np.divide, "mod": np.mod, "fmod": np.fmod}[op](x, y)


def _integer_binary(op: str, x: Any, y: Any, dtype: DType) -> Any:
    if op in _PLAIN:
        return _PLAIN[op](x, y)
    if op in ("shl", "shr"):
        count = np.bitwise_and(y, np.asarray(dtype.bits - 1, dtype=np.asarray(y).dtype))
        return np.left_shift(x, count) if op == "shl" else np.right_shift(x, count)
    zero = np.equal(y, 0)
    divisor = np.where(zero, np.ones_like(y), y)
    if op == "div":
        quotient = np.floor_divide(x, divisor)
        inexact = np.fmod(x, divisor) != 0
        opposite = np.less(x, 0) != np.less(divisor, 0)
        result = np.where(inexact & opposite, quotient + np.ones_like(quotient), quotient)
    else:
        result = (np.mod if op == "mod" else np.fmod)(x, divisor)
    return np.where(zero, np.zeros_like(result), result)


def call(function: str, args: tuple[Any, ...], dtype: DType) -> Any:
    """A function of the math library on operands of the float type ``dtype``."""
    if function == "fma":
        x, y, z = args
        return _fma(x, y, z, dtype)
    wide = [np.asarray(a).astype(np.float64) for a in args]
    return np.asarray(FUNCTIONS[function](*wide)).astype(dtype.numpy)


def _fma(x: Any, y: Any, z: Any, dtype: DType) -> Any:
    if dtype is F64:
        return np.asarray(np.frompyfunc(_fma_scalar, 3, 1)(x, y, z), dtype=np.float64)
    # The product of two narrower floats is exact in float64. The sum is rounded to odd, so that the
    # second rounding is right (Boldo and Melquiond, "Emulation of FMA and correctly rounded sums
    # using rounding to odd", 2008).
    a, b, c = (np.asarray(v).astype(np.float64) for v in (x, y, z))
    product = a * b
    total = np.asarray(product + c)
    part = total - product
    error = (product - (total - part)) + (c - part)
    is_even = total.view(np.int64) & 1 == 0
    moved = np.nextafter(total, np.copysign(np.inf, error))
    inexact = np.isfinite(error) & (error != 0)
    return np.where(inexact & is_even, moved, total).astype(dtype.numpy)


def _fma_scalar(x: float, y: float, z: float) -> float:
    plain = float(x) * float(y) + float(z)
    if not all(math.isfinite(v) for v in (x, y, z)):
        return plain
    exact = Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z))
    try:
        return float(exact) if exact else plain
    except OverflowError:
        return math.copysign(math.inf, exact)


def cast(x: Any, source: DType, dtype: DType) -> Any:
    """A conversion; an ``index`` operand is an int or an int64 array, and so is an ``index``
    result.
    """
    if source is dtype:
        return x
    if dtype.is_bool:
        return np.not_equal(_narrow(np.asarray(x), source), 0)
    x = np.asarray(x)
    if dtype.is_integer:
        if source.is_float:
            return saturated(x, dtype)
        wide = x.astype(np.int64) if source.bits < 8 else x
        return wrap(wide, dtype)
    if source.is_integer and source.bits < 8:
        x = x.astype(np.int8)
    return x.astype(dtype.numpy)


def saturated(x: Any, dtype: DType) -> Any:
    """Floats as integers: truncated, held within the range of ``dtype``, NaN as 0."""
    least, greatest = int(dtype.min), int(dtype.max)
    whole = np.trunc(np.asarray(x).astype(np.float64))
    whole = np.where(np.isnan(whole), 0.0, whole)
    low, high = whole <= float(least), whole >= float(greatest)
    held = np.where(low | high, 0.0, whole)
    wide = held.astype(np.uint64 if dtype.kind == "uint" else np.int64)
    wide = np.where(low, np.asarray(least, dtype=wide.dtype), wide)
    wide = np.where(high, np.asarray(greatest, dtype=wide.dtype), wide)
    return wide.astype(dtype.numpy)
