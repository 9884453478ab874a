# SPDX-License-Identifier: Apache-2.0
"""Parser of the graph IR.

The syntax is shown in :mod:`tilewright.ir.graph` and :mod:`tilewright.ir.graph_printer`. Attributes
are read by their form; the annotation of the op's field decides only whether an integer is a number
or a dim. Result types are taken from the text; :mod:`tilewright.ir.verify_graph` holds them to what
the op infers.
"""

import difflib
import importlib
import typing
from collections.abc import Sequence
from dataclasses import MISSING, fields
from typing import Any

from tilewright.ir.dtypes import BY_NAME
from tilewright.ir.errors import TilewrightError
from tilewright.ir.expr import Expr
from tilewright.ir.expr_parser import ExprParser
from tilewright.ir.graph import ConstantRef, ConstantStore, Graph, Module, Node, Value
from tilewright.ir.lexer import Token
from tilewright.ir.op import Op
from tilewright.ir.types import TensorType

_WORDS = {"none": None, "true": True, "false": False}
_DIM_FIELDS: dict[type[Op], frozenset[str]] = {}


class GraphParser(ExprParser):
    """Parses modules and graphs."""

    def module(self, constants: ConstantStore) -> Module:
        """A module over the given store."""
        self.expect("module")
        self.expect("{")
        symbols = self.declare_symbols()
        while self.accept("symbol"):
            self.symbol()
        metadata: dict[str, str] = {}
        while self.accept("metadata"):
            key = self.string()
            self.expect("=")
            metadata[key] = self.string()
        defaults: dict[str, ConstantRef] = {}
        while self.accept("default"):
            name = self.string()
            self.expect("=")
            defaults[name] = self._constant(self.tensor_type())
        graph, input_names, output_names = self.graph()
        self.expect("}")
        module = Module(graph, symbols, constants, input_names, output_names, metadata)
        module.defaults = defaults
        return module

    def graph(self) -> tuple[Graph, list[str], list[str]]:
        """A graph, and the model's names of its inputs and outputs."""
        self.expect("graph")
        graph = Graph(self.take("at", "the name of a graph, such as '@main'")[1:])
        values: dict[str, Value] = {}
        self.expect("(")
        input_names = self.separated(lambda: self._input(graph, values), ")")
        output_names: list[str] = []
        if self.accept("->"):
            self.expect("(")
            output_names = self.separated(self._model_name, ")")
        self.expect("{")
        while self.token.text != "return":
            graph.nodes.append(self._node(values))
        self.next()
        outputs: list[Value] = []
        while not self.accept("}"):
            if outputs:
                self.expect(",")
            outputs.append(self._value(values))
        graph.set_outputs(outputs)
        return graph, input_names, output_names

    def _model_name(self) -> str:
        return self.string() if self.token.kind == "string" else self.name("the name of an output")

    def _input(self, graph: Graph, values: dict[str, Value]) -> str:
        token = self.token
        name = self.name("the name of an input")
        own = self.string() if self.token.kind == "string" else name
        self.expect(":")
        value = Value(self.tensor_type(), name)
        self._define(values, token, value)
        graph.inputs.append(value)
        return own

    def _define(self, values: dict[str, Value], token: Token, value: Value) -> None:
        if token.text in values:
            self.fail(f"Value '{token.text}' is defined twice.", token)
        values[token.text] = value

    def _value(self, values: dict[str, Value]) -> Value:
        token = self.token
        if token.kind not in ("value", "name"):
            self.unexpected("a value")
        self.next()
        found = values.get(token.text)
        if found is None:
            near = difflib.get_close_matches(token.text, list(values), 1)
            hint = f" Did you mean '{near[0]}'?" if near else ""
            self.fail(f"Unknown value '{token.text}'.{hint}", token)
        return found

    def _node(self, values: dict[str, Value]) -> Node:
        results: list[tuple[Token, Value]] = []
        while self.token.kind == "value":
            token = self.next()
            self.expect(":")
            hint = token.text[1:]
            results.append((token, Value(self.tensor_type(), "" if hint.isdigit() else hint)))
            if not self.accept(","):
                self.expect("=")
                break
        op_token = self.token
        op_name = self.name("an op")
        self.expect("(")
        operands = self.separated(lambda: self._value(values), ")")
        op = self._op(op_token, op_name, results[0][1].type if results else None)
        origin = self.string() if self.token.kind == "string" else ""
        regions: list[Graph] = []
        if self.accept("{"):
            while not self.accept("}"):
                regions.append(self.graph()[0])
        node = Node(op, operands, [v for _, v in results], regions, origin)
        for position, operand in enumerate(operands):
            operand.uses.append((node, position))
        for token, value in results:
            value.producer = node
            self._define(values, token, value)
        return node

    def _op(self, token: Token, name: str, result: TensorType | None) -> Op:
        cls = op_class(name)
        if cls is None:
            near = difflib.get_close_matches(name, list(Op.registry), 1)
            hint = f" Did you mean '{near[0]}'?" if near else ""
            self.fail(f"Unknown op '{name}'.{hint}", token)
        known = {f.name for f in fields(cls)}
        attributes: dict[str, Any] = {}
        if self.token.text == "{" and self.ahead(2).text == "=":
            self.next()
            while not self.accept("}"):
                if attributes:
                    self.expect(",")
                key_token = self.token
                key = self.name("an attribute")
                if key not in known or key in attributes:
                    near = difflib.get_close_matches(key, known - attributes.keys(), 1)
                    hint = f" Did you mean '{near[0]}'?" if near else ""
                    problem = "is given twice" if key in attributes else "is unknown"
                    self.fail(f"Attribute '{key}' of '{name}' {problem}.{hint}", key_token)
                self.expect("=")
                attributes[key] = self._attribute(key in _dim_fields(cls), result)
        try:
            return cls(**attributes)
        except TypeError:
            required = [f.name for f in fields(cls) if f.default is MISSING]
            missing = ", ".join(f"'{n}'" for n in required if n not in attributes)
            self.fail(f"Op '{name}' lacks attributes; give {missing}.", token)
        except TilewrightError as error:
            self.fail(str(error), token)

    def _attribute(self, dims: bool, result: TensorType | None) -> Any:
        """One attribute; with ``dims``, numbers in it are index expressions."""
        token = self.token
        if token.text == "(" and self._is_tuple():
            self.next()
            return self._tuple(dims, result)
        if token.kind == "string":
            return self.string()
        if token.kind == "hash":
            return self._constant(result)
        if token.text == "{":
            return self.layout()
        if token.text in _WORDS:
            return _WORDS[self.next().text]
        if dims and token.kind != "float":
            return self.index_expr()
        if token.text in BY_NAME:
            return BY_NAME[self.next().text]
        return self._number()

    def _number(self) -> int | float:
        token = self.token
        sign = "-" if self.accept("-") else ""
        number = self.next()
        is_float = number.kind == "float" or number.text in ("inf", "nan")
        if number.kind != "int" and not is_float:
            self.fail(f"'{number.text}' is no attribute of this op's type.", token)
        return float(sign + number.text) if is_float else int(sign + number.text)

    def _is_tuple(self) -> bool:
        """True if the parenthesis here holds a comma or nothing, and so is no expression's."""
        depth = 0
        for token in self.tokens[self.at :]:
            depth += {"(": 1, ")": -1}.get(token.text, 0) if token.kind == "symbol" else 0
            if depth == 0:
                break
            if depth == 1 and token.text == "," and token.kind == "symbol":
                return True
        return self.ahead().text == ")"

    def _tuple(self, dims: bool, result: TensorType | None) -> tuple[Any, ...]:
        return tuple(self.separated(lambda: self._attribute(dims, result), ")"))

    def _constant(self, result: TensorType | None) -> ConstantRef:
        token = self.next()
        if self.accept(":"):
            result = self.tensor_type()
        if result is None or not result.is_static:
            self.fail("The type of this constant is not known; write '#hash:f32[2,3]'.", token)
        return ConstantRef(token.text[1:], result.dtype, result.static_shape)


