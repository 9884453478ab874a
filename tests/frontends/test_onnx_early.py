# SPDX-License-Identifier: Apache-2.0
"""Operators in the forms of operator sets 1 to 6, against numpy: no other runtime reads them.

Every node is imported with static and with symbolic dims.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.frontends.onnx_running import imported, node_model, refused
from tilewright.frontends.onnx import import_model
from tilewright.frontends.onnx.attributes import schema_of
from tilewright.frontends.onnx.registry import find_handler, supported_operators

rng = np.random.default_rng(11)


def floats(*shape: int) -> Any:
    return rng.standard_normal(shape).astype(np.float32)


def truths(*shape: int) -> Any:
    return rng.random(shape) < 0.5


def unlike(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with symbolic dims for its inputs: of the first operand each has a symbol, dims of
    the same number share it.
    """
    symbolic = onnx.ModelProto()
    symbolic.CopyFrom(model)
    for info in symbolic.graph.input:
        for dim in info.type.tensor_type.shape.dim:
            if dim.dim_value > 1:
                dim.dim_param = f"d{dim.dim_value}"
    return symbolic


def early_model(
    op: str, opset: int, inputs: Sequence[Any], fixed: Sequence[int], attributes: dict[str, Any]
) -> tuple[onnx.ModelProto, dict[str, Any]]:
    model, feeds = node_model(op, inputs, opset, fixed, **attributes)
    model.ir_version = 3
    return model, feeds


X, Y = floats(2, 3, 4, 5), floats(2, 3, 4, 5)
IMAGE, SLOPES = floats(2, 3, 4, 6), floats(3)
ROWS, COLUMNS = floats(3, 4), floats(4, 5)
P, Q = truths(2, 3, 4), truths(3)
ONE, NONE = np.ones(3, np.float32), np.zeros(3, np.float32)
FAR = {"broadcast": 1, "axis": 1}
USED = {"consumed_inputs": [0, 0]}


def middle(b: Any, rank: int = 4) -> Any:
    return b.reshape(b.shape + (1,) * (rank - 1 - b.ndim))


def relu(x: Any) -> Any:
    return np.maximum(x, 0)


def softmax(x: Any) -> Any:
    e = np.exp(x)
    return e / e.sum(tuple(range(1, x.ndim)), keepdims=True)


