# SPDX-License-Identifier: Apache-2.0
"""Simplifying constructors and bounds of index expressions.

Sums and products are canonical by construction (:mod:`tilewright.ir.expr`); this module adds the
operations that need to know ranges: ``floordiv((16*i + j), 16)`` is ``i`` because ``j < 16``.
Ranges come from the atoms themselves: a loop variable lies in ``[0, extent)``, a symbol in ``[lo,
hi]``. So every function here is context-free and its results can be memoised.

Bounds are found by eliminating loop variables, innermost first, at the end of their range where the
polynomial is monotone in them, then floor-divisions (``c*(a//c)`` lies in ``[a-c+1, a]``), then
symbols. Bounds, constructors and substitution call each other, and so are one module.
"""

import math
from collections.abc import Callable, Mapping

from tilewright.ir.dtypes import BOOL, INDEX, DType
from tilewright.ir.expr import (
    FALSE,
    ONE,
    TRUE,
    UNBOUNDED,
    ZERO,
    Binary,
    Call,
    Cast,
    Compare,
    Const,
    Expr,
    Guard,
    IndexOp,
    Monomial,
    Operand,
    Poly,
    Read,
    Scalar,
    Select,
    Symbol,
    Unary,
    Var,
    add,
    const,
    free_variables,
    index,
    mul,
    multiply,
    polynomial,
    sub,
    terms_of,
)
from tilewright.ir.interning import memoised

INFINITY = math.inf
Bound = int | float


# --- bounds ---------------------------------------------------------------------------------------


def bounds(e: Expr) -> tuple[Bound, Bound]:
    """A constant interval that contains every value of the index expression ``e``, as (least,
    greatest).
    """
    return lower(e), upper(e)


@memoised
def lower(e: Expr) -> Bound:
    """A constant that ``e`` never goes below; -infinity if unknown."""
    return _extreme(e, least=True)


@memoised
def upper(e: Expr) -> Bound:
    """A constant that ``e`` never exceeds; infinity if unknown."""
    return _extreme(e, least=False)


def is_nonnegative(e: Operand) -> bool:
    """True if ``e >= 0`` is proven."""
    return lower(index(e)) >= 0


def known_le(a: Operand, b: Operand) -> bool:
    """True if ``a <= b`` is proven."""
    return lower(sub(index(b), index(a))) >= 0


def known_lt(a: Operand, b: Operand) -> bool:
    """True if ``a < b`` is proven."""
    return lower(sub(index(b), index(a))) >= 1


def known_equal(a: Operand, b: Operand) -> bool | None:
    """Three-valued equality: True, False, or None when it cannot be told."""
    difference = sub(index(a), index(b))
    if isinstance(difference, Const):
        return difference.value == 0
    least, greatest = bounds(difference)
    return False if least > 0 or greatest < 0 else None


def _extreme(e: Expr, least: bool) -> Bound:
    """The least (or greatest) value of ``e`` by elimination of its variables, then interval
    arithmetic.

    The two ends are kept apart: computing both for every relaxation would double the work at every
    level.
    """
    partial, _ = _eliminate(e, lambda v: isinstance(v, Var), least)
    candidates = [partial] if partial is not e else []
    candidates += _relax_extremum(terms_of(partial), least)
    side, best = (lower, max) if least else (upper, min)
    return best([_interval_end(e, least), *(side(c) for c in candidates)])


def eliminate(e: Expr, which: Callable[[Var], bool], least: bool) -> Expr | None:
    """Replace the variables ``which`` selects by the end of their range that minimises (or
    maximises) ``e``.

    Returns None where ``e`` is not known to be monotone in one of them.
    """
    result, complete = _eliminate(e, which, least)
    return result if complete else None


def bound_above(e: Expr) -> Expr | None:
    """An expression without loop variables that ``e`` never exceeds; None if none is known."""
    partial, complete = _eliminate(e, lambda _: True, least=False)
    if complete:
        return partial
    limit = upper(e)
    if limit != INFINITY:
        return index(int(limit))
    arms = [bound_above(arm) for arm in _relax_extremum(terms_of(partial), least=False)]
    return next((arm for arm in arms if arm is not None), None)


