# SPDX-License-Identifier: Apache-2.0
"""Edges of the standard: windows larger than what they slide over, empty dims, integers that are
interpolated, results that nothing reads.

Every model is tried with static and with symbolic dims.
"""

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from tests.frontends.onnx_running import imported, refused
from tilewright.frontends.onnx import import_model

Array = np.ndarray[Any, Any]
FIRST, LAST = -(2**63), 2**63 - 1


def node_models(
    op: str, x: Array, constants: Sequence[Any] = (), opset: int = 22, **attributes: Any
) -> list[onnx.ModelProto]:
    """A node that reads ``x`` and constants (None for one left out), with static dims and with
    symbolic ones.
    """
    names = ["x", *("" if c is None else f"c{i}" for i, c in enumerate(constants))]
    node = helper.make_node(op, names, ["y"], name="node", **attributes)
    given = [numpy_helper.from_array(c, n) for n, c in zip(names[1:], constants) if c is not None]
    dtype = helper.np_dtype_to_tensor_dtype(x.dtype)
    result = [helper.make_empty_tensor_value_info("y")]
    return [
        helper.make_model(
            helper.make_graph(
                [node], "g", [helper.make_tensor_value_info("x", dtype, dims)], result, given
            ),
            opset_imports=[helper.make_opsetid("", opset)],
            ir_version=10,
        )
        for dims in (x.shape, [f"d{axis}" for axis in range(x.ndim)])
    ]


def holds(models: Sequence[onnx.ModelProto], x: Array, want: Any, tolerance: float = 0.0) -> None:
    """All models must give ``want``."""
    for model in models:
        y = imported(model, {"x": x})["y"]
        assert y.dtype == x.dtype
        assert y.shape == np.shape(want)
        np.testing.assert_allclose(y.astype(np.float64), want, tolerance, tolerance)


# --- windows --------------------------------------------------------------------------------------

IMAGE = np.arange(1, 9, dtype=np.float32).reshape(1, 1, 2, 4)
POOLS: list[tuple[str, dict[str, Any], Any]] = [
    ("MaxPool", {"kernel_shape": [3, 2], "strides": [3, 2], "ceil_mode": 1}, [[6, 8]]),
    ("AveragePool", {"kernel_shape": [3, 2], "strides": [3, 2], "ceil_mode": 1}, [[3.5, 5.5]]),
    ("LpPool", {"kernel_shape": [3, 2], "strides": [3, 2], "ceil_mode": 1, "p": 1}, [[14, 22]]),
    (
        "MaxPool",
        {"kernel_shape": [2, 3], "strides": [4, 4], "dilations": [3, 1], "ceil_mode": 1},
        [[3]],
    ),
    # Padding counts where it is asked for, what hangs over does not.
    (
        "AveragePool",
        {
            "kernel_shape": [3, 4],
            "strides": [4, 4],
            "pads": [0, 1, 0, 0],
            "ceil_mode": 1,
            "count_include_pad": 1,
        },
        [[24 / 8, 12 / 2]],
    ),
    # No window begins in the padding at the end.
    (
        "MaxPool",
        {"kernel_shape": [2, 2], "strides": [2, 2], "pads": [0, 0, 1, 1], "ceil_mode": 1},
        [[6, 8]],
    ),
    # The formula of automatic padding rounds down.
    (
        "MaxPool",
        {"kernel_shape": [1, 3], "strides": [1, 2], "auto_pad": "VALID", "ceil_mode": 1},
        [[3], [7]],
    ),
    # Short of a window by less than a stride: the formula gives no window.
    ("MaxPool", {"kernel_shape": [3, 1], "strides": [2, 1]}, np.zeros((0, 4))),
    ("LpPool", {"kernel_shape": [4, 1], "strides": [2, 1], "ceil_mode": 1}, np.zeros((0, 4))),
]


@pytest.mark.parametrize(("op", "attributes", "want"), POOLS)
def test_windows_larger_than_their_input(op: str, attributes: dict[str, Any], want: Any) -> None:
    holds(node_models(op, IMAGE, **attributes), IMAGE, np.array(want)[None, None], 1e-6)


def test_a_window_that_is_short_of_more_than_a_stride_is_refused() -> None:
    static, _ = node_models("MaxPool", IMAGE, kernel_shape=[5, 1], strides=[2, 1])
    refused(static, "A window of 5 elements does not fit spatial dim 0 of 2")