# Operator, operator set, inputs, positions of constant inputs, attributes, result.
CASES: list[tuple[str, int, list[Any], tuple[int, ...], dict[str, Any], Any]] = [
    ("Add", 1, [X, Y], (), USED, X + Y),
    ("Add", 6, [X, Y[0, :, :, 0]], (), FAR, X + Y[0, :, :, 0][:, :, None]),
    ("Add", 6, [X, Y[0, 0]], (), {"broadcast": 1}, X + Y[0, 0]),
    ("Add", 1, [X, np.float32(3)], (1,), {"broadcast": 1} | USED, X + 3),
    ("Add", 3, [X, np.full((1, 1), 3, np.float32)], (), {"broadcast": 1}, X + 3),
    ("Sub", 6, [X, SLOPES], (), FAR, X - middle(SLOPES)),
    ("Sub", 5, [X, Y[:, 0, 0, 0]], (), {"broadcast": 1, "axis": 0}, X - Y[:, :1, :1, :1]),
    ("Mul", 6, [X, SLOPES], (1,), FAR, X * middle(SLOPES)),
    ("Mul", 2, [X, SLOPES], (), {"broadcast": 1, "axis": -3}, X * middle(SLOPES)),
    ("Div", 1, [X, Y[0, 0, 0]], (), {"broadcast": 1, "axis": 3}, X / Y[0, 0, 0]),
    ("Pow", 1, [abs(X), SLOPES], (), FAR, abs(X) ** middle(SLOPES)),
    ("Pow", 6, [X, np.float32(2)], (1,), {"broadcast": 1}, X**2),
    ("And", 1, [P, Q], (), FAR, P & middle(Q, 3)),
    ("Or", 6, [P, P[0, 0]], (), {"broadcast": 1}, P | P[0, 0]),
    ("Xor", 3, [P, Q], (), FAR, P ^ middle(Q, 3)),
    ("Equal", 1, [np.arange(6).reshape(2, 3), np.arange(3)], (), {"broadcast": 1},
     np.arange(6).reshape(2, 3) == np.arange(3)),
    ("Less", 6, [X, SLOPES], (), FAR, middle(SLOPES) > X),
    ("Greater", 1, [X, SLOPES], (), FAR, middle(SLOPES) < X),
    ("Max", 1, [X, Y], (), USED, np.maximum(X, Y)),
    ("Mean", 6, [X, Y], (), {}, (X + Y) / 2),
    ("Sum", 1, [X, Y], (), USED, X + Y),
    ("Relu", 1, [X], (), {"consumed_inputs": [0]}, relu(X)),
    ("Neg", 1, [X], (), {"consumed_inputs": [1]}, -X),
    ("Exp", 5, [X], (), {"consumed_inputs": [0]}, np.exp(X)),
    ("LeakyRelu", 1, [X], (), {"consumed_inputs": [0]}, np.where(X < 0, X * 0.01, X)),
    ("Elu", 1, [X], (), {"alpha": 2.0}, np.where(X < 0, 2 * np.expm1(X), X)),
    ("Selu", 1, [X], (), {}, 1.0507 * np.where(X < 0, 1.6732 * np.expm1(X), X)),
    ("Selu", 6, [X], (), {}, 1.0507010221 * np.where(X < 0, 1.6732631922 * np.expm1(X), X)),
    ("HardSigmoid", 1, [X], (), {}, np.clip(X * 0.2 + 0.5, 0, 1)),
    ("PRelu", 1, [X, SLOPES], (1,), {}, np.where(X < 0, X * middle(SLOPES), X)),
    ("PRelu", 6, [X, SLOPES[:1]], (), {}, np.where(X < 0, X * SLOPES[0], X)),
    ("PRelu", 6, [X[0, :, :, 0], SLOPES[:1]], (), {},
     np.where(X < 0, X * SLOPES[0], X)[0, :, :, 0]),
    ("Clip", 1, [X], (), {"max": 0.5} | {"consumed_inputs": [0]}, np.minimum(X, 0.5)),
    ("Clip", 6, [X], (), {"min": 0.1}, np.maximum(X, 0.1)),
    ("Softmax", 1, [X], (), {}, softmax(X)),
    ("LogSoftmax", 1, [X], (), {}, np.log(softmax(X))),
    ("Hardmax", 1, [ROWS], (), {}, ROWS.max(1, keepdims=True) == ROWS),
    ("Cast", 1, [X], (), {"to": "INT32"}, X.astype(np.int32)),
    ("Cast", 5, [P], (), {"to": "FLOAT"}, P.astype(np.float32)),
    ("Cast", 6, [X], (), {"to": 7}, X.astype(np.int64)),
    ("Concat", 1, [X, Y], (), {}, np.concatenate([X, Y], 1)),
    ("Concat", 4, [X, Y], (), {"axis": 3}, np.concatenate([X, Y], 3)),
    ("Reshape", 1, [X], (), {"shape": [0, -1, 5]}, X.reshape(2, 12, 5)),
    ("Reshape", 5, [X, np.array([-1, 20])], (1,), {}, X.reshape(6, 20)),
    ("Pad", 1, [ROWS], (), {"paddings": [0, 2, 1, 0], "value": 7.0},
     np.pad(ROWS, ((0, 1), (2, 0)), constant_values=7)),
    ("Pad", 1, [ROWS], (), {"paddings": [1, 0, 0, 3], "mode": "edge"},
     np.pad(ROWS, ((1, 0), (0, 3)), "edge")),
    ("Pad", 2, [ROWS], (), {"pads": [0, 1, 0, 1], "mode": "reflect"},
     np.pad(ROWS, ((0, 0), (1, 1)), "reflect")),
    ("Slice", 1, [X], (), {"starts": [1, -2], "ends": [9, -1], "axes": [1, 3]},
     X[:, 1:9, :, -2:-1]),
    ("Squeeze", 1, [X[:1]], (), {"axes": [0]}, X[0]),
    ("Unsqueeze", 1, [ROWS], (), {"axes": [0, 3]}, ROWS[None, :, :, None]),
    ("Tile", 1, [ROWS, np.float32(3), np.float32(1)], (1, 2), {}, np.tile(ROWS, (1, 3))),
    ("Tile", 6, [ROWS, np.array([2, 1])], (1,), {}, np.tile(ROWS, (2, 1))),
    ("Upsample", 1, [IMAGE], (), {"height_scale": 2.0, "width_scale": 3.0},
     IMAGE.repeat(2, 2).repeat(3, 3)),
    ("Gemm", 1, [ROWS, COLUMNS, floats(5)], (), {"broadcast": 1, "beta": 0.0}, ROWS @ COLUMNS),
    ("Gemm", 6, [ROWS, COLUMNS, np.ones((3, 5), np.float32)], (), {"alpha": 0.5},
     ROWS @ COLUMNS * 0.5 + 1),
    ("Gemm", 6, [ROWS, COLUMNS, ONE.reshape(3, 1)], (), {"broadcast": 1}, ROWS @ COLUMNS + 1),
    ("BatchNormalization", 1, [X, ONE * 2, ONE, NONE, ONE * 3], (1, 2, 3, 4),
     {"is_test": 1, "epsilon": 1.0, "consumed_inputs": [0, 0, 0, 1, 1]}, X + 1),
    ("BatchNormalization", 6, [X, ONE * 2, ONE, NONE, ONE * 3], (), {"epsilon": 1.0}, X + 1),
    ("InstanceNormalization", 1, [X, NONE, ONE], (), {"consumed_inputs": [0, 0, 0]}, X * 0 + 1),
    ("Dropout", 1, [X], (), {"is_test": 1, "ratio": 0.9}, X),
    ("Dropout", 6, [X], (), {}, X),
    ("AveragePool", 1, [X], (), {"kernel_shape": [4, 5]}, X.mean((2, 3), keepdims=True)),
    ("MaxPool", 1, [X], (), {"kernel_shape": [4, 5]}, X.max((2, 3), keepdims=True)),
    ("LpPool", 1, [X], (), {"kernel_shape": [4, 5], "p": 1.5},
     (abs(X) ** 1.5).sum((2, 3), keepdims=True) ** (1 / 1.5)),
    ("GlobalLpPool", 1, [X], (), {"p": 2.0}, (X * X).sum((2, 3), keepdims=True) ** 0.5),
    ("GlobalLpPool", 2, [X], (), {"p": 1}, abs(X).sum((2, 3), keepdims=True)),
    ("LpNormalization", 1, [ROWS], (), {"p": 1}, ROWS / abs(ROWS).sum(1, keepdims=True)),
    ("ReduceMean", 1, [X], (), {"axes": [1]}, X.mean(1, keepdims=True)),
    ("ArgMax", 1, [ROWS], (), {"axis": 1, "keepdims": 0}, ROWS.argmax(1)),
    ("DepthToSpace", 1, [np.arange(4, dtype=np.float32).reshape(1, 4, 1, 1)], (),
     {"blocksize": 2}, [[[[0, 1], [2, 3]]]]),
    # Experimental then, gone since.
    ("Affine", 1, [X], (), {"alpha": 2.0, "beta": 3.0}, X * 2 + 3),
    ("Scale", 1, [X], (), {"scale": 2.0}, X * 2),
    ("ScaledTanh", 1, [X], (), {"alpha": 2.0, "beta": 0.5}, 2 * np.tanh(X / 2)),
    ("ParametricSoftplus", 1, [X], (), {"alpha": 2.0, "beta": 0.5}, 2 * np.log1p(np.exp(X / 2))),
    ("ThresholdedRelu", 1, [X], (), {"alpha": 0.3}, np.where(X > 0.3, X, 0)),
    ("ImageScaler", 1, [X], (), {"scale": 2.0, "bias": [1.0, 2.0, 3.0]},
     X * 2 + np.arange(1, 4).reshape(3, 1, 1)),
    ("Crop", 1, [IMAGE], (), {"border": [1, 0, 2, 1]}, IMAGE[:, :, :3, 1:4]),
    ("Crop", 1, [IMAGE], (), {"border": [1, 0, 0, 0], "scale": [2, 3]}, IMAGE[:, :, :2, 1:4]),
    ("MeanVarianceNormalization", 1, [X], (), {"normalize_variance": 0},
     X - X.mean((0, 2, 3), keepdims=True)),
    ("MeanVarianceNormalization", 1, [X], (), {"across_channels": 1}, (X - X.mean()) / X.std()),
]  # fmt: skip


