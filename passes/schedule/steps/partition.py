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
from tilewright.ir.expr import ZERO, Expr, Var, index
from tilewright.ir.loop import For, Kernel, Stmt, seq, substitute_stmt
from tilewright.ir.simplify import floordiv, mod
from tilewright.passes.schedule.handles import NO_LOOP, Parts
from tilewright.passes.schedule.loops import (
    decided,
    divide_loop,
    find_loop,
    fresh,
    loop_names,
    rename_inner,
)
from tilewright.passes.schedule.schedule import Step, check_factor


@dataclass(frozen=True)
class Partition(Step[Parts]):
    """Cut ``loop`` at the last multiple of ``factor``; the rest is called ``loop_SUFFIX``."""

    name = "partition"
    loop: str
    factor: int
    suffix: str

    def apply(self, kernel: Kernel) -> tuple[Kernel, Parts]:
        check_factor(self.factor)
        extent = find_loop(kernel.body, self.loop).var.extent
        whole = floordiv(extent, self.factor) * self.factor
        rest = mod(extent, self.factor)
        return cut_loop(kernel, self.loop, self.suffix, Pieces(whole, rest, ZERO, whole))


@dataclass(frozen=True)
class Cut(Step[Parts]):
    """Run the first ``position`` iterations of ``loop`` (the last ones if negative) apart, as
    ``loop_SUFFIX``.
    """

    name = "cut"
    loop: str
    position: int
    suffix: str

    def apply(self, kernel: Kernel) -> tuple[Kernel, Parts]:
        count = abs(self.position)
        extent = find_loop(kernel.body, self.loop).var.extent
        if not count > 0 or not known_le(count, extent):
            raise ScheduleError(f"'{self.loop}' is not known to have {count} iterations.")
        rest = extent - count
        starts = (ZERO, rest) if self.position < 0 else (index(count), ZERO)
        return cut_loop(kernel, self.loop, self.suffix, Pieces(rest, index(count), *starts))


@dataclass(frozen=True)
class Pieces:
    """The extents of the main part and of the part that is cut off, and where each begins."""

    main: Expr
    apart: Expr
    main_at: Expr
    apart_at: Expr


def cut_loop(kernel: Kernel, loop: str, suffix: str, pieces: Pieces) -> tuple[Kernel, Parts]:
    """``loop`` in two parts, in the order in which they begin; an empty one is left out."""
    inner = loop_names(find_loop(kernel.body, loop).body)
    copies = {name: f"{name}_{suffix}" for name in inner}
    parts = Parts(
        loop if pieces.main is not ZERO else NO_LOOP,
        f"{loop}_{suffix}" if pieces.apart is not ZERO else NO_LOOP,
        copies,
    )
    fresh(kernel, f"{loop}_{suffix}", *copies.values())

    def change(target: For) -> Stmt:
        if not parts.apart:
            return target

        def part(name: str, extent: Expr, at: Expr, body: Stmt) -> Stmt:
            var = Var(name, extent)
            return For(var, target.kind, decided(substitute_stmt(body, {target.var: at + var})))

        found: list[Stmt] = []
        if parts.main:
            found.append(part(parts.main, pieces.main, pieces.main_at, target.body))
        if parts.apart:
            copy = rename_inner(target.body, f"_{suffix}")
            apart = part(parts.apart, pieces.apart, pieces.apart_at, copy)
            found.insert(0 if pieces.apart_at is ZERO and parts.main else len(found), apart)
        return seq(found)

    return divide_loop(kernel, loop, change), parts
