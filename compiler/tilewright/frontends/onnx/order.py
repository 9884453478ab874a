# SPDX-License-Identifier: Apache-2.0
"""The order of a graph's nodes: producers first, nothing that no output needs.

Files in the wild hold nodes out of order and dead nodes; both are accepted. Cycles, names defined
twice and names defined nowhere are errors. A node's sub-graphs count as uses of the names that they
take from around it.
"""

import heapq
from collections.abc import Callable, Sequence

import onnx

from tilewright.frontends.names import quoted
from tilewright.frontends.onnx.limits import Limits
from tilewright.ir.errors import FrontendError


def describe(node: onnx.NodeProto) -> str:
    """A node for a message: its name if it has one, and its operator."""
    return f"{quoted(node.name or node.op_type)} ({quoted(node.op_type)[1:-1]})"


def outer_names(graph: onnx.GraphProto, limits: Limits) -> set[str]:
    """The names that a sub-graph takes from around it, its own sub-graphs included."""
    found: set[str] = set()
    stack: list[tuple[onnx.GraphProto, frozenset[str], int]] = [(graph, frozenset(), 1)]
    while stack:
        current, above, nesting = stack.pop()
        limits.check("The nesting of sub-graphs", nesting, "nesting")
        own = {i.name for i in current.input} | {t.name for t in current.initializer}
        own |= {t.values.name for t in current.sparse_initializer}
        own |= {name for node in current.node for name in node.output}
        inner = above | own
        used = {name for node in current.node for name in node.input if name}
        used |= {o.name for o in current.output}
        found |= used - inner
        for node in current.node:
            stack.extend((g, inner, nesting + 1) for g in sub_graphs(node))
    return found


def sub_graphs(node: onnx.NodeProto) -> list[onnx.GraphProto]:
    """The sub-graphs that a node holds as attributes."""
    graphs: list[onnx.GraphProto] = []
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            graphs.append(attribute.g)
        elif attribute.type == onnx.AttributeProto.GRAPHS:
            graphs.extend(attribute.graphs)
    return graphs


def ordered(
    nodes: Sequence[onnx.NodeProto],
    wanted: Sequence[str],
    is_known: Callable[[str], bool],
    limits: Limits,
) -> tuple[list[onnx.NodeProto], set[str]]:
    """The nodes that ``wanted`` names depend on, in an order in which producers come first; stable;
    and the names that these nodes and ``wanted`` use.

    ``is_known`` tells which names come from outside: inputs, initialisers, the scope around.
    """
    producer: dict[str, int] = {}
    for position, node in enumerate(nodes):
        for name in node.output:
            if not name:
                continue
            if name in producer or is_known(name):
                raise FrontendError(
                    f"The name {quoted(name)} is defined twice: by node {describe(node)} and "
                    "before it. "
                    "Export the model again."
                )
            producer[name] = position
    needs = [_needs(node, limits) for node in nodes]
    live = _live(nodes, needs, wanted, producer, is_known)
    used = {name for position in live for name in needs[position]} | set(wanted)
    return _sorted(nodes, needs, live, producer), used


def _needs(node: onnx.NodeProto, limits: Limits) -> list[str]:
    names = [name for name in node.input if name]
    for graph in sub_graphs(node):
        names.extend(sorted(outer_names(graph, limits)))
    return names


def _live(
    nodes: Sequence[onnx.NodeProto],
    needs: list[list[str]],
    wanted: Sequence[str],
    producer: dict[str, int],
    is_known: Callable[[str], bool],
) -> set[int]:
    """Positions of the nodes that the wanted names need; FrontendError for a name that nothing
    defines.
    """
    live: set[int] = set()
    stack: list[tuple[str, int | None]] = [(name, None) for name in wanted]
    while stack:
        name, user = stack.pop()
        position = producer.get(name)
        if position is None:
            if is_known(name):
                continue
            by = "as a graph output" if user is None else f"by node {describe(nodes[user])}"
            raise FrontendError(
                f"The name {quoted(name)} is used {by} but is neither an input, an initialiser "
                "nor a result of a "
                "node. Fetch or export the model again."
            )
        if position not in live:
            live.add(position)
            stack.extend((n, position) for n in needs[position])
    return live


def _sorted(
    nodes: Sequence[onnx.NodeProto],
    needs: list[list[str]],
    live: set[int],
    producer: dict[str, int],
) -> list[onnx.NodeProto]:
    """Kahn's algorithm; among ready nodes the first in the file goes first."""
    waiting: dict[int, int] = {}
    users: dict[int, list[int]] = {}
    for position in live:
        sources = {producer[n] for n in needs[position] if n in producer}
        waiting[position] = len(sources)
        for source in sources:
            users.setdefault(source, []).append(position)
    ready = [position for position, count in waiting.items() if count == 0]
    heapq.heapify(ready)
    result: list[onnx.NodeProto] = []
    while ready:
        position = heapq.heappop(ready)
        result.append(nodes[position])
        del waiting[position]
        for user in users.get(position, ()):
            waiting[user] -= 1
            if waiting[user] == 0:
                heapq.heappush(ready, user)
    if waiting:
        cycle = _cycle(waiting, needs, producer)
        shown = ", ".join(describe(nodes[p]) for p in cycle[:5])
        raise FrontendError(
            f"The graph has a cycle of length {len(cycle)} through {shown}. Export the model again."
        )
    return result


def _cycle(waiting: dict[int, int], needs: list[list[str]], producer: dict[str, int]) -> list[int]:
    """A cycle among nodes that wait: from one of them on, always to a producer that waits too."""
    path: list[int] = []
    steps: dict[int, int] = {}
    position = min(waiting)
    while position not in steps:
        steps[position] = len(path)
        path.append(position)
        position = next(producer[n] for n in needs[position] if producer.get(n) in waiting)
    return path[steps[position] :][::-1]
