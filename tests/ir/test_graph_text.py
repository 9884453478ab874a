# SPDX-License-Identifier: Apache-2.0
"""Modules print and parse back: every op with the attributes of its samples, every kind of
attribute, any name.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.ir.constant_file import load_constants, save_constants
from tilewright.ir.dtypes import ALL, BF16, F32, I64, STRING, DType
from tilewright.ir.errors import ParseError
from tilewright.ir.expr import Expr, Symbol, free_variables, index
from tilewright.ir.graph import Builder, ConstantRef, ConstantStore, Graph, Module, Value
from tilewright.ir.graph_parser import equal_graphs, parse_module, registered_ops
from tilewright.ir.graph_printer import attribute_text
from tilewright.ir.layout import Layout
from tilewright.ir.op import Array, Op, Sample
from tilewright.ir.ops.binary import Add
from tilewright.ir.ops.reshape import Reshape
from tilewright.ir.simplify import floordiv
from tilewright.ir.types import TensorType, tensor
from tilewright.ir.verify_graph import verify_module

OPS = sorted(name for name, cls in registered_ops().items() if any(True for _ in cls.samples()))


def module_of(sample: Sample) -> Module:
    """A module with one node, the op of a sample."""
    graph = Graph("main", [Value(t, f"x{i}") for i, t in enumerate(sample.operands)])
    module = Module(graph)
    node = Builder(graph, module.constants, origin='a "sample"\n').add(sample.op, *graph.inputs)
    graph.set_outputs(node.results)
    _declare(module, [v.type for v in (*graph.inputs, *node.results)], sample.op)
    return module


def _declare(module: Module, types: list[TensorType], op: Op) -> None:
    found: list[Expr] = [d for t in types for d in t.shape]
    stack = list(op.attributes().values())
    while stack:
        value = stack.pop()
        if isinstance(value, Expr):
            found.append(value)
        elif isinstance(value, tuple):
            stack.extend(value)
    for symbol in sorted({v for e in found for v in free_variables(e)}, key=str):
        assert isinstance(symbol, Symbol)
        module.symbols[symbol.name] = symbol


def check(module: Module) -> None:
    """Print, parse, compare."""
    text = str(module)
    again = parse_module(text, module.constants)
    assert str(again) == text
    assert equal_graphs(again.graph, module.graph)
    assert again.symbols == module.symbols
    verify_module(again)


@pytest.mark.parametrize("name", OPS)
def test_every_op_parses_back(name: str) -> None:
    for sample in Op.registry[name].samples():
        check(module_of(sample))


N = Symbol("n", 1, 64)


@dataclass(frozen=True)
class Probe(Op):
    """An op with an attribute of every kind."""

    name = "test.probe"
    flag: bool
    count: int
    scale: float
    label: str
    dtype: DType
    layout: Layout
    dims: tuple[Expr, ...]
    pads: tuple[int, ...]
    scales: tuple[float | None, ...]
    nested: tuple[tuple[int, ...], ...]
    data: ConstantRef
    dim: Expr
    missing: str | None = None

    def infer(self, operands: "object") -> tuple[TensorType, ...]:
        return (tensor(F32, (3,)),)


del Op.registry["test.probe"]


@pytest.fixture(autouse=True, scope="module")
def _registered() -> Iterator[None]:
    """The probe is known in this file only."""
    Op.registry["test.probe"] = Probe
    yield
    del Op.registry["test.probe"]


DIMS = st.sampled_from([index(0), index(7), index(-2), N, N * 2 + 1, floordiv(N + 3, 4)])
PROBES = st.builds(
    Probe,
    st.booleans(),
    st.integers(-(2**63), 2**63),
    st.floats(),
    st.text(max_size=20),
    st.sampled_from(ALL),
    st.sampled_from([Layout((0, 1)), Layout((1, 0), ((0, 16), (0, 4))), Layout((0,))]),
    st.lists(DIMS, max_size=3).map(tuple),
    st.lists(st.integers(-5, 5), max_size=3).map(tuple),
    st.lists(st.one_of(st.none(), st.floats()), max_size=3).map(tuple),
    st.lists(st.lists(st.integers(0, 9), max_size=2).map(tuple), max_size=3).map(tuple),
    st.sampled_from([ConstantRef("ab" * 32, F32, (3,)), ConstantRef("cd" * 32, I64, ())]),
    DIMS,
    st.one_of(st.none(), st.text(max_size=5)),
)


@given(PROBES, st.text(max_size=12), st.text(max_size=12), st.text(max_size=12))
@settings(max_examples=60, deadline=None)
def test_attributes_and_names_of_every_kind(op: Op, hint: str, origin: str, label: str) -> None:
    graph = Graph("main", [Value(tensor(F32, (N,)), hint), Value(tensor(F32, ()), hint)])
    module = Module(graph, {"n": N}, input_names=[label, label + "'"], metadata={label: hint})
    node = Builder(graph, module.constants, origin).add(op, *graph.inputs)
    node.result.name = hint
    graph.set_outputs([node.result])
    module.output_names = [origin]
    text = str(module)
    again = parse_module(text)
    assert str(again) == text
    assert equal_graphs(again.graph, graph)
    assert (again.input_names, again.output_names) == (module.input_names, module.output_names)
    assert again.metadata == module.metadata


def test_names_are_unique_and_legal() -> None:
    graph = Graph("main", [Value(tensor(F32, (2,)), "x/1:0"), Value(tensor(F32, (2,)), "x_1_0")])
    builder = Builder(graph, ConstantStore())
    first = builder(Add(), *graph.inputs)
    second = builder(Add(), first, first)
    first.name, second.name = "x_1_0", "9"
    graph.set_outputs([builder(Add(), first, second)])
    assert str(graph).split("\n") == [
        "graph @main(x_1_0: f32[2], x_1_0_1: f32[2]) {",
        "  %x_1_0_2: f32[2] = add(x_1_0, x_1_0_1)",
        "  %_9: f32[2] = add(%x_1_0_2, %x_1_0_2)",
        "  %0: f32[2] = add(%x_1_0_2, %_9)",
        "  return %0",
        "}",
    ]


def test_equality_of_graphs_sees_differences() -> None:
    def build(op: Op, swap: bool = False, origin: str = "") -> Graph:
        graph = Graph("main", [Value(tensor(F32, (2, 3)), "x"), Value(tensor(F32, (2, 3)), "y")])
        builder = Builder(graph, ConstantStore(), origin)
        operands = reversed(graph.inputs) if swap else graph.inputs
        total = builder(Add(), *operands)
        graph.set_outputs([builder(op, total)])
        return graph

    def reshape(*dims: int) -> Op:
        return Reshape(tuple(index(d) for d in dims))

    base = build(reshape(3, 2))
    assert equal_graphs(base, build(reshape(3, 2)))
    assert not equal_graphs(base, build(reshape(6)))
    assert not equal_graphs(base, build(reshape(3, 2), swap=True))
    assert not equal_graphs(base, build(reshape(3, 2), origin="node"))


def test_other_objects_are_no_attributes() -> None:
    with pytest.raises(TypeError, match="no text form"):
        attribute_text([1, 2])


ARRAYS = [
    np.arange(6, dtype=np.float32).reshape(2, 3),
    np.array(-0.0, dtype=np.float64),
    np.array([True, False]),
    np.array([1.5, -2], dtype=ml_dtypes.bfloat16),
    np.array(3, dtype=ml_dtypes.bfloat16),
    np.array([[1, -2]], dtype=ml_dtypes.int4),
    np.zeros((0, 4), dtype=np.int64),
    np.array(["a", "b\u00e9 c", ""], dtype=object),
    np.array([1, 2], dtype=">i4"),
    np.arange(12, dtype=np.int8).reshape(3, 4).T,
]


def test_side_file_keeps_every_constant(tmp_path: Path) -> None:
    store = ConstantStore()
    refs = [store.add(a) for a in ARRAYS]
    save_constants(tmp_path / "c.npz", store)
    loaded = load_constants(tmp_path / "c.npz")
    assert [key for key, _ in loaded.items()] == [key for key, _ in store.items()]
    for ref, array in zip(refs, ARRAYS, strict=True):
        found = loaded[ref]
        assert found.shape == array.shape
        assert found.dtype == ref.dtype.numpy
        assert np.array_equal(found, array)
    assert refs[3].dtype is BF16 and refs[7].dtype is STRING


def test_damaged_side_file_is_refused(tmp_path: Path) -> None:
    store = ConstantStore()
    ref = store.add(np.arange(3, dtype=np.float32))
    entry = f"{ref.sha256}:f32:3"
    changed: Array = np.arange(1, 4, dtype=np.float32)
    np.savez(tmp_path / "c.npz", **{entry: changed})  # type: ignore[arg-type]
    with pytest.raises(ParseError, match="its hash differs"):
        load_constants(tmp_path / "c.npz")


def test_store_keeps_equal_arrays_once_and_apart_by_type() -> None:
    store = ConstantStore()
    first = store.add(np.zeros(4, dtype=np.float32))
    assert store.add(np.zeros(4, dtype=np.float32)) == first
    assert store.add(store[first]) == first
    assert store.add(np.zeros(4, dtype=np.int32)).sha256 != first.sha256
    assert store.add(np.zeros((2, 2), dtype=np.float32)).sha256 != first.sha256
    assert not store[first].flags.writeable
    store.keep_only([first])
    assert [key for key, _ in store.items()] == [first.sha256]


def test_how_a_value_is_shown() -> None:
    """Only what it is itself: a graph of many uses would be endless."""
    x = Value(tensor(F32, (2,)), "x")
    builder = Builder(Graph("g", [x]), ConstantStore(), "Add_1")
    value = x
    for _ in range(100):
        value = builder(Add(), value, value)
    assert repr(x) == f"Value(type={x.type!r}, name='x', returned=0)"
    node = value.producer
    assert node is not None
    assert len(repr(node)) < 1000 and "origin='Add_1'" in repr(node)
