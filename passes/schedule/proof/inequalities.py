# SPDX-License-Identifier: Apache-2.0
"""Inequalities of index expressions, without isl: what follows from ranges and a few known facts.

A *fact* is an index expression that is not negative. The questions of a proof are mostly of the
form "is this at least zero, given a few facts", and mostly simple: interval arithmetic decides
them, after a fact is subtracted or a minimum is replaced by one of its operands. A False answer
means "not shown".
"""

from collections.abc import Sequence

from tilewright.ir.bounds import INFINITY, Bound, bounds
from tilewright.ir.dtypes import BOOL, INDEX
from tilewright.ir.expr import (
    Binary,
    Compare,
    Const,
    Expr,
    IndexOp,
    Monomial,
    Var,
    mul,
    sub,
    terms_of,
)
from tilewright.ir.simplify import floordiv


def facts_of(condition: Expr) -> tuple[Expr, ...] | None:
    """The facts that together say what a condition says; None if there are no such."""
    match condition:
        case Binary("and", x, y, dtype) if dtype is BOOL:
            first, second = facts_of(x), facts_of(y)
            return None if first is None or second is None else (*first, *second)
        case Compare(op, x, y) if x.dtype is INDEX:
            match op:
                case "lt":
                    return (sub(sub(y, x), 1),)
                case "le":
                    return (sub(y, x),)
                case "gt":
                    return (sub(sub(x, y), 1),)
                case "ge":
                    return (sub(x, y),)
                case "eq":
                    return (sub(x, y), sub(y, x))
    return None


def known_facts(conditions: Sequence[Expr]) -> list[Expr]:
    """The facts that conditions give; what they say beyond that is left out."""
    found: list[Expr] = []
    for condition in conditions:
        if isinstance(condition, Binary) and condition.op == "and":
            found += known_facts((condition.x, condition.y))
        else:
            found += facts_of(condition) or ()
    return found


def is_at_least_zero(e: Expr, facts: Sequence[Expr] = ()) -> bool:
    """True if ``e >= 0`` follows from the ranges of its atoms and the facts."""
    return _shown(dict(terms_of(e)), [dict(terms_of(f)) for f in facts], _DEPTH)


def is_contradiction(facts: Sequence[Expr]) -> bool:
    """True if one of the facts is known not to hold, given another."""
    for n, fact in enumerate(facts):
        opposite = _plus({(): -1}, dict(terms_of(fact)), -1)
        others = [dict(terms_of(f)) for f in (*facts[:n], *facts[n + 1 :])]
        if _shown(opposite, others, 1):
            return True
    return False


Terms = dict[Monomial, int]

_DEPTH = 4


def _plus(x: Terms, y: Terms, factor: int = 1) -> Terms:
    """``x + factor * y``."""
    total = dict(x)
    for m, c in y.items():
        total[m] = total.get(m, 0) + factor * c
    return total


def _shown(terms: Terms, facts: Sequence[Terms], depth: int) -> bool:
    """True if a sum is shown not to be negative, by intervals after up to ``depth``
    replacements.
    """
    if _least(terms) >= 0:
        return True
    if depth == 0:
        return False
    for monomial, coefficient in terms.items():
        if len(monomial) == 1 and coefficient:
            choices = _replacements(monomial[0], coefficient, terms)
            if not choices:
                continue
            parts, exact = choices
            rest = {m: c for m, c in terms.items() if m != monomial}
            shown = (
                _shown(_plus(rest, dict(terms_of(part)), factor), facts, depth - 1)
                for part, factor in parts
            )
            if all(shown) if exact else any(shown):
                return True
    for n, fact in enumerate(facts):
        if any(terms.get(m, 0) * c > 0 for m, c in fact.items() if m):
            rest_of_facts = [*facts[:n], *facts[n + 1 :]]
            if _shown(_plus(terms, fact, -1), rest_of_facts, depth - 1):
                return True
    return False


def _replacements(
    atom: Expr, coefficient: int, terms: Terms
) -> tuple[list[tuple[Expr, int]], bool] | None:
    """What ``coefficient * atom`` may be replaced by, as (expression, factor) pairs, for a lower
    bound.

    The flag tells whether the sum must be shown for all of them, or for any.
    """
    match atom:
        case Var(_, extent) if coefficient < 0 and not isinstance(extent, Const):
            return [(sub(extent, 1), coefficient)], False
        case IndexOp("min" | "max" as op, a, b):
            return [(a, coefficient), (b, coefficient)], (op == "min") == (coefficient > 0)
        case IndexOp("floordiv", a, Const(literal)) if coefficient % int(literal) == 0:
            slack = int(literal) - 1 if coefficient > 0 else 0
            return [(sub(a, slack), coefficient // int(literal))], False
        case IndexOp("mod", a, b):
            quotient = floordiv(a, b)
            if any(m in terms for m, _ in terms_of(quotient) if m):
                return [(sub(a, mul(quotient, b)), coefficient)], False
    return None


def _least(terms: Terms) -> Bound:
    """A lower bound by interval arithmetic."""
    total: Bound = 0
    for monomial, coefficient in terms.items():
        if not monomial:
            total += coefficient
        elif len(monomial) == 1:
            least, greatest = _interval(monomial[0])
            if coefficient:
                total += coefficient * (least if coefficient > 0 else greatest)
        elif coefficient:
            total += _product_least(monomial, coefficient)
        if total == -INFINITY:
            return total
    return total


def _product_least(monomial: Monomial, coefficient: int) -> Bound:
    ends: tuple[Bound, Bound] = (1, 1)
    for atom in monomial:
        least, greatest = _interval(atom)
        if least < 0:
            return -INFINITY
        ends = ends[0] * least, (ends[1] * greatest if ends[1] and greatest else 0)
    return coefficient * (ends[0] if coefficient > 0 else ends[1])


def _interval(atom: Expr) -> tuple[Bound, Bound]:
    if isinstance(atom, Var) and isinstance(atom.extent, Const):
        return 0, max(0, int(atom.extent.literal) - 1)
    return bounds(atom)
