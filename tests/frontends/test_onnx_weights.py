# SPDX-License-Identifier: Apache-2.0
"""Cutting weights out of a model's bytes: what is left and what was cut make the same model."""

import random
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from tests.frontends.onnx_running import imported, model_of
from tilewright.frontends.onnx import import_model
from tilewright.frontends.onnx.weights import FileSource, MemorySource, split_weights
from tilewright.ir.errors import FrontendError

TEXT = "g (float[64, 32] x) => (float[64, 48] y) { t = MatMul(x, w) y = Add(t, b) }"


def model() -> Any:
    values = np.random.default_rng(2)
    weight = values.standard_normal((32, 48)).astype(np.float32)
    small = values.standard_normal(48).astype(np.float32)
    found = model_of(TEXT, initializers={"b": small, "w": weight})
    found.graph.initializer[1].doc_string = "after the data"
    return found


def together(rest: bytes, weights: dict[int, Any]) -> Any:
    joined = onnx.ModelProto()
    joined.ParseFromString(rest)
    for position, data in weights.items():
        assert not joined.graph.initializer[position].HasField("raw_data")
        joined.graph.initializer[position].raw_data = data.tobytes()
    return joined


def test_large_data_is_cut_and_small_data_stays(tmp_path: Path) -> None:
    data = model().SerializeToString()
    path = tmp_path / "model.onnx"
    path.write_bytes(data)
    with open(path, "rb") as file:
        for source in (MemorySource(data), FileSource(file.fileno(), len(data))):
            rest, weights = split_weights(source)
            assert list(weights) == [1]
            assert len(rest) < len(data) - 32 * 48 * 4 + 16
            assert together(rest, weights) == model()


def test_values_are_the_same_from_every_source(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    x = np.random.default_rng(3).standard_normal((64, 32)).astype(np.float32)
    # The length of the name moves the data through all alignments.
    for length in range(1, 9):
        changed = model()
        changed.graph.name = "g" * length
        path.write_bytes(changed.SerializeToString())
        results = [imported(s, {"x": x})["y"] for s in (path, path.read_bytes(), changed)]
        np.testing.assert_array_equal(results[0], results[2])
        np.testing.assert_array_equal(results[1], results[2])


def test_arrays_are_aligned(tmp_path: Path) -> None:
    for length in range(1, 9):
        changed = model()
        changed.graph.name = "g" * length
        module = import_model(changed.SerializeToString())
        for node in module.graph.nodes:
            if node.op.name == "constant":
                array = module.constants[node.op.data]  # type: ignore[attr-defined]
                assert array.flags.aligned


def test_a_second_graph_is_left_to_protobuf() -> None:
    """Protobuf merges repeated fields; cutting would have to do the same."""
    data = model().SerializeToString()
    assert split_weights(MemorySource(data + data)) == (data + data, {})


def test_a_tensor_with_data_twice_stays_whole() -> None:
    first = model().graph.initializer[1].SerializeToString()
    second = onnx.TensorProto(raw_data=bytes(32 * 48 * 4)).SerializeToString()
    tensor = first + second
    graph = onnx.GraphProto(name="g").SerializeToString()
    graph += b"\x2a" + _length(tensor) + tensor
    data = b"\x3a" + _length(graph) + graph
    assert split_weights(MemorySource(data)) == (data, {})


def _length(data: bytes) -> bytes:
    value, out = len(data), b""
    while value > 127:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def test_damage_is_left_to_protobuf(tmp_path: Path) -> None:
    data = model().SerializeToString()
    chance = random.Random(4)
    path = tmp_path / "model.onnx"
    for _ in range(150):
        damaged = bytearray(data[: chance.choice([len(data), chance.randrange(len(data))])])
        for _ in range(chance.randrange(3)):
            damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        path.write_bytes(damaged)
        outcomes = []
        for source in (path, bytes(damaged)):
            try:
                outcomes.append(import_model(source).output_names)
            except FrontendError as error:
                outcomes.append(str(error).split(" ", 3)[3:])
        assert (outcomes[0] == ["y"]) == (outcomes[1] == ["y"])


def test_a_wrong_length_is_still_an_error() -> None:
    changed = model()
    changed.graph.initializer[1].raw_data = changed.graph.initializer[1].raw_data[:-4]
    with pytest.raises(FrontendError, match="needs 6144 bytes of data but has 6140"):
        import_model(changed.SerializeToString())
