# SPDX-License-Identifier: Apache-2.0
"""Kernels that differ in numbers alone: many are one form, few are forms of their own."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.reference
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilewright
from tilewright.driver import CompileOptions, build
from tilewright.ir.target import parse_target
from tilewright.passes.lower.forms import FEW

NATIVE = parse_target("native")
MANY = FEW + 5


def model_of(nodes: list[onnx.NodeProto], data: dict[str, Any], shape: list[Any]) -> Any:
    """A model of input ``x`` whose outputs are all results that no node reads."""
    read = {name for node in nodes for name in node.input}
    results = [o for node in nodes for o in node.output if o not in read]
    graph = helper.make_graph(
        nodes,
        "forms",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in results],
        [numpy_helper.from_array(np.asarray(a), n) for n, a in data.items()],
    )
    opsets = [helper.make_opsetid("", 18)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def split(count: int) -> Any:
    names = [f"y{i}" for i in range(count)]
    nodes = [helper.make_node("Split", ["x"], names, axis=1, num_outputs=count)]
    return model_of(nodes, {}, ["n", 3 * count])


def slices(count: int, step: int = 1) -> Any:
    """Slices of rows that begin anywhere, each doubled."""
    data: dict[str, Any] = {"step": np.array([step]), "axis": np.array([0]), "two": np.float32(2)}
    nodes = []
    for i in range(count):
        first, last = (i, i + 4) if step > 0 else (i + 4, i)
        data |= {f"a{i}": np.array([first]), f"b{i}": np.array([last])}
        nodes.append(helper.make_node("Slice", ["x", f"a{i}", f"b{i}", "axis", "step"], [f"s{i}"]))
        nodes.append(helper.make_node("Mul", [f"s{i}", "two"], [f"y{i}"]))
    return model_of(nodes, data, [count + 5, 7])


def sums(count: int) -> Any:
    """A number added to every row, another for each result."""
    data = {f"c{i}": np.float32(i + 0.5) for i in range(count)}
    nodes = [helper.make_node("Add", ["x", f"c{i}"], [f"y{i}"]) for i in range(count)]
    return model_of(nodes, data, ["n", 6])


CASES = {
    "split": split,
    "slices": slices,
    "slices of every other row": lambda count: slices(count, 2),
    "slices backwards": lambda count: slices(count, -2),
    "sums": sums,
}


@pytest.mark.parametrize("name", CASES)
def test_many_are_one_form_and_compute_the_same(name: str, tmp_path: Path) -> None:
    model = CASES[name](MANY)
    built = build(model, NATIVE, options=CompileOptions())
    assert len(built.report.kernels) == 1 and built.report.kernels[0].launches == MANY
    assert built.report.kernels[0].template != "serial"
    built.save(tmp_path / "m.tw")
    dims = [d.dim_value or 4 for d in model.graph.input[0].type.tensor_type.shape.dim]
    x = np.random.default_rng(0).standard_normal(dims).astype(np.float32)
    found = tilewright.load(tmp_path / "m.tw").run({"x": x})
    expected = onnx.reference.ReferenceEvaluator(model).run(None, {"x": x})
    for value, wanted in zip(found.values(), expected, strict=True):
        np.testing.assert_array_equal(value, wanted)


@pytest.mark.parametrize("name", CASES)
def test_few_keep_their_numbers(name: str) -> None:
    built = build(CASES[name](FEW), NATIVE, options=CompileOptions())
    assert len(built.report.kernels) == FEW
