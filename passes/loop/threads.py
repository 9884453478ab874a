# SPDX-License-Identifier: Apache-2.0
"""What the threads of a GPU kernel are and own: the shape of its launch, and each thread's part of
a register buffer.

A register buffer that is allocated outside of the loops over threads lives through several of them:
a tile of accumulators is started in one phase, updated in others, stored in a last one. Its cells
must be divided among the threads in one way, so that each can hold its own in registers: along each
dim, thread ``t`` owns ``c`` neighbours (``c*t + r``) or every ``c``-th cell (``c*r + t``), or the
dim is not divided. :func:`shares` finds that division; :func:`privatize` shrinks the buffers to one
thread's part::

    alloc acc: f32[32,8] @register {
      for y in 16 thread.y { for x in 8 thread.x { for r in 2 { acc[2*y + r, x] = 0 } } } }

    alloc acc: f32[2,1] @register {
      for y in 16 thread.y { for x in 8 thread.x { for r in 2 { acc[r, 0] = 0 } } } }
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tilewright.ir.bounds import bounds, multiple_of
from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import ONE, ZERO, Const, Expr, Read, Var, free_variables, index, reads
from tilewright.ir.layout import Layout
from tilewright.ir.loop import (
    Alloc,
    For,
    Kernel,
    Stmt,
    Store,
    children,
    expressions,
    map_stmt,
    walk,
)
from tilewright.ir.rewrite import rewrite, substitute
from tilewright.ir.simplify import ceildiv, floordiv
from tilewright.passes.loop.phases import is_block_loop, is_thread_loop

_Access = tuple[tuple[Expr, ...], Mapping[Expr, str]]


@dataclass(frozen=True)
class LaunchShape:
    """Blocks and threads along x, y and z; the number of blocks may depend on symbols."""

    grid: tuple[Expr, Expr, Expr]
    block: tuple[int, int, int]


def launch_shape(kernel: Kernel) -> LaunchShape:
    """How many blocks, and how many threads of each: the longest loop of an axis counts."""
    grid: dict[str, Expr] = dict.fromkeys("xyz", ONE)
    block = dict.fromkeys("xyz", 1)
    for s in walk(kernel.body):
        if isinstance(s, For) and is_block_loop(s):
            grid[s.kind[-1]] = s.var.extent
        elif isinstance(s, For) and is_thread_loop(s):
            axis = s.kind[-1]
            block[axis] = max(block[axis], int(str(s.var.extent)))
    return LaunchShape((grid["x"], grid["y"], grid["z"]), (block["x"], block["y"], block["z"]))


def shared_bytes(kernel: Kernel) -> int | None:
    """The bytes of all shared buffers together; None if one has a symbolic size."""
    total = 0
    for s in walk(kernel.body):
        if isinstance(s, Alloc) and s.buffer.scope == "shared":
            size = s.buffer.layout.size(s.buffer.shape)
            if not isinstance(size, Const):
                return None
            total += int(size.literal) * s.buffer.dtype.bytes
    return total


@dataclass(frozen=True)
class Share:
    """One thread's part of a dim: ``count`` neighbours, or every ``count``-th cell if ``cyclic``;
    all of it without an axis.
    """

    axis: str
    count: int
    cyclic: bool

    def index(self, e: Expr, threads: Mapping[Expr, str]) -> Expr:
        """The place in the part of the cell at ``e``."""
        own = substitute(e, {v: ZERO for v, axis in threads.items() if axis == self.axis})
        return floordiv(own, self.count) if self.cyclic else own

    def extent(self, whole: Expr) -> Expr:
        if not self.axis:
            return whole
        return ceildiv(whole, self.count) if self.cyclic else index(self.count)


def shares(alloc: Alloc) -> tuple[Share, ...] | None:
    """How the cells of a register buffer are divided among threads; None if they are not divided
    in one way.
    """
    accesses = list(_accesses(alloc.body, alloc.buffer, {}))
    chosen: list[Share] = []
    for d in range(alloc.buffer.rank):
        possible: dict[Share, None] | None = None
        for indices, threads in accesses:
            here = _possible(indices[d], threads)
            possible = here if possible is None else {s: None for s in possible if s in here}
        if not possible and accesses:
            return None
        chosen.append(next(iter(possible)) if possible else Share("", 0, False))
    axes = {s.axis for s in chosen if s.axis}
    if any(set(threads.values()) != axes for _, threads in accesses):
        return None
    return tuple(chosen)


def _possible(e: Expr, threads: Mapping[Expr, str]) -> dict[Share, None]:
    used = [v for v in free_variables(e) if v in threads]
    if not used:
        return {Share("", 0, False): None}
    if len(used) > 1:
        return {}
    v = used[0]
    assert isinstance(v, Var)
    rest = substitute(e, {v: ZERO})
    step = substitute(e, {v: ONE}) - rest
    if not isinstance(step, Const) or rest + v * step is not e:
        return {}
    count, (least, greatest) = int(step.literal), bounds(rest)
    found: dict[Share, None] = {}
    if least >= 0 and greatest < count:
        found[Share(threads[v], count, False)] = None
    size = int(str(v.extent))
    if count == 1 and least >= 0 and multiple_of(rest) % size == 0:
        found[Share(threads[v], size, True)] = None
    return found


def _accesses(s: Stmt, buffer: Buffer, threads: Mapping[Expr, str]) -> Iterator[_Access]:
    """The indices of every access to ``buffer``, with the loops over threads around it."""
    if isinstance(s, For) and is_thread_loop(s):
        threads = {**threads, s.var: s.kind}
    if isinstance(s, Store) and s.buffer is buffer:
        yield s.indices, threads
    for e in expressions(s):
        for read in reads(e):
            if read.buffer is buffer:
                yield read.indices, threads
    for child in children(s):
        yield from _accesses(child, buffer, threads)


def privatize(kernel: Kernel) -> Kernel:
    """The kernel with every register buffer shrunk to one thread's part; ValueError if one cannot
    be divided.
    """
    return kernel.with_body(_privatized(kernel.body))


def _privatized(body: Stmt) -> Stmt:
    def on_stmt(s: Stmt) -> Stmt | None:
        if not (isinstance(s, Alloc) and s.buffer.scope == "register"):
            return None
        division = shares(s)
        if division is None:
            raise ValueError(s.buffer.name)
        inner = _privatized(s.body)
        if not any(share.axis for share in division):
            return Alloc(s.buffer, inner)
        b = s.buffer
        shape = tuple(share.extent(e) for share, e in zip(division, b.shape, strict=True))
        own = Buffer(b.name, b.dtype, shape, Layout(b.layout.order), b.scope)
        return Alloc(own, _redirected(inner, b, own, division, {}))

    return map_stmt(body, on_stmt)


def _redirected(
    s: Stmt, old: Buffer, own: Buffer, division: tuple[Share, ...], threads: Mapping[Expr, str]
) -> Stmt:
    """``s`` with accesses to ``old`` turned into ones to a thread's part of it."""

    def at(indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
        return tuple(x.index(i, threads) for x, i in zip(division, indices, strict=True))

    def leaf(e: Expr) -> Expr | None:
        return Read(own, at(e.indices)) if isinstance(e, Read) and e.buffer is old else None

    def on_stmt(node: Stmt) -> Stmt | None:
        if isinstance(node, For) and is_thread_loop(node):
            inner = {**threads, node.var: node.kind}
            return For(node.var, node.kind, _redirected(node.body, old, own, division, inner))
        if isinstance(node, Store) and node.buffer is old:
            return Store(own, at(node.indices), rewrite(node.value, leaf))
        return None

    return map_stmt(s, on_stmt, lambda e: rewrite(e, leaf))
