# SPDX-License-Identifier: Apache-2.0
"""Arithmetic on the elements of small tensors whose contents follow from shapes.

Models compute shapes with tensors: Shape, Gather, Mul, Concat, Reshape. Their elements are
followed here, each in its own type. An element is a plain number, rounded to that type, or an
expression over dims that the host program evaluates at a call:

* of an integer tensor, an index expression. Sums, products, quotients and remainders are
  canonical index arithmetic; anything else is an opaque atom, a value of the tensor's type made an
  index. Dims are taken not to overflow types of 32 and 64 bits; narrower ones wrap.
* of a float or bool tensor, a value expression of that type, every operation rounded as the type
  says. Only a number that is whole, and small enough to be held exactly, is known to be so.

What cannot be told raises :class:`Unknown`.
"""

import math
import operator
from collections.abc import Callable
from typing import Any, TypeGuard

import numpy as np

from tilewright.frontends.dims import MOST_FACTORS, Unknown, bounded, exact_quotient, product
from tilewright.ir import bounds, simplify
from tilewright.ir.dtypes import BF16, BOOL, F16, F32, F64, I64, INDEX, U64, DType
from tilewright.ir.expr import (
    FALSE,
    TRUE,
    Binary,
    Call,
    Cast,
    Compare,
    Const,
    Expr,
    Select,
    Unary,
    add,
    const,
    index,
    mul,
    sub,
)
from tilewright.ir.fold import folded
from tilewright.ir.interpreter import values
from tilewright.ir.value_bounds import interval
from tilewright.ir.value_expr import cast, logical_and

Element = int | float | bool | Expr

_EXACT_BITS = {F64: 53, F32: 24, F16: 11, BF16: 8}
"""Of the float types that are followed: the bits of whole numbers that they hold exactly."""
_WHOLE = ("floor", "ceil", "round", "trunc")


def is_number(x: object) -> TypeGuard[int | float]:
    """True for a plain number."""
    return isinstance(x, int | float)


def is_finite(x: object) -> bool:
    """False for NaN and infinities, which no integer stands for."""
    return not isinstance(x, float) or math.isfinite(x)


def is_followed(dtype: DType) -> bool:
    """True for a type whose elements may be expressions."""
    return dtype.is_integer or dtype.is_bool or dtype in _EXACT_BITS


def rounded(x: int | float | bool, dtype: DType) -> int | float | bool:
    """A number as its dtype holds it: integers wrap, floats round."""
    if dtype.is_bool:
        return bool(x)
    if dtype.is_float:
        with np.errstate(over="ignore"):
            return float(np.asarray(float(x), np.float64).astype(dtype.numpy))
    if not is_finite(x):
        raise Unknown
    value = int(x) & ((1 << dtype.bits) - 1)
    return value - (1 << dtype.bits) if dtype.is_signed and value >> (dtype.bits - 1) else value


# --- expressions and numbers ----------------------------------------------------------------------


def _lifted(x: Element, dtype: DType) -> Expr:
    """An element as an expression: an index in an integer tensor, else a value of its type."""
    if isinstance(x, Expr):
        return x
    if not is_followed(dtype):
        raise Unknown
    return index(int(x)) if dtype.is_integer else const(x, dtype)


def _settled(e: Expr) -> Element:
    """An expression as an element: what is known is a plain number."""
    e = folded(e)
    return e.value if isinstance(e, Const) else bounded(e)


def _held(e: Expr, dtype: DType) -> Element:
    """The integer ``e`` in a tensor of ``dtype``; it wraps in one of less than 32 bits, and in an
    unsigned one.
    """
    e = folded(e)
    if isinstance(e, Const):
        return rounded(int(e.literal), dtype)
    if dtype is U64 or (dtype.is_signed and dtype.bits >= 32):
        return bounded(e)
    least, greatest = bounds.bounds_of_dims(e)
    fits = dtype.min <= least and greatest <= dtype.max
    return bounded(e if fits else cast(cast(e, dtype), INDEX))


def _fits(e: Expr, dtype: DType) -> bool:
    """True if a float type holds every value of an index expression exactly."""
    most = 1 << _EXACT_BITS[dtype]
    least, greatest = bounds.bounds_of_dims(e)
    return -most <= least and greatest <= most


def _whole(e: Expr, dtype: DType) -> Expr | None:
    """The index expression that a float value is exactly; None if it is not known to be one."""
    if isinstance(e, Const):
        value = float(e.literal)
        exact = value.is_integer() and abs(value) <= 1 << _EXACT_BITS[dtype]
        return index(int(value)) if exact else None
    if isinstance(e, Cast) and e.x.dtype is INDEX and _fits(e.x, dtype):
        return e.x
    return None


