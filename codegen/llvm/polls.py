# SPDX-License-Identifier: Apache-2.0
"""Where kernels ask whether their run is to end: at the back edges of loops, seldom.

A run that is cancelled must end soon, whatever it is at, and a kernel may have one task of minutes.
So every loop that may run long asks, once in a number of iterations which follows from what is in
it: seldom enough to cost nothing, often enough that little work lies between two questions. Loops
that are known to be short do not ask.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from tilewright.ir.bounds import upper
from tilewright.ir.expr import Expr, Read, Var, free_variables, walk
from tilewright.ir.loop import For, If, Kernel, Let, Stmt, Store, While, children, expressions
from tilewright.ir.loop import walk as walk_statements

STATUS_CANCELLED = 11
"""What a kernel returns then: ``TW_ERROR_CANCELLED``."""

RUNNING = 1
"""The greatest value of a context's state with which its run goes on."""


@dataclass(frozen=True)
class Interval:
    """After how many iterations a loop asks, a power of 2; ``pieces``: it is cut for that."""

    iterations: int
    pieces: bool = False


ALWAYS = Interval(1)
Intervals = Mapping[Stmt, Interval]

_SHORT = 1 << 24
"""Work, in statements on vectors or scalars, of what need not ask: some tens of milliseconds."""

_INTERVALS = ((1 << 6, 1 << 12), (1 << 14, 1 << 6), (1 << 20, 1 << 2))
"""The most work of an iteration, and after how many of such a loop asks; others ask in each."""

_LITTLE = 24
"""An iteration of less work would notice a test of the loop's counter."""

_NODES = 8
"""So many nodes of an expression are about one more statement."""

_LANES = 8


def poll_intervals(kernel: Kernel) -> Intervals:
    """How often each loop asks; loops that do not ask are left out."""
    found: dict[Stmt, Interval] = {}
    _work(kernel.body, found)
    return found


def _work(s: Stmt, found: dict[Stmt, Interval]) -> float:
    """The most work of a statement without a question; notes the loops that ask."""
    inner = sum(_work(c, found) for c in children(s))
    match s:
        case Store(_, indices, value):
            return 1 + sum(_nodes(e) for e in (*indices, value)) // _NODES
        case Let(_, value, _):
            return 1 + _nodes(value) // _NODES + inner
        case If(condition, _, _):
            return 1 + _nodes(condition) // _NODES + inner
        case While():
            found[s] = ALWAYS
            return inner
        case For(var, "vectorized", body):
            lanes = upper(var.extent)
            return inner * (lanes if _is_scattered(body, var) else max(1.0, lanes / _LANES))
        case For(var, "unrolled", _):
            return inner * upper(var.extent)
        case For(var, _, _):
            times, each = upper(var.extent), max(1.0, inner)
            if times * each <= _SHORT:
                return times * each
            interval = next((n for most, n in _INTERVALS if each <= most), 1)
            if times <= interval:
                return times * each
            found[s] = Interval(interval, pieces=each < _LITTLE)
            return interval * each
    return inner


def _is_scattered(body: Stmt, lane: Var) -> bool:
    """Whether lanes read apart from each other, each at an address of its own."""
    found = (e for s in walk_statements(body) for e in expressions(s))
    reads = (n for e in found for n in walk(e) if isinstance(n, Read))
    return any(lane in free_variables(i) for r in reads for i in r.indices[:-1])


def _nodes(e: Expr) -> int:
    return sum(1 for _ in walk(e))
