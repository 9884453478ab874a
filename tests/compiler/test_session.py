# SPDX-License-Identifier: Apache-2.0
"""The call form of ONNX Runtime, beside ONNX Runtime itself."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import tilewright
from tilewright import errors


@pytest.fixture(scope="module")
def session(pair: onnx.ModelProto) -> tilewright.InferenceSession:
    return tilewright.InferenceSession(pair.SerializeToString())


def test_same_answers_as_onnx_runtime(
    session: tilewright.InferenceSession, pair: onnx.ModelProto
) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    other = onnxruntime.InferenceSession(pair.SerializeToString())

    def told(values: Any) -> list[tuple[str, list[Any], str]]:
        return [(v.name, v.shape, v.type) for v in values]

    assert told(session.get_inputs()) == told(other.get_inputs())
    assert told(session.get_outputs()) == told(other.get_outputs())
    given = {v.name: np.full((3, 4), 1.5, np.float32) for v in other.get_inputs()}
    for names in (None, ["part"], ["part", "total"]):
        found, expected = session.run(names, given), other.run(names, given)
        assert isinstance(found, list) and len(found) == len(expected)
        for ours, theirs in zip(found, expected):
            np.testing.assert_array_equal(ours, theirs)
    assert session.get_providers() == ["CPUExecutionProvider"]


def test_types_are_named_as_in_onnx() -> None:
    kinds = [
        TensorProto.DOUBLE,
        TensorProto.FLOAT16,
        TensorProto.INT64,
        TensorProto.UINT8,
        TensorProto.BOOL,
    ]
    infos = [
        [helper.make_tensor_value_info(f"{letter}{kind}", kind, [2]) for kind in kinds]
        for letter in "xy"
    ]
    nodes = [helper.make_node("Identity", [f"x{kind}"], [f"y{kind}"]) for kind in kinds]
    model = helper.make_model(
        helper.make_graph(nodes, "types", *infos),
        opset_imports=[helper.make_opsetid("", 18)],
        ir_version=10,
    )
    session = tilewright.InferenceSession(model)
    types = [value.type for value in session.get_inputs()]
    words = ["double", "float16", "int64", "uint8", "bool"]
    assert types == [f"tensor({word})" for word in words]
    given = {port.name: np.array([0, 1]).astype(port.dtype) for port in session.model.inputs}
    for found, array in zip(session.run(None, given), given.values()):
        np.testing.assert_array_equal(found, array)
        assert found.dtype == array.dtype


def test_sources(pair_file: Path, tmp_path: Path, pair: onnx.ModelProto) -> None:
    path = tmp_path / "pair.onnx"
    onnx.save(pair, path)
    for source in (pair_file, str(pair_file), pair_file.read_bytes(), path, pair):
        assert len(tilewright.InferenceSession(source).get_inputs()) == 2


def test_options_and_providers(pair_file: Path) -> None:
    options = tilewright.SessionOptions(intra_op_num_threads=1)
    providers = [("CUDAExecutionProvider", {}), "CPUExecutionProvider"]
    tilewright.InferenceSession(pair_file, options, providers)
    with pytest.raises(errors.ArgumentError, match="the only one here is 'CPUExecutionProvider'"):
        tilewright.InferenceSession(pair_file, providers=["CUDAExecutionProvider"])


def test_the_attributes_are_onnx_runtimes() -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    theirs = onnxruntime.SessionOptions()
    ours = tilewright.SessionOptions()
    for name in dir(theirs):
        if not name.startswith("_") and not callable(getattr(theirs, name)):
            setattr(ours, name, getattr(theirs, name))
    ours.add_session_config_entry("session.intra_op.allow_spinning", "0")


def test_options_that_are_none(pair_file: Path, caplog: pytest.LogCaptureFixture) -> None:
    options = tilewright.SessionOptions()
    with pytest.raises(errors.ArgumentError, match=r"Did you mean 'intra_op_num_threads'\?"):
        options.intra_op_threads = 2
    with pytest.raises(
        errors.ArgumentError, match="are of type 'dict', but must be SessionOptions"
    ):
        tilewright.InferenceSession(pair_file, {"intra_op_num_threads": 1})
    with pytest.raises(errors.ArgumentError, match="The number of threads is 'two'"):
        tilewright.InferenceSession(
            pair_file,
            tilewright.SessionOptions("two"),  # type: ignore[arg-type]
        )
    options.enable_profiling = True
    tilewright.InferenceSession(pair_file, options)
    assert "'enable_profiling' has no effect" in caplog.text


def test_no_names_ask_for_all_outputs(session: tilewright.InferenceSession) -> None:
    """As ONNX Runtime has it."""
    x = np.ones((2, 4), np.float32)
    for names in (None, [], (), ["total", "part"]):
        total, part = session.run(names, {"a": x, "b/0": x})
        assert np.array_equal(total, x + x) and np.array_equal(part, 2 * x)


def test_unknown_output(session: tilewright.InferenceSession) -> None:
    with pytest.raises(errors.InputError, match=r"list of names, such as \['total'\], not"):
        session.run("total", {})
    with pytest.raises(errors.InputError, match=r"'sum' is no output: .* 'total', 'part'\."):
        session.run(["sum"], {})