def _dim_fields(cls: type[Op]) -> frozenset[str]:
    """The fields whose annotation mentions expressions."""
    found = _DIM_FIELDS.get(cls)
    if found is None:
        hints = typing.get_type_hints(cls)
        found = frozenset(f.name for f in fields(cls) if _mentions_expr(hints[f.name]))
        _DIM_FIELDS[cls] = found
    return found


def _mentions_expr(annotation: Any) -> bool:
    if isinstance(annotation, type) and issubclass(annotation, Expr):
        return True
    return any(_mentions_expr(a) for a in typing.get_args(annotation))


def registered_ops() -> dict[str, type[Op]]:
    """All ops by name, those of every file of ``tilewright.ir.ops`` among them."""
    importlib.import_module("tilewright.ir.ops")
    return Op.registry


def op_class(name: str) -> type[Op] | None:
    """The op of that name, from any file of ``tilewright.ir.ops``; None if there is none."""
    return Op.registry.get(name) or registered_ops().get(name)


def parse_module(text: str, constants: ConstantStore | None = None) -> Module:
    """The module of a text; ParseError with line, column and a caret.

    ``constants`` is the store behind its constants; without one the store is empty, and only what
    needs no bytes works on the module.
    """
    parser = GraphParser(text)
    module = parser.module(ConstantStore() if constants is None else constants)
    parser.end()
    return module


def equal_graphs(a: Graph, b: Graph) -> bool:
    """True if two graphs are the same up to names of values: ops, types, operands, sub-graphs,
    origins.
    """
    numbers: dict[Value, int] = {}
    pairs = [(a, b)]
    while pairs:
        x, y = pairs.pop()
        if (len(x.inputs), len(x.nodes), x.name) != (len(y.inputs), len(y.nodes), y.name):
            return False
        _number(numbers, x.inputs, y.inputs)
        if [v.type for v in x.inputs] != [v.type for v in y.inputs]:
            return False
        for m, n in zip(x.nodes, y.nodes, strict=True):
            if _signature(m, numbers) != _signature(n, numbers):
                return False
            _number(numbers, m.results, n.results)
            pairs += zip(m.regions, n.regions, strict=True)
        if [numbers.get(v) for v in x.outputs] != [numbers.get(v) for v in y.outputs]:
            return False
    return True


def _number(numbers: dict[Value, int], xs: Sequence[Value], ys: Sequence[Value]) -> None:
    for x, y in zip(xs, ys, strict=True):
        numbers[x] = numbers[y] = len(numbers)


def _signature(node: Node, numbers: dict[Value, int]) -> tuple[Any, ...]:
    return (
        type(node.op),
        repr(node.op.attributes()),  # distinguishes 1, 1.0 and True, and NaN equals itself
        [numbers.get(v) for v in node.operands],
        [v.type for v in node.results],
        len(node.regions),
        node.origin,
    )
