# SPDX-License-Identifier: Apache-2.0
"""Intervals of value expressions over dims: what bounds a size that is computed in floats, or that
a condition chooses.

An operation on floats rounds, and rounding never changes an order. So where an operation rises or
falls in each operand, the ends of its interval are its values, computed in its own type, at the
ends of the operands' intervals. Functions of the math library are known to some units in the last
place only, and their ends are moved outwards by more than that.

An interval, whose ends may be infinite, says too that the value is no NaN; where that is not
certain, there is none.
"""

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np

from tilewright.ir.dtypes import INDEX, DType
from tilewright.ir.expr import Binary, Call, Cast, Const, Expr, Guard, Select, Unary
from tilewright.ir.interpreter import values

Interval = tuple[Any, Any]
Ends = tuple[int | float, int | float]
IndexBounds = Callable[[Expr], tuple[int | float, int | float]]

_ULPS = 8
"""More than the error of any function of the math library, in units in the last place."""
_RISING = ("exp", "exp2", "expm1", "sqrt", "tanh", "sigmoid", "erf", "atan", "sinh", "asinh")
_RISING_FROM_ZERO = ("log", "log2", "log1p")


def interval(x: Expr, index_bounds: IndexBounds) -> Ends | None:
    """The interval of a value, given the bounds of index expressions; None if there is none."""
    with np.errstate(all="ignore"):
        ends = _Intervals(index_bounds).of(x)
    exact = float if x.dtype.is_float else int
    return None if ends is None else (exact(ends[0]), exact(ends[1]))


class _Intervals:
    def __init__(self, index_bounds: IndexBounds) -> None:
        self._index_bounds = index_bounds
        self._known: dict[Expr, Interval | None] = {}

    def of(self, x: Expr) -> Interval | None:
        if x not in self._known:
            self._known[x] = _without_nan(self._of(x))
        return self._known[x]

    def _of(self, x: Expr) -> Interval | None:
        match x:
            case Const(literal, dtype):
                value = values.constant(literal, dtype)
                return value, value
            case Cast(y, dtype) if y.dtype is INDEX:
                least, greatest = self._index_bounds(y)
                ends = (least, greatest)
                return None if np.inf in map(abs, ends) else _cast(ends, INDEX, dtype)
            case Cast(y, dtype):
                inner = self.of(y)
                return None if inner is None else _cast(inner, y.dtype, dtype)
            case Select(_, a, b) | Guard(_, a, b):
                first, second = self.of(a), self.of(b)
                if first is None or second is None:
                    return None
                return min(first[0], second[0]), max(first[1], second[1])
            case Unary(op, y, dtype):
                inner = self.of(y)
                return None if inner is None else _unary(op, inner, dtype)
            case Binary(op, a, b, dtype):
                first, second = self.of(a), self.of(b)
                if first is None or second is None:
                    return None
                return _binary(op, first, second, dtype)
            case Call(function, args, dtype):
                inners = [self.of(a) for a in args]
                known = [i for i in inners if i is not None]
                return _call(function, known, dtype) if len(known) == len(inners) else None
        return (False, True) if x.dtype.is_bool else None


def _without_nan(ends: Interval | None) -> Interval | None:
    return None if ends is None or any(e != e for e in ends) else ends


def _has_infinity(ends: Interval) -> bool:
    return any(np.isinf(np.float64(e)) for e in ends)


def _has_zero(ends: Interval) -> bool:
    return bool(ends[0] <= 0 <= ends[1])


def whole(dtype: DType) -> Ends | None:
    """All values of an integer type."""
    return (dtype.min, dtype.max) if dtype.is_integer else None


def _cast(ends: Interval, source: DType, dtype: DType) -> Interval | None:
    if dtype.is_bool:
        return False, True
    if dtype.is_integer and source.is_integer:
        # What does not fit wraps.
        fits = dtype.min <= ends[0] and ends[1] <= dtype.max
        return (int(ends[0]), int(ends[1])) if fits else whole(dtype)
    low, high = (values.cast(e, source, dtype)[()] for e in ends)
    return low, high


