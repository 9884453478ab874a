# SPDX-License-Identifier: Apache-2.0
"""The interface of onnx.backend."""

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx.backend.base import Backend, BackendRep
from onnx.backend.test.runner import BackendIsNotSupposedToImplementIt

from tilewright import backend, errors

A = np.arange(8, dtype=np.float32).reshape(2, 4)
B = np.ones((2, 4), np.float32)


def test_prepare_and_run(pair: onnx.ModelProto) -> None:
    prepared = backend.prepare(pair, "CPU")
    assert isinstance(prepared, BackendRep) and issubclass(backend.TilewrightBackend, Backend)
    for given in ([A, B], (A, B), {"a": A, "b/0": B}):
        outputs = prepared.run(given)
        np.testing.assert_array_equal(outputs[0], A + B)
        np.testing.assert_array_equal(outputs["part"], A * 2)
    with pytest.raises(errors.InputError, match="There are 1 arrays, but the model has 2 inputs"):
        prepared.run(A)


def test_run_model(pair: onnx.ModelProto) -> None:
    total, part = backend.run_model(pair, [A, B])
    np.testing.assert_array_equal(total, A + B)
    np.testing.assert_array_equal(part, A * 2)


NODES: dict[str, tuple[onnx.NodeProto, list[Any], Any]] = {
    "add": (helper.make_node("Add", ["x", "y"], ["z"]), [A, B], A + B),
    "same-operand": (helper.make_node("Add", ["x", "x"], ["z"]), [A], A + A),
    "optional": (
        helper.make_node("Clip", ["x", "", "most"], ["z"]),
        [A, np.float32(3)],
        A.clip(None, 3),
    ),
}


@pytest.mark.parametrize("name", NODES)
def test_run_node(name: str) -> None:
    node, arrays, expected = NODES[name]
    (found,) = backend.run_node(node, arrays, opset_version=18)
    np.testing.assert_array_equal(found, expected)


def test_run_node_with_too_few_arrays() -> None:
    with pytest.raises(errors.InputError, match="There are 1 arrays, but the node has 2 inputs"):
        backend.run_node(NODES["add"][0], [A])


def test_devices(pair: onnx.ModelProto) -> None:
    assert backend.supports_device("CPU") and backend.supports_device("CPU:0")
    assert not backend.supports_device("CUDA")
    assert backend.is_compatible(pair) and not backend.is_compatible(pair, "CUDA")
    with pytest.raises(BackendIsNotSupposedToImplementIt, match="Device 'CUDA'"):
        backend.prepare(pair, "CUDA")


def test_what_is_not_supported(pair: onnx.ModelProto, unsupported: onnx.ModelProto) -> None:
    assert not backend.is_compatible(unsupported)
    with pytest.raises(BackendIsNotSupposedToImplementIt, match="Zap"):
        backend.prepare(unsupported)
    old = onnx.ModelProto()
    old.CopyFrom(pair)
    old.opset_import[0].version = 99
    with pytest.raises(BackendIsNotSupposedToImplementIt, match="Operator set 99"):
        backend.prepare(old)


def test_a_path_is_no_model() -> None:
    with pytest.raises(errors.FrontendError, match=r"'str'. Read a file with onnx.load"):
        backend.prepare("model.onnx")


def test_a_broken_model_is_an_error(pair: onnx.ModelProto) -> None:
    broken = onnx.ModelProto()
    broken.CopyFrom(pair)
    broken.graph.node[0].input[0] = "nowhere"
    with pytest.raises(errors.FrontendError, match="'nowhere'"):
        backend.prepare(broken)
    with pytest.raises(TypeError, match="'options' is of type 'int'"):
        backend.prepare(pair, options=3)
