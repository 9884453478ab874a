# SPDX-License-Identifier: Apache-2.0
"""Split a loop in two: ``split`` with an inner loop of constant extent, ``chunk`` with one that
shrinks at the end.

``split(i, 4)``, before and after; the condition is left out where 4 divides the extent::

    for i in n serial { S(i) }

    for i_o in (n + 3) // 4 serial { for i_i in 4 serial { if (4*i_o + i_i < n) { S(4*i_o + i_i) } }
    }

``chunk(i, 4)``::

    for i_o in (n + 3) // 4 serial { for i_i in min(n - 4*i_o, 4) serial { S(4*i_o + i_i) } }
"""

from dataclasses import dataclass

from tilewright.ir.expr import TRUE, Expr, Var, index
from tilewright.ir.loop import For, If, Kernel, Stmt, substitute_stmt
from tilewright.ir.simplify import ceildiv, compare, minimum
from tilewright.passes.schedule.handles import Halves
from tilewright.passes.schedule.loops import divide_loop, fresh
from tilewright.passes.schedule.schedule import Step, check_factor


@dataclass(frozen=True)
class Split(Step[Halves]):
    """Split ``loop`` into ``loop_o`` and ``loop_i`` of extent ``factor``, guarded where that is
    needed.
    """

    name = "split"
    loop: str
    factor: int

    def apply(self, kernel: Kernel) -> tuple[Kernel, Halves]:
        halves = _halves(kernel, self.loop, self.factor)

        def change(target: For) -> Stmt:
            extent = target.var.extent
            outer = Var(halves.outer, ceildiv(extent, self.factor))
            inner = Var(halves.inner, index(self.factor))
            position = outer * self.factor + inner
            body = substitute_stmt(target.body, {target.var: position})
            condition = compare("lt", position, extent)
            if condition is not TRUE:
                body = If(condition, body)
            return For(outer, target.kind, For(inner, target.kind, body))

        return divide_loop(kernel, self.loop, change), halves


@dataclass(frozen=True)
class Chunk(Step[Halves]):
    """Split ``loop`` into ``loop_o`` and ``loop_i``; the last ``loop_i`` runs over what is left."""

    name = "chunk"
    loop: str
    factor: int

    def apply(self, kernel: Kernel) -> tuple[Kernel, Halves]:
        halves = _halves(kernel, self.loop, self.factor)

        def change(target: For) -> Stmt:
            extent = target.var.extent
            outer = Var(halves.outer, ceildiv(extent, self.factor))
            rest: Expr = extent - outer * self.factor
            inner = Var(halves.inner, minimum(index(self.factor), rest))
            body = substitute_stmt(target.body, {target.var: outer * self.factor + inner})
            return For(outer, target.kind, For(inner, target.kind, body))

        return divide_loop(kernel, self.loop, change), halves


def _halves(kernel: Kernel, loop: str, factor: int) -> Halves:
    check_factor(factor)
    halves = Halves(f"{loop}_o", f"{loop}_i")
    fresh(kernel, halves.outer, halves.inner)
    return halves
