# SPDX-License-Identifier: Apache-2.0
"""Arithmetic on elements known at import: numbers, index expressions, and quotients of these.

Models compute shapes with tensors: Shape, Gather, Mul, Concat, Reshape. Here the elements of such
small tensors are followed symbolically. An element is an ``int``, ``bool`` or ``float`` (rounded to
its dtype), an index expression, or, in float tensors, a :class:`Ratio`. What cannot be told raises
:class:`Unknown`, and the node is emitted as usual. Integers of symbolic value are taken not to
overflow. Sizes of expressions are bounded, since a model may square a dim a thousand times.
"""

import math
import operator
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, TypeGuard

import numpy as np

from tilewright.ir import bounds, simplify
from tilewright.ir.dtypes import DType
from tilewright.ir.expr import (
    FALSE,
    TRUE,
    Const,
    Expr,
    IndexOp,
    Monomial,
    Poly,
    add,
    index,
    mul,
    polynomial,
    sub,
    terms_of,
)
from tilewright.ir.interning import memoised

MOST_TERMS = 256
MOST_FACTORS = 64
MOST_DEPTH = 64
MOST_WEIGHT = 2048
MOST_BITS = 128
_LARGEST_DENOMINATOR = 1 << 24


class Unknown(Exception):
    """An element cannot be told at import."""


@dataclass(frozen=True)
class Ratio:
    """``numerator / denominator`` in a float tensor; the denominator is at least 2 and shares no
    factor with all terms.
    """

    numerator: Expr
    denominator: int


Element = int | float | bool | Expr | Ratio


@memoised
def depth(e: Expr) -> int:
    """How deep opaque atoms nest in an index expression."""
    match e:
        case Poly(terms):
            return max(depth(a) for m, _ in terms for a in m) if e.terms[0][0] else 0
        case IndexOp(_, a, b):
            return 1 + max(depth(a), depth(b))
    return 0


@memoised
def weight(e: Expr) -> int:
    """The number of atoms of an index expression written out; shared parts count each time."""
    match e:
        case Poly(terms):
            return sum(1 + sum(weight(a) for a in m) for m, _ in terms)
        case IndexOp(_, a, b):
            return 1 + weight(a) + weight(b)
    return 1


def is_reasonable(e: Expr) -> bool:
    """False for an expression so large that it only slows the compiler down."""
    terms = terms_of(e)
    return (
        len(terms) <= MOST_TERMS
        and all(len(m) <= MOST_FACTORS and abs(c).bit_length() <= MOST_BITS for m, c in terms)
        and depth(e) <= MOST_DEPTH
        and weight(e) <= MOST_WEIGHT
    )


def _bounded(e: Expr) -> Expr:
    if not is_reasonable(e):
        raise Unknown
    return e


def _element(e: Expr) -> int | Expr:
    """An expression as an element: constants are plain ints."""
    return int(e.literal) if isinstance(e, Const) else _bounded(e)


def product(a: Expr, b: Expr) -> Expr:
    """``a * b``, refused before it grows out of bounds."""
    if len(terms_of(a)) * len(terms_of(b)) > 4 * MOST_TERMS:
        raise Unknown
    return _bounded(mul(a, b))


def is_number(x: object) -> TypeGuard[int | float]:
    """True for a plain number."""
    return isinstance(x, int | float)


def is_finite(x: object) -> bool:
    """False for NaN and infinities, which no integer stands for."""
    return not isinstance(x, float) or math.isfinite(x)


def rounded(x: int | float | bool, dtype: DType) -> Element:
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


# --- quotients ------------------------------------------------------------------------------------


