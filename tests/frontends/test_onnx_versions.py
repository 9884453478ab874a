# SPDX-License-Identifier: Apache-2.0
"""Operators in the forms of different operator sets, against ONNX Runtime."""

from typing import Any

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

from tests.frontends.onnx_running import check_against_runtime, imported, model_of, node_model

rng = np.random.default_rng(7)


def floats(*shape: int) -> Any:
    return rng.standard_normal(shape).astype(np.float32)


def ints(*values: int) -> Any:
    return np.array(values, np.int64)


X = floats(2, 3, 5, 6)
IMAGE = floats(1, 4, 7, 6)
NAN = np.array([[1.5, np.nan, -np.inf], [np.inf, -0.0, -2.5]], np.float32)

# Operator, operator set, inputs, positions of constant inputs, attributes.
CASES: list[tuple[str, int, list[Any], tuple[int, ...], dict[str, Any]]] = [
    ("Slice", 9, [X], (), {"starts": [1, -3], "ends": [2, 1 << 31], "axes": [1, -1]}),
    ("Slice", 10, [X, ints(4, 0), ints(-9, 2), ints(2, 3), ints(-2, 1)], (1, 2, 3, 4), {}),
    ("Slice", 13, [X, ints(-1), ints(-100), ints(3), ints(-1)], (1, 2, 3, 4), {}),
    ("Slice", 13, [X, ints(1), ints(9)], (1, 2), {}),
    ("Squeeze", 11, [floats(1, 3, 1)], (), {"axes": [0]}),
    ("Squeeze", 11, [floats(1, 3, 1)], (), {}),
    ("Squeeze", 13, [floats(1, 3, 1), ints(-1)], (1,), {}),
    ("Unsqueeze", 11, [floats(3, 4)], (), {"axes": [0, 3]}),
    ("Unsqueeze", 13, [floats(3, 4), ints(-1, 0)], (1,), {}),
    ("ReduceSum", 11, [X], (), {"axes": [1, 3], "keepdims": 0}),
    ("ReduceSum", 13, [X, ints(-1, 0)], (1,), {"keepdims": 0}),
    ("ReduceSum", 13, [X], (), {"noop_with_empty_axes": 1}),
    ("ReduceMean", 11, [X], (), {"axes": [-2]}),
    ("ReduceMean", 18, [X, ints(2, 3)], (1,), {}),
    ("ReduceL2", 13, [X], (), {"axes": [1]}),
    ("ReduceL2", 18, [X, ints(1)], (1,), {"keepdims": 0}),
    ("ReduceLogSumExp", 18, [X * 50, ints(1)], (1,), {}),
    ("ReduceMean", 18, [np.arange(12, dtype=np.int32).reshape(3, 4), ints(1)], (1,), {}),
    ("ReduceProd", 11, [floats(3, 4)], (), {}),
    ("ReduceMax", 12, [np.array([[3, 9], [7, 1]], np.uint8)], (), {"axes": [1]}),
    ("Clip", 7, [X], (), {"min": -0.5, "max": 0.25}),
    ("Clip", 7, [X], (), {"max": 0.25}),
    ("Clip", 11, [X, np.float32(-0.5), None], (1,), {}),
    ("Clip", 13, [np.arange(9), None, np.int64(4)], (2,), {}),
    ("Clip", 12, [NAN, np.float32(-1), np.float32(1)], (1, 2), {}),
    ("Pad", 10, [X], (), {"pads": [0, 0, 1, 2, 0, 0, 0, 3], "value": 1.5}),
    ("Pad", 10, [X], (), {"pads": [0, 0, 1, 2, 0, 0, 0, 3], "mode": "reflect"}),
    ("Pad", 11, [X, ints(0, 0, -1, 2, 0, 1, 0, 3), np.float32(2)], (1, 2), {}),
    ("Pad", 13, [X, ints(0, 0, 1, 2, 0, 0, 0, 3)], (1,), {"mode": "edge"}),
    ("Pad", 18, [X, ints(1, 2, 0, 1), None, ints(-1, 1)], (1, 3), {"mode": "reflect"}),
    ("Pad", 19, [X, ints(0, 0, 4, 2, 0, 0, 1, 9)], (1,), {"mode": "wrap"}),
    ("Upsample", 8, [IMAGE], (), {"scales": [1.0, 1.0, 2.0, 3.0]}),
    ("Upsample", 9, [IMAGE, np.array([1, 1, 2, 2], np.float32)], (1,), {"mode": "linear"}),
    ("Resize", 10, [IMAGE, np.array([1, 1, 2, 1.5], np.float32)], (1,), {}),
    ("Resize", 10, [IMAGE, np.array([1, 1, 0.5, 0.6], np.float32)], (1,), {"mode": "linear"}),
    ("Softmax", 11, [X], (), {}),
    ("Softmax", 11, [X], (), {"axis": 2}),
    ("Softmax", 13, [X], (), {}),
    ("Softmax", 13, [X], (), {"axis": 1}),
    ("LogSoftmax", 9, [X], (), {"axis": 3}),
    ("LogSoftmax", 13, [X], (), {"axis": 0}),
    ("Hardmax", 11, [X], (), {}),
    ("Hardmax", 13, [X], (), {"axis": 1}),
    ("Dropout", 7, [X], (), {"ratio": 0.5}),
    ("Dropout", 10, [X], (), {"ratio": 0.5}),
    ("Dropout", 12, [X, np.float32(0.5), np.bool_(False)], (1, 2), {}),
    ("Flatten", 9, [X], (), {"axis": 2}),
    ("Flatten", 13, [X], (), {"axis": -1}),
    ("Flatten", 13, [X], (), {"axis": 0}),
    ("Gemm", 7, [floats(4, 3), floats(4, 5), floats(5)], (), {"transA": 1, "alpha": 0.5}),
    ("Gemm", 13, [floats(3, 4), floats(5, 4), floats(3, 1)], (), {"transB": 1, "beta": 2.0}),
    ("Gemm", 13, [floats(3, 4), floats(4, 5)], (), {}),
    ("MatMul", 13, [floats(4), floats(2, 4, 3)], (), {}),
    ("MatMul", 13, [floats(2, 3, 4), floats(4)], (), {}),
    ("MatMul", 13, [floats(4), floats(4)], (), {}),
    ("Einsum", 12, [floats(2, 3, 4), floats(2, 4, 5)], (), {"equation": "...ij,...jk->...ik"}),
    ("Einsum", 12, [floats(3, 4), floats(4, 3)], (), {"equation": " ij , ji "}),
    ("Einsum", 12, [floats(3, 4), floats(5, 4)], (), {"equation": "bd, ad"}),
    ("Tile", 7, [floats(2, 1, 3), ints(2, 3, 1)], (1,), {}),
    ("Expand", 8, [floats(3, 1), ints(2, 1, 4)], (1,), {}),
    ("Expand", 8, [floats(3, 4), ints(1)], (1,), {}),
    ("Reshape", 7, [X, ints(0, -1, 6)], (1,), {}),
    ("Reshape", 14, [floats(0, 3), ints(3, 0)], (1,), {"allowzero": 1}),
    ("Transpose", 13, [X], (), {}),
    ("Transpose", 13, [X], (), {"perm": [0, 2, 3, 1]}),
    ("DepthToSpace", 11, [floats(1, 8, 2, 3)], (), {"blocksize": 2, "mode": "CRD"}),
    ("SpaceToDepth", 13, [floats(1, 2, 4, 6)], (), {"blocksize": 2}),
    ("OneHot", 11, [ints(0, -1, 7, 2), ints(4), np.array([-1, 2], np.float32)], (1,), {"axis": 0}),
    ("Trilu", 14, [floats(2, 4, 5), np.int64(-1)], (1,), {"upper": 0}),
    ("EyeLike", 9, [floats(3, 5)], (), {"k": 1}),
    ("Range", 11, [np.int64(9), np.int64(-3), np.int64(-4)], (0, 1, 2), {}),
    ("CumSum", 11, [X, ints(-1)], (1,), {"exclusive": 1, "reverse": 1}),
    ("ArgMax", 11, [X], (), {"axis": -1, "keepdims": 0}),
    ("ArgMin", 12, [ints(3, 1, 1)], (), {"select_last_index": 1}),
    ("Mod", 13, [ints(7, -7, 7, -7), ints(3, 3, -3, -3)], (), {}),
    ("Mod", 13, [floats(5), floats(5)], (), {"fmod": 1}),
    ("Pow", 13, [floats(4) ** 2, ints(2, 3, 0, 1)], (), {}),
    ("Pow", 15, [ints(2, 3, 4), np.array([0.5, 2, 1], np.float32)], (), {}),
    ("Div", 13, [ints(7, -7), ints(2, 2)], (), {}),
    ("IsInf", 10, [NAN], (), {"detect_negative": 0}),
    ("Relu", 14, [NAN], (), {}),
    ("Elu", 7, [NAN], (), {"alpha": 0.7}),
    ("Selu", 7, [X], (), {}),
    ("Celu", 12, [X], (), {"alpha": 2.0}),
    ("LeakyRelu", 7, [NAN], (), {"alpha": 0.1}),
    ("PRelu", 9, [X, floats(3, 1, 1)], (1,), {}),
    ("HardSigmoid", 7, [X], (), {"alpha": 0.3}),
    ("HardSwish", 14, [X * 3], (), {}),
    ("Gelu", 20, [X], (), {"approximate": "tanh"}),
    ("Gelu", 20, [X], (), {}),
    ("Softplus", 7, [X * 40], (), {}),
    ("Mish", 18, [X], (), {}),
    ("Shrink", 9, [X], (), {"bias": 0.5, "lambd": 0.7}),
    ("ThresholdedRelu", 10, [X], (), {"alpha": 0.4}),
    ("Mean", 13, [floats(3), floats(2, 3), floats(1)], (), {}),
    ("Max", 8, [floats(3), floats(2, 3), NAN], (), {}),
    ("Cast", 9, [np.array([-1.7, 2.9, 0.0], np.float32)], (), {"to": 7}),
    ("Cast", 13, [np.array([-1.7, np.nan, 0.0], np.float32)], (), {"to": 9}),
    ("Gather", 11, [X, np.array([[0, -1], [2, 1]])], (), {"axis": 1}),
    ("GatherElements", 11, [floats(3, 3), np.array([[0, -1, 1]])], (), {"axis": 0}),
    ("GatherND", 12, [floats(2, 3, 4), np.array([[1], [-1]])], (), {"batch_dims": 1}),
    ("ScatterElements", 11, [floats(4, 2), np.array([[1, -1]]), floats(1, 2)], (), {"axis": 0}),
    ("ScatterND", 16, [floats(4), np.array([[1], [1]]), floats(2)], (), {"reduction": "add"}),
    ("LpNormalization", 7, [floats(3, 4)], (), {"p": 1, "axis": 0}),
    ("LRN", 13, [floats(1, 7, 3, 2)], (), {"size": 5, "alpha": 0.3, "beta": 0.7, "bias": 2.0}),
    ("InstanceNormalization", 7, [X, floats(3), floats(3)], (), {}),
    ("LayerNormalization", 17, [X, floats(6)], (), {"axis": -1}),
    ("LayerNormalization", 17, [X, floats(5, 6), floats(5, 6)], (), {"axis": 2, "epsilon": 0.1}),
    ("GroupNormalization", 18, [IMAGE, floats(2), floats(2)], (), {"num_groups": 2}),
    ("GroupNormalization", 21, [IMAGE, floats(4), floats(4)], (), {"num_groups": 2}),
    ("GlobalAveragePool", 7, [X], (), {}),
    ("GlobalMaxPool", 7, [X], (), {}),
    ("GlobalLpPool", 7, [X], (), {"p": 3}),
]  # fmt: skip


