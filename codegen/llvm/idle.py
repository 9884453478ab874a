# SPDX-License-Identifier: Apache-2.0
"""Loops around nothing: nests whose inner loops have no iteration, for a dim that is 0.

``for i in n { for j in m { for k in p { ... } } }`` does nothing where ``p`` is 0, but takes
``n*m`` steps for it, and 2^60 steps never end. One symbolic loop around another is left alone: a
dim is at most 2^31, so it takes a second at worst.
"""

from tilewright.ir.expr import FALSE, TRUE, Const, Expr, Var, binary, free_variables
from tilewright.ir.loop import Alloc, Block, For, If, Let, Seq, Stmt, children
from tilewright.ir.simplify import compare

_LEAST_LOOPS = 3


def idle_condition(loop: For) -> Expr | None:
    """When the iterations of a loop do nothing, over what is known outside of it; None where that
    need not be asked.
    """
    if _symbolic_loops(loop) < _LEAST_LOOPS:
        return None
    condition = _does_nothing(loop.body, frozenset({loop.var}))
    return None if condition is FALSE else condition


def _symbolic_loops(s: Stmt) -> int:
    """The most loops of symbolic extent around one statement."""
    own = isinstance(s, For) and not isinstance(s.var.extent, Const)
    return own + max(map(_symbolic_loops, children(s)), default=0)


def _does_nothing(s: Stmt, inner: frozenset[Expr]) -> Expr:
    """A condition under which ``s`` does nothing, free of the variables ``inner``."""
    match s:
        case For(Var(_, extent) as var, _, body):
            whole = _does_nothing(body, inner | {var})
            if inner.isdisjoint(free_variables(extent)):
                whole = _either(compare("le", extent, 0), whole)
            return whole
        case Seq(stmts):
            all_of: Expr = TRUE
            for each in stmts:
                all_of = _both(all_of, _does_nothing(each, inner))
            return all_of
        case If() | Block() | Alloc():
            return _does_nothing(Seq(children(s)), inner)
        case Let(var, _, body):
            return _does_nothing(body, inner | {var})
    return FALSE


def _either(x: Expr, y: Expr) -> Expr:
    if x is FALSE or y is TRUE:
        return y
    return x if y is FALSE or x is TRUE or x is y else binary("or", x, y)


def _both(x: Expr, y: Expr) -> Expr:
    if x is TRUE or y is FALSE:
        return y
    return x if y is TRUE or x is FALSE or x is y else binary("and", x, y)
