# SPDX-License-Identifier: Apache-2.0
"""Cut a loop in parts: ``partition`` at the last multiple of a factor, ``cut`` at a position.

``partition(i, 4, t)``, before and after; a part that is known to be empty is left out::

    for i in n serial { S(i) }

    for i in 4*(n // 4) serial { S(i) }
    for i_t in n % 4 serial { S(4*(n // 4) + i_t) }

``cut(i, 1, f)``, and with a position counted from the end ``cut(i, -1, b)``, before and after
both::

    for i in n serial { S(i) }

    for i_f in 1 serial { S(i_f) }
    for i in n - 2 serial { S(i + 1) }
    for i_b in 1 serial { S(n - 1 + i_b) }

Loops inside the copies get the suffix too, so that each copy can be scheduled by itself.
"""

from dataclasses import dataclass

from tilewright.ir.bounds import known_le
from tilewright.ir.errors import ScheduleError
from tilewright.ir.expr import ZERO, Var, index
from tilewright.ir.loop import For, Kernel, Stmt, seq, substitute_stmt
from tilewright.ir.simplify import floordiv, mod
from tilewright.passes.schedule.loops import divide_loop, find_loop, fresh, loop_names, rename_inner
from tilewright.passes.schedule.schedule import Step, check_factor


@dataclass(frozen=True)
class Partition(Step):
    """Cut ``loop`` at the last multiple of ``factor``; the rest is called ``loop_SUFFIX``."""

    name = "partition"
    loop: str
    factor: int
    suffix: str

    def apply(self, kernel: Kernel) -> Kernel:
        check_factor(self.factor)
        _check_copies(kernel, self.loop, self.suffix)

        def change(target: For) -> Stmt:
            extent = target.var.extent
            whole = floordiv(extent, self.factor) * self.factor
            rest = mod(extent, self.factor)
            if rest is ZERO:
                return target
            main = Var(self.loop, whole)
            tail = Var(f"{self.loop}_{self.suffix}", rest)
            copy = rename_inner(target.body, f"_{self.suffix}")
            second = For(tail, target.kind, substitute_stmt(copy, {target.var: whole + tail}))
            if whole is ZERO:
                return second
            return seq(
                [For(main, target.kind, substitute_stmt(target.body, {target.var: main})), second]
            )

        return divide_loop(kernel, self.loop, change)


@dataclass(frozen=True)
class Cut(Step):
    """Run the first ``position`` iterations of ``loop`` (the last ones if negative) apart, as
    ``loop_SUFFIX``.
    """

    name = "cut"
    loop: str
    position: int
    suffix: str

    def apply(self, kernel: Kernel) -> Kernel:
        _check_copies(kernel, self.loop, self.suffix)
        count = abs(self.position)

        def change(target: For) -> Stmt:
            extent = target.var.extent
            if not count > 0 or not known_le(count, extent):
                raise ScheduleError(f"'{self.loop}' is not known to have {count} iterations.")
            apart = Var(f"{self.loop}_{self.suffix}", index(count))
            rest = Var(self.loop, extent - count)
            copy = rename_inner(target.body, f"_{self.suffix}")
            at_end = self.position < 0
            apart_at = rest.extent + apart if at_end else apart
            rest_at = rest if at_end else rest + count
            pieces = [For(apart, target.kind, substitute_stmt(copy, {target.var: apart_at}))]
            if rest.extent is not ZERO:
                body = substitute_stmt(target.body, {target.var: rest_at})
                pieces.insert(0 if at_end else 1, For(rest, target.kind, body))
            return seq(pieces)

        return divide_loop(kernel, self.loop, change)


def _check_copies(kernel: Kernel, loop: str, suffix: str) -> None:
    """Refuse a suffix that gives a loop of the copy a name that is taken."""
    inner = loop_names(find_loop(kernel.body, loop).body)
    fresh(kernel, *(f"{name}_{suffix}" for name in (loop, *inner)))
