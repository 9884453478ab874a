# SPDX-License-Identifier: Apache-2.0
"""Which iteration of a statement touches a given cell: index expressions solved for loop variables.

An index such as ``16*io + 4*im + ii`` with ``ii < 4`` and ``im < 4`` is a number in a mixed radix:
from its value ``x`` follow ``io = x // 16``, ``im = x % 16 // 4``, ``ii = x % 4``, and nothing
else. The iteration exists if these values are in range; each range is an inequality that is left to
the caller. A fused loop is first replaced by the two loops it was made of.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tilewright.ir.bounds import multiple_of, upper
from tilewright.ir.expr import (
    ZERO,
    Const,
    Expr,
    IndexOp,
    Var,
    add,
    free_variables,
    index,
    mul,
    polynomial,
    sub,
    terms_of,
    walk,
)
from tilewright.ir.rewrite import substitute
from tilewright.ir.simplify import ceildiv, floordiv, mod
from tilewright.passes.schedule.proof.inequalities import is_at_least_zero


@dataclass(frozen=True, eq=False)
class Solution:
    """The only iteration of a statement that touches a cell.

    ``values`` gives the loop variables; it exists exactly where all ``needs`` are not negative.
    ``free`` are the variables that the cell does not depend on.
    """

    indices: tuple[Expr, ...]
    cell: tuple[Expr, ...]
    private: frozenset[Expr]
    values: dict[Expr, Expr]
    needs: tuple[Expr, ...]
    free: tuple[Var, ...]

    def at(self, e: Expr) -> Expr:
        """The value of an expression over the loop variables, in that iteration.

        Where it differs from a multiple of an index by something that does not depend on the
        loops, the cell gives it back without divisions.
        """
        if not free_variables(e) & self.private:
            return e
        for i, c in zip(self.indices, self.cell, strict=True):
            factor = _ratio(e, i, self.private)
            if factor:
                rest = sub(e, mul(i, factor))
                if not free_variables(rest) & self.private:
                    return add(rest, mul(c, factor))
        return substitute(e, self.values)


def _ratio(e: Expr, i: Expr, private: frozenset[Expr]) -> int:
    """How often ``i`` must be taken from ``e`` for some variable to vanish; 0 if it cannot."""
    own = dict(terms_of(e))
    for monomial, coefficient in terms_of(i):
        if len(monomial) == 1 and monomial[0] in private:
            found = own.get(monomial, 0)
            return found // coefficient if found % coefficient == 0 else 0
    return 0


def solve(
    private: Sequence[Var], indices: Sequence[Expr], cell: Sequence[Expr], others: Iterable[Expr]
) -> Solution | None:
    """Solve ``indices == cell`` for the variables ``private``; None where that has no simple form.

    ``others`` are more expressions over ``private``, in which fused loops must come apart too. The
    variables in ``cell`` belong to somebody else, even where they are the same objects.
    """
    renamed: dict[Expr, Expr] = {}
    for v in private:
        renamed[v] = Var(f"{v.name}'", substitute(v.extent, renamed))
    own = [substitute(e, renamed) for e in (*indices, *others)]
    unknowns, unfused, needs = _unfuse([v for v in renamed.values() if isinstance(v, Var)], own)
    equations = [(substitute(e, unfused), c) for e, c in zip(own, cell)]
    # A loop of at most one iteration is no digit.
    values: dict[Expr, Expr] = {v: ZERO for v in unknowns if upper(v.extent) <= 1}
    needs += [sub(v.extent, 1) for v in unknowns if v in values]
    unknown: set[Expr] = {v for v in unknowns if v not in values}
    while equations:
        equations.sort(key=lambda pair: len(free_variables(pair[0]) & unknown))
        one, wanted = equations.pop(0)
        found = _solve_one(substitute(one, values), wanted, unknown, values, unfused)
        if found is None:
            return None
        needs += found
    solved: dict[Expr, Expr] = {}
    free: list[Var] = []
    for old, new in renamed.items():
        expression = unfused.get(new, new)
        if not free_variables(expression) & unknown:
            solved[old] = substitute(expression, values)
        elif expression is new and isinstance(old, Var):
            free.append(old)
        else:
            return None
    left = [substitute(substitute(n, unfused), values) for n in needs]
    left = [n for n in left if not _holds(n)]
    own_variables = {*unknowns, *renamed.values()}
    if any(free_variables(n) & own_variables for n in left):
        return None
    return Solution(
        tuple(indices), tuple(cell), frozenset(private), solved, tuple(left), tuple(free)
    )


def _holds(need: Expr) -> bool:
    return isinstance(need, Const) and int(need.literal) >= 0


def _solve_one(
    one: Expr,
    wanted: Expr,
    unknown: set[Expr],
    values: dict[Expr, Expr],
    unfused: Mapping[Expr, Expr],
) -> list[Expr] | None:
    """Solve ``one == wanted``, moving variables from ``unknown`` to ``values``.

    ``unfused`` says what fused loops are, which extents may still mention. Returns what must not be
    negative for it to have a solution; None if it is not of a simple form.
    """
    needs: list[Expr] = []
    whole = 0
    while True:
        varying = {m: c for m, c in terms_of(one) if any(free_variables(a) & unknown for a in m)}
        if not varying:
            rest = sub(wanted, one)
            return [*needs, rest, sub(ZERO, rest)]
        one, wanted = polynomial(varying), sub(wanted, sub(one, polynomial(varying)))
        digits = [(c, m[0]) for m, c in varying.items() if len(m) == 1 and m[0] in unknown]
        weight, v = max(digits, key=lambda d: d[0], default=(0, None))
        if weight <= 0 or not isinstance(v, Var):
            return None
        extent = substitute(substitute(v.extent, unfused), values)
        inner = sub(one, mul(v, weight))
        in_range = is_at_least_zero(inner) and is_at_least_zero(sub(weight - 1, inner))
        if not in_range or free_variables(extent) & unknown:
            return None
        total = mul(extent, weight)
        needs.append(wanted)
        if not whole or not is_at_least_zero(sub(total, whole)):
            needs.append(sub(sub(total, 1), wanted))
        unknown.discard(v)
        values[v] = floordiv(wanted, weight)
        one, wanted, whole = substitute(inner, {v: values[v]}), mod(wanted, weight), weight
        if one is ZERO and weight == 1:
            return needs


def _unfuse(
    private: Sequence[Var], expressions: Sequence[Expr]
) -> tuple[list[Var], dict[Expr, Expr], list[Expr]]:
    """Replace every variable that is divided by a constant by its quotient and remainder.

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
        remainder = Var(f"{v.name}_r", index(divisor))
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
