# SPDX-License-Identifier: Apache-2.0
"""The verifier of the graph IR. It holds a module to these invariants:

* **G1** A symbol is declared under its own name, which is a legal name and no word of the text
  form; its bounds are in order, its multiple is positive.
* **G2** An operand is an input of the same graph or a result of an earlier node of it.
* **G3** A value is defined once: it knows the node that produces it, an input knows none.
* **G4** Use lists are exact: each operand is listed once under its position, and ``returned``
  counts outputs.
* **G5** An output of a graph is a value of that graph.
* **G6** A node holds as many sub-graphs as its op says; sub-graphs have no groups inside groups.
* **G7** Result types are what the op infers, as far as dims can be told apart, and up to layout.
* **G8** The inputs of a group's region have the types of its operands, its outputs those of its
  results.
* **G9** Every symbol in a type or an attribute is declared by the module.
* **G10** A constant is in the store, with the element type and shape of its handle and of its
  result.
* **G11** A type is well formed: no negative dim, a layout that orders every axis once, positive
  blocks.
* **G12** Attributes are of types that the text form can carry.
* **G13** The model's names of inputs and outputs are as many as those, or none, and inputs' are
  distinct.
* **G14** A default is in the store, and may be of the type of the input that it belongs to.

A violation raises VerifyError with the number, the lines around the fault, and the origin in the
model.
"""

from collections.abc import Mapping
from typing import Any, NoReturn

from tilewright.ir.bounds import known_equal
from tilewright.ir.dtypes import BY_NAME
from tilewright.ir.errors import TypeInferenceError, VerifyError
from tilewright.ir.expr import Const, Expr, Symbol, free_variables
from tilewright.ir.graph import Constant, ConstantStore, Graph, Module, Node, Value, fits
from tilewright.ir.graph_printer import attribute_text, graph_text, node_text, value_names
from tilewright.ir.lexer import is_name
from tilewright.ir.types import TensorType

RESERVED = frozenset((*BY_NAME, "true", "false", "none", "inf", "nan", "symbol"))
_CONTEXT = 2


def verify_module(module: Module) -> None:
    """Check all invariants; VerifyError on the first that does not hold."""
    for name, symbol in module.symbols.items():
        _verify_symbol(name, symbol)
    for names, values in (
        (module.input_names, module.graph.inputs),
        (module.output_names, module.graph.outputs),
    ):
        if names and len(names) != len(values):
            raise VerifyError(f"[G13] There are {len(names)} names for {len(values)} values.")
    if len(set(module.input_names)) != len(module.input_names):
        raise VerifyError("[G13] Two inputs have the same name.")
    for name in module.defaults:
        _verify_default(module, name)
    verify_graph(module.graph, module.symbols, module.constants)


def _verify_default(module: Module, name: str) -> None:
    ref = module.defaults[name]
    if name not in module.input_names:
        raise VerifyError(f"[G14] '{name}' has a default, but is no input.")
    type_ = module.graph.inputs[module.input_names.index(name)].type
    if ref not in module.constants:
        raise VerifyError(f"[G14] The default of '{name}' is not in the store.")
    if not fits(ref, type_):
        raise VerifyError(
            f"[G14] The default of '{name}' is {ref.dtype}{list(ref.shape)}, not {type_}."
        )


def _verify_symbol(name: str, symbol: Symbol) -> None:
    if symbol.name != name:
        raise VerifyError(f"[G1] Symbol '{symbol.name}' is declared as '{name}'.")
    if not is_name(name) or name in RESERVED:
        raise VerifyError(f"[G1] '{name}' cannot name a symbol.")
    if symbol.lo > symbol.hi or symbol.multiple < 1:
        raise VerifyError(
            f"[G1] Symbol '{name}' lies in [{symbol.lo}, {symbol.hi}] and is a multiple of "
            f"{symbol.multiple}."
        )


def verify_graph(
    graph: Graph, symbols: Mapping[str, Symbol], constants: ConstantStore | None = None
) -> None:
    """Check one graph and its sub-graphs; without a store, only G10 is left out."""
    stack = [(graph, False)]
    while stack:
        each, in_group = stack.pop()
        _GraphVerifier(each, symbols, constants, in_group).run()
        for node in each.nodes:
            is_group = in_group or node.op.name == "group"
            stack.extend((region, is_group) for region in node.regions)


