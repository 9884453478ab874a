# SPDX-License-Identifier: Apache-2.0
"""Which iteration of a write touches a given cell: index expressions solved for loop variables.

An index such as ``16*io + 4*im + ii`` with ``ii < 4`` and ``im < 4`` is a number in a mixed radix: from its value ``x`` follow
``io = x // 16``, ``im = x % 16 // 4``, ``ii = x % 4``, and nothing else. The iteration exists if these values are in range; each range
is an inequality that is left to the caller. A fused loop is first replaced by the two loops it was made of.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tilewright.ir.expr import (
    Const,
    Expr,
    IndexOp,
    Var,
    add,
    free_variables,
    mul,
    sub,
    terms_of,
    walk,
)
from tilewright.ir.simplify import ceildiv, floordiv, mod, multiple_of, substitute
from tilewright.passes.schedule.proof.inequalities import is_at_least_zero


@dataclass(frozen=True, eq=False)
class Solution:
    """The only iteration of a statement that touches a cell.

    ``values`` gives the loop variables; it exists exactly where all ``needs`` are not negative. ``free`` are the variables that
    the cell does not depend on.
    """

    values: dict[Expr, Expr]
    needs: tuple[Expr, ...]
    free: tuple[Var, ...]


def solve(
    private: Sequence[Var], indices: Sequence[Expr], cell: Sequence[Expr], others: Iterable[Expr]
) -> Solution | None:
    """Solve ``indices == cell`` for the variables ``private``; None where that has no simple form.

    ``others`` are more expressions over ``private``, in which fused loops must come apart too. The variables in ``cell`` belong
    to somebody else, even where they are the same objects.
    """
    renamed: dict[Expr, Expr] = {}
    for v in private:
        renamed[v] = Var(f"{v.name}'", substitute(v.extent, renamed))
    own = [substitute(e, renamed) for e in (*indices, *others)]
    unknowns, unfused, needs = _unfuse([v for v in renamed.values() if isinstance(v, Var)], own)
    equations = [(substitute(e, unfused), c) for e, c in zip(own, cell)]
    values: dict[Expr, Expr] = {}
    while equations:
        equations.sort(
            key=lambda pair: len(free_variables(pair[0]) & (set(unknowns) - set(values)))
        )
        index, wanted = equations.pop(0)
        found = _solve_one(index, wanted, [v for v in unknowns if v not in values], values)
        if found is None:
            return None
        needs += found
    needs = [substitute(n, values) for n in needs]
    solved: dict[Expr, Expr] = {}
    free: list[Var] = []
    for v, new in renamed.items():
        expression = unfused.get(new, new)
        unsolved = free_variables(expression) & (set(unknowns) - set(values))
        if not unsolved:
            solved[v] = substitute(expression, values)
        elif expression is new and isinstance(v, Var):
            free.append(v)
        else:
            return None
    return Solution(solved, tuple(n for n in needs if not _holds(n)), tuple(free))


def _holds(need: Expr) -> bool:
    return isinstance(need, Const) and int(need.literal) >= 0


def _solve_one(
    index: Expr, wanted: Expr, private: Sequence[Var], values: dict[Expr, Expr]
) -> list[Expr] | None:
    """Solve one equation, adding to ``values``; returns what must not be negative for it to have a solution."""
    index = substitute(index, values)
    unknown = set(private)
    digits: list[tuple[int, Var]] = []
    rest = wanted
    for monomial, coefficient in terms_of(index):
        if not any(free_variables(a) & unknown for a in monomial):
            product: Expr = Const(str(coefficient), wanted.dtype)
            for atom in monomial:
                product = mul(product, atom)
            rest = sub(rest, product)
        elif len(monomial) == 1 and isinstance(monomial[0], Var) and coefficient > 0:
            digits.append((coefficient, monomial[0]))
        else:
            return None
    if not digits:
        return [rest, sub(0, rest)]
    digits.sort(key=lambda d: -d[0])
    if digits[-1][0] != 1:
        return None
    needs: list[Expr] = []
    remainder = rest
    for number, (weight, v) in enumerate(digits):
        extent = substitute(v.extent, values)
        if free_variables(extent) & unknown - set(values):
            return None
        total = mul(extent, weight)
        if number == 0:
            needs += [remainder, sub(sub(total, 1), remainder)]
        else:
            whole = digits[number - 1][0]
            if not is_at_least_zero(sub(whole, total)):
                return None
            if not is_at_least_zero(sub(total, whole)):
                needs.append(sub(sub(total, 1), remainder))
        values[v] = floordiv(remainder, weight)
        remainder = mod(remainder, weight)
    return needs


def _unfuse(
    private: Sequence[Var], expressions: Sequence[Expr]
) -> tuple[list[Var], dict[Expr, Expr], list[Expr]]:
    """Replace every variable that only occurs divided by a constant by its quotient and remainder.

    Returns the new variables, what the old ones are in their terms, and what must not be negative.
    """
    variables: list[Var] = []
    known: dict[Expr, Expr] = {}
    needs: list[Expr] = []
    waiting = list(reversed(private))
    while waiting:
        v = waiting.pop()
        divisor = _divisor(v, [substitute(e, known) for e in expressions])
        if divisor is None:
            variables.append(v)
            continue
        quotient = Var(f"{v.name}_q", ceildiv(v.extent, divisor))
        remainder = Var(f"{v.name}_r", Const(str(divisor), v.dtype))
        whole = add(mul(quotient, divisor), remainder)
        known = {old: substitute(e, {v: whole}) for old, e in known.items()} | {v: whole}
        if multiple_of(v.extent) % divisor:
            needs.append(sub(sub(v.extent, 1), whole))
        variables.append(remainder)
        waiting.append(quotient)
    return variables, known, needs


def _divisor(v: Var, expressions: Sequence[Expr]) -> int | None:
    """The least constant that ``v`` is divided by, if it is divided by one anywhere."""
    found = [
        int(node.b.literal)
        for e in expressions
        if v in free_variables(e)
        for node in walk(e)
        if isinstance(node, IndexOp)
        and node.op in ("floordiv", "mod")
        and node.a is v
        and isinstance(node.b, Const)
    ]
    return min(found, default=None)