def _name(case: tuple[Any, ...]) -> str:
    return f"{case[0]}-{case[1]}"


@pytest.mark.parametrize("case", CASES, ids=_name)
def test_operator(case: tuple[str, int, list[Any], tuple[int, ...], dict[str, Any]]) -> None:
    op, opset, inputs, fixed, attributes = case
    check_against_runtime(*node_model(op, inputs, opset, fixed, **attributes))


@pytest.mark.parametrize("opset", [7, 9, 14, 15])
def test_batch_normalization(opset: int) -> None:
    scale, bias, mean = floats(3), floats(3), floats(3)
    variance = np.abs(floats(3)) + 0.1
    model, feeds = node_model(
        "BatchNormalization", [X, scale, bias, mean, variance], opset, (1, 2, 3, 4), epsilon=0.01
    )
    check_against_runtime(model, feeds)


def test_batch_normalization_in_training() -> None:
    inputs = [X, floats(3), floats(3), floats(3), np.abs(floats(3))]
    model, feeds = node_model(
        "BatchNormalization", inputs, 15, outputs=3, training_mode=1, momentum=0.8
    )
    check_against_runtime(model, feeds)


@pytest.mark.parametrize(
    ("opset", "fixed", "extra", "attributes"),
    [
        (11, (), [], {"split": [1, 3, 2]}),
        (11, (), [], {}),
        (13, (1,), [ints(1, 3, 2)], {}),
        (13, (), [], {}),
        (18, (), [], {"num_outputs": 4}),
    ],
)
def test_split(opset: int, fixed: tuple[int, ...], extra: list[Any], attributes: Any) -> None:
    parts = attributes.get("num_outputs", 3)
    model, feeds = node_model("Split", [X, *extra], opset, fixed, parts, axis=3, **attributes)
    check_against_runtime(model, feeds)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize(
    "coordinate",
    ["half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric", "half_pixel_symmetric"],
)
def test_resize_by_sizes(mode: str, coordinate: str) -> None:
    for sizes in (ints(1, 4, 13, 9), ints(1, 4, 3, 4)):
        model, feeds = node_model(
            "Resize",
            [IMAGE, None, None, sizes],
            19,
            (3,),
            mode=mode,
            coordinate_transformation_mode=coordinate,
        )
        check_against_runtime(model, feeds, atol=2e-5)


