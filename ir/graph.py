# SPDX-License-Identifier: Apache-2.0
"""The graph IR: SSA values, nodes, graphs and modules.

A :class:`Graph` is a list of nodes in execution order with inputs and outputs; nodes hold ops,
operands, results and, for control flow and fusion groups, sub-graphs. A sub-graph sees only its own
inputs: what it needs from outside is passed as operands. Every value knows its users, so that
replacing a value costs as much as it has uses. Types live on values; ``origin`` names the model's
nodes that a node stands for, and survives every rewrite.

Text::

    module {
      symbol batch in [1, 1024] hint 8
      graph @main(x: f32[batch,3,224,224]) -> (logits) {
        %w: f32[64,3,7,7] = constant() {data=#3fa9...} "conv1.weight"
        %0: f32[batch,64,112,112] = conv(x, %w) {strides=(2, 2), pads=(3, 3, 3, 3)} "Conv_0"
        ...
        return %9
      }
    }

Constants are handles (:class:`ConstantRef`) into the module's store: text carries the hash, never
the bytes.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tilewright.ir.bounds import known_equal
from tilewright.ir.dtypes import STRING, DType, from_numpy
from tilewright.ir.expr import Symbol
from tilewright.ir.op import Array, Op
from tilewright.ir.types import TensorType, tensor


@dataclass(frozen=True)
class ConstantRef:
    """The handle of a constant: the SHA-256 of its bytes, dtype and static logical shape."""

    sha256: str
    dtype: DType
    shape: tuple[int, ...]

    def __str__(self) -> str:
        return f"#{self.sha256}"


def fits(ref: ConstantRef, type_: TensorType) -> bool:
    """False if a constant is known not to be of a type."""
    return (
        ref.dtype is type_.dtype
        and len(ref.shape) == type_.rank
        and all(known_equal(a, b) is not False for a, b in zip(ref.shape, type_.shape, strict=True))
    )


class ConstantStore:
    """The bytes behind the constants of a module, each kept once; arrays are read-only and may be
    mapped files.
    """

    def __init__(self) -> None:
        self._arrays: dict[str, Array] = {}
        self._known: dict[int, tuple[Array, ConstantRef]] = {}

    def add(self, array: Array) -> ConstantRef:
        """Keep an array and return its handle; it must not be written to any more."""
        known = self._known.get(id(array))
        if known is not None and known[0] is array:
            return known[1]
        plain = np.ascontiguousarray(array).reshape(np.shape(array))
        if not plain.dtype.isnative:
            plain = plain.astype(plain.dtype.newbyteorder("="))
        dtype = from_numpy(plain.dtype)
        shape: tuple[int, ...] = plain.shape
        digest = hashlib.sha256(f"{dtype}{shape}".encode())
        digest.update(_content(plain, dtype))
        key = digest.hexdigest()
        stored = self._arrays.get(key)
        if stored is None:
            stored = plain.view()
            stored.flags.writeable = False
            self._arrays[key] = stored
        ref = ConstantRef(key, dtype, shape)
        self._known[id(stored)] = (stored, ref)
        return ref

    def copy(self) -> "ConstantStore":
        """A store of its own with the same arrays, which are not copied."""
        twin = ConstantStore()
        twin._arrays, twin._known = dict(self._arrays), dict(self._known)
        return twin

    def items(self) -> Iterator[tuple[str, Array]]:
        """Hash and array of every constant, in order of arrival."""
        return iter(self._arrays.items())

    def __getitem__(self, ref: ConstantRef) -> Array:
        return self._arrays[ref.sha256]

    def __contains__(self, ref: ConstantRef) -> bool:
        return ref.sha256 in self._arrays

    def keep_only(self, refs: Iterable[ConstantRef]) -> None:
        """Forget all arrays but those of ``refs``."""
        keep = {r.sha256 for r in refs}
        self._arrays = {k: v for k, v in self._arrays.items() if k in keep}
        self._known = {k: v for k, v in self._known.items() if v[1].sha256 in keep}


def _content(array: Array, dtype: DType) -> bytes | memoryview:
    """The bytes that identify an array's elements."""
    if dtype is STRING:
        return json.dumps([str(s) for s in array.reshape(-1)]).encode()
    return array.reshape(-1).view(np.uint8).data if array.size else b""


