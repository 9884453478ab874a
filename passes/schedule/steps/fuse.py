# SPDX-License-Identifier: Apache-2.0
"""Fuse two directly nested loops into one; the inner one must have a constant extent.

``fuse(i, j)``, before and after::

    for i in n serial { for j in 4 serial { S(i, j) } }

    for i_f in 4*n serial { S(i_f // 4, i_f % 4) }

A symbolic inner extent would make the division non-affine and the proof impossible: reorder
instead.
"""

from dataclasses import dataclass

from tilewright.ir.errors import ScheduleError
from tilewright.ir.expr import Const, Var
from tilewright.ir.loop import For, Kernel, Stmt, substitute_stmt
from tilewright.ir.simplify import floordiv, mod
from tilewright.passes.schedule.loops import check_serial, divide_loop, fresh
from tilewright.passes.schedule.schedule import Step


@dataclass(frozen=True)
class Fuse(Step[str]):
    """Fuse ``outer`` and ``inner`` into ``outer_f``, whose handle it returns."""

    name = "fuse"
    outer: str
    inner: str

    def apply(self, kernel: Kernel) -> tuple[Kernel, str]:
        name = f"{self.outer}_f"
        fresh(kernel, name)

        def change(target: For) -> Stmt:
            inner = target.body
            if not isinstance(inner, For) or inner.var.name != self.inner:
                raise ScheduleError(f"'{self.inner}' is not directly inside '{self.outer}'.")
            check_serial(inner)
            extent = inner.var.extent
            if not isinstance(extent, Const):
                raise ScheduleError(f"The extent {extent} of '{self.inner}' is not constant.")
            fused = Var(name, target.var.extent * extent)
            values = {target.var: floordiv(fused, extent), inner.var: mod(fused, extent)}
            return For(fused, target.kind, substitute_stmt(inner.body, dict(values.items())))

        return divide_loop(kernel, self.outer, change), name
