# SPDX-License-Identifier: Apache-2.0
"""Convolutions with few outputs: windows of one point behind what is row-major, for which nothing
is turned around, and larger windows behind another convolution. All runs on full vectors.
"""

from typing import Any

import numpy as np
import onnx
import onnx.reference
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilewright
from tilewright.driver import CompileOptions, build
from tilewright.ir.target import parse_target


def model_of(outputs: int, dims: list[Any]) -> onnx.ModelProto:
    """The expectations of distributions, as detectors of boxes compute them."""
    w = np.arange(1, outputs * dims[1] + 1, dtype=np.float32)
    w = w.reshape(outputs, dims[1], *[1] * (len(dims) - 2))
    nodes = [
        helper.make_node("Softmax", ["x"], ["p"], axis=1),
        helper.make_node("Conv", ["p", "w"], ["y"]),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, dims)
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "narrow", [x], [y], [numpy_helper.from_array(w, "w")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


@pytest.mark.parametrize("outputs", [1, 2, 3])
@pytest.mark.parametrize("dims", [[1, 16, 4, 525], [2, 5, 300], ["n", 16, "h", "w"]], ids=str)
def test_values_are_those_of_the_reference(outputs: int, dims: list[Any]) -> None:
    model = model_of(outputs, dims)
    sizes = [{"n": 2, "h": 3, "w": 37}.get(d, d) for d in dims]
    x = np.random.default_rng(0).standard_normal(sizes, np.float32)
    (expected,) = onnx.reference.ReferenceEvaluator(model).run(None, {"x": x})
    np.testing.assert_allclose(tilewright.compile(model).run({"x": x})["y"], expected, rtol=1e-5)


@pytest.mark.parametrize("level", ["x86-64-v3", "x86-64-v4"])
@pytest.mark.parametrize("outputs", [1, 2, 3])
@pytest.mark.parametrize("dims", [[1, 16, 4, 525], ["n", 16, "h", "w"]], ids=str)
def test_two_kernels_run_on_full_vectors(level: str, outputs: int, dims: list[Any]) -> None:
    target = parse_target(f"{level},cores=2")
    report = build(model_of(outputs, dims), target, options=CompileOptions()).report
    assert report.warnings == []
    assert sum(k.launches for k in report.kernels) == 2


def windows_model(outputs: int, dims: list[Any], strides: list[int]) -> onnx.ModelProto:
    """A convolution of eight channels, then one with windows of 3 by 3 and few outputs, of whole
    numbers.
    """
    rng = np.random.default_rng(0)
    shapes = {"v": (8, dims[1], 1, 1), "w": (outputs, 8, 3, 3)}
    data = [
        numpy_helper.from_array(rng.integers(-2, 3, shape).astype(np.float32), name)
        for name, shape in shapes.items()
    ]
    nodes = [
        helper.make_node("Conv", ["x", "v"], ["h"]),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("Conv", ["r", "w"], ["y"], pads=[1, 0, 1, 1], strides=strides),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, dims)
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "windows", [x], [y], data)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


@pytest.mark.parametrize("outputs", [1, 3])
@pytest.mark.parametrize("strides", [[1, 1], [2, 1], [1, 2]], ids=str)
@pytest.mark.parametrize("dims", [[1, 4, 20, 41], ["n", 4, "h", "w"]], ids=str)
def test_windows_have_the_values_of_the_reference(
    outputs: int, strides: list[int], dims: list[Any]
) -> None:
    model = windows_model(outputs, dims, strides)
    sizes = [{"n": 2, "h": 3, "w": 37}.get(d, d) for d in dims]
    x = np.random.default_rng(0).integers(-2, 3, sizes).astype(np.float32)
    (expected,) = onnx.reference.ReferenceEvaluator(model).run(None, {"x": x})
    np.testing.assert_array_equal(tilewright.compile(model).run({"x": x})["y"], expected)


@pytest.mark.parametrize("level", ["x86-64-v3", "x86-64-v4"])
@pytest.mark.parametrize("outputs", [1, 2, 3])
@pytest.mark.parametrize("dims", [[1, 4, 64, 64], ["n", 4, "h", "w"]], ids=str)
def test_windows_run_on_full_vectors(level: str, outputs: int, dims: list[Any]) -> None:
    target = parse_target(f"{level},cores=2")
    report = build(windows_model(outputs, dims, [1, 1]), target, options=CompileOptions()).report
    assert report.warnings == []
