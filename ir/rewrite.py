# SPDX-License-Identifier: Apache-2.0
"""Rewriting expressions: substitution, evaluation, and any other change from the leaves up.

Whatever changes below, every node above is built anew by its simplifying constructor. Those of
index arithmetic and of comparisons need bounds, and bounds are found by substitution: so they are
looked up by name in a table that :mod:`tilewright.ir.simplify` fills.
"""

from collections.abc import Callable, Mapping

from tilewright.ir.dtypes import BOOL, I64, INDEX, DType
from tilewright.ir.expr import (
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
    free_variables,
    index,
    mul,
    multiply,
    polynomial,
    sub,
    terms_of,
)
from tilewright.ir.fold import folded
from tilewright.ir.value_expr import cast, guard, logical_and, select

CONSTRUCTORS: dict[str, Callable[[Operand, Operand], Expr]] = {"add": add, "sub": sub, "mul": mul}
"""The simplifying constructors of index operations and comparisons, by the operation's name."""


def rewrite(
    e: Expr, leaf: Callable[[Expr], Expr | None], memo: dict[Expr, Expr] | None = None
) -> Expr:
    """Rebuild ``e`` bottom-up through the simplifying constructors.

    ``leaf`` sees every node first; what it returns, unless None, replaces the node unvisited.
    Indices and conditions in which nothing is left open become constants.
    """
    memo = {} if memo is None else memo

    def visit(node: Expr) -> Expr:
        known = memo.get(node)
        if known is None:
            known = leaf(node)
            if known is None:
                known = _rebuild(node, visit)
                if known.dtype in (INDEX, BOOL) and known is not node:
                    known = folded(known)
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
            return CONSTRUCTORS[op](visit(a), visit(b))
        case Unary(op, x, dtype):
            return Unary(op, visit(x), dtype)
        case Binary("and", x, y, dtype) if dtype is BOOL:
            return logical_and(visit(x), visit(y))
        case Binary(op, x, y, dtype):
            return Binary(op, visit(x), visit(y), dtype)
        case Compare(op, x, y):
            return CONSTRUCTORS[op](visit(x), visit(y))
        case Select(c, x, y):
            return select(visit(c), visit(x), visit(y))
        case Guard(c, x, y):
            return guard(visit(c), visit(x), visit(y))
        case Cast(x, dtype):
            return _converted(visit(x), dtype)
        case Call(function, args, dtype):
            return Call(function, tuple(visit(a) for a in args), dtype)
        case Read(buffer, indices):
            return Read(buffer, tuple(visit(i) for i in indices))
    return e


def _converted(x: Expr, dtype: DType) -> Expr:
    """A conversion; one to an index is index arithmetic where ``x`` is that, done in 64 bits."""
    arithmetic = _as_index(x) if dtype is INDEX else None
    return cast(x, dtype) if arithmetic is None else arithmetic


def _as_index(x: Expr) -> Expr | None:
    """The index expression that a value of type i64 is computed as; None if there is none.

    An index that a kernel counts, ``cast(cast(i, i64) * i64(2) + i64(1), index)``, is ``2*i + 1``.
    """
    match x:
        case Const(literal, dtype) if dtype is I64:
            return index(int(literal))
        case Cast(e, dtype) if dtype is I64 and e.dtype is INDEX:
            return e
        case Binary("add" | "sub" | "mul" | "min" | "max" as op, a, b, dtype) if dtype is I64:
            first, second = _as_index(a), _as_index(b)
            if first is None or second is None:
                return None
            return CONSTRUCTORS[op](first, second)
        case Binary("mod", a, Const(literal), dtype) if dtype is I64 and int(literal) > 0:
            dividend = _as_index(a)
            return None if dividend is None else CONSTRUCTORS["mod"](dividend, int(literal))
    return None


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
