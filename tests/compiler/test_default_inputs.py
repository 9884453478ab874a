# SPDX-License-Identifier: Apache-2.0
"""Inputs with a default, through every interface: left out, given, and looked at."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import tilewright
from tests.compiler.conftest import SCALE, SHIFT
from tilewright import backend, errors

X = np.array([[1, 2, 3], [4, 5, 6]], np.float32)


@pytest.fixture(scope="module")
def compiled(defaults: onnx.ModelProto) -> tilewright.CompiledModel:
    return tilewright.compile(defaults)


def test_inputs_with_a_default_may_be_left_out(compiled: tilewright.CompiledModel) -> None:
    ones = np.ones((2, 3), np.float32)
    for _ in range(2):  # one context runs all: nothing of a feed stays behind
        np.testing.assert_array_equal(compiled.run({"x": X})["y"], X * SCALE + SHIFT)
        given = {"x": X, "scale": np.float32([0, 0, 1])}
        np.testing.assert_array_equal(compiled.run(given)["y"], X * [0, 0, 1] + SHIFT)
        long = np.concatenate([X, X])
        given = {"x": long, "shift": long}
        np.testing.assert_array_equal(compiled.run(given)["y"], long * SCALE + long)
        given = {"x": X, "shift": ones, "scale": SCALE}
        np.testing.assert_array_equal(compiled.run(given)["y"], X * SCALE + 1)
    np.testing.assert_array_equal(compiled(X), X * SCALE + SHIFT)
    np.testing.assert_array_equal(compiled(X, ones), X * SCALE + 1)
    np.testing.assert_array_equal(compiled(X, scale=SCALE * 2), X * SCALE * 2 + SHIFT)
    outputs, times = compiled.run_profiled({"x": X})
    np.testing.assert_array_equal(outputs["y"], X * SCALE + SHIFT)
    assert times


def test_wrong_feeds_are_told(compiled: tilewright.CompiledModel) -> None:
    for feeds, message in (
        ({}, "Input 'x' is missing"),
        ({"scale": SCALE}, "Input 'x' is missing"),
        ({"x": X, "shifts": X}, "'shifts' is no input: .*Did you mean 'shift'"),
        ({"x": X, "scale": SHIFT}, "Input 'scale' has rank 2"),
        ({"x": X, "scale": SCALE[:2]}, "Dim 0 of input 'scale' is 2"),
        ({"x": X, "scale": SCALE.astype(np.float64)}, "float64"),
        ({"x": X[:1]}, "Dim 0 of input 'shift' is 2, but 'n' is 1 elsewhere"),
    ):
        with pytest.raises(errors.InputError, match=message):
            compiled.run(feeds)


def test_inputs_tell_of_their_defaults(compiled: tilewright.CompiledModel) -> None:
    assert [p.name for p in compiled.inputs] == ["x", "shift", "scale"]
    assert [p.optional for p in compiled.inputs] == [False, True, True]
    assert [p.default for p in compiled.inputs] == [None, (2, 3), (3,)]
    assert not compiled.outputs[0].optional


def test_saved_models_keep_defaults(compiled: tilewright.CompiledModel, tmp_path: Path) -> None:
    compiled.save(tmp_path / "defaults.tw")
    loaded = tilewright.load(tmp_path / "defaults.tw")
    assert loaded.inputs == compiled.inputs
    np.testing.assert_array_equal(loaded.run({"x": X})["y"], X * SCALE + SHIFT)
    np.testing.assert_array_equal(loaded.run({"x": X, "scale": SCALE * 0})["y"], SHIFT)


def test_sessions_are_those_of_onnx_runtime(defaults: onnx.ModelProto) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    own = tilewright.InferenceSession(defaults)
    other = onnxruntime.InferenceSession(defaults.SerializeToString())

    def told(values: Any) -> list[tuple[str, list[Any], str]]:
        return sorted((v.name, v.shape, v.type) for v in values)

    assert told(own.get_inputs()) == told(other.get_inputs())
    assert told(own.get_overridable_initializers()) == told(other.get_overridable_initializers())
    for feeds in ({"x": X}, {"x": X, "scale": SCALE + 1}):
        np.testing.assert_array_equal(own.run(None, feeds)[0], other.run(None, feeds)[0])


def test_backends_take_lists_with_and_without_them(defaults: onnx.ModelProto) -> None:
    prepared = backend.prepare(defaults)
    np.testing.assert_array_equal(prepared.run([X])[0], X * SCALE + SHIFT)
    np.testing.assert_array_equal(prepared.run([X, X, SCALE])[0], X * SCALE + X)
    with pytest.raises(errors.InputError, match="There are 0 arrays"):
        prepared.run([])


def test_unused_and_large_defaults(defaults: onnx.ModelProto) -> None:
    """One that nothing reads is accepted; one that equals a constant is stored with it."""
    changed = onnx.ModelProto()
    changed.CopyFrom(defaults)
    changed.graph.input.append(helper.make_tensor_value_info("spare", 1, [3]))
    changed.graph.initializer.append(numpy_helper.from_array(SCALE, "spare"))
    compiled = tilewright.compile(changed)
    assert len(compiled.manifest["constants"]) == 2
    np.testing.assert_array_equal(
        compiled.run({"x": X, "spare": SCALE * 9})["y"], X * SCALE + SHIFT
    )