ROW = np.array([[[1, 2, 3]]], np.float32)
ONES = np.ones((1, 1, 3), np.float32)
GROWN: list[tuple[dict[str, Any], list[float]]] = [
    ({"output_shape": [9]}, [1, 1, 1, 2, 2, 2, 3, 3, 3]),
    ({"output_shape": [11]}, [0, 1, 1, 1, 2, 2, 2, 3, 3, 3, 0]),
    ({"output_shape": [12]}, [0, 1, 1, 1, 2, 2, 2, 3, 3, 3, 0, 0]),
    ({"output_shape": [12], "auto_pad": "SAME_UPPER"}, [0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3, 0]),
    ({"output_shape": [7]}, [1, 1, 2, 2, 2, 3, 3]),
    ({"output_shape": [12], "output_padding": [1]}, [0, 1, 1, 1, 2, 2, 2, 3, 3, 3, 0, 0]),
]


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize(("attributes", "want"), GROWN)
def test_transposed_convolutions_to_a_given_shape(
    dtype: Any, attributes: dict[str, Any], want: list[float]
) -> None:
    x, bias = ROW.astype(dtype), np.array([0.5], dtype)
    models = node_models("ConvTranspose", x, [ONES.astype(dtype), bias], strides=[3], **attributes)
    for model in models:
        model.graph.input[0].type.tensor_type.shape.dim[1].dim_value = 1
    holds(models, x, np.array([[want]]) + 0.5)


def test_a_transposed_convolution_of_no_columns_is_its_bias() -> None:
    """The size of the result follows the formula, and nothing is summed."""
    x, weight, bias = (np.full(s, 2, np.float32) for s in ((1, 1, 0), (1, 1, 3), (1,)))
    models = node_models("ConvTranspose", x, [weight, bias])
    models[1].graph.input[0].type.tensor_type.shape.dim[1].dim_value = 1
    holds(models, x, np.full((1, 1, 2), 2))


# --- empty dims -----------------------------------------------------------------------------------

INT = np.int64
SLICES: list[tuple[int, int, int]] = [
    (1, LAST, 1),
    (-1, LAST, 1),
    (0, -1, 1),
    (-1, FIRST, -1),
    (LAST, FIRST, -2),
    (2, 0, -1),
    (-2, -1, 1),
    (0, LAST, 1 << 58),
    (0, LAST, LAST),
    (LAST, FIRST, FIRST),
]


@pytest.mark.parametrize("size", [0, 1, 2, 5])
@pytest.mark.parametrize(("start", "end", "step"), SLICES)
def test_slices_of_dims_that_may_be_empty(start: int, end: int, step: int, size: int) -> None:
    x = np.arange(size * 2, dtype=np.float32).reshape(size, 2)
    window = [np.array([v], INT) for v in (start, end, 0, step)]
    holds(node_models("Slice", x, window), x, x[slice(start, end, step)])


@pytest.mark.parametrize("known", [False, True])
def test_a_backward_slice_from_before_the_beginning_starts_there(known: bool) -> None:
    """The standard clamps its start to the first element, where numpy's slice is empty."""
    x = np.arange(3)
    window = [np.array([v], INT) for v in (-9, FIRST, 0, -1)]
    models = node_models("Slice", x, window)
    if known:  # the shape is followed at import
        models = node_models("Slice", np.zeros((7, 8, 9)), window)[:1]
        shape = helper.make_node("Shape", ["x"], ["dims"])
        models[0].graph.node[0].input[0] = "dims"
        models[0].graph.node.insert(0, shape)
        y = imported(models[0], {"x": np.zeros((7, 8, 9))})["y"]
        np.testing.assert_array_equal(y, [7])
    else:
        holds(models, x, [0])


EMPTY = np.zeros((0, 3), np.float32)
MOVED: list[tuple[str, list[Any], dict[str, Any], tuple[int, ...]]] = [
    ("Gather", [np.array([2, 0, 1])], {"axis": 1}, (0, 3)),
    ("Gather", [np.zeros((2, 0), INT)], {"axis": 0}, (2, 0, 3)),
    ("GatherElements", [np.zeros((0, 2), INT)], {"axis": 1}, (0, 2)),
    ("GatherND", [np.zeros((0, 2), INT)], {}, (0,)),
    ("ScatterND", [np.zeros((0, 2), INT), np.zeros(0, np.float32)], {}, (0, 3)),
    ("ScatterND", [np.zeros((0, 1), INT), EMPTY], {"reduction": "add"}, (0, 3)),
    ("ScatterElements", [np.zeros((0, 3), INT), EMPTY], {"axis": 1}, (0, 3)),
    ("Transpose", [], {}, (3, 0)),
    ("Concat", [np.ones((2, 3), np.float32)], {"axis": 0}, (2, 3)),
    ("Pad", [np.array([1, 0, 1, 0])], {}, (2, 3)),
    ("Pad", [np.array([0, 1, 0, 1])], {"mode": "edge"}, (0, 5)),
    ("Pad", [np.array([0, 1, 0, 1])], {"mode": "reflect"}, (0, 5)),
    ("Tile", [np.array([2, 2])], {}, (0, 6)),
    ("Tile", [np.array([1, 0])], {}, (0, 0)),
    ("Expand", [np.array([2, 1, 1])], {}, (2, 0, 3)),
    ("Reshape", [np.array([3, 0])], {"allowzero": 1}, (3, 0)),
    ("Flatten", [], {}, (0, 3)),
    ("Unsqueeze", [np.array([0])], {}, (1, 0, 3)),
    ("CumSum", [np.array(0)], {}, (0, 3)),
    ("Softmax", [], {}, (0, 3)),
    ("Resize", [None, np.array([1, 2], np.float32)], {}, (0, 6)),
    ("Resize", [None, None, np.array([0, 6])], {"mode": "linear"}, (0, 6)),
]


