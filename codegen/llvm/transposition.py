# SPDX-License-Identifier: Apache-2.0
"""Transpositions of square tiles in registers.

Of a copy ``y[i, j] = x[j, i]`` the vectors along ``j`` read one element of each of many lines of
``x``. An unrolled loop over ``i`` around them reads the same lines again and again; where each of
them is read whole instead, once, the tile is turned in registers: in step ``d`` (1, 2, 4, ...)
every row changes with the one ``d`` further the lanes that lie across from each other, which is
the network of Eklundh's matrix transposition (IEEE Transactions on Computers, 1972).
"""

from dataclasses import dataclass

from tilewright.codegen.llvm.builder import Builder, Value
from tilewright.codegen.llvm.memory import Memory
from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import ZERO, Const, Expr, Read, Var, index, sub
from tilewright.ir.loop import Block, For, Store
from tilewright.ir.rewrite import substitute


@dataclass(frozen=True)
class Transposition:
    """A loop over rows of ``store``, unrolled, around a vectorised one over its columns; ``read``
    lies along the rows.
    """

    store: Store
    read: Read
    row: Var
    column: Var

    @property
    def size(self) -> int:
        """The rows and columns of a tile."""
        return int(self.column.extent.literal) if isinstance(self.column.extent, Const) else 0


def as_transposition(loop: For) -> Transposition | None:
    """The transposition that an unrolled loop is: whole tiles of a plain copy; else None."""
    inner = loop.body
    if not isinstance(inner, For) or inner.kind != "vectorized":
        return None
    store = inner.body.body if isinstance(inner.body, Block) else inner.body
    if not isinstance(store, Store) or not isinstance(store.value, Read):
        return None
    found = Transposition(store, store.value, loop.var, inner.var)
    rows, size = loop.var.extent, found.size
    if size < 2 or size & (size - 1) or not isinstance(rows, Const) or int(rows.literal) % size:
        return None
    read = found.read
    if store.buffer is read.buffer or store.buffer.dtype is not read.buffer.dtype:
        return None
    along_row = _moves_by_one(read.buffer, read.indices, found.row)
    along_column = _moves_by_one(store.buffer, store.indices, found.column)
    return found if along_row and along_column else None


def _moves_by_one(buffer: Buffer, indices: tuple[Expr, ...], var: Var) -> bool:
    """True if the elements along a variable lie one after another."""
    offset = buffer.layout.offset(buffer.shape, indices)
    return sub(offset, substitute(offset, {var: ZERO})) is var


def emit_transposition(t: Transposition, memory: Memory, builder: Builder) -> None:
    """Read, turn and write the tiles of a transposition."""
    assert isinstance(t.row.extent, Const)
    for first in range(0, int(t.row.extent.literal), t.size):
        rows = [
            memory.load_whole(t.read.buffer, _at(t, t.read.indices, first, lane), t.size)
            for lane in range(t.size)
        ]
        for number, row in enumerate(turned(rows, builder)):
            memory.store_whole(t.store.buffer, _at(t, t.store.indices, first + number, 0), row)


def _at(t: Transposition, indices: tuple[Expr, ...], row: int, column: int) -> tuple[Expr, ...]:
    point: dict[Expr, Expr] = {t.row: index(row), t.column: index(column)}
    return tuple(substitute(i, point) for i in indices)


def turned(rows: list[Value], builder: Builder) -> list[Value]:
    """The columns of a square of vectors."""
    size, lanes = len(rows), range(len(rows))
    distance = 1
    while distance < size:
        low = [size + i - distance if i & distance else i for i in lanes]
        high = [size + i if i & distance else i + distance for i in lanes]
        for i in lanes:
            if not i & distance:
                a, b = rows[i], rows[i + distance]
                rows[i] = builder.shuffle(a, b, low)
                rows[i + distance] = builder.shuffle(a, b, high)
        distance *= 2
    return rows