@dataclass(eq=False)
class Value:
    """A tensor in the graph: the result of a node, or an input of a graph (then ``producer`` is
    None).

    ``name`` is a hint for printing; ``uses`` lists (node, operand position); ``returned`` counts
    uses as a graph output.
    """

    type: TensorType
    name: str = ""
    producer: "Node | None" = field(default=None, repr=False)
    uses: "list[tuple[Node, int]]" = field(default_factory=list, repr=False)
    returned: int = 0

    @property
    def use_count(self) -> int:
        """Uses as an operand and as a graph output."""
        return len(self.uses) + self.returned

    @property
    def users(self) -> "list[Node]":
        """The distinct nodes that use this value, in order of first use."""
        return list(dict.fromkeys(node for node, _ in self.uses))

    @property
    def op(self) -> Op | None:
        """The op that produces this value; None for a graph input."""
        return self.producer.op if self.producer else None


@dataclass(eq=False)
class Node:
    """An op applied to operands.

    Build it through :class:`Builder`; change operands through :meth:`set_operand`.
    """

    op: Op
    operands: list[Value]
    results: list[Value]
    regions: "list[Graph]" = field(default_factory=list, repr=False)
    origin: str = ""

    @property
    def result(self) -> Value:
        """The only result."""
        (only,) = self.results
        return only

    def set_operand(self, position: int, value: Value) -> None:
        """Replace one operand, keeping use lists true."""
        self.operands[position].uses.remove((self, position))
        self.operands[position] = value
        value.uses.append((self, position))


@dataclass(eq=False)
class Graph:
    """Nodes in execution order, with the values that come in and go out."""

    name: str
    inputs: list[Value] = field(default_factory=list)
    outputs: list[Value] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)

    def set_outputs(self, values: Sequence[Value]) -> None:
        """Declare what the graph returns."""
        for v in self.outputs:
            v.returned -= 1
        self.outputs = list(values)
        for v in self.outputs:
            v.returned += 1

    def replace(self, old: Value, new: Value) -> None:
        """Let every use of ``old``, as an operand or as an output, use ``new``."""
        if old is new:
            return
        for node, position in old.uses:
            node.operands[position] = new
            new.uses.append((node, position))
        old.uses = []
        if old.returned:
            self.outputs = [new if v is old else v for v in self.outputs]
            new.returned += old.returned
            old.returned = 0
        if not new.name:
            new.name = old.name

    def erase(self, dead: Iterable[Node]) -> None:
        """Remove nodes whose results have no uses outside them."""
        gone = set(dead)
        for node in gone:
            for position, operand in enumerate(node.operands):
                operand.uses.remove((node, position))
            node.operands = []
        self.nodes = [n for n in self.nodes if n not in gone]

    def sort(self) -> None:
        """Restore execution order after nodes were appended out of order; stable."""
        placed: set[Node] = set()
        order: list[Node] = []
        for root in self.nodes:
            stack: list[tuple[Node, bool]] = [(root, False)]
            while stack:
                node, ready = stack.pop()
                if node in placed:
                    continue
                if ready:
                    placed.add(node)
                    order.append(node)
                    continue
                stack.append((node, True))
                producers = [v.producer for v in reversed(node.operands) if v.producer is not None]
                stack.extend((p, False) for p in producers if p not in placed)
        self.nodes = order

    def walk(self) -> Iterator[Node]:
        """Every node, those of sub-graphs after the node that holds them."""
        stack = list(reversed(self.nodes))
        while stack:
            node = stack.pop()
            yield node
            for region in reversed(node.regions):
                stack.extend(reversed(region.nodes))

    def __str__(self) -> str:
        from tilewright.ir.graph_printer import graph_text

        return graph_text(self)


@dataclass(eq=False)
class Module:
    """A model: its graph, the symbols of its shapes and the store of its constants.

    ``input_names`` and ``output_names`` are the model's own names, in order; ``metadata`` is free
    text by key; ``files`` are those that constants were read from beside the model's own, relative
    to its folder. An input in ``defaults`` has that value in a call that gives none.
    """

    graph: Graph
    symbols: dict[str, Symbol] = field(default_factory=dict)
    constants: ConstantStore = field(default_factory=ConstantStore)
    input_names: list[str] = field(default_factory=list)
    output_names: list[str] = field(default_factory=list)
    metadata: dict[str, str] = field(default_factory=dict)
    files: tuple[str, ...] = ()
    defaults: dict[str, ConstantRef] = field(default_factory=dict)

    def __str__(self) -> str:
        from tilewright.ir.graph_printer import module_text

        return module_text(self)


