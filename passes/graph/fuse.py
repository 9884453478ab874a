# SPDX-License-Identifier: Apache-2.0
"""Form fusion groups: afterwards the main graph holds constants, aliases (reshapes and
transpositions that leave memory as it is) and groups alone.

Before ``%1 = conv(x, w); %2 = add(%1, %r); %3 = maximum(%2, %zero)``, after ``%3 = group(x, w, %r)
{kind="contraction"}`` with the three nodes, and the small constant, in its region. Which nodes go
together is decided in :mod:`tilewright.passes.fusion`.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from tilewright.ir.graph import Builder, Constant, ConstantStore, Graph, Module, Node, Value
from tilewright.ir.ops.group import Group
from tilewright.passes.fusion import Cluster, Clusters, Policy
from tilewright.passes.manager import Pass, PassContext

# Constants of at most this many bytes are baked into the code of a kernel.
BAKED_BYTES = 64
_MOST_ORIGINS = 8


@dataclass(frozen=True)
class Fuse(Pass):
    """Fusion of the main graph."""

    name: ClassVar[str] = "fuse"
    optional: ClassVar[bool] = False  # kernels are made of groups

    def run(self, module: Module, context: PassContext) -> bool:
        graph = module.graph
        clusters = Clusters(graph, Policy()).form()
        position = {node: i for i, node in enumerate(graph.nodes)}
        for cluster in clusters:
            members = sorted(cluster.nodes, key=position.__getitem__)
            _make_group(graph, module.constants, cluster.kind, members, _results(cluster))
        graph.erase({node for cluster in clusters for node in cluster.nodes})
        graph.erase(
            [n for n in graph.nodes if isinstance(n.op, Constant) and not n.result.use_count]
        )
        graph.sort()
        return bool(clusters)


def _results(cluster: Cluster) -> list[Value]:
    if cluster.kind == "opaque":
        return [v for v in cluster.anchor.results if v.use_count] or cluster.anchor.results[:1]
    return [cluster.output]


def _make_group(
    graph: Graph,
    constants: ConstantStore,
    kind: str,
    members: list[Node],
    results: list[Value],
) -> None:
    """Append a group node with copies of ``members`` and let it stand for ``results``."""
    region = Graph(kind)
    inner: dict[Value, Value] = {}
    outer: list[Value] = []
    builder = Builder(region, constants)
    for node in members:
        for operand in node.operands:
            if operand in inner:
                continue
            if is_baked(operand) and operand.producer is not None:
                source = operand.producer
                copy = builder.add_typed(source.op, (), (operand.type,), origin=source.origin)
                inner[operand] = copy.result
            else:
                inner[operand] = Value(operand.type, operand.name)
                region.inputs.append(inner[operand])
                outer.append(operand)
        copy = builder.add_typed(
            node.op,
            [inner[v] for v in node.operands],
            [v.type for v in node.results],
            origin=node.origin,
        )
        for old, new in zip(node.results, copy.results, strict=True):
            new.name = old.name
            inner[old] = new
    region.set_outputs([inner[v] for v in results])
    types = [v.type for v in results]
    group = Builder(graph, constants, joined_origin(members)).add_typed(
        Group(kind), outer, types, (region,)
    )
    for old, new in zip(results, group.results, strict=True):
        new.name = old.name
        graph.replace(old, new)


def is_baked(value: Value) -> bool:
    """True for a constant that is small enough to be part of a kernel's code."""
    if not isinstance(value.op, Constant) or not value.type.layout.is_row_major:
        return False
    count = 1
    for extent in value.op.data.shape:
        count *= extent
    return count * value.type.dtype.bytes <= BAKED_BYTES


def joined_origin(nodes: Iterable[Node]) -> str:
    """The model's nodes that a group stands for, in order, the first few by name."""
    names = list(dict.fromkeys(n.origin for n in nodes if n.origin))
    shown = "+".join(names[:_MOST_ORIGINS])
    return shown + "+..." if len(names) > _MOST_ORIGINS else shown
