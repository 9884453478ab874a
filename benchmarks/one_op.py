# SPDX-License-Identifier: Apache-2.0
"""Models of one operator, and the time that their kernels take."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import helper, numpy_helper

import tilewright
from benchmarks.blocks import Took

Array = NDArray[Any]
OPSET = 18


def one_op(
    op: str,
    inputs: Mapping[str, tuple[Any, Sequence[int | str]]],
    constants: Mapping[str, Array] | None = None,
    **attributes: Any,
) -> bytes:
    """An ONNX model of one node: its ``inputs`` (dtype and shape) come before its ``constants``.

    Every operand is called by its key; the result is ``y``, of the dtype of the first operand.
    """
    constants = constants or {}
    infos = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(t)), shape)
        for name, (t, shape) in inputs.items()
    ]
    node = helper.make_node(op, [*inputs, *constants], ["y"], name=op, **attributes)
    weights = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    result = helper.make_tensor_value_info("y", infos[0].type.tensor_type.elem_type, None)
    graph = helper.make_graph([node], op, infos, [result], weights)
    opsets = [helper.make_opsetid("", OPSET)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    return bytes(model.SerializeToString())


def kernel_call(model: bytes, feeds: Mapping[str, Array]) -> Callable[[], Took]:
    """A call that runs a model on one thread and tells what its kernels took together."""
    compiled = tilewright.compile(model, threads=1)
    arrays = dict(feeds)

    def call() -> Took:
        kernels = compiled.run_profiled(arrays)[1]
        return Took(1e-9 * sum(k.end_ns - k.begin_ns for k in kernels))

    return call
