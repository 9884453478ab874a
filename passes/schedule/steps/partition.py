# SPDX-License-Identifier: Apache-2.0
"""Cut a loop into a part whose extent is a multiple of a factor, and the rest.

``partition(i, 4, t)``, before and after; a part that is known to be empty is left out::

    for i in n serial { S(i) }

    for i in 4*(n // 4) serial { S(i) }
    for i_t in n % 4 serial { S(4*(n // 4) + i_t) }

Loops inside the second copy get the suffix too, so that each copy can be scheduled by itself.
"""

from dataclasses import dataclass

from tilewright.ir.errors import ScheduleError
from tilewright.ir.expr import ZERO, Var
from tilewright.ir.loop import For, Kernel, Stmt, seq, substitute_stmt
from tilewright.ir.simplify import floordiv, mod
from tilewright.passes.schedule.loops import fresh, rename_inner, replace_loop
from tilewright.passes.schedule.schedule import Step


@dataclass(frozen=True)
class Partition(Step):
    """Cut ``loop`` at the last multiple of ``factor``; the rest is called ``loop_SUFFIX``."""

    name = "partition"
    loop: str
    factor: int
    suffix: str

    def apply(self, kernel: Kernel) -> Kernel:
        if self.factor < 1:
            raise ScheduleError(f"The factor must be at least 1, not {self.factor}.")
        fresh(kernel, f"{self.loop}_{self.suffix}")

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
            return seq([For(main, target.kind, substitute_stmt(target.body, {target.var: main})), second])

        return replace_loop(kernel, self.loop, change)
