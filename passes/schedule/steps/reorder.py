# SPDX-License-Identifier: Apache-2.0
"""Change the order of loops that are nested directly in one another.

``reorder(k, i)``, before and after; conditions between the loops move inside::

    for i in 4 serial { for j in 8 serial { for k in n serial { S(i, j, k) } } }

    for k in n serial { for j in 8 serial { for i in 4 serial { S(i, j, k) } } }

The named loops take each other's places; loops between them that are not named stay where they are.
"""

from dataclasses import dataclass
from itertools import pairwise

from tilewright.ir.errors import ScheduleError
from tilewright.ir.expr import Expr, free_variables
from tilewright.ir.loop import For, If, Kernel, Stmt
from tilewright.passes.schedule.loops import find_loop, replace_loop
from tilewright.passes.schedule.schedule import Step


@dataclass(frozen=True)
class Reorder(Step[None]):
    """Put ``loops`` in the given order, outermost first."""

    name = "reorder"
    loops: tuple[str, ...]

    def apply(self, kernel: Kernel) -> tuple[Kernel, None]:
        if len(set(self.loops)) != len(self.loops) or len(self.loops) < 2:
            raise ScheduleError("Name at least two different loops.")
        found = [find_loop(kernel.body, name) for name in self.loops]
        chains = [c for c in map(_chain, found) if all(f in c[0] for f in found)]
        if not chains:
            raise ScheduleError(
                f"The loops {', '.join(self.loops)} are not nested directly in one another."
            )
        nested, conditions, body = min(chains, key=lambda c: len(c[0]))
        nested = _through(nested, found)
        if nested[-1].body is not body:
            conditions, body = _conditions_up_to(nested)
        order = iter(found)
        placed = [next(order) if loop in found else loop for loop in nested]
        for position, loop in enumerate(placed):
            inner = {other.var for other in placed[position + 1 :]}
            if free_variables(loop.var.extent) & inner:
                raise ScheduleError(
                    f"The extent of '{loop.var.name}' depends on a loop that would be inside it."
                )
        for loop in placed[1:]:
            if loop.kind == "parallel":
                raise ScheduleError(f"'{loop.var.name}' is parallel: it must stay outermost.")
        for condition in reversed(conditions):
            body = If(condition, body)
        for loop in reversed(placed):
            body = For(loop.var, loop.kind, body)
        result = body
        return replace_loop(kernel, nested[0].var.name, lambda _: result), None


def _chain(top: For) -> tuple[list[For], list[Expr], Stmt]:
    """The loops nested directly below ``top``, itself included, the conditions between them, and
    the body.
    """
    loops, conditions, s = [top], [], top.body
    while True:
        if isinstance(s, If) and s.otherwise is None and _leads_to_loop(s.then):
            conditions.append(s.condition)
            s = s.then
        elif isinstance(s, For):
            loops.append(s)
            s = s.body
        else:
            return loops, conditions, s


def _leads_to_loop(s: Stmt) -> bool:
    while isinstance(s, If) and s.otherwise is None:
        s = s.then
    return isinstance(s, For)


def _through(nested: list[For], found: list[For]) -> list[For]:
    last = max(nested.index(f) for f in found)
    return nested[: last + 1]


def _conditions_up_to(nested: list[For]) -> tuple[list[Expr], Stmt]:
    conditions: list[Expr] = []
    for loop, following in pairwise(nested):
        s = loop.body
        while s is not following:
            assert isinstance(s, If)
            conditions.append(s.condition)
            s = s.then
    return conditions, nested[-1].body
