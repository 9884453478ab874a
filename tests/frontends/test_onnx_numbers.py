# SPDX-License-Identifier: Apache-2.0
"""Floats that no integer stands for, where a model's shapes depend on them."""

import math
from typing import Any

import numpy as np
import pytest

import tilewright
from tests.frontends.onnx_running import (
    check_against_runtime,
    imported,
    model_of,
    node_model,
    refused,
)
from tilewright.frontends.dims import Unknown
from tilewright.frontends.elements import convert, rounded
from tilewright.ir.dtypes import F32, I64

ODD = [math.nan, math.inf, -math.inf]
PLANE = np.zeros((1, 1, 4, 4), np.float32)


def floats(*values: float) -> Any:
    return np.array(values, np.float32)


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("position", [0, 1, 2])
def test_ranges_are_finite(odd: float, position: int) -> None:
    bounds = [np.float32(0), np.float32(5), np.float32(1)]
    bounds[position] = np.float32(odd)
    model, _ = node_model("Range", bounds, 13, (0, 1, 2))
    word = ("start", "limit", "step")[position]
    refused(model, f"Node 'node' .Range. is not valid: Its {word} is {odd}, but must be finite")


def test_ranges_have_a_finite_length() -> None:
    bounds = [np.float64(0), np.float64(1e308), np.float64(1e-308)]
    model, _ = node_model("Range", bounds, 13, (0, 1, 2))
    refused(model, "From 0.0 to 1e.308 by 1e-308 it has no finite length")


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("fixed", ["limit", "step"])
def test_ranges_over_symbolic_dims_are_finite(odd: float, fixed: str) -> None:
    text = """
    g (float[n, 3] x) => (float[m] y) {
      s = Shape(x)
      i = Gather(s, zero)
      n = Cast<to = 1>(i)
      y = Range(%s)
    }
    """
    arguments = {"limit": "n, odd, one", "step": "zerof, n, odd"}[fixed]
    constants = {"zero": np.int64(0), "odd": np.float32(odd)}
    constants |= {"one": np.float32(1), "zerof": np.float32(0)}
    refused(model_of(text % arguments, 18, constants), f"Its {fixed} is {odd}")


SIZES: list[tuple[str, int, list[Any]]] = [
    ("Resize", 18, [PLANE, floats()]),
    ("Resize", 10, [PLANE]),
    ("Pad", 18, [PLANE]),
    ("Tile", 18, [PLANE]),
    ("Expand", 18, [PLANE]),
    ("ConstantOfShape", 18, []),
    ("CenterCropPad", 18, [PLANE]),
]


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize(("op", "opset", "inputs"), SIZES)
def test_sizes_are_finite(odd: float, op: str, opset: int, inputs: list[Any]) -> None:
    model, _ = node_model(op, [*inputs, floats(1, 1, odd, 2)], opset, [len(inputs)])
    refused(model, "Node 'node")


@pytest.mark.parametrize("odd", ODD)
def test_depths_and_lengths_are_finite(odd: float) -> None:
    inputs = [np.array([0, 1]), np.float32(odd), floats(0, 1)]
    model, _ = node_model("OneHot", inputs, 13, [1])
    refused(model, f"Node 'node' .OneHot. is not valid: Its depth is {odd}, but must be finite")
    model, _ = node_model("HannWindow", [np.float32(odd)], 18, [0])
    refused(model, "Node 'node/")


def test_rounding_keeps_what_is_not_finite() -> None:
    for op in ("Floor", "Ceil"):
        model, _ = node_model(op, [floats(*ODD, 1.5)], 13, (0,))
        check_against_runtime(model, {})
    for bad in ODD:
        with pytest.raises(Unknown):
            convert(bad, F32, I64)
        with pytest.raises(Unknown):
            rounded(bad, I64)


def test_a_depth_that_is_a_fraction_is_rounded_down() -> None:
    text = """
    g (float[n, 3] x, int64[2] i) => (float[2, m] y) {
      s = Shape(x)
      n = Gather(s, zero)
      f = Cast<to = 1>(n)
      d = Div(f, two)
      y = OneHot(i, d, values)
    }
    """
    constants = {"zero": np.int64(0), "two": np.float32(2), "values": floats(0, 1)}
    feeds = {"x": np.zeros((5, 3), np.float32), "i": np.array([0, 1])}
    result = imported(model_of(text, 18, constants), feeds)["y"]
    np.testing.assert_array_equal(result, [[1, 0], [0, 1]])


@pytest.mark.parametrize("values", [[*ODD, 0.25], [3.4e38, -1e30, 1e-40, 7.0]])
def test_floats_of_any_size_beside_symbolic_dims(values: list[float]) -> None:
    text = """
    g (float[n, 3] x) => (float[6] y) {
      s = Shape(x)
      f = Cast<to = 1>(s)
      h = Div(f, two)
      y = Concat<axis = 0>(h, odd)
    }
    """
    model = model_of(text, 18, {"two": np.float32(2), "odd": floats(*values)})
    check_against_runtime(model, {"x": np.zeros((5, 3), np.float32)})


@pytest.mark.parametrize(
    ("operator", "name", "default"),
    [("HardSigmoid", "alpha", 0.2), ("LeakyRelu", "alpha", 0.01)],
)
def test_a_default_is_the_number_that_a_model_can_hold(
    operator: str, name: str, default: float
) -> None:
    """Attributes are of float32: left out or written, they give the same in float64."""
    x = np.linspace(-2, -1, 9)
    silent, _ = node_model(operator, [x], 13)
    told, feeds = node_model(operator, [x], 13, **{name: default})
    one, other = (tilewright.compile(m).run(feeds) for m in (silent, told))
    for left, right in zip(one.values(), other.values(), strict=True):
        np.testing.assert_array_equal(left, right)
