# SPDX-License-Identifier: Apache-2.0
"""Cut a loop in parts: ``partition`` at the last multiple of a factor, ``peel`` some first and last iterations off.

``partition(i, 4, t)``, before and after; a part that is known to be empty is left out::

    for i in n serial { S(i) }

    for i in 4*(n // 4) serial { S(i) }
    for i_t in n % 4 serial { S(4*(n // 4) + i_t) }

``peel(i, 1, 1)``, before and after::

    for i in n serial { S(i) }

    for i_f in 1 serial { S(i_f) }
    for i in n - 2 serial { S(i + 1) }
    for i_b in 1 serial { S(n - 1 + i_b) }

Loops inside the copies get the suffix too, so that each copy can be scheduled by itself.
"""

from dataclasses import dataclass

from tilewright.ir.errors import ScheduleError
from tilewright.ir.expr import ZERO, Var, index
from tilewright.ir.loop import For, Kernel, Stmt, seq, substitute_stmt
from tilewright.ir.simplify import floordiv, known_le, mod
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
            return seq(
                [For(main, target.kind, substitute_stmt(target.body, {target.var: main})), second]
            )

        return replace_loop(kernel, self.loop, change)


@dataclass(frozen=True)
class Peel(Step):
    """Run the first ``front`` and the last ``back`` iterations of ``loop`` apart, as ``loop_f`` and ``loop_b``."""

    name = "peel"
    loop: str
    front: int
    back: int

    def apply(self, kernel: Kernel) -> Kernel:
        if self.front < 0 or self.back < 0 or self.front + self.back == 0:
            raise ScheduleError("Peel at least one iteration off one end.")
        fresh(kernel, f"{self.loop}_f", f"{self.loop}_b")

        def change(target: For) -> Stmt:
            extent = target.var.extent
            if not known_le(self.front + self.back, extent):
                raise ScheduleError(
                    f"'{self.loop}' may have fewer than {self.front + self.back} iterations."
                )
            middle = Var(self.loop, extent - self.front - self.back)
            parts: list[Stmt] = []
            if self.front:
                first = Var(f"{self.loop}_f", index(self.front))
                copy = rename_inner(target.body, "_f")
                parts.append(For(first, target.kind, substitute_stmt(copy, {target.var: first})))
            if middle.extent is not ZERO:
                body = substitute_stmt(target.body, {target.var: middle + self.front})
                parts.append(For(middle, target.kind, body))
            if self.back:
                last = Var(f"{self.loop}_b", index(self.back))
                copy = rename_inner(target.body, "_b")
                body = substitute_stmt(copy, {target.var: extent - self.back + last})
                parts.append(For(last, target.kind, body))
            return seq(parts)

        return replace_loop(kernel, self.loop, change)
