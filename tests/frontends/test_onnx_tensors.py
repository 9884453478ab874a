# SPDX-License-Identifier: Apache-2.0
"""Tensors of model files: every element type, and damaged ones, which end in one typed sentence."""

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.frontends.onnx_running import add_model, imported, model_of, refused
from tilewright.frontends.onnx import import_model
from tilewright.ir.errors import UnsupportedOperatorError

WEIGHT = np.array([1, 2], np.float32)


def damage_length(t: Any) -> None:
    t.raw_data = t.raw_data[:-1]


def negative_dim(t: Any) -> None:
    t.dims[0] = -2


def huge_dims(t: Any) -> None:
    t.dims.extend([1 << 40, 1 << 40])


def deep_rank(t: Any) -> None:
    t.dims.extend([1] * 100)


def no_type(t: Any) -> None:
    t.data_type = 0


def as_strings(t: Any) -> None:
    t.data_type = TensorProto.STRING


def wrong_field(t: Any) -> None:
    t.ClearField("raw_data")
    t.float_data.extend([1.0])


TENSORS: list[tuple[Callable[[Any], None], str]] = [
    (damage_length, "needs 8 bytes of data but has 7"),
    (negative_dim, "has the negative dim -2"),
    (huge_dims, "more than the limit"),
    (deep_rank, "has rank 101; 64 is the most"),
    (no_type, "has element type UNDEFINED"),
    (as_strings, "holds strings"),
    (wrong_field, "needs 2 entries in 'float_data' but has 1"),
]


@pytest.mark.parametrize(("change", "message"), TENSORS, ids=lambda x: getattr(x, "__name__", ""))
@pytest.mark.parametrize("place", ["initializer", "attribute", "sparse"])
def test_wrong_tensors(change: Callable[[Any], None], message: str, place: str) -> None:
    model = add_model()
    tensor = numpy_helper.from_array(WEIGHT, "w")
    change(tensor)
    del model.graph.initializer[:]
    if place == "initializer":
        model.graph.initializer.append(tensor)
    elif place == "attribute":
        model.graph.node.insert(0, helper.make_node("Constant", [], ["w"], value=tensor))
    else:
        indices = numpy_helper.from_array(np.array([0, 1]), "i")
        model.graph.sparse_initializer.append(helper.make_sparse_tensor(tensor, indices, [2]))
    refused(model, message)


def test_sparse_tensors() -> None:
    model = model_of("g (float[2, 3] x) => (float[2, 3] y) { y = Add(x, w) }")
    values = numpy_helper.from_array(WEIGHT, "w")
    for indices in (np.array([1, 5]), np.array([[0, 1], [1, 2]])):
        del model.graph.sparse_initializer[:]
        sparse = helper.make_sparse_tensor(values, numpy_helper.from_array(indices, "i"), [2, 3])
        model.graph.sparse_initializer.append(sparse)
        y = imported(model, {"x": np.zeros((2, 3), np.float32)})["y"]
        np.testing.assert_array_equal(y, [[0, 1, 0], [0, 0, 2]])
    for wrong in (np.array([1, 6]), np.array([-1, 0]), np.array([1]), np.array([[0, 1], [2, 0]])):
        del model.graph.sparse_initializer[:]
        sparse = helper.make_sparse_tensor(values, numpy_helper.from_array(wrong, "i"), [2, 3])
        model.graph.sparse_initializer.append(sparse)
        refused(model, "Sparse tensor 'w' has indices")


@pytest.mark.parametrize("raw", [True, False])
@pytest.mark.parametrize(
    "code",
    [c for c in TensorProto.DataType.values() if c not in (0, 8, 24, 25, 26, 27, 28)],
    ids=TensorProto.DataType.Name,
)
def test_every_element_type(code: int, raw: bool) -> None:
    dtype = helper.tensor_dtype_to_np_dtype(code)
    array = np.array([[1, 0, 3], [2, 1, 5]], np.int64).astype(dtype)
    tensor = numpy_helper.from_array(array, "w")
    if not raw:
        flat = array.astype(np.float64) if array.dtype.kind not in "c" else array
        tensor = helper.make_tensor("w", code, array.shape, flat.reshape(-1))
    info = helper.make_tensor_value_info("y", code, None)
    node = helper.make_node("Identity", ["w"], ["y"])
    graph = helper.make_graph([node], "g", [], [info], [tensor])
    y = imported(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)]), {})["y"]
    assert y.dtype == dtype
    np.testing.assert_array_equal(y, array)


def test_strings_are_refused() -> None:
    """At import, not when a model that was compiled is run."""
    model = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 17]>
        words (string[n] text, float[n] x) => (string[n] same, float[n] y) {
          same = Identity(text)
          y = Neg(x)
        }"""
    )
    with pytest.raises(UnsupportedOperatorError, match=r"strings, .* the values 'text'") as caught:
        import_model(model)
    assert list(caught.value.operators) == ["tensor(string)"]
