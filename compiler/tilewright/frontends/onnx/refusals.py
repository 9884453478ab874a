# SPDX-License-Identifier: Apache-2.0
"""What stands against an import, gathered so that one message tells all of it.

A node that cannot be imported does not end the walk: its results are blocked, what depends on them
is skipped, and its sub-graphs and the body of the function that it calls are still searched for
operators that nothing here knows. Whatever else was wrong is told only if every operator is
supported, since it may be another fault that no export mends.
"""

from collections.abc import Iterable, Mapping

import onnx

from tilewright.frontends.names import printable, quoted
from tilewright.frontends.onnx.expansion import FunctionKey, called
from tilewright.frontends.onnx.functions import has_standard_body
from tilewright.frontends.onnx.order import sub_graphs
from tilewright.frontends.onnx.reasons import COMPUTED
from tilewright.frontends.onnx.registry import find_handler, nearest_operator
from tilewright.frontends.sizes import Inputs, way_to_fix
from tilewright.ir.errors import FrontendError, ShapesError, UnsupportedOperatorError

_MOST_SHOWN = 50
_DEEPEST = 100  # sub-graphs within each other; the walk allows fewer


class Refusals:
    """The refusals of one import. ``functions`` are the model's."""

    def __init__(self, functions: Mapping[FunctionKey, onnx.FunctionProto]) -> None:
        self._functions = functions
        self._nodes: dict[str, dict[str, None]] = {}  # the nodes of each entry, by their origins
        self._near: dict[str, None] = {}
        self._fixable: set[str] = set()  # entries that sizes for dims would help
        self._computed: set[str] = set()  # entries that constants would help
        self._dims: set[str] = set()
        self._errors: list[FrontendError] = []
        self._unshaped: list[str] = []

    # --- gathering ---

    def add_operator(
        self,
        node: onnx.NodeProto,
        version: int,
        origin: str,
        reason: str = "",
        dims: Iterable[str] = (),
    ) -> None:
        """A node that is not supported, or not in this form; ``dims`` are symbolic ones whose sizes
        would help.
        """
        entry = operator_text(node, version) + (f", since {reason}" if reason else "")
        self._nodes.setdefault(entry, {})[origin] = None
        dims = tuple(dims)
        if dims:
            self._fixable.add(entry)
            self._dims.update(dims)
        elif COMPUTED in reason:
            self._computed.add(entry)
        near = nearest_operator(node.domain, node.op_type)
        if near and not reason:
            self._near[near] = None

    def add_error(self, error: FrontendError) -> None:
        """Another fault of the model."""
        self._errors.append(error)

    def add_unshaped(self, name: str) -> None:
        """An input without a shape."""
        self._unshaped.append(name)

    def search(
        self, nodes: Iterable[onnx.NodeProto], opsets: Mapping[str, int], prefix: str
    ) -> None:
        """Gather the unknown operators of nodes that will not be walked, and of all inside them."""
        self._search(nodes, opsets, prefix, set(), 0)

    def search_inside(self, node: onnx.NodeProto, opsets: Mapping[str, int], origin: str) -> None:
        """Gather the unknown operators of a node's sub-graphs and of the function that it calls."""
        self._inside(node, opsets, origin, set(), 0)

    def _search(
        self,
        nodes: Iterable[onnx.NodeProto],
        opsets: Mapping[str, int],
        prefix: str,
        seen: set[FunctionKey],
        nesting: int,
    ) -> None:
        for position, node in enumerate(nodes):
            origin = node_origin(node, position, prefix)
            version = opsets.get(domain_of(node), 1)
            if not self.is_known(node, version):
                self.add_operator(node, version, origin)
            self._inside(node, opsets, origin, seen, nesting)

    def _inside(
        self,
        node: onnx.NodeProto,
        opsets: Mapping[str, int],
        origin: str,
        seen: set[FunctionKey],
        nesting: int,
    ) -> None:
        if nesting > _DEEPEST:
            return
        for graph in sub_graphs(node):
            self._search(graph.node, opsets, f"{origin}/", seen, nesting + 1)
        key = called(node)
        function = self._functions.get(key)
        if function is not None and key not in seen:
            seen.add(key)
            inner = {
                ("" if o.domain == "ai.onnx" else o.domain): o.version
                for o in function.opset_import
            }
            self._search(function.node, {**opsets, **inner}, f"{origin}/", seen, nesting + 1)

    def is_known(self, node: onnx.NodeProto, version: int) -> bool:
        """True if an operator has a meaning here, whatever its node's operands and attributes."""
        domain = domain_of(node)
        return (
            called(node) in self._functions
            or find_handler(domain, node.op_type, version) is not None
            or has_standard_body(domain, node.op_type, version)
        )

    # --- telling ---

    def raise_first(self, inputs: Inputs) -> None:
        """The error that tells all operators that are not supported; else the first other fault;
        else that inputs have no shape; nothing if there are none. ``inputs`` are those of the model
        by name.
        """
        if self._nodes:
            counts = {entry: len(origins) for entry, origins in self._nodes.items()}
            raise UnsupportedOperatorError(self._message(inputs), counts, self._besides())
        for error in self._errors:
            raise error
        for name in self._unshaped:
            raise ShapesError(unshaped_text(name))

    def _besides(self) -> str:
        """What else is wrong with a model that has unsupported operators."""
        for error in self._errors:
            return str(error)
        return unshaped_text(self._unshaped[0]) if self._unshaped else ""

    def _message(self, inputs: Inputs) -> str:
        listed = [
            f"{entry}: {len(origins)} nodes, the first {quoted(next(iter(origins)))}"
            if len(origins) > 1
            else f"{entry}: 1 node, {quoted(next(iter(origins)))}"
            for entry, origins in sorted(self._nodes.items())
        ]
        shown = "; ".join(listed[:_MOST_SHOWN])
        if len(listed) > _MOST_SHOWN:
            shown += f"; and {len(listed) - _MOST_SHOWN} more"
        sentences = [f"The model uses operators that are not supported: {shown}."]
        sentences += [f"Did you mean {quoted(near)}?" for near in list(self._near)[:5]]
        if self._dims:
            sentences.append(way_to_fix(sorted(self._dims), inputs))
        if self._computed:
            sentences.append(
                "Make constants of what is computed at run time there, or compute it from the "
                "shapes of inputs."
            )
        if self._nodes.keys() - self._fixable - self._computed:
            sentences.append(
                "Export it with other operators, or with these as functions of the model."
            )
        if besides := self._besides():
            sentences.append(f"Besides: {besides}")
        return " ".join(filter(None, sentences))


def unshaped_text(name: str) -> str:
    """That an input has no shape, and how to give one."""
    return (
        f"Input {quoted(name)} has no shape in the model. Give one, as --shape "
        f"{printable(name)}=n,4 on the command line or shapes={{{name!r}: ('n', 4)}} in "
        "Python; a word as a dim keeps it symbolic."
    )


def operator_text(node: onnx.NodeProto, version: int) -> str:
    """An operator by the name that stands in the file, with its operator set."""
    domain = printable(node.domain, 60) or "ai.onnx"
    return f"{printable(node.op_type, 60)} ({domain} {version})"


def domain_of(node: onnx.NodeProto) -> str:
    """A node's domain; the standard's has no name."""
    return "" if node.domain == "ai.onnx" else node.domain


def node_origin(node: onnx.NodeProto, position: int, prefix: str) -> str:
    """A node for messages and profiles: its name, or its operator and its place."""
    return prefix + printable(node.name or f"{node.op_type}_{position}")