def _name(case: tuple[Any, ...]) -> str:
    return f"{case[0]}-{case[1]}"


@pytest.mark.parametrize("case", CASES, ids=_name)
def test_operator(
    case: tuple[str, int, list[Any], tuple[int, ...], dict[str, Any], Any],
) -> None:
    op, opset, inputs, fixed, attributes, want = case
    model, feeds = early_model(op, opset, inputs, fixed, attributes)
    for each in (model, unlike(model)):
        y = imported(each, feeds)["y0"]
        assert y.shape == np.shape(want)
        np.testing.assert_allclose(y, want, 1e-5, 1e-5)


def test_splits() -> None:
    for opset, sizes, attributes in (
        (1, None, {"axis": 1, "split": [1, 3]}),
        (1, np.array([1, 3], np.float32), {"axis": 1}),
        (2, None, {"axis": 1, "split": [1, 3]}),
    ):
        inputs = [ROWS] if sizes is None else [ROWS, sizes]
        model, feeds = node_model("Split", inputs, opset, (1,), outputs=2, **attributes)
        first, second = imported(model, feeds).values()
        np.testing.assert_array_equal(first, ROWS[:, :1])
        np.testing.assert_array_equal(second, ROWS[:, 1:])


def test_every_operator_of_the_first_sets_has_a_handler_of_its_version() -> None:
    """An operator that is handled now is handled in each form that it had."""
    for domain, name in supported_operators():
        for version in range(1, 7):
            if not domain and schema_of("", name, version) is not None:
                assert find_handler("", name, version) is not None, f"{name} {version}"


