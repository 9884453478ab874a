# SPDX-License-Identifier: Apache-2.0
"""Check the indices that ops read from data.

An op that gathers or scatters clamps its indices, so memory is safe; that they are right is checked
here, in front of the op and apart from it: its kernel stays as it is, and a check reads the indices
alone, which are few where whole rows are moved. Nothing in the graph reads the result of a check:
the host program does, and ends the run, naming the node that the check stands for.

Before ``%1 = gather(table, ids)``, after ``%0 = index_fault(ids) {dims=(n,)}; %1 = gather(table,
ids)``. No check is made of indices that are in range by where they come from, nor twice of the
same: the first node that reads them is named.
"""

from dataclasses import dataclass
from typing import ClassVar

from tilewright.ir.expr import Expr
from tilewright.ir.graph import Builder, Graph, Module, Node, Value
from tilewright.ir.ops.index_fault import IndexFault
from tilewright.ir.ops.reshape import Reshape
from tilewright.passes.manager import Pass, PassContext
from tilewright.passes.op_kinds import EXPENSIVE, is_elementwise
from tilewright.passes.value_range import RangeAnalysis

# Chains of as many ops are made again for a check.
_DEEPEST = 8


@dataclass(frozen=True)
class CheckIndices(Pass):
    """Checks in front of the ops that have indices among their data."""

    name: ClassVar[str] = "check-indices"
    optional: ClassVar[bool] = False  # the option 'unchecked_indices' leaves it out

    def run(self, module: Module, context: PassContext) -> bool:
        if context.unchecked_indices:
            return False
        graph, ranges = module.graph, RangeAnalysis(module.constants)
        known: set[tuple[Value, tuple[Expr, ...]]] = set()
        nodes: list[Node] = []
        for node in graph.nodes:
            dims = _indexed_dims(node)
            if dims:
                indices = node.operands[1]
                sure = all(ranges.are_indices(indices, d) for d in dims)
                if not sure and (indices, dims) not in known:
                    known.add((indices, dims))
                    checks = Graph("")
                    builder = Builder(checks, module.constants, node.origin)
                    builder.add(IndexFault(dims), _as_list(indices, builder))
                    nodes += checks.nodes
            nodes.append(node)
        graph.nodes = nodes
        return bool(known)


def _indexed_dims(node: Node) -> tuple[Expr, ...]:
    """The dims that a node's indices are into; none for a node without indices."""
    axes = node.op.indexed_axes([v.type for v in node.operands])
    return tuple(node.operands[0].type.shape[a] for a in axes)


def _as_list(value: Value, builder: Builder, depth: int = 0) -> Value:
    """The elements of a value under one dim, so that the search for a fault is one loop.

    A cheap chain of elementwise ops is made once more, for the check alone: it becomes part of the
    search, and stays part of the kernel that reads the indices.
    """
    node = value.producer
    if node is not None and value.type.rank and depth < _DEEPEST and _is_cheap(node):
        operands = [
            v if not v.type.rank else _as_list(v, builder, depth + 1) for v in node.operands
        ]
        return builder(node.op, *operands)
    return value if value.type.rank == 1 else builder(Reshape((value.type.size,)), value)


def _is_cheap(node: Node) -> bool:
    """True for an elementwise op of few instructions whose operands are not broadcast, but for
    scalars, and lie in row-major order.
    """
    kinds = [v.type for v in node.operands if v.type.rank]
    plain = all(t.shape == node.result.type.shape and t.layout.is_row_major for t in kinds)
    return plain and is_elementwise(node) and node.op.name not in EXPENSIVE
