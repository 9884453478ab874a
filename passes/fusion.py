# SPDX-License-Identifier: Apache-2.0
"""Which nodes of a graph become one kernel.

Every compute node ends in a cluster with one value that leaves it, reached from all its nodes; so
the clusters form an acyclic graph whatever their shapes. They form in two sweeps:

1. forwards, each contraction or reduction takes the elementwise ops after it, up to the last point
   where a single value carries all that it computed (the post-dominator of its result);
2. backwards, each map that is left joins the cluster of its users if that is one and takes it, else
   it starts one.

:class:`Policy` holds legality (``takes_after``, ``takes_before``) and profit (what a map costs
where it would be evaluated more than once, against the launch and the memory traffic that fusing it
saves).
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from tilewright.ir.graph import Constant, Graph, Node, Value
from tilewright.ir.ops.gather import Gather
from tilewright.ir.ops.index_fault import IndexFault
from tilewright.ir.rewrite import hinted
from tilewright.passes.op_kinds import (
    EXPENSIVE,
    POOLS,
    is_alias,
    is_contraction,
    is_elementwise,
    is_map,
    is_reduction,
)

# A read of one element by one path of index maps: the key tells paths apart.
Path = tuple[object, ...]


@dataclass(eq=False)
class Cluster:
    """Nodes that become one kernel: ``nodes`` in the order found, ``output`` the value that leaves.

    ``evaluations`` says for each node how often elements of its result are computed, by path.
    """

    kind: str
    anchor: Node
    output: Value
    nodes: dict[Node, None] = field(default_factory=dict)
    evaluations: dict[Node, dict[Path, float]] = field(default_factory=dict)


@dataclass(frozen=True)
class Policy:
    """The rules; costs are nanoseconds on one core.

    ``launch`` is what a kernel costs by itself, ``byte`` what writing and reading back one byte
    costs, ``cheap`` and ``expensive`` what one element of an op costs.
    """

    launch: float = 1500.0
    byte: float = 0.05
    cheap: float = 0.05
    expensive: float = 0.5
    most_nodes: int = 100
    most_expensive: int = 20
    most_operands: int = 30

    def takes_after(self, cluster: Cluster, pending: Iterable[Node], node: Node) -> bool:
        """May ``node`` be part of the epilogue of a contraction or reduction, after ``pending``?"""
        if not is_elementwise(node) or self.is_full((*cluster.nodes, *pending), node):
            return False
        tail, result = cluster.output.type, node.result.type
        same_memory = not is_contraction(cluster.anchor) or result.layout is tail.layout
        return result.shape == tail.shape and same_memory

    def takes_before(self, cluster: Cluster, node: Node) -> bool:
        """May ``node``, a map that only this cluster uses, be computed inside it, and does that
        pay?
        """
        alone = cluster.kind == "opaque" or stays_alone(cluster.anchor) or stays_alone(node)
        if alone or self.is_full(cluster.nodes, node):
            return False
        if len(operands_of((*cluster.nodes, node))) > self.most_operands:
            return False
        evaluations = evaluations_of(cluster, node)
        if evaluations is None:
            return False
        once = element_count(node.result)
        extra = sum(evaluations.values()) - once
        saved = self.launch + once * node.result.type.dtype.bytes * self.byte
        return extra * self.cost(node) <= saved

    def is_full(self, nodes: Collection[Node], node: Node) -> bool:
        """Would the code of a kernel become too long with another node?"""
        if len(nodes) >= self.most_nodes:
            return True
        slow = sum(n.op.name in EXPENSIVE for n in nodes)
        return node.op.name in EXPENSIVE and slow >= self.most_expensive

    def cost(self, node: Node) -> float:
        """The cost of one element of a map."""
        slow = node.op.name in EXPENSIVE or node.op.name in (
            "gather_elements",
            "gather_nd",
            "resize",
        )
        if isinstance(node.op, Gather):
            # Whole rows are read in order; single elements are not.
            slow = node.op.axis == node.operands[0].type.rank - 1
        return self.expensive if slow else self.cheap

    def copies(self, node: Node) -> bool:
        """Is ``node`` so cheap that each of several users may have its own?"""
        return node.op.name in ("broadcast_to", "iota")


def stays_alone(node: Node) -> bool:
    """True for maps with a kernel of their own: the parts of a concat are better copied one
    by one.
    """
    return node.op.name == "concat"


def element_count(value: Value) -> float:
    """The number of elements to expect."""
    return float(max(1, hinted(value.type.size)))


def operands_of(nodes: Iterable[Node]) -> list[Value]:
    """The values that nodes use and do not make, without repetition."""
    made = {v for n in nodes for v in n.results}
    return list(dict.fromkeys(v for n in nodes for v in n.operands if v not in made))


def evaluations_of(cluster: Cluster, node: Node) -> dict[Path, float] | None:
    """How often elements of ``node`` would be computed in a cluster, by path; None if it may not be
    there.
    """
    found: dict[Path, float] = {}
    value = node.result
    for user, position in value.uses:
        for path, count in cluster.evaluations.get(user, {}).items():
            if is_contraction(user):
                return None
            if is_elementwise(user) and value.type.shape == user.result.type.shape:
                found[path] = count
            elif is_map(user):
                reads = min(count, element_count(value)) if _reads_once(user) else count
                found[(user, position, *path)] = reads * _reads_per_element(user)
            else:
                reads = element_count(value) * _passes_over_operand(user)
                found[(user, position, *path)] = reads
    return found


def _reads_once(user: Node) -> bool:
    return user.op.name in ("transpose", "reshape", "slice", "pad", "relayout")


def _reads_per_element(user: Node) -> float:
    return 4.0 if user.op.name == "resize" else 1.0


def _passes_over_operand(user: Node) -> float:
    """How often a reduction reads each element of its operand."""
    if user.op.name in POOLS:
        window, strides = (getattr(user.op, name) for name in ("kernel", "strides"))
        passes = 1.0
        for extent, stride in zip(window, strides, strict=True):
            passes *= max(1.0, extent / stride)
        return passes
    once = user.op.name.startswith("reduce_") or isinstance(user.op, IndexFault)
    return 1.0 if once else 3.0


class Clusters:
    """The clusters of a graph, found by :meth:`form`."""

    def __init__(self, graph: Graph, policy: Policy) -> None:
        self._graph = graph
        self._policy = policy
        self._position = {node: i for i, node in enumerate(graph.nodes)}
        self._of: dict[Node, list[Cluster]] = {}

    def form(self) -> list[Cluster]:
        """All clusters; every node but constants, aliases and groups is in one (copied maps in
        several).
        """
        clusters: list[Cluster] = []
        compute = [n for n in self._graph.nodes if not _stays_outside(n)]
        for node in compute:
            if node not in self._of and not is_map(node):
                clusters.append(self._start(node, _kind(node)))
                if len(node.results) == 1 and _kind(node) != "opaque":
                    self._grow(clusters[-1])
        for cluster in clusters:
            self._count_evaluations(cluster)
        for node in reversed(compute):
            if node not in self._of and not self._join(node):
                clusters.append(self._start(node, "elementwise"))
                self._count_evaluations(clusters[-1])
        return clusters

    def _start(self, node: Node, kind: str) -> Cluster:
        cluster = Cluster(kind, node, node.results[0])
        self._add(cluster, node)
        return cluster

    def _add(self, cluster: Cluster, node: Node) -> None:
        cluster.nodes[node] = None
        self._of.setdefault(node, []).append(cluster)

    def _grow(self, cluster: Cluster) -> None:
        """Take the ops after the anchor as long as one value alone leaves in the end."""
        inside = set(cluster.nodes)
        leaving = {cluster.output}
        pending: list[Node] = []
        while not any(v.returned for v in leaving):
            users = {u for v in leaving for u in v.users if u not in inside}
            if not users:
                return
            node = min(users, key=self._position.__getitem__)
            if node in self._of or not self._policy.takes_after(cluster, pending, node):
                return
            inside.add(node)
            pending.append(node)
            leaving.add(node.result)
            leaving = {v for v in leaving if v.returned or any(u not in inside for u in v.users)}
            if leaving == {node.result} or not leaving:
                for each in pending:
                    self._add(cluster, each)
                cluster.output = node.result
                pending = []

    def _join(self, node: Node) -> bool:
        """Put a map into the cluster of its users, or a copy into each of several; False if it
        needs its own.
        """
        value = node.result
        users = value.users
        if value.returned or any(u not in self._of for u in users):
            return False
        clusters = list(dict.fromkeys(c for u in users for c in self._of[u]))
        if len(clusters) > 1 and not self._policy.copies(node):
            return False
        if not all(self._policy.takes_before(c, node) for c in clusters):
            return False
        for cluster in clusters:
            evaluations = evaluations_of(cluster, node)
            self._add(cluster, node)
            cluster.evaluations[node] = evaluations or {}
        return True

    def _count_evaluations(self, cluster: Cluster) -> None:
        """Everything from the anchor on is computed once for each element."""
        once: dict[Path, float] = {(): element_count(cluster.output)}
        cluster.evaluations = dict.fromkeys(cluster.nodes, once)


def _stays_outside(node: Node) -> bool:
    return isinstance(node.op, Constant) or is_alias(node) or bool(node.regions)


def _kind(node: Node) -> str:
    if is_contraction(node):
        return "contraction"
    return "reduction" if is_reduction(node) else "opaque"
