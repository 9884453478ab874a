# SPDX-License-Identifier: Apache-2.0
"""How many nodes a model has once its functions are inlined, told before any is.

Functions that call others twice, and these again, make a few lines stand for billions of nodes. The
size of each function is found once, those of what it calls first.
"""

from collections.abc import Iterable, Iterator, Mapping

import onnx

from tilewright.frontends.onnx.order import sub_graphs

FunctionKey = tuple[str, str, str]
Functions = Mapping[FunctionKey, onnx.FunctionProto]
_MOST = 1 << 62  # more than this is not told apart
_DEEPEST = 100  # sub-graphs within each other; the walk allows fewer


def called(node: onnx.NodeProto) -> FunctionKey:
    """The function that a node calls, if the model has one of that name."""
    domain = "" if node.domain == "ai.onnx" else node.domain
    return domain, node.op_type, node.overload


def expanded_size(graph: onnx.GraphProto, functions: Functions) -> int:
    """The nodes of a graph, with those of a function's body for each call and of one sub-graph, the
    largest, for each node that has some. A function that calls itself counts once; the walk refuses
    it.
    """
    sizes: dict[FunctionKey, int] = {}
    for key in _callees_first(graph, functions):
        sizes[key] = _size(functions[key].node, sizes)
    return _size(graph.node, sizes)


def _size(
    nodes: Iterable[onnx.NodeProto], sizes: Mapping[FunctionKey, int], nesting: int = 0
) -> int:
    total = 0
    for node in nodes:
        total += 1 + sizes.get(called(node), 0)
        if nesting < _DEEPEST:
            inner = (_size(g.node, sizes, nesting + 1) for g in sub_graphs(node))
            total += max(inner, default=0)
    return min(total, _MOST)


def _callees_first(graph: onnx.GraphProto, functions: Functions) -> list[FunctionKey]:
    """The functions that a graph needs, each after those that it calls."""
    order: list[FunctionKey] = []
    seen: set[FunctionKey] = set()
    stack: list[tuple[FunctionKey | None, Iterator[FunctionKey]]] = [
        (None, _calls(graph.node, functions))
    ]
    while stack:
        key, calls = stack[-1]
        callee = next((c for c in calls if c not in seen), None)
        if callee is not None:
            seen.add(callee)
            stack.append((callee, _calls(functions[callee].node, functions)))
            continue
        stack.pop()
        if key is not None:
            order.append(key)
    return order


def _calls(nodes: Iterable[onnx.NodeProto], functions: Functions) -> Iterator[FunctionKey]:
    """The functions that nodes call, also in their sub-graphs."""
    waiting = [nodes]
    while waiting:
        for node in waiting.pop():
            if called(node) in functions:
                yield called(node)
            waiting.extend(g.node for g in sub_graphs(node))