@pytest.mark.parametrize("opset", [11, 13, 18])
@pytest.mark.parametrize("rounding", ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"])
def test_resize_by_scales(opset: int, rounding: str) -> None:
    empty = np.zeros(0, np.float32)
    scales = np.array([1, 1, 1.7, 0.6], np.float32)
    model, feeds = node_model(
        "Resize", [IMAGE, empty, scales], opset, (1, 2), nearest_mode=rounding
    )
    check_against_runtime(model, feeds)


def test_resize_keeps_aspect_ratio() -> None:
    model, feeds = node_model(
        "Resize",
        [IMAGE, None, None, ints(10, 12)],
        18,
        (3,),
        axes=[2, 3],
        keep_aspect_ratio_policy="not_larger",
        mode="linear",
    )
    check_against_runtime(model, feeds)


CONVOLUTIONS: list[dict[str, Any]] = [
    {},
    {"pads": [1, 0, 2, 1], "strides": [2, 1]},
    {"dilations": [2, 1], "pads": [1, 1, 1, 1]},
    {"auto_pad": "SAME_UPPER", "strides": [2, 2]},
    {"auto_pad": "SAME_LOWER", "strides": [2, 3]},
    {"auto_pad": "VALID", "kernel_shape": [3, 2]},
    {"group": 2, "weight": (6, 2, 3, 2)},
    {"group": 4, "weight": (4, 1, 3, 2)},
]


@pytest.mark.parametrize("attributes", CONVOLUTIONS, ids=str)
def test_conv(attributes: dict[str, Any]) -> None:
    shape = attributes.get("weight", (5, 4, 3, 2))
    rest = {k: v for k, v in attributes.items() if k != "weight"}
    inputs = [IMAGE, floats(*shape), floats(shape[0])]
    model, feeds = node_model("Conv", inputs, 11, (1, 2), **rest)
    check_against_runtime(model, feeds, atol=1e-5)


@pytest.mark.parametrize("rank", [1, 3])
def test_conv_of_other_ranks(rank: int) -> None:
    x, weight = floats(2, 3, *[6] * rank), floats(4, 3, *[3] * rank)
    model, feeds = node_model("Conv", [x, weight], 11, (1,), strides=[2] * rank)
    check_against_runtime(model, feeds, atol=1e-5)


@pytest.mark.parametrize(
    "attributes",
    [
        {},
        {"strides": [2, 3], "pads": [1, 1, 0, 1]},
        {"strides": [2, 2], "output_padding": [1, 0]},
        {"strides": [2, 2], "output_shape": [14, 12]},
        {"strides": [2, 2], "auto_pad": "SAME_UPPER"},
        {"strides": [3, 2], "auto_pad": "SAME_LOWER"},
        {"dilations": [2, 1]},
    ],
    ids=str,
)
def test_conv_transpose(attributes: dict[str, Any]) -> None:
    inputs = [IMAGE, floats(4, 3, 3, 3), floats(3)]
    model, feeds = node_model("ConvTranspose", inputs, 11, (1, 2), **attributes)
    check_against_runtime(model, feeds, atol=1e-5)


POOLS: list[dict[str, Any]] = [
    {},
    {"strides": [2, 2]},
    {"strides": [2, 2], "pads": [1, 0, 1, 1]},
    {"strides": [2, 2], "ceil_mode": 1},
    {"strides": [3, 2], "pads": [2, 1, 1, 1], "ceil_mode": 1},
    {"auto_pad": "SAME_UPPER", "ceil_mode": 1},
    {"auto_pad": "SAME_LOWER", "strides": [3, 2], "ceil_mode": 1},
    {"auto_pad": "SAME_UPPER", "strides": [2, 2]},
    {"auto_pad": "SAME_LOWER", "strides": [3, 2]},
    {"auto_pad": "VALID", "strides": [3, 2]},
]


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool", "LpPool"])
@pytest.mark.parametrize("attributes", POOLS, ids=str)
def test_pool(op: str, attributes: dict[str, Any]) -> None:
    opset = 18 if op == "LpPool" else 12
    model, feeds = node_model(op, [IMAGE], opset, kernel_shape=[3, 2], **attributes)
    check_against_runtime(model, feeds)


def test_average_pool_counts_padding() -> None:
    model, feeds = node_model(
        "AveragePool", [IMAGE], 11, kernel_shape=[3, 3], pads=[1, 1, 1, 1], count_include_pad=1
    )
    check_against_runtime(model, feeds)


@pytest.mark.parametrize(("mode", "n"), [("reflect", 1), ("reflect", 2), ("wrap", 1), ("wrap", 2)])
def test_pads_larger_than_the_dim(mode: str, n: int) -> None:
    """ONNX Runtime refuses these reflections; ONNX's own reference, like numpy, reflects again."""
    text = f'g (float[n] x) => (float[m] y) {{ y = Pad<mode = "{mode}">(x, pads) }}'
    model = model_of(text, opset=19, initializers={"pads": np.array([3, 5])})
    x = np.arange(n, dtype=np.float32)
    (theirs,) = ReferenceEvaluator(model).run(None, {"x": x})
    np.testing.assert_array_equal(imported(model, {"x": x})["y"], theirs)
