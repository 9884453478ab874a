# SPDX-License-Identifier: Apache-2.0
"""Kernels that differ in numbers alone become one form.

The parts of a split differ in where they begin, steps of a long chain in the constants that they
add. Each would be scheduled, proven and compiled by itself, which takes longer than all the rest of
a model of thousands of nodes. Where there are many, the numbers become arguments: the start of a
slice a size that the host program passes, a constant a buffer. A few forms keep their numbers,
which their code is better for.
"""

from collections.abc import Sequence

from tilewright.ir.expr import ZERO, Const, Expr, Symbol
from tilewright.ir.graph import ConstantStore, Node
from tilewright.ir.op import Op
from tilewright.ir.ops.group import Group
from tilewright.ir.ops.slice import Slice
from tilewright.passes.lower.kernel import Freed, Lowered, lower_group

FEW = 8
"""So many forms that differ in numbers alone are compiled as they are."""


def lower_all(nodes: Sequence[Node], constants: ConstantStore) -> list[Lowered]:
    """The kernels of group nodes, in order."""
    plain = [lower_group(node, constants) for node in nodes]
    candidates = [i for i, node in enumerate(nodes) if _may_be_freed(node)]
    if len({plain[i].kernel.name for i in candidates}) <= FEW:
        return plain
    freed = {i: lower_group(nodes[i], constants, freed_numbers(nodes[i])) for i in candidates}
    merged: dict[str, set[str]] = {}
    for i, low in freed.items():
        merged.setdefault(low.kernel.name, set()).add(plain[i].kernel.name)
    return [
        freed[i] if i in freed and len(merged[freed[i].kernel.name]) > FEW else low
        for i, low in enumerate(plain)
    ]


def _may_be_freed(node: Node) -> bool:
    """True for groups of maps: contractions and reductions are worth code of their own."""
    return isinstance(node.op, Group) and node.op.kind == "elementwise"


def freed_numbers(node: Node) -> Freed:
    """The slices of a group with symbols for their starts, and what these stand for."""
    ops: dict[Node, Op] = {}
    values: dict[Expr, Expr] = {}
    for inner in node.regions[0].nodes:
        if isinstance(inner.op, Slice):
            starts = tuple(
                _freed_start(inner, axis, f"start{len(values)}_{axis}", values)
                for axis in range(len(inner.op.starts))
            )
            ops[inner] = Slice(starts, inner.op.sizes, inner.op.steps)
    return Freed(ops, values)


def _freed_start(node: Node, axis: int, name: str, values: dict[Expr, Expr]) -> Expr:
    """A symbol for where a slice of part of a static axis begins; else the start as it is."""
    assert isinstance(node.op, Slice)
    start, size, step = (node.op.starts[axis], node.op.sizes[axis], node.op.steps[axis])
    extent = node.operands[0].type.shape[axis]
    if not all(isinstance(e, Const) for e in (start, size, extent)):
        return start
    reach = (int(str(size)) - 1) * step
    highest = int(str(extent)) - 1 - max(reach, 0)
    lowest = max(-reach, 0)
    if size is ZERO or size is extent or lowest >= highest:
        return start
    symbol = Symbol(name, lowest, highest)
    values[symbol] = start
    return symbol
