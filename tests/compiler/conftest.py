# SPDX-License-Identifier: Apache-2.0
"""Models for the tests of the user's interfaces, each compiled once a session."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilewright

DATA = Path(tilewright.__file__).parent / "data"
DIGITS = DATA / "digits.onnx"
SCALE = np.array([2, 3, 4], np.float32)
SHIFT = np.array([[1, 1, 1], [2, 2, 2]], np.float32)


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A compile cache of the session's own, also for the processes that tests start."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TILEWRIGHT_CACHE_DIR", str(folder))
        yield folder


@pytest.fixture(scope="session")
def digits() -> tilewright.CompiledModel:
    """The shipped digit classifier."""
    return tilewright.compile(DIGITS)


@pytest.fixture(scope="session")
def digits_file(digits: tilewright.CompiledModel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("digits") / "digits.tw"
    digits.save(path)
    return path


@pytest.fixture(scope="session")
def images() -> np.ndarray:
    with np.load(DATA / "digits_samples.npz") as samples:
        return samples["images"]


@pytest.fixture(scope="session")
def labels() -> np.ndarray:
    with np.load(DATA / "digits_samples.npz") as samples:
        return samples["labels"]


@pytest.fixture(scope="session")
def pair() -> onnx.ModelProto:
    """``total = a + b`` and ``part = a * 2``: symbolic length, two inputs and outputs, a name that
    is no identifier."""
    nodes = [
        helper.make_node("Add", ["a", "b/0"], ["total"]),
        helper.make_node("Mul", ["a", "two"], ["part"]),
    ]
    row = ["n", 4]
    inputs = [
        helper.make_tensor_value_info("a", TensorProto.FLOAT, row),
        helper.make_tensor_value_info("b/0", TensorProto.FLOAT, row),
    ]
    outputs = [
        helper.make_tensor_value_info("total", TensorProto.FLOAT, row),
        helper.make_tensor_value_info("part", TensorProto.FLOAT, row),
    ]
    two = helper.make_tensor("two", TensorProto.FLOAT, [], [2.0])
    graph = helper.make_graph(nodes, "pair", inputs, outputs, [two])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


@pytest.fixture(scope="session")
def pair_model(pair: onnx.ModelProto) -> tilewright.CompiledModel:
    return tilewright.compile(pair)


@pytest.fixture(scope="session")
def pair_file(
    pair_model: tilewright.CompiledModel, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    path = tmp_path_factory.mktemp("pair") / "pair.tw"
    pair_model.save(path)
    return path


@pytest.fixture(scope="session")
def foreign_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An artifact for another processor: its code is never looked at."""
    from tilewright.codegen.artifact import Manifest, PortInfo, TargetInfo, artifact_bytes

    path = tmp_path_factory.mktemp("foreign") / "foreign.tw"
    ports = (PortInfo("x", "float32", ("n",)),)
    manifest = Manifest(TargetInfo("aarch64", (), "", 1), ports, ports, 0)
    path.write_bytes(artifact_bytes(manifest, (), bytes(64)))
    return path


@pytest.fixture(scope="session")
def defaults() -> onnx.ModelProto:
    """``y = x * scale + shift``, where scale and shift have defaults; shift has symbolic dims, and
    is listed first.
    """
    nodes = [
        helper.make_node("Mul", ["x", "scale"], ["scaled"]),
        helper.make_node("Add", ["scaled", "shift"], ["y"]),
    ]
    inputs = {"shift": ["n", 3], "x": ["n", 3], "scale": [3]}
    graph = helper.make_graph(
        nodes,
        "defaults",
        [helper.make_tensor_value_info(name, 1, dims) for name, dims in inputs.items()],
        [helper.make_tensor_value_info("y", 1, ["n", 3])],
        [numpy_helper.from_array(SCALE, "scale"), numpy_helper.from_array(SHIFT, "shift")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def unsupported_model() -> onnx.ModelProto:
    """A valid message with two operators of a domain that nobody knows."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])
    nodes = [
        helper.make_node("Zap", ["x"], ["h"], domain="com.example"),
        helper.make_node("Zip", ["x"], ["g"], domain="com.example"),
        helper.make_node("Add", ["h", "g"], ["y"]),
    ]
    graph = helper.make_graph(nodes, "unsupported", [x], [y])
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("com.example", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


@pytest.fixture(scope="session")
def unsupported() -> onnx.ModelProto:
    return unsupported_model()