def _ratio(numerator: Expr, denominator: int) -> Element:
    """The element ``numerator / denominator`` in lowest terms."""
    common = math.gcd(denominator, *(c for _, c in terms_of(numerator)))
    if common > 1:
        numerator = polynomial({m: c // common for m, c in terms_of(numerator)})
        denominator //= common
    if denominator > _LARGEST_DENOMINATOR:
        raise Unknown
    if isinstance(numerator, Const):
        return int(numerator.literal) / denominator
    return _bounded(numerator) if denominator == 1 else Ratio(_bounded(numerator), denominator)


def _parts(x: Element) -> tuple[Expr, int]:
    """Numerator and denominator of an element."""
    if isinstance(x, Ratio):
        return x.numerator, x.denominator
    if isinstance(x, Expr):
        return x, 1
    if isinstance(x, float):
        if not is_finite(x):
            raise Unknown
        exact = Fraction(x)
        return index(exact.numerator), exact.denominator
    return index(int(x)), 1


# --- operations -----------------------------------------------------------------------------------


def plus(x: Element, y: Element, dtype: DType) -> Element:
    """``x + y``."""
    if is_number(x) and is_number(y):
        return rounded(x + y, dtype)
    (a, b), (c, d) = _parts(x), _parts(y)
    return _from_ratio(add(product(a, index(d)), product(c, index(b))), b * d)


def minus(x: Element, y: Element, dtype: DType) -> Element:
    """``x - y``."""
    if is_number(x) and is_number(y):
        return rounded(x - y, dtype)
    return plus(x, negative(y, dtype), dtype)


def times(x: Element, y: Element, dtype: DType) -> Element:
    """``x * y``."""
    if is_number(x) and is_number(y):
        return rounded(x * y, dtype)
    (a, b), (c, d) = _parts(x), _parts(y)
    return _from_ratio(product(a, c), b * d)


def negative(x: Element, dtype: DType) -> Element:
    """``-x``."""
    if is_number(x):
        return rounded(-x, dtype)
    a, b = _parts(x)
    return _from_ratio(mul(a, -1), b)


def _from_ratio(numerator: Expr, denominator: int) -> Element:
    if denominator == 1:
        return _element(numerator)
    return _ratio(numerator, denominator)


def divide(x: Element, y: Element, dtype: DType) -> Element:
    """``x / y`` as ONNX means it: integers truncate, floats do not."""
    if is_number(y) and y == 0:
        raise Unknown
    if not dtype.is_float:
        return _truncating_divide(x, y, dtype)
    if is_number(x) and is_number(y):
        return rounded(x / y, dtype)
    (a, b), (c, d) = _parts(x), _parts(y)
    if isinstance(c, Const):
        scale = int(c.literal)
        sign = -1 if scale < 0 else 1
        return _ratio(mul(a, sign * d), b * abs(scale))
    quotient = exact_quotient(mul(a, d), mul(c, b))
    if quotient is None:
        raise Unknown
    result = _element(quotient)
    return float(result) if isinstance(result, int) else result


def _truncating_divide(x: Element, y: Element, dtype: DType) -> Element:
    if is_number(x) and is_number(y):
        quotient = abs(int(x)) // abs(int(y))
        return rounded(quotient if (x < 0) == (y < 0) else -quotient, dtype)
    a, b = _integer(x), _integer(y)
    exact = exact_quotient(a, b)
    if exact is not None:
        return _element(exact)
    if bounds.lower(b) < 1 or bounds.lower(a) < 0:
        raise Unknown
    return _element(simplify.floordiv(a, b))


def remainder(x: Element, y: Element, dtype: DType) -> Element:
    """``x mod y`` with the sign of the divisor."""
    if is_number(y) and y == 0:
        raise Unknown
    if is_number(x) and is_number(y):
        return rounded(x % y, dtype)
    a, b = _integer(x), _integer(y)
    if bounds.lower(b) < 1:
        raise Unknown
    return _element(simplify.mod(a, b))


def smallest(x: Element, y: Element, dtype: DType) -> Element:
    """The smaller of two elements."""
    if is_number(x) and is_number(y):
        return min(x, y)
    return _element(simplify.minimum(_integer(x), _integer(y)))


def largest(x: Element, y: Element, dtype: DType) -> Element:
    """The larger of two elements."""
    if is_number(x) and is_number(y):
        return max(x, y)
    return _element(simplify.maximum(_integer(x), _integer(y)))


def _integer(x: Element) -> Expr:
    """An element as an index expression; Unknown if it is a fraction."""
    if isinstance(x, Ratio) or (isinstance(x, float) and not x.is_integer()):
        raise Unknown
    return x if isinstance(x, Expr) else index(int(x))


def floor(x: Element) -> Element:
    """The largest integer not above a float element, still in the float tensor."""
    if isinstance(x, Ratio):
        return _as_float(simplify.floordiv(x.numerator, x.denominator))
    return float(math.floor(x)) if is_number(x) and is_finite(x) else x


def ceil(x: Element) -> Element:
    """The smallest integer not below a float element, still in the float tensor."""
    if isinstance(x, Ratio):
        return _as_float(simplify.ceildiv(x.numerator, x.denominator))
    return float(math.ceil(x)) if is_number(x) and is_finite(x) else x


def _as_float(e: Expr) -> Element:
    return float(int(e.literal)) if isinstance(e, Const) else _bounded(e)


def convert(x: Element, source: DType, target: DType) -> Element:
    """A cast; floats truncate on the way to integers."""
    if is_number(x):
        if source.is_float and not target.is_float and not target.is_bool:
            if not is_finite(x):
                raise Unknown
            return rounded(math.trunc(x), target)
        return rounded(x, target)
    if target.is_bool:
        return decide("ne", x, 0)
    if isinstance(x, Ratio) and not target.is_float:
        if not bounds.is_nonnegative(x.numerator):
            raise Unknown
        return _element(simplify.floordiv(x.numerator, x.denominator))
    return x


_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
}


def decide(comparison: str, x: Element, y: Element) -> bool:
    """The truth of a comparison; Unknown where the bounds of the symbols do not tell."""
    if is_number(x) and is_number(y):
        return _COMPARE[comparison](x, y)
    (a, b), (c, d) = _parts(x), _parts(y)
    verdict = simplify.compare(comparison, sub(mul(a, d), mul(c, b)), 0)
    if verdict is TRUE or verdict is FALSE:
        return verdict is TRUE
    raise Unknown


# --- dims -----------------------------------------------------------------------------------------


def exact_quotient(a: Expr, b: Expr) -> Expr | None:
    """``a / b`` if the polynomial ``b`` divides ``a`` without remainder; None otherwise.

    Long division by the leading term, with atoms as variables.
    """
    divisor = terms_of(b)
    if not divisor:
        return None
    lead, factor = max(divisor, key=_order)
    quotient: dict[Monomial, int] = {}
    rest = a
    for _ in range(MOST_TERMS):
        terms = terms_of(rest)
        if not terms:
            return polynomial(quotient)
        monomial, coefficient = max(terms, key=_order)
        left = _divided(monomial, lead)
        if left is None or coefficient % factor or len(terms) > MOST_TERMS:
            return None
        step = coefficient // factor
        quotient[left] = quotient.get(left, 0) + step
        rest = sub(rest, mul(polynomial({left: step}), b))
    return None


def _order(term: tuple[Monomial, int]) -> tuple[int, tuple[str, ...]]:
    """Graded order of monomials; ties by the names of the atoms."""
    monomial, _ = term
    return len(monomial), tuple(str(a) for a in monomial)


def _divided(monomial: Monomial, by: Monomial) -> Monomial | None:
    rest = list(monomial)
    for atom in by:
        if atom not in rest:
            return None
        rest.remove(atom)
    return tuple(rest)


def size_of(shape: "tuple[Expr, ...] | list[Expr]") -> Expr:
    """The number of elements of a shape."""
    total: Expr = index(1)
    for dim in shape:
        total = mul(total, dim)
    return total


def reshaped(shape: tuple[Expr, ...], wanted: list[int | Expr], allow_zero: bool) -> list[Expr]:
    """The dims of a Reshape: 0 copies a dim (unless allowed as such), -1 is what remains.

    ValueError with the reason if they do not fit together.
    """
    dims: list[Expr | None] = []
    for position, dim in enumerate(wanted):
        if isinstance(dim, int) and dim == 0 and not allow_zero:
            if position >= len(shape):
                raise ValueError(f"dim {position} is 0 but the input has rank {len(shape)}")
            dims.append(shape[position])
        elif isinstance(dim, int) and dim < 0:
            if dim != -1 or None in dims:
                raise ValueError(f"the shape {wanted} holds {dim} where one -1 is allowed")
            dims.append(None)
        else:
            dims.append(index(dim))
    if None not in dims:
        return [d for d in dims if d is not None]
    known = size_of([d for d in dims if d is not None])
    if isinstance(known, Const) and known.value == 0:
        raise ValueError(f"the shape {wanted} has a -1 beside a 0")
    total = size_of(shape)
    rest = exact_quotient(total, known)
    if rest is None:
        if isinstance(total, Const) and isinstance(known, Const):
            raise ValueError(f"{total} elements cannot be shaped as {wanted}")
        rest = simplify.floordiv(total, known)
    return [rest if d is None else d for d in dims]
