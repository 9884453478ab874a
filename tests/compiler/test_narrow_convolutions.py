# SPDX-License-Identifier: Apache-2.0
"""Convolutions of few outputs and windows of one point behind what is row-major: nothing is turned
around for them, and all runs on full vectors.
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
