# SPDX-License-Identifier: Apache-2.0
"""The phases of a GPU block, and which of them must not overlap.

In loop IR the loops over threads of a block run one after another (see :mod:`tilewright.ir.loop`);
in the code all of them run in one set of threads, which move from one phase to the next each on its
own. :class:`Phases` walks through a body in the order of execution, loops twice to see the way from
the end of an iteration to the next, and remembers what was touched since the last barrier. A phase
that touches memory that an earlier one touched, one of them writing, comes too early. Iterations of
one phase are its races, which are checked as those of any parallel loop.

A statement outside of every loop over threads, and without one inside, is run by the first thread
alone."""

from collections.abc import Callable

from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import Expr, reads
from tilewright.ir.loop import (
    Alloc,
    Barrier,
    For,
    If,
    Stmt,
    Store,
    While,
    children,
    expressions,
    walk,
)

Touches = set[tuple[Buffer, bool, bool]]
"""(buffer, is written, by the first thread alone)."""


def is_thread_loop(s: Stmt) -> bool:
    return isinstance(s, For) and s.kind.startswith("thread.")


def is_block_loop(s: Stmt) -> bool:
    return isinstance(s, For) and s.kind.startswith("block.")


def is_collective(s: Stmt) -> bool:
    """True for a statement that all threads of a block go through together: it has phases or
    barriers inside.
    """
    return not is_thread_loop(s) and any(
        isinstance(n, Barrier) or is_thread_loop(n) for n in walk(s)
    )


class Phases:
    """Tells ``on_early`` each phase that comes too early, and the memory; a barrier is then
    assumed in front of it.
    """

    def __init__(self, on_early: Callable[[Stmt, Buffer], None]) -> None:
        self._on_early = on_early
        self._pending: Touches = set()
        self._synchronized: set[Stmt] = set()

    def visit(self, s: Stmt) -> None:
        """Walk through a statement as the threads of one block do."""
        if isinstance(s, Barrier):
            self._pending = set()
            return
        if not is_collective(s):
            self._touch(s, _touches(s))
            return
        if not isinstance(s, Alloc):
            self._touch(s, {(b, False, False) for e in expressions(s) for b in _read(e)})
        match s:
            case For() if is_block_loop(s):
                self.visit(s.body)
            case For(_, _, body) | While(_, body):
                before = set(self._pending)
                for _ in range(2):
                    self.visit(body)
                    self._pending |= before
            case If(_, then, otherwise):
                before = set(self._pending)
                self.visit(then)
                after, self._pending = self._pending, before
                if otherwise is not None:
                    self.visit(otherwise)
                self._pending = self._pending | after
            case _:
                for child in children(s):
                    self.visit(child)

    def _touch(self, s: Stmt, touches: Touches) -> None:
        if s in self._synchronized:
            self._pending = set()
        for buffer, writes, alone in sorted(touches, key=lambda t: t[0].name):
            if any(
                other is buffer and (writes or wrote) and not (alone and by_one)
                for other, wrote, by_one in self._pending
            ):
                self._on_early(s, buffer)
                self._synchronized.add(s)
                self._pending = set()
        self._pending = self._pending | touches


def _touches(s: Stmt) -> Touches:
    """What a phase touches that other threads see."""
    alone = not is_thread_loop(s)
    inside = {n.buffer for n in walk(s) if isinstance(n, Alloc)}
    found: Touches = set()
    for node in walk(s):
        if isinstance(node, Store):
            found.add((node.buffer, True, alone))
        if not isinstance(node, Alloc):
            found |= {(b, False, alone) for e in expressions(node) for b in _read(e)}
    return {t for t in found if t[0] not in inside and t[0].scope != "register"}


def _read(e: Expr) -> set[Buffer]:
    return {r.buffer for r in reads(e)}