def _is_integral(e: Expr) -> bool:
    """True if a float value is a whole number of whatever size, an infinity or NaN."""
    match e:
        case Const(literal):
            return float(literal).is_integer()
        case Cast(x, _):
            return not x.dtype.is_float or _is_integral(x)
        case Unary(op, x, _):
            return op in _WHOLE or (op in ("neg", "abs", "sign") and _is_integral(x))
        case Binary("add" | "sub" | "mul" | "min" | "max", x, y, _) | Select(_, x, y):
            return _is_integral(x) and _is_integral(y)
    return False


def _numbers(op: str, x: int | float, y: int | float, dtype: DType) -> Element:
    """A binary operation on two numbers of a float type."""
    kind: Any = dtype.numpy.type
    with np.errstate(all="ignore"):
        return float(values.binary(op, kind(x), kind(y), dtype))


# --- sums, products, quotients --------------------------------------------------------------------

_EXACT: dict[str, Callable[[Expr, Expr], Expr]] = {
    "add": add,
    "sub": sub,
    "mul": product,
    "min": simplify.minimum,
    "max": simplify.maximum,
}
_OF_NUMBERS: dict[str, Callable[[Any, Any], Any]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "min": min,
    "max": max,
}
_NEUTRAL = {"add": 0.0, "sub": 0.0, "mul": 1.0, "div": 1.0}


def _floats(op: str, x: Element, y: Element, dtype: DType) -> Element:
    """A binary operation in a float type: on whole numbers that it holds exactly, or rounded."""
    if is_number(x) and is_number(y):
        return _numbers(op, x, y, dtype)
    if is_number(y) and y == _NEUTRAL.get(op):
        return x
    if is_number(x) and op in ("add", "mul") and x == _NEUTRAL[op]:
        return y
    a, b = _lifted(x, dtype), _lifted(y, dtype)
    first, second = _whole(a, dtype), _whole(b, dtype)
    if first is not None and second is not None and op in _EXACT:
        exact = _EXACT[op](first, second)
        if _fits(exact, dtype):
            return _settled(cast(exact, dtype))
    return _settled(Binary(op, a, b, dtype))


def _integers(op: str, x: Element, y: Element, dtype: DType) -> Element:
    """A sum, difference, product, minimum or maximum of integers."""
    if is_number(x) and is_number(y):
        return rounded(_OF_NUMBERS[op](x, y), dtype)
    return _held(_EXACT[op](_lifted(x, dtype), _lifted(y, dtype)), dtype)


def _operation(op: str) -> Callable[[Element, Element, DType], Element]:
    def operate(x: Element, y: Element, dtype: DType) -> Element:
        return (_floats if dtype.is_float else _integers)(op, x, y, dtype)

    return operate


plus = _operation("add")
minus = _operation("sub")
times = _operation("mul")
smallest = _operation("min")
largest = _operation("max")


def divide(x: Element, y: Element, dtype: DType) -> Element:
    """``x / y``; integers truncate, and what they are divided by is held to be no 0 at a call."""
    if dtype.is_float:
        return _floats("div", x, y, dtype)
    a, b = _divisible(x, y, dtype)
    exact = exact_quotient(a, b)
    return _held(_truncated(a, b, dtype) if exact is None else exact, dtype)


def remainder(x: Element, y: Element, dtype: DType, of_dividend: bool = False) -> Element:
    """``x mod y`` with the sign of the divisor, or with that of the dividend."""
    op = "fmod" if of_dividend else "mod"
    if dtype.is_float:
        return _floats(op, x, y, dtype)
    a, b = _divisible(x, y, dtype)
    if bounds.lower(b) < 0:
        return _held(_in_type(op, a, b, dtype), dtype)
    if of_dividend and not bounds.is_nonnegative(a):
        return _held(sub(a, product(_truncated(a, b, dtype), b)), dtype)
    return _held(simplify.mod(a, b), dtype)


def _divisible(x: Element, y: Element, dtype: DType) -> tuple[Expr, Expr]:
    a, b = _lifted(x, dtype), _lifted(y, dtype)
    if isinstance(b, Const) and int(b.literal) == 0:
        raise Unknown
    return a, b


