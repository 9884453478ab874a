# SPDX-License-Identifier: Apache-2.0
"""External data: only plain files with one name inside the model's folder are read, by one way."""

import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.frontends.onnx_running import add_model, imported, refused
from tilewright.frontends.onnx import import_model

WEIGHT = np.array([1, 2], np.float32)


def external(folder: Path, location: str = "weights.bin", **keys: Any) -> Path:
    """A model whose weight lies in ``location``."""
    model = add_model()
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in {"location": location, **keys}.items():
        tensor.external_data.add(key=key, value=str(value))
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    return folder / "model.onnx"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    inside = tmp_path / "inside"
    (inside / "sub").mkdir(parents=True)
    data = np.arange(4, dtype=np.float32).tobytes()
    for place in (inside / "weights.bin", inside / "sub" / "weights.bin", tmp_path / "secret"):
        place.write_bytes(data)
    return inside


@pytest.mark.parametrize(
    ("location", "keys", "first"),
    [
        ("weights.bin", {}, 0),
        ("weights.bin", {"offset": 8, "length": 8}, 2),
        ("./sub//weights.bin", {"offset": 4, "checksum": "abc"}, 1),
    ],
)
def test_external_data(folder: Path, location: str, keys: dict[str, Any], first: int) -> None:
    path = external(folder, location, **keys)
    y = imported(path, {"x": np.zeros(2, np.float32)})["y"]
    np.testing.assert_array_equal(y, [first, first + 1])
    by_bytes = import_model(path.read_bytes(), folder=folder)
    assert by_bytes.output_names == ["y"]
    refused(path.read_bytes(), "without a folder. Import it by its path")


OUTSIDE = "is not a plain path inside the model's folder"


@pytest.mark.parametrize(
    ("location", "keys", "message"),
    [
        ("../secret", {}, OUTSIDE),
        ("sub/../../secret", {}, OUTSIDE),
        ("/etc/passwd", {}, OUTSIDE),
        ("", {}, OUTSIDE),
        (".", {}, OUTSIDE),
        ("..\\secret", {}, OUTSIDE),
        ("c:secret", {}, OUTSIDE),
        ("new\nline", {}, OUTSIDE),
        ("a/" * 40 + "b", {}, OUTSIDE),
        ("absent.bin", {}, "'absent.bin' of tensor 'w' does not exist. Fetch the file"),
        ("sub", {}, "is no file|Is a directory"),
        ("weights.bin/x", {}, "Not a directory"),
        ("weights.bin", {"offset": 12}, "which holds 16. Fetch the complete file"),
        ("weights.bin", {"offset": 1 << 62}, "which holds 16"),
        ("weights.bin", {"offset": 1 << 70}, "is not a byte count"),
        ("weights.bin", {"offset": "-4"}, "is not a byte count"),
        ("weights.bin", {"offset": "4_0"}, "is not a byte count"),
        ("weights.bin", {"length": 4}, "needs 8 bytes but its external data declares 4"),
        ("weights.bin", {"basepath": "/"}, "has the key 'basepath', which is unknown"),
    ],
)
def test_unsafe_external_data(
    folder: Path, location: str, keys: dict[str, Any], message: str
) -> None:
    refused(external(folder, location, **keys), message)


def test_links_are_not_followed(folder: Path, tmp_path: Path) -> None:
    (folder / "link").symlink_to(tmp_path / "secret")
    (folder / "linked").symlink_to(tmp_path)
    (folder / "loop").symlink_to("loop")
    for location in ("link", "linked/secret", "loop"):
        refused(external(folder, location), "cannot be opened without following links")
    os.link(tmp_path / "secret", folder / "hard")
    refused(external(folder, "hard"), re.escape("has several names (hard links)"))


def test_devices_and_pipes_are_refused(folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    refused(external(folder, "pipe"), "is no file")


def test_a_folder_reached_by_a_link_is_resolved_once(folder: Path, tmp_path: Path) -> None:
    external(folder)
    (tmp_path / "alias").symlink_to(folder)
    y = imported(tmp_path / "alias" / "model.onnx", {"x": np.zeros(2, np.float32)})["y"]
    np.testing.assert_array_equal(y, [0, 1])


@pytest.mark.parametrize("place", ["attribute", "sparse values", "sparse indices", "branch"])
def test_external_data_has_one_choke_point(folder: Path, place: str) -> None:
    """Tensors in attributes, sparse tensors and sub-graphs are checked like initialisers."""
    model = add_model()
    del model.graph.initializer[:]
    tensor = TensorProto(name="w", data_type=1, dims=[2], data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value="../secret")
    whole = numpy_helper.from_array(np.array([0, 1]), "i")
    constant = helper.make_node("Constant", [], ["w"], value=tensor)
    if place == "attribute":
        model.graph.node.insert(0, constant)
    elif place == "branch":
        branch = helper.make_graph([constant], "b", [], [helper.make_empty_tensor_value_info("w")])
        condition = numpy_helper.from_array(np.array(True), "c")
        model.graph.initializer.append(condition)
        node = helper.make_node("If", ["c"], ["w"], then_branch=branch, else_branch=branch)
        model.graph.node.insert(0, node)
    else:
        values, indices = numpy_helper.from_array(WEIGHT, "w"), whole
        if place == "sparse values":
            values = tensor
        else:
            tensor.data_type, tensor.name = TensorProto.INT64, "i"
            indices = tensor
        model.graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, [2]))
    refused(model, OUTSIDE, folder=folder)


def test_external_data_is_mapped_not_copied(folder: Path) -> None:
    path = external(folder)
    (folder / "weights.bin").write_bytes(np.arange(1 << 16, dtype=np.float32).tobytes())
    model = onnx.load(path, load_external_data=False)
    model.graph.initializer[0].dims[0] = 1 << 16
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 1 << 16
    path.write_bytes(model.SerializeToString())
    module = import_model(path)
    (constant,) = (n for n in module.graph.nodes if n.op.name == "constant")
    array: Any = module.constants[constant.op.data]  # type: ignore[attr-defined]
    while isinstance(array, np.ndarray):
        assert not array.flags.owndata
        array = array.base
    assert isinstance(array, memoryview)
