# SPDX-License-Identifier: Apache-2.0
"""The box of a buffer that a piece of loop IR reads, in terms of the loops around it."""

from dataclasses import dataclass

from tilewright.ir.bounds import bound_above, eliminate
from tilewright.ir.buffer import Buffer
from tilewright.ir.errors import ScheduleError
from tilewright.ir.expr import ONE, ZERO, Expr, Read, Var, reads
from tilewright.ir.loop import For, Stmt, expressions, walk
from tilewright.ir.simplify import maximum, minimum


@dataclass(frozen=True)
class Region:
    """``start`` and ``extent`` of each dim; expressions over symbols and the variables of outer
    loops.
    """

    start: tuple[Expr, ...]
    extent: tuple[Expr, ...]


def region_read(s: Stmt, buffers: tuple[Buffer, ...]) -> Region | None:
    """The smallest box known to hold every cell of ``buffers`` (of one shape) that ``s`` reads;
    None if it reads none.

    Conditions around a read are ignored: the box may be larger than what is read, never smaller.
    """
    inner = {n.var for n in walk(s) if isinstance(n, For)}
    cells: dict[tuple[Expr, ...], None] = {}
    for node in walk(s):
        for e in expressions(node):
            cells.update((r.indices, None) for r in reads(e) if r.buffer in buffers)
    if not cells:
        return None
    shape = buffers[0].shape
    starts, extents = [], []
    for d, whole in enumerate(shape):
        low, high = _range([c[d] for c in cells], inner, whole)
        starts.append(low)
        extents.append(high - low + ONE)
    return Region(tuple(starts), tuple(extents))


def _range(items: list[Expr], inner: set[Var], whole: Expr) -> tuple[Expr, Expr]:
    low: Expr | None = None
    high: Expr | None = None
    for e in dict.fromkeys(items):
        least = eliminate(e, lambda v: v in inner, least=True)
        greatest = eliminate(e, lambda v: v in inner, least=False)
        if least is None or greatest is None or _data_dependent(e):
            return ZERO, whole - ONE
        low = least if low is None else minimum(low, least)
        high = greatest if high is None else maximum(high, greatest)
    assert low is not None and high is not None
    return low, high


def _data_dependent(e: Expr) -> bool:
    return any(isinstance(r, Read) for r in reads(e))


def constant_bound(extent: Expr) -> Expr:
    """An extent free of loop variables that is at least ``extent``: the size to allocate."""
    bound = bound_above(extent)
    if bound is None:
        raise ScheduleError(f"No size is known that holds the extent {extent} in every iteration.")
    return bound
