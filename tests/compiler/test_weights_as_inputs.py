# SPDX-License-Identifier: Apache-2.0
"""Convolutions whose weights are no constants: the same values, whatever the channels, and vectors
as wide as with constants.
"""

from typing import Any

import numpy as np
import onnx
import onnx.reference
import pytest
from onnx import helper

import tilewright
from tests.targets import runnable_targets
from tilewright.driver import CompileOptions, build
from tilewright.ir.target import Target, parse_target


def model_of(
    op: str, x: list[Any], w: list[int], dtype: Any = np.float32, **attributes: Any
) -> onnx.ModelProto:
    """One convolution of ``x`` by an input ``w``, doubled first."""
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    nodes = [
        helper.make_node("Add", ["w", "w"], ["v"]),
        helper.make_node(op, ["x", "v"], ["y"], **attributes),
    ]
    inputs = [helper.make_tensor_value_info(n, kind, d) for n, d in (("x", x), ("w", w))]
    results = [helper.make_tensor_value_info("y", kind, None)]
    graph = helper.make_graph(nodes, "weights", inputs, results)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def check(model: onnx.ModelProto, sizes: dict[str, int], target: Target | str = "native") -> None:
    """Hold two runs to the reference, on whole numbers, of which all sums are exact."""
    compiled = tilewright.compile(model, target)
    rng = np.random.default_rng(0)
    for _ in range(2):
        feeds = {}
        for i in model.graph.input:
            dims = [d.dim_value or sizes[d.dim_param] for d in i.type.tensor_type.shape.dim]
            dtype = helper.tensor_dtype_to_np_dtype(i.type.tensor_type.elem_type)
            feeds[i.name] = rng.integers(-2, 3, dims).astype(dtype)
        reference = onnx.reference.ReferenceEvaluator(model)
        (expected,) = reference.run(None, feeds)
        np.testing.assert_array_equal(compiled.run(feeds)["y"], expected)


CASES: dict[str, tuple[str, list[Any], list[int], dict[str, Any]]] = {
    "1d": ("Conv", [2, 5, 70], [7, 5, 3], {"pads": [1, 1]}),
    "one output": ("Conv", [2, 16, 20, 20], [1, 16, 1, 1], {}),
    "two outputs, windows": ("Conv", [1, 5, 20, 20], [2, 5, 3, 3], {}),
    "ten outputs": ("Conv", [1, 24, 20, 20], [10, 24, 1, 1], {}),
    "whole blocks": ("Conv", [1, 8, 20, 20], [64, 8, 3, 3], {"strides": [2, 2]}),
    "one lane too many": ("Conv", [1, 8, 20, 20], [33, 8, 3, 3], {"dilations": [2, 1]}),
    "3d": ("Conv", [1, 3, 6, 7, 8], [8, 3, 2, 3, 1], {"pads": [1, 0, 0, 0, 1, 0]}),
    "groups": ("Conv", [1, 8, 20, 20], [20, 4, 3, 3], {"group": 2}),
    "groups of whole blocks": ("Conv", [1, 8, 20, 20], [64, 4, 3, 3], {"group": 2}),
    "depthwise": ("Conv", [1, 24, 20, 20], [24, 1, 3, 3], {"group": 24}),
    "one position": ("Conv", [1, 24, 3, 3], [10, 24, 3, 3], {}),
    "symbols": ("Conv", ["n", 5, "h", "w"], [10, 5, 3, 3], {"pads": [1, 1, 1, 1]}),
    "symbols, one output": ("Conv", ["n", 16, "h", "w"], [1, 16, 1, 1], {}),
    "transposed 1d": ("ConvTranspose", [1, 6, 70], [6, 10, 3], {"strides": [2]}),
    "transposed": ("ConvTranspose", [1, 24, 16, 16], [24, 24, 2, 2], {"strides": [2, 2]}),
    "transposed, symbols": ("ConvTranspose", ["n", 6, "h", "w"], [6, 33, 3, 3], {}),
    "transposed, one output": ("ConvTranspose", [1, 6, 16, 16], [6, 1, 2, 2], {}),
    "transposed 3d": ("ConvTranspose", [1, 6, 4, 5, 6], [6, 7, 2, 2, 2], {}),
}


@pytest.mark.parametrize("name", CASES)
def test_values_are_those_of_the_reference(name: str) -> None:
    op, x, w, attributes = CASES[name]
    check(model_of(op, x, w, **attributes), {"n": 3, "h": 11, "w": 9})


@pytest.mark.parametrize("dtype", [np.float16, np.float64])
@pytest.mark.parametrize("outputs", [1, 10, 33])
def test_other_types_have_the_same_values(dtype: Any, outputs: int) -> None:
    check(model_of("Conv", [1, 5, 20, 20], [outputs, 5, 3, 3], dtype), {})


@pytest.mark.parametrize("target", runnable_targets(), ids=str)
def test_every_target_has_the_same_values(target: Target) -> None:
    check(model_of("Conv", [1, 24, 20, 20], [10, 24, 1, 1]), {}, target)


@pytest.mark.parametrize("level", ["x86-64-v3", "x86-64-v4"])
@pytest.mark.parametrize("outputs", [2, 10, 24])
@pytest.mark.parametrize("op", ["Conv", "ConvTranspose"])
@pytest.mark.parametrize("batch", [1, "n"])
def test_kernels_run_on_full_vectors(level: str, outputs: int, op: str, batch: Any) -> None:
    w = [outputs, 24] if op == "Conv" else [24, outputs]
    model = model_of(op, [batch, 24, 128, 128], [*w, 2, 2])
    report = build(model, parse_target(f"{level},cores=2"), options=CompileOptions()).report
    assert report.warnings == []
