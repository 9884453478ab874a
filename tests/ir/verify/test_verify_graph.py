# SPDX-License-Identifier: Apache-2.0
"""Invariants that no text can break: damage done to the objects of a module is found."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

from tilewright.ir.dtypes import F32
from tilewright.ir.errors import VerifyError
from tilewright.ir.expr import Symbol, Var, index
from tilewright.ir.graph import Builder, Graph, Module, Node, Value, clone_graph
from tilewright.ir.layout import Layout
from tilewright.ir.op import Op
from tilewright.ir.ops.binary import Add
from tilewright.ir.ops.reshape import Reshape
from tilewright.ir.ops.unary import Exp
from tilewright.ir.types import TensorType, tensor
from tilewright.ir.verify_graph import verify_graph, verify_module

N = Symbol("n", 1, 64)


def build() -> Module:
    """x + constant, exponential, both returned."""
    graph = Graph("main", [Value(tensor(F32, (N, 4)), "x")])
    module = Module(graph, {"n": N}, input_names=["x"], output_names=["a", "b"])
    builder = Builder(graph, module.constants, "node")
    w = builder.constant(np.ones(4, np.float32), name="w")
    total = builder(Add(), graph.inputs[0], w)
    graph.set_outputs([total, builder(Exp(), total)])
    return module


def _swap(m: Module) -> None:
    m.graph.nodes.reverse()


def _foreign_operand(m: Module) -> None:
    node = m.graph.nodes[1]
    node.operands[0] = Value(tensor(F32, (N, 4)), "elsewhere")


def _other_producer(m: Module) -> None:
    m.graph.nodes[1].result.producer = m.graph.nodes[2]


def _input_with_producer(m: Module) -> None:
    m.graph.inputs[0].producer = m.graph.nodes[0]


def _defined_twice(m: Module) -> None:
    m.graph.nodes[2].results = [m.graph.nodes[1].result]
    m.graph.nodes[1].result.producer = m.graph.nodes[1]


def _missing_use(m: Module) -> None:
    m.graph.inputs[0].uses.clear()


def _use_twice(m: Module) -> None:
    m.graph.inputs[0].uses *= 2


def _wrong_position(m: Module) -> None:
    ((node, _),) = m.graph.inputs[0].uses
    m.graph.inputs[0].uses = [(node, 1)]


def _erased_user(m: Module) -> None:
    m.graph.nodes.pop()
    m.graph.outputs = m.graph.outputs[:1] * 2


def _returned(m: Module) -> None:
    m.graph.nodes[1].result.returned += 1


def _foreign_output(m: Module) -> None:
    m.graph.outputs[0] = Value(tensor(F32, ()), "elsewhere")


def _extra_region(m: Module) -> None:
    m.graph.nodes[1].regions.append(Graph("r"))


def _undeclared(m: Module) -> None:
    m.symbols.clear()


def _other_symbol(m: Module) -> None:
    m.symbols["n"] = Symbol("n", 1, 65)


def _variable_as_dim(m: Module) -> None:
    m.graph.inputs[0].type = tensor(F32, (Var("i", index(4)), 4))


def _undeclared_attribute(m: Module) -> None:
    _append(m, Reshape((Symbol("k", 1, 9), index(4))), tensor(F32, (N, 4)))


def _constant_of_other_shape(m: Module) -> None:
    m.constants._arrays = {k: np.ones(5, np.float32) for k, _ in m.constants.items()}


def _layout(m: Module) -> None:
    m.graph.inputs[0].type = TensorType(F32, (N, index(4)), Layout((0, 0)))


def _block(m: Module) -> None:
    m.graph.inputs[0].type = TensorType(F32, (N, index(4)), Layout((0, 1), ((2, 4),)))


def _attribute_type(m: Module) -> None:
    _append(m, Listed([1, 2]), tensor(F32, (3,)))


def _results(m: Module) -> None:
    node = m.graph.nodes[2]
    node.results.append(Value(tensor(F32, ()), "extra", node))


def _symbol_name(m: Module) -> None:
    m.symbols["k"] = N


def _append(m: Module, op: Op, kind: TensorType) -> None:
    Builder(m.graph, m.constants).add_typed(op, [m.graph.inputs[0]], [kind])


@dataclass(frozen=True)
class Listed(Op):
    """An op whose attribute is of a type that text cannot carry."""

    name = "test.listed"
    items: list[int]

    def infer(self, operands: object) -> tuple[TensorType, ...]:
        return (tensor(F32, (3,)),)


del Op.registry["test.listed"]

DAMAGE: list[tuple[str, Callable[[Module], None]]] = [
    ("G1", _symbol_name),
    ("G2", _swap),
    ("G2", _foreign_operand),
    ("G3", _other_producer),
    ("G3", _input_with_producer),
    ("G3", _defined_twice),
    ("G4", _missing_use),
    ("G4", _use_twice),
    ("G4", _wrong_position),
    ("G4", _erased_user),
    ("G4", _returned),
    ("G5", _foreign_output),
    ("G6", _extra_region),
    ("G7", _results),
    ("G9", _undeclared),
    ("G9", _other_symbol),
    ("G9", _variable_as_dim),
    ("G9", _undeclared_attribute),
    ("G10", _constant_of_other_shape),
    ("G11", _layout),
    ("G11", _block),
    ("G12", _attribute_type),
]


def test_a_good_module_passes() -> None:
    verify_module(build())


@pytest.mark.parametrize(("rule", "damage"), DAMAGE, ids=lambda v: getattr(v, "__name__", v))
def test_damage_is_found(rule: str, damage: Callable[[Module], None]) -> None:
    module = build()
    damage(module)
    with pytest.raises(VerifyError) as error:
        verify_module(module)
    assert str(error.value).startswith(f"[{rule}] ")


def test_the_message_shows_the_place_and_the_origin() -> None:
    module = build()
    module.graph.nodes[1].result.type = tensor(F32, (N, 5))
    with pytest.raises(VerifyError) as error:
        verify_module(module)
    lines = str(error.value).split("\n")
    assert lines[0] == (
        "[G7] 'add' gives f32[n,4], but its result is f32[n,5]. The node stands for 'node'."
    )
    assert [line for line in lines if line.startswith(">")] == [
        '>   %0: f32[n,5] = add(x, %w) "node"'
    ]


def test_without_a_store_constants_are_not_looked_up() -> None:
    module = build()
    graph, _ = clone_graph(module.graph)
    verify_graph(graph, module.symbols)
    module.constants.keep_only([])
    with pytest.raises(VerifyError, match="G10"):
        verify_module(module)


def test_large_graphs_are_checked_without_recursion() -> None:
    graph = Graph("main", [Value(tensor(F32, (4,)), "x")])
    module = Module(graph)
    value = graph.inputs[0]
    builder = Builder(graph, module.constants)
    for _ in range(3000):
        value = builder(Exp(), value)
    graph.set_outputs([value])
    verify_module(module)
    assert isinstance(graph.nodes[-1], Node)