def _truncated(a: Expr, b: Expr, dtype: DType) -> Expr:
    """``a / b`` rounded to zero; what is not known to be positive is divided by its size."""
    if bounds.upper(b) < 0:
        return mul(_truncated(a, mul(b, -1), dtype), -1)
    if bounds.lower(b) < 0:
        return _in_type("div", a, b, dtype)
    if bounds.is_nonnegative(a):
        return simplify.floordiv(a, b)
    negative = simplify.floordiv(simplify.maximum(mul(a, -1), 0), b)
    return sub(simplify.floordiv(simplify.maximum(a, 0), b), negative)


def _in_type(op: str, a: Expr, b: Expr, dtype: DType) -> Expr:
    """An operation on integers that is no index arithmetic, done in their type."""
    return cast(Binary(op, cast(a, dtype), cast(b, dtype), dtype), INDEX)


def bitwise(op: str, x: Element, y: Element, dtype: DType) -> Element:
    """``and``, ``or`` or ``xor`` of integers."""
    return _held(_in_type(op, _lifted(x, dtype), _lifted(y, dtype), dtype), dtype)


def power(x: Element, y: Element, dtype: DType, exponents: DType) -> Element:
    """``x`` to the power ``y``, in the type of ``x``; whole powers of integers are exact."""
    if dtype.is_float:
        wide = cast(_lifted(y, exponents), F64)
        return math_function("pow", x, dtype, wide)
    if is_number(y) and float(y).is_integer() and 0 <= y <= MOST_FACTORS:
        result: Element = 1
        for _ in range(int(y)):
            result = times(result, x, dtype)
        return result
    wide = Call("pow", (cast(_lifted(x, dtype), F64), cast(_lifted(y, exponents), F64)), F64)
    if exponents.is_integer:
        # An inverse rounds to 0, as it must, but for those of 1 and -1.
        wide = Unary("round", wide, F64)
    return _held(_as_integer(wide, dtype), dtype)


# --- functions of one operand ---------------------------------------------------------------------


def negative(x: Element, dtype: DType) -> Element:
    """``-x``."""
    if dtype.is_float:
        return _settled(Unary("neg", _lifted(x, dtype), dtype))
    return _held(mul(_lifted(x, dtype), -1), dtype)


def absolute(x: Element, dtype: DType) -> Element:
    """``x`` without its sign."""
    if not dtype.is_signed:
        return x
    if not dtype.is_float:
        return largest(x, negative(x, dtype), dtype)
    return _settled(Unary("abs", _lifted(x, dtype), dtype))


def sign(x: Element, dtype: DType) -> Element:
    """-1, 0 or 1."""
    if dtype.is_float:
        return _settled(Unary("sign", _lifted(x, dtype), dtype))
    least = -1 if dtype.is_signed else 0
    return largest(smallest(x, 1, dtype), least, dtype)


def whole(op: str, x: Element, dtype: DType) -> Element:
    """``floor``, ``ceil``, ``round`` (half to even) or ``trunc``, still in the tensor's type."""
    e = _lifted(x, dtype)
    return x if dtype.is_integer or _is_integral(e) else _settled(Unary(op, e, dtype))


def math_function(function: str, x: Element, dtype: DType, *more: Expr) -> Element:
    """A function of the math library, computed in double precision and rounded once."""
    wide = cast(_lifted(x, dtype), F64)
    return _settled(cast(Call(function, (wide, *more), F64), dtype))


def test(op: str, x: Element, dtype: DType) -> bool | Expr:
    """``isnan`` or ``isinf``."""
    return _truth(Unary(op, _lifted(x, dtype), BOOL))


def convert(x: Element, source: DType, target: DType) -> Element:
    """A cast; floats truncate on the way to integers, and saturate."""
    if not is_followed(source) or not is_followed(target):
        raise Unknown
    if not is_finite(x) and not target.is_float and not target.is_bool:
        raise Unknown
    if target.is_bool:
        return compare("ne", x, 0, source)
    e = _lifted(x, source)
    if target.is_float:
        return _settled(cast(e, target))
    if source.is_bool:
        return choose(e, 1, 0, target)
    return _held(_as_integer(e, target) if source.is_float else e, target)


def _as_integer(e: Expr, target: DType) -> Expr:
    """A float as an integer of a type."""
    exact = _whole(e, e.dtype)
    if exact is not None:
        return exact
    while isinstance(e, Unary) and e.op in ("trunc", "floor"):
        ends = interval(e.x, bounds.bounds_of_dims)
        if e.op == "floor" and (ends is None or ends[0] < 0):
            break
        e = e.x
    # An index saturates as 64 bits do.
    return cast(e if target is I64 else cast(e, target), INDEX)


