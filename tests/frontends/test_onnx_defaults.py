# SPDX-License-Identifier: Apache-2.0
"""Initialisers that are inputs of the graph too: defaults since IR version 4, constants before, and
where they decide shapes.
"""

import logging
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.frontends.onnx_running import imported, model_of, refused
from tilewright.frontends.onnx import import_model
from tilewright.ir.errors import ShapesError
from tilewright.ir.graph_parser import parse_module
from tilewright.ir.verify_graph import verify_module

X = np.array([1, 2], np.float32)
W = np.array([10, 20], np.float32)
ADD = "g (float[n] x) => (float[k] y) { y = Add(x, w) }"


def with_defaults(
    text: str, dims: dict[str, Sequence[int | str]], ir_version: int = 8, **arrays: Any
) -> onnx.ModelProto:
    """A model some of whose initialisers, those in ``dims``, are inputs with these dims; they come
    before the others.
    """
    model = model_of(text, initializers=arrays)
    listed = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(np.asarray(arrays[name]).dtype), shape
        )
        for name, shape in dims.items()
    ]
    others = list(model.graph.input)
    del model.graph.input[:]
    model.graph.input.extend([*listed, *others])
    model.ir_version = ir_version
    return model


def test_a_default_may_be_replaced() -> None:
    model = with_defaults(ADD, {"w": [2]}, w=W)
    module = import_model(model)
    assert module.input_names == ["x", "w"]  # what must be given comes first
    assert list(module.defaults) == ["w"]
    verify_module(module)
    np.testing.assert_array_equal(imported(model, {"x": X})["y"], X + W)
    np.testing.assert_array_equal(imported(model, {"x": X, "w": X})["y"], X + X)


@pytest.mark.parametrize("ir_version", [1, 3])
def test_before_version_4_all_initializers_are_constants(ir_version: int) -> None:
    model = with_defaults(ADD, {"w": [2]}, ir_version, w=W)
    module = import_model(model)
    assert module.input_names == ["x"] and not module.defaults


def test_initializers_that_are_no_inputs_are_constants() -> None:
    module = import_model(model_of(ADD, initializers={"w": W}))
    assert module.input_names == ["x"] and not module.defaults


def test_a_sparse_initializer_is_a_default_too() -> None:
    model = with_defaults(ADD, {"w": [2]}, w=W)
    values = numpy_helper.from_array(W[1:], "w")
    place = numpy_helper.from_array(np.array([1]), "places")
    del model.graph.initializer[:]
    model.graph.sparse_initializer.append(helper.make_sparse_tensor(values, place, [2]))
    np.testing.assert_array_equal(imported(model, {"x": X})["y"], X + [0, 20])
    np.testing.assert_array_equal(imported(model, {"x": X, "w": W})["y"], X + W)


def test_dims_of_a_default_may_be_symbolic_or_undeclared() -> None:
    model = with_defaults(ADD, {"w": ["n"]}, w=W)
    long = np.arange(5, dtype=np.float32)
    np.testing.assert_array_equal(imported(model, {"x": long, "w": long})["y"], long + long)
    np.testing.assert_array_equal(imported(model, {"x": X})["y"], X + W)
    model.graph.input[0].type.tensor_type.ClearField("shape")
    np.testing.assert_array_equal(imported(model, {"x": X})["y"], X + W)
    assert str(import_model(model).graph.inputs[1].type) == "f32[2]"


RESHAPED = """
g (float[n, 6] x) => (float[a, b, c] y, float[d] z) {
  y = Reshape(x, shape)
  z = Add(w, w)
}
"""
SHAPE = np.array([-1, 2, 3])


def test_a_default_that_decides_shapes_is_a_constant(caplog: pytest.LogCaptureFixture) -> None:
    model = with_defaults(RESHAPED, {"shape": [3], "w": [2]}, shape=SHAPE, w=W)
    with caplog.at_level(logging.WARNING, "tilewright"):
        module = import_model(model)
    assert module.input_names == ["x", "w"]
    assert "The initialisers 'shape' are inputs of the graph too, but decide shapes" in caplog.text
    x = np.arange(12, dtype=np.float32).reshape(2, 6)
    results = imported(model, {"x": x, "w": X})
    np.testing.assert_array_equal(results["y"], x.reshape(2, 2, 3))
    np.testing.assert_array_equal(results["z"], X + X)


COMPUTED = """
g (float[n, 6] x) => (float[a, b, c] y, float[d] z, int64[3] used) {
  first = Constant<value = int64[1] {0}>()
  dims = Shape(x)
  n = Gather(dims, first)
  shape = Concat<axis = 0>(n, rest)
  y = Reshape(x, shape)
  z = Tile(w, repeats)
  used = Identity(shape)
}
"""


def test_shapes_may_be_computed_from_defaults_and_dims() -> None:
    given = {"rest": np.array([3, 2]), "repeats": np.array([3]), "w": W}
    model = with_defaults(COMPUTED, {"rest": [2], "w": [2], "repeats": [1]}, **given)
    assert import_model(model).input_names == ["x", "w"]
    x = np.arange(12, dtype=np.float32).reshape(2, 6)
    results = imported(model, {"x": x, "w": X})
    np.testing.assert_array_equal(results["y"], x.reshape(2, 3, 2))
    np.testing.assert_array_equal(results["z"], np.tile(X, 3))
    np.testing.assert_array_equal(results["used"], [2, 3, 2])


def test_shapes_that_an_input_decides_are_refused_as_ever() -> None:
    text = """
    g (float[6] x, int64[2] s) => (float[a, b] y) { t = Mul(s, one) y = Reshape(x, t) }
    """
    model = with_defaults(text, {"one": [2]}, one=np.array([1, 1]))
    with pytest.raises(Exception, match="computed at run time from the inputs 'one', 's'"):
        import_model(model)


def test_a_default_must_be_of_the_declared_type() -> None:
    refused(with_defaults(ADD, {"w": [3]}, w=W), r"Input 'w' is f32\[3\], but .* is f32\[2\]")
    model = with_defaults(ADD, {"w": [2]}, w=W)
    model.graph.input[0].type.tensor_type.elem_type = TensorProto.DOUBLE
    refused(model, r"Input 'w' is f64\[2\], but its initialiser is f32\[2\]")


def test_shapes_may_be_given_for_defaults() -> None:
    model = with_defaults(ADD, {"w": ["n"]}, w=W)
    module = import_model(model, {"w": [2], "x": [2]})
    assert [str(v.type) for v in module.graph.inputs] == ["f32[2]", "f32[2]"]
    with pytest.raises(ShapesError, match="the inputs are 'x', 'w'"):
        import_model(model, {"v": [2]})


def test_modules_with_defaults_print_and_parse() -> None:
    module = import_model(with_defaults(ADD, {"w": [2]}, w=W))
    text = str(module)
    assert '  default "w" = f32[2] #' in text
    again = parse_module(text, module.constants)
    assert str(again) == text and again.defaults == module.defaults
