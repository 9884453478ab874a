# SPDX-License-Identifier: Apache-2.0
"""Bounds of index expressions, and what they prove.

Ranges come from the atoms themselves: a loop variable lies in ``[0, extent)``, a symbol in ``[lo,
hi]``. So every function here is context-free and its results can be memoised.

Bounds are found by eliminating loop variables, innermost first, at the end of their range where the
polynomial is monotone in them, then floor-divisions (``c*(a//c)`` lies in ``[a-c+1, a]``), then
symbols.
"""

import math
from collections.abc import Callable

from tilewright.ir.dtypes import INDEX
from tilewright.ir.expr import (
    UNBOUNDED,
    ZERO,
    Cast,
    Const,
    Expr,
    IndexOp,
    Monomial,
    Operand,
    Poly,
    Select,
    Symbol,
    Var,
    add,
    free_variables,
    index,
    mul,
    polynomial,
    reads,
    sub,
    terms_of,
)
from tilewright.ir.interning import memoised
from tilewright.ir.rewrite import substitute
from tilewright.ir.value_bounds import interval, whole

INFINITY = math.inf
Bound = int | float


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
    """One end by plain interval arithmetic, with refinements for floor-divisions in sums."""
    match e:
        case Const():
            return int(e.literal)
        case Symbol(_, lo, hi):
            return lo if least else (INFINITY if hi >= UNBOUNDED else hi)
        case Var(_, extent):
            return 0 if least else max(0, upper(extent) - 1)
        case Poly(terms):
            relaxed = (_relax_nested(terms, least), _relax_floordiv(terms, least))
            ends = [(lower if least else upper)(r) for r in relaxed if r is not None]
            return (max if least else min)([_sum_end(terms, least), *ends])
        case IndexOp(op, a, b):
            return _op_interval(op, a, b)[0 if least else 1]
        case Select(_, a, b):
            return min(lower(a), lower(b)) if least else max(upper(a), upper(b))
        case Cast(x, _) if all(isinstance(v, Symbol) for v in free_variables(e)) and not reads(e):
            return _converted_interval(x)[0 if least else 1]
    return -INFINITY if least else INFINITY


def _converted_interval(x: Expr) -> tuple[Bound, Bound]:
    """The interval of a value of dims, as an index."""
    ends = interval(x, bounds_of_dims) or whole(x.dtype if x.dtype.is_integer else INDEX)
    assert ends is not None
    return _saturated(ends[0]), _saturated(ends[1])


def _saturated(end: Bound) -> Bound:
    """The end of an interval as an integer of 64 bits."""
    return INDEX.min if end <= INDEX.min else INDEX.max if end >= INDEX.max else int(end)


def bounds_of_dims(e: Expr) -> tuple[Bound, Bound]:
    """Finite bounds of an expression over dims: no symbol of a graph is ever above ``UNBOUNDED``,
    which the host program sees to.
    """
    least, greatest = bounds(e)
    if INFINITY in (-least, greatest):
        # A symbol that is said to be one less, plus 1, has a greatest value that counts.
        replaced: dict[Expr, Expr] = {
            s: add(Symbol(s.name, s.lo - 1, UNBOUNDED - 1), 1)
            for s in free_variables(e)
            if isinstance(s, Symbol) and s.hi >= UNBOUNDED
        }
        least, greatest = bounds(substitute(e, replaced))
    return least, greatest


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
    return None


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
        case IndexOp("mod", a, b) | Select(_, a, b):
            return math.gcd(multiple_of(a), multiple_of(b))
    return 1