def _unary(op: str, ends: Interval, dtype: DType) -> Interval | None:
    low, high = ends
    if dtype.is_bool:
        return False, True
    if dtype.is_integer and (op == "bitwise_not" or low == dtype.min):
        return whole(dtype)
    if op == "neg":
        return -high, -low
    if op == "abs":
        inner = low if low > 0 else -high if high < 0 else low * 0
        return inner, max(-low, high)
    if op == "sign":
        return np.sign(low), np.sign(high)
    return values.unary(op, low, dtype), values.unary(op, high, dtype)


def _binary(op: str, x: Interval, y: Interval, dtype: DType) -> Interval | None:
    if dtype.is_bool:
        return False, True
    if op in ("min", "max"):
        choose = min if op == "min" else max
        return choose(x[0], y[0]), choose(x[1], y[1])
    if op in ("mod", "fmod"):
        return _remainder(op, x, y, dtype)
    if op == "div" and dtype.is_integer:
        # A quotient is never further from 0 than the dividend; by zero it is 0.
        most = max(abs(int(x[0])), abs(int(x[1])))
        nonnegative = x[0] >= 0 and y[0] >= 0
        return _within((0 if nonnegative else -most, most), dtype)
    if op not in ("add", "sub", "mul", "div"):
        return whole(dtype)
    if dtype.is_integer:
        exact = {"add": int.__add__, "sub": int.__sub__, "mul": int.__mul__}[op]
        corners = [exact(int(a), int(b)) for a, b in product(x, y)]
        return _within((min(corners), max(corners)), dtype)
    # Infinity times 0, or by infinity, is NaN also where no end shows it.
    odd = (_has_infinity(x) and _has_zero(y)) or (_has_infinity(y) and _has_zero(x))
    by_odd = _has_zero(y) or (_has_infinity(x) and _has_infinity(y))
    if (op == "mul" and odd) or (op == "div" and by_odd):
        return None
    corners = [values.binary(op, a, b, dtype) for a, b in product(x, y)]
    return None if any(c != c for c in corners) else (min(corners), max(corners))


def _within(ends: Interval, dtype: DType) -> Interval | None:
    """Integers that wrap where they leave their type."""
    return ends if dtype.min <= ends[0] and ends[1] <= dtype.max else whole(dtype)


def _remainder(op: str, x: Interval, y: Interval, dtype: DType) -> Interval | None:
    if dtype.is_float and (_has_zero(y) or _has_infinity(x)):
        return None
    most = max(abs(y[0]), abs(y[1]))
    if op == "mod":
        return min(y[0], y[0] * 0), max(y[1], y[1] * 0)
    return (-most if x[0] < 0 else most * 0), most


def _call(function: str, args: list[Interval], dtype: DType) -> Interval | None:
    low, high = args[0]
    if function == "pow":
        if low <= 0:
            return None
        corners = [values.call("pow", pair, dtype)[()] for pair in product(*args)]
        nan = any(c != c for c in corners) or any(map(_has_infinity, args))
        return None if nan else _moved(min(corners), max(corners), dtype)
    if function in ("sin", "cos") and not _has_infinity(args[0]):
        return dtype.numpy.type(-1), dtype.numpy.type(1)
    rises = function in _RISING and (function != "sqrt" or low >= 0)
    if not rises and not (function in _RISING_FROM_ZERO and low > 0):
        return None
    ends = [values.call(function, (end,), dtype)[()] for end in (low, high)]
    # A square root is rounded exactly.
    return (ends[0], ends[1]) if function == "sqrt" else _moved(ends[0], ends[1], dtype)


def _moved(low: Any, high: Any, dtype: DType) -> Interval:
    """Ends moved outwards by more than the error of a function."""
    down, up = dtype.numpy.type(-np.inf), dtype.numpy.type(np.inf)
    for _ in range(_ULPS):
        low, high = np.nextafter(low, down), np.nextafter(high, up)
    return low, high
