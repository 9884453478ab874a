# SPDX-License-Identifier: Apache-2.0
"""Run those iterations at the end of a loop apart in which a bound inside may fail.

``peel(i, t)``, before and after: in the first loop the condition is known to hold::

    for i in (n + 7) // 8 serial { for j in 8 serial { if (8*i + j < n) { S(8*i + j) } } }

    for i in n // 8 serial { for j in 8 serial { S(8*i + j) } }
    for i_t in ((n + 7) // 8) - (n // 8) serial {
      for j_t in 8 serial { if (8*i_t + j_t + 8*(n // 8) < n) { S(8*i_t + j_t + 8*(n // 8)) } }
    }

Bounds are upper ones that grow with the loop, of guards in expressions and of extents such as
``min(8, n - 8*i)`` too. A loop without one stays as it is.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from tilewright.ir.bounds import eliminate, known_le, known_lt
from tilewright.ir.dtypes import INDEX
from tilewright.ir.expr import (
    ZERO,
    Compare,
    Const,
    Expr,
    IndexOp,
    Var,
    free_variables,
    sub,
    terms_of,
)
from tilewright.ir.expr import walk as walk_expr
from tilewright.ir.loop import For, Kernel, expressions, walk
from tilewright.ir.simplify import floordiv, maximum, minimum
from tilewright.passes.schedule.handles import Parts
from tilewright.passes.schedule.loops import find_loop
from tilewright.passes.schedule.schedule import Step
from tilewright.passes.schedule.steps.partition import Pieces, cut_loop


@dataclass(frozen=True)
class Peel(Step[Parts]):
    """Cut off the iterations of ``loop`` in which an upper bound may fail, as ``loop_SUFFIX``."""

    name = "peel"
    loop: str
    suffix: str

    def apply(self, kernel: Kernel) -> tuple[Kernel, Parts]:
        target = find_loop(kernel.body, self.loop)
        extent = target.var.extent
        whole = extent
        for room, step in _bounds_inside(target):
            # The first iterations, as long as step * i < room.
            position = floordiv(room + (step - 1), step)
            if known_le(extent, position):
                continue
            shorter = known_lt(room + (step - 1), (extent + 1) * step)
            first = maximum(position, ZERO)
            whole = first if shorter and whole is extent else minimum(whole, first)
        pieces = Pieces(whole, sub(extent, whole), ZERO, whole)
        return cut_loop(kernel, self.loop, self.suffix, pieces)


def _bounds_inside(loop: For) -> Iterator[tuple[Expr, int]]:
    """The bounds inside that hold wherever ``step`` times the loop's variable is less than
    ``room``, as (room, step).
    """
    inside = {n.var for n in walk(loop.body) if isinstance(n, For)}
    for room in sorted(_rooms(loop, inside), key=str):
        # It shrinks by ``step`` with each iteration.
        least = eliminate(room, lambda v: v in inside, least=True)
        split = _linear(least, loop.var) if least is not None else None
        if split is not None and split[0] < 0:
            yield split[1], -split[0]


def _rooms(loop: For, inside: set[Var]) -> Iterator[Expr]:
    """What must be positive for a bound inside to hold: of conditions, and of extents that are a
    constant but for the last iterations.
    """
    for e in {e for n in walk(loop.body) for v in expressions(n) for e in walk_expr(v)}:
        if isinstance(e, Compare) and e.op in ("lt", "le") and e.x.dtype is INDEX:
            yield sub(e.y, e.x) + (e.op == "le")
    for extent in {v.extent for v in inside}:
        if isinstance(extent, IndexOp) and extent.op == "min":
            for whole, rest in ((extent.a, extent.b), (extent.b, extent.a)):
                if isinstance(whole, Const):
                    yield sub(rest, whole) + 1


def _linear(e: Expr, v: Var) -> tuple[int, Expr] | None:
    """``e`` as ``number * v + rest``; None if it is not of that form."""
    number = sum(coefficient for monomial, coefficient in terms_of(e) if monomial == (v,))
    rest = sub(e, v * number)
    return None if v in free_variables(rest) else (number, rest)