class _GraphVerifier:
    """Checks one graph, sub-graphs not included."""

    def __init__(
        self,
        graph: Graph,
        symbols: Mapping[str, Symbol],
        constants: ConstantStore | None,
        in_group: bool,
    ) -> None:
        self.graph = graph
        self.symbols = symbols
        self.constants = constants
        self.in_group = in_group

    def run(self) -> None:
        defined: set[Value] = set()
        for value in self.graph.inputs:
            if value.producer is not None:
                self.fail("G3", f"Input '{value.name}' is also the result of a node.")
            self._define(value, defined, None)
        for node in self.graph.nodes:
            self._attributes(node)
            self._structure(node, defined)
            self._types(node)
        for position, value in enumerate(self.graph.outputs):
            if value not in defined:
                self.fail("G5", f"Output {position} is no value of the graph '{self.graph.name}'.")
        self._uses(defined)

    def fail(self, rule: str, message: str, node: Node | None = None) -> NoReturn:
        """Raise VerifyError, showing the lines around a node."""
        text = [f"[{rule}] {message}"]
        if node is not None and node.origin:
            text[0] += f" The node stands for '{node.origin}'."
        lines = graph_text(self.graph).split("\n")
        at = -1
        if node is not None:
            line = "  " + node_text(node, value_names(self.graph))
            at = next((i for i, known in enumerate(lines) if known.startswith(line)), -1)
        for i in range(max(0, at - _CONTEXT), min(len(lines), max(at, 0) + _CONTEXT + 1)):
            text.append(f"{'>' if i == at else ' '} {lines[i]}")
        raise VerifyError("\n".join(text))

    def _define(self, value: Value, defined: set[Value], node: Node | None) -> None:
        if value in defined:
            self.fail("G3", f"Value '{value.name}' of type {value.type} is defined twice.", node)
        defined.add(value)
        self._type(value.type, node)

    def _structure(self, node: Node, defined: set[Value]) -> None:
        for position, operand in enumerate(node.operands):
            if operand not in defined:
                self.fail(
                    "G2", f"Operand {position} of '{node.op.name}' is not defined before it.", node
                )
        for value in node.results:
            if value.producer is not node:
                self.fail("G3", f"A result of '{node.op.name}' has another producer.", node)
            self._define(value, defined, node)
        if len(node.regions) != node.op.regions:
            self.fail(
                "G6",
                f"'{node.op.name}' holds {len(node.regions)} sub-graphs, not {node.op.regions}.",
                node,
            )
        if self.in_group and node.op.name == "group":
            self.fail("G6", "A group is inside a group.", node)

    def _uses(self, defined: set[Value]) -> None:
        expected: dict[Value, set[tuple[int, int]]] = {v: set() for v in defined}
        for node in self.graph.nodes:
            for position, operand in enumerate(node.operands):
                expected[operand].add((id(node), position))
        for value in defined:
            listed = [(id(node), position) for node, position in value.uses]
            if len(listed) != len(set(listed)) or set(listed) != expected[value]:
                self.fail(
                    "G4",
                    f"Value '{value.name}' of type {value.type} lists {len(listed)} uses, "
                    f"but nodes use it {len(expected[value])} times.",
                    value.producer,
                )
            returned = sum(v is value for v in self.graph.outputs)
            if value.returned != returned:
                self.fail(
                    "G4",
                    f"Value '{value.name}' counts {value.returned} uses as output, not {returned}.",
                    value.producer,
                )

    def _type(self, kind: TensorType, node: Node | None) -> None:
        for d in kind.shape:
            self._declared(d, node)
            if isinstance(d, Const) and int(d.literal) < 0:
                self.fail("G11", f"Type {kind} has a negative dim.", node)
        if sorted(kind.layout.order) != list(range(kind.rank)):
            self.fail("G11", f"The layout of {kind} does not order its axes.", node)
        if any(not 0 <= axis < kind.rank or f < 1 for axis, f in kind.layout.blocks):
            self.fail("G11", f"The layout of {kind} has a wrong block.", node)

    def _declared(self, e: Expr, node: Node | None) -> None:
        for v in free_variables(e):
            if not isinstance(v, Symbol) or self.symbols.get(v.name) is not v:
                self.fail("G9", f"'{v}' in '{e}' is not a symbol of the module.", node)

    def _attributes(self, node: Node) -> None:
        for name, value in node.op.attributes().items():
            try:
                attribute_text(value)
            except TypeError as error:
                # Without the lines around it, which would not print either.
                origin = f" The node stands for '{node.origin}'." if node.origin else ""
                raise VerifyError(f"[G12] '{name}' of '{node.op.name}': {error}{origin}") from None
            self._attribute_symbols(value, node)

    def _attribute_symbols(self, value: Any, node: Node) -> None:
        if isinstance(value, Expr):
            self._declared(value, node)
        elif isinstance(value, tuple):
            for each in value:
                self._attribute_symbols(each, node)

    def _types(self, node: Node) -> None:
        if isinstance(node.op, Constant):
            self._constant(node, node.op)
        if node.op.name == "group" and node.regions:
            self._region(node)
        if node.regions:
            return
        try:
            inferred = node.op.infer([v.type for v in node.operands])
        except TypeInferenceError as error:
            self.fail("G7", str(error), node)
        if len(inferred) != len(node.results):
            self.fail(
                "G7",
                f"'{node.op.name}' has {len(node.results)} results, not {len(inferred)}.",
                node,
            )
        for value, kind in zip(node.results, inferred, strict=True):
            if not _compatible(value.type, kind):
                self.fail(
                    "G7", f"'{node.op.name}' gives {kind}, but its result is {value.type}.", node
                )

    def _constant(self, node: Node, op: Constant) -> None:
        if self.constants is None:
            return
        if op.data not in self.constants:
            self.fail("G10", f"Constant '{op.data}' is not in the store.", node)
        array = self.constants[op.data]
        if array.shape != op.data.shape or array.dtype != op.data.dtype.numpy:
            self.fail(
                "G10",
                f"Constant '{op.data}' is {array.dtype}{list(array.shape)} in the store, "
                f"{op.data.dtype.full_name}{list(op.data.shape)} in its handle.",
                node,
            )

    def _region(self, node: Node) -> None:
        (region,) = node.regions
        for what, inside, outside in (
            ("input", region.inputs, node.operands),
            ("output", region.outputs, node.results),
        ):
            if len(inside) != len(outside):
                self.fail("G8", f"The region has {len(inside)} {what}s, not {len(outside)}.", node)
            for position, (x, y) in enumerate(zip(inside, outside, strict=True)):
                if x.type is not y.type:
                    self.fail(
                        "G8",
                        f"The {what} {position} of the region is {x.type}, outside it is {y.type}.",
                        node,
                    )


def _compatible(stated: TensorType, inferred: TensorType) -> bool:
    """True if the types may be the same: equal but for layout and for dims that cannot be told."""
    return (
        stated.dtype is inferred.dtype
        and stated.rank == inferred.rank
        and all(
            known_equal(x, y) is not False
            for x, y in zip(stated.shape, inferred.shape, strict=True)
        )
    )