def _eliminate(e: Expr, which: Callable[[Var], bool], least: bool) -> tuple[Expr, bool]:
    """As :func:`eliminate`, but with what was reached, and whether all variables are gone."""
    while True:
        chosen = [v for v in free_variables(e) if isinstance(v, Var) and which(v)]
        if not chosen:
            return e, True
        # Innermost first: a variable whose extent mentions others must go before those. A direction
        # holds whatever the other variables are, so all that have one go at once.
        inner = [v for v in chosen if not any(v in free_variables(w.extent) for w in chosen)]
        ends: dict[Expr, Expr] = {}
        for variable in inner or chosen:
            rising = _direction(e, variable)
            if rising is not None:
                ends[variable] = ZERO if rising == least else sub(variable.extent, 1)
        if not ends:
            return e, False
        e = substitute(e, ends)


def _direction(e: Expr, v: Var) -> bool | None:
    """True if ``e`` never falls as ``v`` grows, False if it never rises, None if unknown."""
    if v not in free_variables(e):
        return True
    match e:
        case Var():
            return True
        case Poly(terms):
            directions = {
                _monomial_direction(m, c, v)
                for m, c in terms
                if any(v in free_variables(a) for a in m)
            }
            return directions.pop() if len(directions) == 1 else None
        case IndexOp("floordiv", a, b) if v not in free_variables(b):
            return _direction(a, v)
        case IndexOp("min" | "max", a, b):
            directions = {_direction(x, v) for x in (a, b) if v in free_variables(x)}
            return directions.pop() if len(directions) == 1 else None
    return None


def _monomial_direction(monomial: Monomial, coefficient: int, v: Var) -> bool | None:
    varying = [a for a in monomial if v in free_variables(a)]
    others = [a for a in monomial if v not in free_variables(a)]
    if len(varying) != 1 or any(lower(a) < 0 for a in others):
        return None
    rising = _direction(varying[0], v)
    return None if rising is None else rising == (coefficient > 0)


def _interval_end(e: Expr, least: bool) -> Bound:
    """One end by plain interval arithmetic, with one refinement for floor-divisions in sums."""
    match e:
        case Const():
            return int(e.literal)
        case Symbol(_, lo, hi):
            return lo if least else (INFINITY if hi >= UNBOUNDED else hi)
        case Var(_, extent):
            return 0 if least else max(0, upper(extent) - 1)
        case Poly(terms):
            plain = _sum_end(terms, least)
            relaxed = _relax_floordiv(terms, least)
            if relaxed is None:
                return plain
            return max(plain, lower(relaxed)) if least else min(plain, upper(relaxed))
        case IndexOp(op, a, b):
            return _op_interval(op, a, b)[0 if least else 1]
    return -INFINITY if least else INFINITY


def _times(x: Bound, y: Bound) -> Bound:
    return 0 if x == 0 or y == 0 else x * y


def _sum_end(terms: tuple[tuple[Monomial, int], ...], least: bool) -> Bound:
    """One end of a sum whose terms are independent of each other."""
    total: Bound = 0
    for monomial, coefficient in terms:
        if len(monomial) == 1:
            end = (lower if least == (coefficient > 0) else upper)(monomial[0])
            total += _times(coefficient, end)
            continue
        least_end: Bound = coefficient
        greatest_end: Bound = coefficient
        for atom in monomial:
            a, b = bounds(atom)
            ends = (
                _times(least_end, a),
                _times(least_end, b),
                _times(greatest_end, a),
                _times(greatest_end, b),
            )
            least_end, greatest_end = min(ends), max(ends)
        total += least_end if least else greatest_end
    return total