SHAPED = """
<ir_version: 3, opset_import: ["" : 5]>
g (float[n, c, 4] x, float[c] s) => (float[n, k] y) {
  z = Mul<axis = 1, broadcast = 1>(x, s)
  d = Shape(z)
  f = Cast<to = "FLOAT">(d)
  i = Cast<to = "INT64">(f)
  first = Slice<axes = [0], starts = [0], ends = [1]>(i)
  rest = Constant<value = int64[1] {-1}>()
  whole = Concat<axis = 0>(first, rest)
  flat = Reshape(z, whole)
  y = Relu(flat)
}
"""


def test_shapes_are_computed_in_early_forms() -> None:
    model = onnx.parser.parse_model(SHAPED)
    for n in (1, 3):
        x, s = floats(n, 5, 4), floats(5)
        y = imported(model, {"x": x, "s": s})["y"]
        np.testing.assert_array_equal(y, relu(x * s[:, None]).reshape(n, 20))


def test_attributes_whose_type_is_not_told() -> None:
    model, feeds = early_model("Clip", 1, [X], (), {"min": 0.25, "max": 0.5})
    for attribute in model.graph.node[0].attribute:
        attribute.ClearField("type")
    model.ir_version = 1
    del model.opset_import[:]
    np.testing.assert_array_equal(imported(model, feeds)["y0"], np.clip(X, 0.25, 0.5))


REFUSED: list[tuple[str, int, list[Any], dict[str, Any], str]] = [
    ("Add", 6, [X, SLOPES], {}, "do not fit each other without 'broadcast'"),
    ("Add", 6, [X, Y[:, :, :, :1]], {}, "do not fit each other without 'broadcast'"),
    ("Add", 6, [X, SLOPES], {"broadcast": 1}, "do not fit each other"),
    ("Add", 6, [X, SLOPES], {"broadcast": 1, "axis": 2}, "do not fit each other"),
    ("Add", 6, [SLOPES, X], {"broadcast": 1}, "do not fit each other"),
    ("Mul", 1, [X, Y], {"broadcast": 1, "axis": 4}, "Axis 4 is out of range for rank 4"),
    ("Gemm", 6, [ROWS, COLUMNS, floats(5)], {}, "C is not of the shape"),
    ("Dropout", 1, [X], {"is_test": 0}, "it is in training mode"),
    (
        "BatchNormalization",
        6,
        [X, ONE, ONE, ONE, ONE],
        {"is_test": 0},
        "it is in training mode",
    ),
    ("Cast", 1, [X], {"to": "REAL"}, "has element type 'REAL', which is none"),
    ("Cast", 1, [X], {"to": 1}, "Attribute 'to' of node .* is of type INT, not STRING"),
    ("Reshape", 1, [X], {}, "It has no shape"),
    ("Affine", 10, [X], {}, "it left the standard with set 10"),
]


@pytest.mark.parametrize("case", REFUSED, ids=_name)
def test_refused(case: tuple[str, int, list[Any], dict[str, Any], str]) -> None:
    op, opset, inputs, attributes, message = case
    refused(early_model(op, opset, inputs, (), attributes)[0], message)


def test_a_normalization_that_names_its_statistics_trains() -> None:
    for opset in (6, 7, 9):
        model, _ = node_model("BatchNormalization", [X, ONE, ONE, ONE, ONE], opset)
        model.graph.node[0].output.extend(["mean", "variance"])
        refused(model, "its results beyond the first exist only in training mode")


def test_an_initializer_of_the_first_files() -> None:
    """What IR version 3 demands: initialisers are listed as inputs too."""
    model, feeds = early_model("Add", 6, [X, SLOPES], (1,), FAR)
    model.graph.input.append(helper.make_tensor_value_info("x1", TensorProto.FLOAT, [3]))
    assert numpy_helper.to_array(model.graph.initializer[0]).shape == (3,)
    module = import_model(model)
    assert module.input_names == ["x0"]
    np.testing.assert_allclose(imported(model, feeds)["y0"], X + middle(SLOPES), 1e-6)
