# SPDX-License-Identifier: Apache-2.0
"""Compute equal values once.

Before ``%1 = exp(x); %2 = exp(x); return add(%1, %2)``, after ``%1 = exp(x); return add(%1, %1)``.
Two nodes are equal if their ops (attributes included), operands and result types are; one walk in
execution order finds them all, since the operands of later nodes have been made equal before.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

from tilewright.ir.graph import Graph, Module, Node
from tilewright.passes.manager import Pass, PassContext
from tilewright.passes.rewriter import graphs_of


@dataclass(frozen=True)
class EliminateCommonSubexpressions(Pass):
    """Merging of equal nodes within each graph."""

    name: ClassVar[str] = "eliminate-common-subexpressions"

    def run(self, module: Module, context: PassContext) -> bool:
        changed = False
        for graph in graphs_of(module):
            changed |= _merge(graph)
        return changed


def _merge(graph: Graph) -> bool:
    first: dict[tuple[Any, ...], Node] = {}
    dead: list[Node] = []
    for node in graph.nodes:
        if node.regions or node.op.effects:
            continue
        # The text of attributes keeps 0.0 and -0.0 apart, which compare equal.
        attributes = tuple(str(a) for a in node.op.attributes().values() if isinstance(a, float))
        types = tuple(v.type for v in node.results)
        twin = first.setdefault((node.op, attributes, tuple(node.operands), types), node)
        if twin is not node:
            for old, new in zip(node.results, twin.results, strict=True):
                graph.replace(old, new)
            dead.append(node)
    if dead:
        graph.erase(dead)
    return bool(dead)
