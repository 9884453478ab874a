# SPDX-License-Identifier: Apache-2.0
"""Simplifying constructors of index operations and comparisons.

Sums and products are canonical by construction (:mod:`tilewright.ir.expr`); this module adds the
operations that need to know ranges (:mod:`tilewright.ir.bounds`): ``floordiv((16*i + j), 16)`` is
``i`` because ``j < 16``.
"""

import math
from collections.abc import Callable
from functools import partial

from tilewright.ir.bounds import (
    Bound,
    bounds,
    is_nonnegative,
    known_le,
    known_lt,
    lower,
    multiple_of,
)
from tilewright.ir.dtypes import INDEX
from tilewright.ir.expr import (
    COMPARE_OPS,
    FALSE,
    ONE,
    TRUE,
    ZERO,
    Compare,
    Const,
    Expr,
    IndexOp,
    Monomial,
    Operand,
    add,
    const,
    index,
    mul,
    polynomial,
    sub,
    terms_of,
)
from tilewright.ir.rewrite import CONSTRUCTORS


def floordiv(a: Operand, b: Operand) -> Expr:
    """``a // b`` rounded to minus infinity, simplified; ``b`` must be positive."""
    a, b = index(a), _divisor(index(b))
    if b is ONE:
        return a
    if isinstance(a, Const) and isinstance(b, Const):
        return index(int(a.literal) // int(b.literal))
    quotient, remainder = _split(a, b)
    if is_nonnegative(remainder) and known_lt(remainder, b):
        return quotient
    remainder, b = _cancel(remainder, b)
    if b is ONE:
        return add(quotient, remainder)
    if isinstance(b, Const):
        remainder, b, quotient = _reduce_fraction(remainder, int(b.literal), quotient)
        if b is ONE:
            return add(quotient, remainder)
        if is_nonnegative(remainder) and known_lt(remainder, b):
            return quotient
        inner = _inner_floordiv(remainder, b)
        if inner is not None:
            # (x//m + t) // b == (x + m*t) // (m*b), for any integer t.
            numerator = add(inner.a, mul(sub(remainder, inner), inner.b))
            return add(quotient, floordiv(numerator, mul(inner.b, b)))
    return add(quotient, IndexOp("floordiv", remainder, b))


def _divisor(b: Expr) -> Expr:
    """A divisor that turns out not to be positive where symbols get values counts as 1, as it does
    in compiled code: whoever divides checks it.
    """
    return ONE if isinstance(b, Const) and int(b.literal) < 1 else b


def _inner_floordiv(e: Expr, outer: Expr) -> IndexOp | None:
    """A floor-division by a constant that is a term of ``e`` by itself, small enough to join."""
    for monomial, coefficient in terms_of(e):
        if coefficient == 1 and len(monomial) == 1:
            atom = monomial[0]
            if isinstance(atom, IndexOp) and atom.op == "floordiv" and isinstance(atom.b, Const):
                joined = int(atom.b.literal) * int(str(outer))
                return atom if joined <= _LARGEST_DIVISOR else None
    return None


_LARGEST_DIVISOR = 1 << 31


def mod(a: Operand, b: Operand) -> Expr:
    """``a - b * (a // b)``, simplified; ``b`` must be positive."""
    a, b = index(a), _divisor(index(b))
    if b is ONE:
        return ZERO
    if isinstance(a, Const) and isinstance(b, Const):
        return index(int(a.literal) % int(b.literal))
    _, remainder = _split(a, b)
    if is_nonnegative(remainder) and known_lt(remainder, b):
        return remainder
    if isinstance(b, Const) and multiple_of(remainder) % int(b.literal) == 0:
        return ZERO
    if isinstance(b, Const) and _inner_floordiv(remainder, b) is not None:
        # The quotient has another form than ``remainder // b``: said with it, sums of both cancel.
        return sub(remainder, mul(floordiv(remainder, b), b))
    return IndexOp("mod", remainder, b)


def ceildiv(a: Operand, b: Operand) -> Expr:
    """``a / b`` rounded up, simplified; ``b`` must be positive."""
    return floordiv(add(index(a), sub(index(b), 1)), b)


def _split(a: Expr, b: Expr) -> tuple[Expr, Expr]:
    """``a == b * quotient + remainder``, the terms that ``b`` divides being in the quotient."""
    divisor = terms_of(b)
    if len(divisor) != 1:
        return (ONE, ZERO) if a is b else (ZERO, a)
    ((atoms, factor),) = divisor
    quotient: dict[Monomial, int] = {}
    remainder: dict[Monomial, int] = {}
    for monomial, coefficient in terms_of(a):
        rest = _without(monomial, atoms)
        if rest is None:
            remainder[monomial] = coefficient
            continue
        whole = coefficient // factor
        if whole:
            quotient[rest] = quotient.get(rest, 0) + whole
        if coefficient - whole * factor:
            remainder[monomial] = coefficient - whole * factor
    return polynomial(quotient), polynomial(remainder)


def _cancel(a: Expr, b: Expr) -> tuple[Expr, Expr]:
    """Both sides of ``a // b`` without the atoms that all terms share: ``n*x // (2*n)`` is ``x //
    2``, since ``b`` is positive.
    """
    divisor = terms_of(b)
    if len(divisor) != 1 or not divisor[0][0] or a is ZERO:
        return a, b
    ((atoms, factor),) = divisor
    terms, left = dict(terms_of(a)), atoms
    for atom in atoms:
        if all(atom in monomial for monomial in terms):
            terms = {_less(monomial, atom): c for monomial, c in terms.items()}
            left = _less(left, atom)
    return polynomial(terms), polynomial({left: factor})


def _less(monomial: Monomial, atom: Expr) -> Monomial:
    """The monomial without one of that factor."""
    position = monomial.index(atom)
    return monomial[:position] + monomial[position + 1 :]


def _without(monomial: Monomial, atoms: Monomial) -> Monomial | None:
    rest = list(monomial)
    for atom in atoms:
        if atom not in rest:
            return None
        rest.remove(atom)
    return tuple(rest)


def _reduce_fraction(a: Expr, b: int, quotient: Expr) -> tuple[Expr, Expr, Expr]:
    """Divide both sides of ``a // b`` by a common factor, leaving out a remainder smaller than the
    factor.
    """
    factors = [math.gcd(b, c * math.prod(multiple_of(x) for x in m)) for m, c in terms_of(a)]
    for common in sorted({f for f in factors if f > 1}, reverse=True):
        parts = {m: c for (m, c), f in zip(terms_of(a), factors, strict=True) if f % common == 0}
        small = polynomial({m: c for m, c in terms_of(a) if m not in parts})
        exact = all(c % common == 0 for c in parts.values())
        if exact and is_nonnegative(small) and known_lt(small, common):
            reduced = polynomial({m: c // common for m, c in parts.items()})
            return reduced, index(b // common), quotient
    return a, index(b), quotient


def minimum(a: Operand, b: Operand) -> Expr:
    """The smaller of two index expressions."""
    a, b = index(a), index(b)
    if known_le(a, b):
        return a
    if known_le(b, a):
        return b
    return IndexOp("min", *sorted((a, b), key=str))


def maximum(a: Operand, b: Operand) -> Expr:
    """The larger of two index expressions."""
    a, b = index(a), index(b)
    if known_le(a, b):
        return b
    if known_le(b, a):
        return a
    return IndexOp("max", *sorted((a, b), key=str))


def bcast(a: Operand, b: Operand) -> Expr:
    """The extent of two dims broadcast together; equal dims or a dim of 1 simplify, nothing is
    assumed.
    """
    a, b = index(a), index(b)
    if a is b or b is ONE:
        return a
    if a is ONE:
        return b
    # A constant other than 1 settles it: the other dim is either 1 or equal to it.
    if isinstance(a, Const) or lower(a) > 1:
        return a
    if isinstance(b, Const) or lower(b) > 1:
        return b
    if b in _bcast_arms(a):
        return a
    if a in _bcast_arms(b):
        return b
    return IndexOp("bcast", *sorted((a, b), key=str))


def _bcast_arms(e: Expr) -> list[Expr]:
    """The dims that a broadcast joins: joining one of them again changes nothing."""
    if isinstance(e, IndexOp) and e.op == "bcast":
        return [e, *_bcast_arms(e.a), *_bcast_arms(e.b)]
    return [e]


_PREDICATES: dict[str, Callable[[Bound, Bound], bool | None]] = {
    "lt": lambda lo, hi: True if hi < 0 else False if lo >= 0 else None,
    "le": lambda lo, hi: True if hi <= 0 else False if lo > 0 else None,
    "gt": lambda lo, hi: True if lo > 0 else False if hi <= 0 else None,
    "ge": lambda lo, hi: True if lo >= 0 else False if hi < 0 else None,
    "eq": lambda lo, hi: True if lo == hi == 0 else False if lo > 0 or hi < 0 else None,
    "ne": lambda lo, hi: False if lo == hi == 0 else True if lo > 0 or hi < 0 else None,
}


def compare(op: str, a: Operand, b: Operand) -> Expr:
    """A comparison; decided at once where the bounds of two index expressions tell."""
    if (isinstance(a, Expr) and a.dtype is not INDEX) or (
        isinstance(b, Expr) and b.dtype is not INDEX
    ):
        from_value = a if isinstance(a, Expr) else b
        assert isinstance(from_value, Expr)
        x, y = _values(a, b, from_value)
        return Compare(op, x, y)
    x, y = index(a), index(b)
    verdict = _PREDICATES[op](*bounds(sub(x, y)))
    if verdict is not None:
        return TRUE if verdict else FALSE
    return Compare(op, x, y)


def _values(a: Operand, b: Operand, like: Expr) -> tuple[Expr, Expr]:
    x = a if isinstance(a, Expr) else const(a, like.dtype)
    y = b if isinstance(b, Expr) else const(b, like.dtype)
    if x.dtype is not y.dtype:
        raise TypeError(
            f"Operands '{x}' of type {x.dtype} and '{y}' of type {y.dtype} differ in type."
        )
    return x, y


CONSTRUCTORS.update(
    {"floordiv": floordiv, "mod": mod, "min": minimum, "max": maximum, "bcast": bcast}
)
CONSTRUCTORS.update({op: partial(compare, op) for op in COMPARE_OPS})
