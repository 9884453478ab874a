# SPDX-License-Identifier: Apache-2.0
"""Check the indices that ops read from data.

An op that gathers or scatters clamps its indices, so memory is safe; that they are right is checked
here, in front of the op and apart from it: its kernel stays as it is, and a check reads the indices
alone, which are few where whole rows are moved. The result of an ``index_fault`` is no value of the
model: the host program reads it and ends the run, naming the node that the check stands for.

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
from tilewright.passes.op_kinds import is_map, memory_of
from tilewright.passes.value_range import RangeAnalysis


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


def _as_list(indices: Value, builder: Builder) -> Value:
    """Indices under one dim if that moves nothing; the search for a fault is one loop then.

    Those that a map makes stay as they are, so that the map can be part of the search.
    """
    rank = indices.type.rank
    memory = memory_of(indices)
    made = memory is indices and memory.producer is not None and is_map(memory.producer)
    plain = indices.type.layout.is_row_major and not made
    if rank == 1 or (rank > 1 and not plain):
        return indices
    return builder(Reshape((indices.type.size,)), indices)