@pytest.mark.parametrize(("op", "constants", "attributes", "shape"), MOVED)
def test_operators_on_empty_tensors(
    op: str, constants: list[Any], attributes: dict[str, Any], shape: tuple[int, ...]
) -> None:
    models = node_models(op, EMPTY, constants, **attributes)
    if op == "Reshape":
        models = models[:1]
    if models[1:]:
        models[1].graph.input[0].type.tensor_type.shape.dim[1].dim_value = 3
    want = np.zeros(shape)
    if op == "Concat":
        want += 1
    holds(models, EMPTY, want)


@pytest.mark.parametrize("antialias", [0, 1])
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_resizing_to_nothing(mode: str, antialias: int) -> None:
    sizes = np.array([1, 1, 5, 0])
    options = {"mode": mode, "antialias": antialias if mode != "nearest" else 0}
    holds(node_models("Resize", IMAGE, [None, None, sizes], **options), IMAGE, np.zeros(sizes))


# --- integers -------------------------------------------------------------------------------------

COORDINATES = ["half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"]
INTEGERS = [np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64]


@pytest.mark.parametrize("antialias", [0, 1])
@pytest.mark.parametrize("coordinate", COORDINATES)
@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("dtype", INTEGERS)
def test_an_image_of_one_integer_stays_one(
    dtype: Any, mode: str, coordinate: str, antialias: int
) -> None:
    greatest = min(np.iinfo(dtype).max, 2**40)
    x = np.full((1, 1, 7, 9), greatest, dtype)
    models = node_models(
        "Resize",
        x,
        [None, None, np.array([1, 1, 19, 5])],
        mode=mode,
        antialias=antialias,
        coordinate_transformation_mode=coordinate,
    )
    holds(models, x, np.full((1, 1, 19, 5), greatest))


def test_interpolated_integers_round_to_the_nearest_and_saturate() -> None:
    x = np.array([[0, 3, 255, 255]], np.uint8)
    rounded = node_models("Resize", x, [None, np.array([1, 2], np.float32)], mode="linear")
    holds(rounded, x, [[0, 1, 2, 66, 192, 255, 255, 255]])
    steep = np.array([[-128, -128, 127, 127]], np.int8)
    overshooting = node_models("Resize", steep, [None, np.array([1, 2], np.float32)], mode="cubic")
    for model in overshooting:
        y = imported(model, {"x": steep})["y"]
        assert np.all(np.diff(y.astype(int)) >= 0)
        assert (y.min(), y.max()) == (-128, 127)


# --- results and types ----------------------------------------------------------------------------


def test_an_output_that_is_listed_twice_is_one() -> None:
    model, _ = node_models("Relu", IMAGE)
    model.graph.output.append(model.graph.output[0])
    module = import_model(model)
    assert module.output_names == ["y"]
    holds([model], IMAGE, IMAGE)


@pytest.mark.parametrize(
    ("op", "attributes"),
    [
        ("MaxPool", {"kernel_shape": [1, 1]}),
        ("Dropout", {}),
    ],
)
def test_results_that_nothing_reads_are_not_made(op: str, attributes: dict[str, Any]) -> None:
    models = node_models(op, IMAGE, opset=8, **attributes)
    for model in models:
        model.graph.node[0].output.append("unread")
        assert len(import_model(model).graph.nodes) < 2
    holds(models, IMAGE, IMAGE)


def test_positions_of_maxima_that_are_read_are_refused() -> None:
    model, _ = node_models("MaxPool", IMAGE, kernel_shape=[1, 1])
    model.graph.node[0].output.append("positions")
    model.graph.output.append(helper.make_empty_tensor_value_info("positions"))
    refused(model, "the positions of the maxima are asked for")


@pytest.mark.parametrize(
    ("dtype", "tolerance"),
    [(np.float64, 1e-8), (np.float32, 1e-6), (np.float16, 2e-3), (ml_dtypes.bfloat16, 2e-2)],
)
def test_mean_variance_normalization_in_every_float_type(dtype: Any, tolerance: float) -> None:
    # Numbers whose squares are too large for float16.
    x = (np.random.default_rng(0).standard_normal((2, 3, 4, 5)) * 100 + 400).astype(dtype)
    exact = x.astype(np.float64)
    for axes in ((0, 2, 3), (1, 3)):
        mean, deviation = exact.mean(axes, keepdims=True), exact.std(axes, keepdims=True)
        models = node_models("MeanVarianceNormalization", x, opset=13, axes=axes)
        holds(models, x, (exact - mean) / deviation, tolerance)