class Builder:
    """Appends nodes to a graph, inferring types. ``origin`` is given to every node until changed.

    With ``before`` set, nodes go in front of that node instead of to the end.
    """

    def __init__(
        self, graph: Graph, constants: ConstantStore, origin: str = "", before: Node | None = None
    ) -> None:
        self.graph = graph
        self.constants = constants
        self.origin = origin
        self.position = len(graph.nodes) if before is None else graph.nodes.index(before)

    def add(
        self, op: Op, *operands: Value, regions: Sequence[Graph] = (), origin: str | None = None
    ) -> Node:
        """Append a node; TypeInferenceError if the operands do not fit the op."""
        types = op.infer([v.type for v in operands])
        return self.add_typed(op, operands, types, regions, origin)

    def add_typed(
        self,
        op: Op,
        operands: Sequence[Value],
        types: Sequence[TensorType],
        regions: Sequence[Graph] = (),
        origin: str | None = None,
    ) -> Node:
        """Append a node whose result types are given, such as a relayout or a fusion group."""
        node = Node(
            op, list(operands), [], list(regions), self.origin if origin is None else origin
        )
        node.results = [Value(t, producer=node) for t in types]
        for position, operand in enumerate(operands):
            operand.uses.append((node, position))
        self.graph.nodes.insert(self.position, node)
        self.position += 1
        return node

    def take_back(self, begin: int) -> list[Node]:
        """Remove the nodes that were added since ``position`` was ``begin``, and return them; only
        they may use their results.
        """
        gone = self.graph.nodes[begin : self.position]
        for node in reversed(gone):
            for position, operand in enumerate(node.operands):
                operand.uses.remove((node, position))
        del self.graph.nodes[begin : self.position]
        self.position = begin
        return gone

    def __call__(self, op: Op, *operands: Value) -> Value:
        """Append a node with one result and return that."""
        return self.add(op, *operands).result

    def constant(self, array: Any, dtype: DType | None = None, name: str = "") -> Value:
        """Append a constant node for an array (cast to ``dtype`` if given)."""
        array = np.asarray(array)
        if dtype is not None:
            array = array.astype(dtype.numpy)
        ref = self.constants.add(array)
        value = self.add_typed(Constant(ref), (), (tensor(ref.dtype, ref.shape),)).result
        value.name = name
        return value


@dataclass(frozen=True)
class Constant(Op):
    """A constant tensor; ``data`` is its handle."""

    name = "constant"
    data: ConstantRef

    def infer(self, operands: Sequence[TensorType]) -> tuple[TensorType, ...]:
        self.expect_operands(operands, 0)
        return (tensor(self.data.dtype, self.data.shape),)


def constant_array(value: Value, constants: ConstantStore) -> Array | None:
    """The array behind a constant value in its logical shape; None for any other value."""
    return constants[value.op.data] if isinstance(value.op, Constant) else None


def clone_graph(
    graph: Graph, rename: Callable[[str], str] = lambda n: n
) -> tuple[Graph, Mapping[Value, Value]]:
    """A deep copy of a graph and the map from old values to new ones."""
    copy = Graph(rename(graph.name))
    values: dict[Value, Value] = {}
    for v in graph.inputs:
        values[v] = Value(v.type, v.name)
    copy.inputs = [values[v] for v in graph.inputs]
    for node in graph.nodes:
        regions = [clone_graph(r)[0] for r in node.regions]
        twin = Node(node.op, [values[v] for v in node.operands], [], regions, node.origin)
        for position, operand in enumerate(twin.operands):
            operand.uses.append((twin, position))
        for v in node.results:
            values[v] = Value(v.type, v.name, twin)
        twin.results = [values[v] for v in node.results]
        copy.nodes.append(twin)
    copy.set_outputs([values[v] for v in graph.outputs])
    return copy, values
