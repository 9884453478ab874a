# SPDX-License-Identifier: Apache-2.0
"""Placement of a kernel's workspace buffers in the scratch memory of one task.

Buffers live from the brace that opens their ``alloc`` to the one that closes it, so a stack
suffices: a buffer starts where the buffers around it end, aligned to 64 bytes, and neighbours share
memory. Sizes may be symbolic; where one depends on a loop variable, its greatest value counts. A
buffer allocated inside a vectorised loop exists once a lane.
"""

from dataclasses import dataclass

from tilewright.ir.bounds import eliminate
from tilewright.ir.buffer import Buffer
from tilewright.ir.errors import CodegenError
from tilewright.ir.expr import Const, Expr, Var, add, free_variables, index, mul
from tilewright.ir.loop import Alloc, For, Kernel, Stmt, children
from tilewright.ir.simplify import ceildiv, maximum

ALIGNMENT = 64


@dataclass(frozen=True)
class WorkspacePlan:
    """``offsets``: where each buffer starts, in bytes; ``total``: the bytes of one task;
    ``overlapping``: pairs of buffer names that may share memory.
    """

    offsets: dict[Buffer, Expr]
    total: Expr
    overlapping: set[frozenset[str]]


def workspace_bytes(kernel: Kernel) -> Expr:
    """The scratch memory of one task in bytes, an expression over the kernel's symbols."""
    return plan_workspace(kernel).total


def plan_workspace(kernel: Kernel) -> WorkspacePlan:
    """Offsets of all workspace buffers; CodegenError if a size is not bounded by the kernel's
    symbols, or if of two buffers each is allocated inside the other.
    """
    around, lanes = _nesting(kernel.body)
    sizes = {b: _aligned(mul(_bytes(kernel, b), lanes[b])) for b in around}
    offsets: dict[Buffer, Expr] = {}
    total: Expr = index(0)
    # A buffer allocated in several places is behind all the buffers around any of them.
    while len(offsets) < len(around):
        ready = [b for b in around if b not in offsets and around[b] <= offsets.keys()]
        if not ready:
            names = sorted(b.name for b in around if b not in offsets)
            raise CodegenError(
                f"Workspace buffers '{names[0]}' and '{names[1]}' of kernel '{kernel.name}' are "
                "allocated inside each other. Give the second allocation a buffer of its own."
            )
        for b in ready:
            start: Expr = index(0)
            for outer in around[b]:
                start = maximum(start, add(offsets[outer], sizes[outer]))
            offsets[b] = start
            total = maximum(total, add(start, sizes[b]))
    overlapping = {
        frozenset((a.name, b.name))
        for a in around
        for b in around
        if a is not b and a not in around[b] and b not in around[a]
    }
    return WorkspacePlan(offsets, total, overlapping)


def _nesting(body: Stmt) -> tuple[dict[Buffer, set[Buffer]], dict[Buffer, int]]:
    """For each workspace buffer those allocated around it, and the lanes that each have a copy."""
    around: dict[Buffer, set[Buffer]] = {}
    copies: dict[Buffer, int] = {}
    stack: list[tuple[Stmt, int, tuple[Buffer, ...]]] = [(body, 1, ())]
    while stack:
        s, lanes, outer = stack.pop()
        if isinstance(s, For) and s.kind == "vectorized" and isinstance(s.var.extent, Const):
            lanes *= int(str(s.var.extent))
        if isinstance(s, Alloc) and s.buffer.scope == "workspace":
            around.setdefault(s.buffer, set()).update(outer)
            copies[s.buffer] = max(copies.get(s.buffer, 1), lanes)
            outer = (*outer, s.buffer)
        stack.extend((c, lanes, outer) for c in reversed(children(s)))
    return around, copies


def _bytes(kernel: Kernel, buffer: Buffer) -> Expr:
    size = mul(buffer.layout.size(buffer.shape), buffer.dtype.bytes)
    bounded = eliminate(size, lambda _: True, least=False)
    if bounded is None or any(isinstance(v, Var) for v in free_variables(bounded)):
        raise CodegenError(
            f"The size of workspace buffer '{buffer.name}' in kernel '{kernel.name}' is '{size}', "
            "which no symbol bounds. Allocate it outside of the loop that its shape depends on."
        )
    return bounded


def _aligned(size: Expr) -> Expr:
    return mul(ceildiv(size, ALIGNMENT), ALIGNMENT)
