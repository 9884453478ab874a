# SPDX-License-Identifier: Apache-2.0
"""The frame that the functions of a large host program share, and how the program is cut.

A frame is an array of 64-bit slots in the entry: the start of the arena, the values of the symbols,
and the memory of each output once it has some. All else a part finds in what the entry was given.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import Expr, free_variables, reads
from tilewright.ir.loop import (
    Fits,
    HostProgram,
    If,
    Launch,
    Let,
    Output,
    Place,
    Require,
    Seq,
    Stmt,
    expressions,
    shape_buffer,
    walk,
)

_CHECK_SLOTS = 8


@dataclass(frozen=True)
class Frame:
    """Where a part finds things: the slots of ``symbols`` and ``outputs``, the numbers of
    ``inputs``, of their ``shapes`` and of ``constants``, the statements that place what lies in the
    arena.
    """

    symbols: dict[Expr, int]
    outputs: dict[Buffer, int]
    inputs: dict[Buffer, int]
    shapes: dict[Buffer, int]
    constants: dict[Buffer, int]
    placed: dict[Buffer, Place]

    @classmethod
    def of(
        cls, host: HostProgram, bound: Mapping[Expr, object], constants: dict[Buffer, int]
    ) -> "Frame":
        """The frame of a program whose symbols are ``bound`` and whose constants are numbered."""
        symbols = {symbol: slot for slot, symbol in enumerate(bound, 1)}
        stmts = list(walk(host.body))
        made = [s.buffer for s in stmts if isinstance(s, Output)]
        return cls(
            symbols,
            {buffer: slot for slot, buffer in enumerate(made, 1 + len(symbols))},
            {buffer: number for number, buffer in enumerate(host.inputs)},
            {shape_buffer(buffer): number for number, buffer in enumerate(host.inputs)},
            constants,
            {s.buffer: s for s in stmts if isinstance(s, Place)},
        )

    @property
    def slots(self) -> int:
        """The length of the array."""
        return 1 + len(self.symbols) + len(self.outputs)

    def used(self, stmts: Sequence[Stmt]) -> list[Expr]:
        """The symbols that some statements of a part, and what places their buffers, need."""
        needed: set[Expr] = set()
        for s in stmts:
            for inner in walk(s):
                for e in self._expressions(inner):
                    needed |= free_variables(e)
        return [symbol for symbol in self.symbols if symbol in needed]

    def _expressions(self, s: Stmt) -> Iterator[Expr]:
        match s:
            case Place(_, offset):
                yield offset
            case Output(buffer, _):
                yield from buffer.shape
            case Require() | Fits() | If():
                yield from expressions(s)
                yield from (self.placed[b].offset for b in buffers_read(s) if b in self.placed)
            case Launch():
                yield from (*s.scalars, s.tasks, s.work, s.workspace)
                yield from (self.placed[b].offset for b in s.buffers if b in self.placed)


def slots_of(s: Stmt) -> int:
    """How much code a statement is: a launch by its pointers and sizes; what defines none is 0."""
    match s:
        case Launch(_, buffers, scalars):
            return len(buffers) + len(scalars)
        case Require() | Fits():
            return _CHECK_SLOTS
    return 0


def innermost(body: Stmt) -> tuple[list[Stmt], Stmt]:
    """What binds the symbols and shows their ranges, and the statement in which all are bound."""
    outer: list[Stmt] = []
    while True:
        match body:
            case Let(_, _, inner):
                outer.append(body)
                body = inner
            case Seq((*before, Let() as last)):
                outer += before
                body = last
            case _:
                return outer, body


def entry_buffers(host: HostProgram, in_parts: bool) -> set[Buffer]:
    """The buffers that the entry of a program touches itself: what it checks, and what it launches
    kernels on unless that is left to parts.
    """
    outer, inner = innermost(host.body)
    found = {b for s in outer for b in buffers_read(s)}
    for s in () if in_parts else walk(inner):
        found |= {*s.buffers} if isinstance(s, Launch) else buffers_read(s)
    return found


def buffers_read(s: Stmt) -> set[Buffer]:
    """The shapes, and results of kernels, that a statement reads by itself."""
    return {r.buffer for e in expressions(s) for r in reads(e)}


def buffers_used(s: Stmt) -> set[Buffer]:
    """The buffers that must have their memory before the code of a statement begins."""
    launched = {b for n in walk(s) if isinstance(n, Launch) for b in n.buffers}
    return buffers_read(s) | (launched if isinstance(s, If) else set())


def split_parts(stmts: Sequence[Stmt], most: int) -> Iterator[list[Stmt]]:
    """The statements in order, cut where a part has ``most`` slots."""
    part: list[Stmt] = []
    slots = 0
    for s in stmts:
        part.append(s)
        slots += sum(map(slots_of, walk(s)))
        if slots >= most:
            yield part
            part, slots = [], 0
    if part:
        yield part