def _relax_floordiv(terms: tuple[tuple[Monomial, int], ...], least: bool) -> Expr | None:
    """Bound a term ``k*(a//c)`` with constant ``c`` dividing ``k`` by ``k/c`` times an end of
    ``[a-c+1, a]``.
    """
    for monomial, coefficient in terms:
        if len(monomial) != 1:
            continue
        atom = monomial[0]
        if not (isinstance(atom, IndexOp) and atom.op == "floordiv" and isinstance(atom.b, Const)):
            continue
        divisor = int(atom.b.literal)
        if coefficient % divisor:
            continue
        slack = divisor - 1 if least == (coefficient > 0) else 0
        rest = polynomial({m: c for m, c in terms if m != monomial})
        return add(rest, mul(sub(atom.a, slack), coefficient // divisor))
    return _relax_nested(terms, least)


def _relax_nested(terms: tuple[tuple[Monomial, int], ...], least: bool) -> Expr | None:
    """Bound ``k*(a//c) - k*m*(a//(c*m))``, which is ``k`` times a remainder of ``m``."""
    divided = {
        (m[0].a, int(m[0].b.literal)): (m, c)
        for m, c in terms
        if len(m) == 1
        and isinstance(m[0], IndexOp)
        and m[0].op == "floordiv"
        and isinstance(m[0].b, Const)
    }
    for (a, fine), (monomial, k) in divided.items():
        for (b, coarse), (other, c) in divided.items():
            factor = coarse // fine
            if a is b and coarse == fine * factor and factor > 1 and c == -k * factor:
                rest = polynomial({m: n for m, n in terms if m not in (monomial, other)})
                return rest if least == (k > 0) else add(rest, k * (factor - 1))
    return None


def _relax_extremum(terms: tuple[tuple[Monomial, int], ...], least: bool) -> list[Expr]:
    """Bound a term ``k*min(a, b)`` (or max) by each of its arms, where that bounds from the wanted
    side.

    A remainder ``a % b`` is bounded by ``b - 1``.
    """
    for monomial, coefficient in terms:
        if len(monomial) != 1 or not isinstance(monomial[0], IndexOp):
            continue
        atom = monomial[0]
        from_above = least == (coefficient < 0)
        if atom.op == ("min" if from_above else "max"):
            arms = [atom.a, atom.b]
        elif atom.op == "mod" and from_above and not isinstance(atom.b, Const):
            arms = [sub(atom.b, 1)]
        else:
            continue
        rest = polynomial({m: c for m, c in terms if m != monomial})
        return [add(rest, mul(arm, coefficient)) for arm in arms]
    return []


def _op_interval(op: str, a: Expr, b: Expr) -> tuple[Bound, Bound]:
    (alo, ahi), (blo, bhi) = bounds(a), bounds(b)
    if op == "min":
        return min(alo, blo), min(ahi, bhi)
    if op == "max":
        return max(alo, blo), max(ahi, bhi)
    if op == "bcast":
        return min(alo, blo), max(ahi, bhi)
    if op == "mod":
        return 0, min(bhi - 1, ahi) if alo >= 0 else bhi - 1
    divisors = [d for d in (max(blo, 1), bhi) if d != INFINITY] or [1]
    quotients = [_quotient(x, d) for x in (alo, ahi) for d in divisors]
    if bhi == INFINITY:
        quotients.append(0)
        if alo < 0:
            quotients.append(-1)
    return min(quotients), max(quotients)


def _quotient(x: Bound, d: Bound) -> Bound:
    return x if x in (INFINITY, -INFINITY) else x // d


@memoised
def multiple_of(e: Expr) -> int:
    """A positive integer that divides every value of ``e`` (0 for the constant zero)."""
    match e:
        case Const():
            return abs(int(e.literal))
        case Symbol(_, _, _, multiple):
            return multiple
        case Poly(terms):
            return math.gcd(*(c * math.prod(multiple_of(a) for a in m) for m, c in terms))
        case IndexOp("min" | "max" | "bcast", a, b):
            return math.gcd(multiple_of(a), multiple_of(b))
        case IndexOp("mod", a, b):
            return math.gcd(multiple_of(a), multiple_of(b))
    return 1


# --- constructors ---------------------------------------------------------------------------------


def floordiv(a: Operand, b: Operand) -> Expr:
    """``a // b`` rounded to minus infinity, simplified; ``b`` must be positive."""
    a, b = index(a), index(b)
    if b is ONE:
        return a
    if isinstance(a, Const) and isinstance(b, Const):
        return index(int(a.literal) // int(b.literal))
    quotient, remainder = _split(a, b)
    if is_nonnegative(remainder) and known_lt(remainder, b):
        return quotient
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
    a, b = index(a), index(b)
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


INDEX_OPS: dict[str, Callable[[Operand, Operand], Expr]] = {
    "floordiv": floordiv,
    "mod": mod,
    "min": minimum,
    "max": maximum,
    "bcast": bcast,
}

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


def logical_and(*conditions: Expr) -> Expr:
    """The conjunction of conditions; true ones drop out."""
    result: Expr = TRUE
    for condition in conditions:
        if condition is FALSE:
            return FALSE
        if condition is TRUE or condition is result:
            continue
        result = condition if result is TRUE else Binary("and", result, condition, BOOL)
    return result


def select(condition: Expr, x: Expr, y: Expr) -> Expr:
    """``x`` where ``condition`` holds, else ``y``."""
    if condition is TRUE or x is y:
        return x
    return y if condition is FALSE else Select(condition, x, y)


def guard(condition: Expr, x: Expr, other: Expr) -> Expr:
    """``x`` where ``condition`` holds, else ``other``, with ``x`` not evaluated there."""
    if condition is TRUE:
        return x
    return other if condition is FALSE else Guard(condition, x, other)


def cast(x: Expr, dtype: DType) -> Expr:
    """A conversion; none if the type is right already, and done at once for a number of dims."""
    if x.dtype is dtype:
        return x
    if isinstance(x, Const) and x.dtype.is_integer:
        number = int(x.literal)
        if dtype.is_float or (dtype.is_integer and dtype.min <= number <= dtype.max):
            return const(number, dtype)
    return Cast(x, dtype)


# --- rewriting ------------------------------------------------------------------------------------


def rewrite(
    e: Expr, leaf: Callable[[Expr], Expr | None], memo: dict[Expr, Expr] | None = None
) -> Expr:
    """Rebuild ``e`` bottom-up through the simplifying constructors.

    ``leaf`` sees every node first; what it returns, unless None, replaces the node unvisited.
    """
    memo = {} if memo is None else memo

    def visit(node: Expr) -> Expr:
        known = memo.get(node)
        if known is None:
            known = leaf(node)
            if known is None:
                known = _rebuild(node, visit)
            memo[node] = known
        return known

    return visit(e)


def _rebuild(e: Expr, visit: Callable[[Expr], Expr]) -> Expr:
    match e:
        case Poly(terms):
            total: dict[Monomial, int] = {}
            for monomial, coefficient in terms:
                product: dict[Monomial, int] = {(): coefficient}
                for atom in monomial:
                    product = multiply(product, terms_of(visit(atom)))
                for m, c in product.items():
                    total[m] = total.get(m, 0) + c
            return polynomial(total)
        case IndexOp(op, a, b):
            return INDEX_OPS[op](visit(a), visit(b))
        case Unary(op, x, dtype):
            return Unary(op, visit(x), dtype)
        case Binary("and", x, y, dtype) if dtype is BOOL:
            return logical_and(visit(x), visit(y))
        case Binary(op, x, y, dtype):
            return Binary(op, visit(x), visit(y), dtype)
        case Compare(op, x, y):
            return compare(op, visit(x), visit(y))
        case Select(c, x, y):
            return select(visit(c), visit(x), visit(y))
        case Guard(c, x, y):
            return guard(visit(c), visit(x), visit(y))
        case Cast(x, dtype):
            return cast(visit(x), dtype)
        case Call(function, args, dtype):
            return Call(function, tuple(visit(a) for a in args), dtype)
        case Read(buffer, indices):
            return Read(buffer, tuple(visit(i) for i in indices))
    return e


def substitute(e: Expr, replacements: Mapping[Expr, Expr]) -> Expr:
    """Replace atoms (or any sub-expression) by others and simplify."""
    if not replacements:
        return e
    if not all(isinstance(old, Var | Symbol | Scalar) for old in replacements):
        return rewrite(e, lambda node: replacements.get(node))
    atoms = replacements.keys()

    def leaf(node: Expr) -> Expr | None:
        # What holds none of the atoms stays as it is.
        return node if atoms.isdisjoint(free_variables(node)) else replacements.get(node)

    return rewrite(e, leaf)


def evaluate(e: Expr, values: Mapping[str, int]) -> int:
    """The value of an index expression, given its symbols and variables by name; KeyError if one is
    missing.
    """
    names: dict[Expr, Expr] = {
        v: index(values[v.name]) for v in free_variables(e) if isinstance(v, Symbol | Var)
    }
    result = substitute(e, names)
    if not isinstance(result, Const):
        raise KeyError(f"'{e}' still depends on '{result}'.")
    return int(result.literal)


def hinted(e: Expr) -> int:
    """The value that heuristics should expect: every symbol at its hint, every variable at its last
    value.
    """
    names: dict[Expr, Expr] = {}
    for v in free_variables(e):
        if isinstance(v, Symbol):
            names[v] = index(v.hint or max(v.lo, 1))
        elif isinstance(v, Var):
            names[v] = index(max(0, hinted(v.extent) - 1))
    return int(str(substitute(e, names))) if isinstance(substitute(e, names), Const) else 1