# --- conditions -----------------------------------------------------------------------------------

_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
}


def compare(comparison: str, x: Element, y: Element, dtype: DType) -> bool | Expr:
    """A comparison of two elements of one type."""
    if is_number(x) and is_number(y):
        return _COMPARE[comparison](x, y)
    a, b = _lifted(x, dtype), _lifted(y, dtype)
    if dtype.is_integer:
        return _truth(simplify.compare(comparison, a, b))
    if dtype.is_bool:
        return _truth(Compare(comparison, a, b))
    first, second = _whole(a, dtype), _whole(b, dtype)
    if first is not None and second is not None:
        return _truth(simplify.compare(comparison, first, second))
    return _truth(_by_intervals(comparison, a, b) or Compare(comparison, a, b))


def _by_intervals(comparison: str, a: Expr, b: Expr) -> Expr | None:
    """A comparison of floats that lie apart."""
    x, y = (interval(e, bounds.bounds_of_dims) for e in (a, b))
    if x is None or y is None or not (x[1] < y[0] or y[1] < x[0]):
        return None
    return TRUE if _COMPARE[comparison](x[0], y[0]) else FALSE


def _truth(condition: Expr) -> bool | Expr:
    condition = folded(condition)
    if condition is TRUE or condition is FALSE:
        return condition is TRUE
    return bounded(condition)


def decide(comparison: str, x: Element, y: Element, dtype: DType) -> bool:
    """The truth of a comparison; Unknown where the bounds of the symbols do not tell."""
    verdict = compare(comparison, x, y, dtype)
    if isinstance(verdict, Expr):
        raise Unknown
    return verdict


def negation(x: Element) -> bool | Expr:
    """``not x``."""
    return _truth(Unary("not", x, BOOL)) if isinstance(x, Expr) else not x


def conjunction(x: Element, y: Element) -> bool | Expr:
    """``x and y``."""
    return _truth(logical_and(_lifted(x, BOOL), _lifted(y, BOOL)))


def disjunction(x: Element, y: Element) -> bool | Expr:
    """``x or y``."""
    if not isinstance(x, Expr) or not isinstance(y, Expr):
        number, other = (y, x) if isinstance(x, Expr) else (x, y)
        return True if number else other if isinstance(other, Expr) else bool(other)
    return _truth(Binary("or", x, y, BOOL))


def choose(condition: Element, x: Element, y: Element, dtype: DType) -> Element:
    """``x`` where a condition holds, else ``y``."""
    if not isinstance(condition, Expr):
        return x if condition else y
    if dtype.is_bool:
        return disjunction(conjunction(condition, x), conjunction(negation(condition), y))
    a, b = _lifted(x, dtype), _lifted(y, dtype)
    if a is b:
        return x
    if dtype.is_integer and isinstance(condition, Compare):
        extreme = _extreme(condition, a, b)
        if extreme is not None:
            return _held(extreme, dtype)
    return _settled(Select(condition, a, b))


def _extreme(condition: Compare, a: Expr, b: Expr) -> Expr | None:
    """The minimum or maximum that ``a if condition else b`` is; None if it is neither."""
    if condition.op in ("eq", "ne") or {condition.x, condition.y} != {a, b}:
        return None
    rises = (condition.op in ("lt", "le")) == (condition.x is a)
    return (simplify.minimum if rises else simplify.maximum)(a, b)


# --- lengths --------------------------------------------------------------------------------------


def count(start: Element, limit: Element, step: Element, dtype: DType) -> Element:
    """The length of a range, ``max(0, ceil((limit - start) / step))``, in the elements' type; -1,
    which is no length, where a step that is computed turns out to be 0.
    """
    if dtype.is_float:
        parts = whole("ceil", divide(minus(limit, start, dtype), step, dtype), dtype)
        return largest(convert(parts, dtype, I64), 0, I64)
    a, b = _lifted(minus(limit, start, I64), I64), _lifted(step, I64)
    if bounds.lower(b) > 0:
        return _settled(simplify.maximum(simplify.ceildiv(a, b), 0))
    if bounds.upper(b) < 0:
        return _settled(simplify.maximum(simplify.ceildiv(mul(a, -1), mul(b, -1)), 0))
    up = simplify.ceildiv(a, simplify.maximum(b, 1))
    down = simplify.ceildiv(mul(a, -1), simplify.maximum(mul(b, -1), 1))
    length = choose(compare("gt", b, 0, I64), _settled(up), _settled(down), I64)
    return choose(compare("eq", b, 0, I64), -1, largest(length, 0, I64), I64)
