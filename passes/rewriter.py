# SPDX-License-Identifier: Apache-2.0
"""Worklist-driven rewriting of graphs by local rules.

A rule sees one node and returns the values that replace its results, having built what it needs, or
None. New nodes, the users of a replacement and the producers of what lost a use are looked at
again, so rules reach a fixed point together in time near-linear in the rewrites. Nodes without
effects and uses are dropped on the way.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from tilewright.ir.errors import PassError
from tilewright.ir.graph import Builder, ConstantStore, Graph, Module, Node, Value

Rule = Callable[[Node, Builder], Sequence[Value] | Value | None]

_MOST_REWRITES_PER_NODE = 200
_FEW_USES = 8


def graphs_of(module: Module) -> Iterator[Graph]:
    """The main graph and every sub-graph, outer ones first."""
    yield module.graph
    for node in module.graph.walk():
        yield from node.regions


def rewrite_module(module: Module, rules: Mapping[str, Sequence[Rule]]) -> bool:
    """Apply rules, by the name of the op they match (``*`` for any), to all graphs; True if any
    applied.
    """
    changed = False
    for graph in list(graphs_of(module)):
        changed |= Rewriter(graph, module.constants, rules).run()
    return changed


class Rewriter:
    """One run over one graph."""

    def __init__(
        self, graph: Graph, constants: ConstantStore, rules: Mapping[str, Sequence[Rule]]
    ) -> None:
        self._graph = graph
        self._constants = constants
        self._rules = rules
        self._queue = deque(graph.nodes)
        self._queued = set(graph.nodes)
        self._dead: set[Node] = set()
        # New nodes in front of the node that they were built for.
        self._before: dict[Node, list[Node]] = {}

    def run(self) -> bool:
        """Rewrite until no rule applies; True if any did. PassError if the rules do not come to an
        end.
        """
        budget = _MOST_REWRITES_PER_NODE * (len(self._queue) + 10)
        changed = False
        while self._queue:
            node = self._queue.popleft()
            self._queued.discard(node)
            if node in self._dead:
                continue
            if not node.op.effects and not any(v.use_count for v in node.results):
                self._erase(node)
                changed = True
                continue
            if self._apply(node):
                changed = True
                budget -= 1
                if budget < 0:
                    raise PassError(f"Rewriting does not end at a node '{node.op.name}'.")
        if changed:
            self._graph.nodes = list(self._linear())
        return changed

    def _apply(self, node: Node) -> bool:
        for rule in (*self._rules.get(node.op.name, ()), *self._rules.get("*", ())):
            scratch = Graph("")
            found = rule(node, Builder(scratch, self._constants, node.origin))
            if found is None:
                self._forget(scratch.nodes)
                continue
            values = [found] if isinstance(found, Value) else list(found)
            self._before.setdefault(node, []).extend(scratch.nodes)
            self._push(scratch.nodes)
            for old, new in zip(node.results, values, strict=True):
                if new.type.dtype is not old.type.dtype:
                    raise PassError(
                        f"Rule '{getattr(rule, '__name__', rule)}' makes {new.type.dtype} of the "
                        f"{old.type.dtype} of '{node.op.name}'."
                    )
                self._push(old.users)
                self._graph.replace(old, new)
            self._erase(node)
            return True
        return False

    def _forget(self, nodes: Iterable[Node]) -> None:
        """Undo the uses that a rule made before it gave up."""
        for node in nodes:
            for position, operand in enumerate(node.operands):
                operand.uses.remove((node, position))

    def _erase(self, node: Node) -> None:
        self._dead.add(node)
        for position, operand in enumerate(node.operands):
            operand.uses.remove((node, position))
            if operand.producer is not None:
                self._push([operand.producer])
            # Rules that ask for few or alike uses may now apply to the users that are left.
            if operand.use_count <= _FEW_USES:
                self._push(operand.users)
        node.operands = []

    def _push(self, nodes: Iterable[Node]) -> None:
        for node in nodes:
            if node not in self._queued and node not in self._dead:
                self._queued.add(node)
                self._queue.append(node)

    def _linear(self) -> Iterator[Node]:
        stack = [(node, False) for node in reversed(self._graph.nodes)]
        while stack:
            node, expanded = stack.pop()
            if not expanded and node in self._before:
                stack.append((node, True))
                stack.extend((n, False) for n in reversed(self._before[node]))
            elif node not in self._dead:
                yield node
