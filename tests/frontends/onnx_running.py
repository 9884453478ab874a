# SPDX-License-Identifier: Apache-2.0
"""Running imported models in the tests: the reference interpreter against ONNX Runtime and the
values of ONNX's node suite.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper, parser

from tilewright.frontends.onnx import import_model
from tilewright.ir.errors import FrontendError
from tilewright.ir.interpreter.graphs import interpret_graph

Array = np.ndarray[Any, Any]


def model_of(text: str, opset: int = 18, initializers: Mapping[str, Any] | None = None) -> Any:
    """A model from the body of ONNX's text form: ``g (float[N] x) => (float[N] y) { ... }``."""
    source = f'<ir_version: 8, opset_import: ["" : {opset}]>\n{text}'
    model = parser.parse_model(source)
    for name, array in (initializers or {}).items():
        model.graph.initializer.append(numpy_helper.from_array(np.asarray(array), name))
    return model


def node_model(
    op: str,
    inputs: Sequence[Any],
    opset: int,
    fixed: Sequence[int] = (),
    outputs: int = 1,
    **attributes: Any,
) -> tuple[Any, dict[str, Array]]:
    """A model of one node, and its feeds; inputs at the positions ``fixed`` are initialisers, None
    is a missing one.
    """
    names = ["" if x is None else f"x{i}" for i, x in enumerate(inputs)]
    arrays = {n: np.asarray(x) for n, x in zip(names, inputs) if x is not None}
    constant = {f"x{i}" for i in fixed}
    results = [f"y{i}" for i in range(outputs)]
    node = helper.make_node(op, names, results, name="node", **attributes)
    graph = helper.make_graph(
        [node],
        "g",
        [_info(n, a) for n, a in arrays.items() if n not in constant],
        [helper.make_empty_tensor_value_info(r) for r in results],
        [numpy_helper.from_array(a, n) for n, a in arrays.items() if n in constant],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    model.ir_version = min(model.ir_version, 10)
    return model, {n: a for n, a in arrays.items() if n not in constant}


def _info(name: str, array: Array) -> Any:
    return helper.make_tensor_value_info(
        name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
    )


def imported(model: Any, feeds: Mapping[str, Array], **options: Any) -> dict[str, Array]:
    """The outputs of a model by import and interpretation."""
    return interpret_graph(import_model(model, **options), feeds)


def expected(model: Any, feeds: Mapping[str, Array]) -> list[Array]:
    """The outputs of a model by ONNX Runtime."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    return list(session.run(None, dict(feeds)))


def check_against_runtime(
    model: Any, feeds: Mapping[str, Array], rtol: float = 1e-5, atol: float = 1e-6
) -> None:
    """Hold the outputs of a model to those of ONNX Runtime."""
    ours = imported(model, feeds)
    for (name, mine), theirs in zip(ours.items(), expected(model, feeds), strict=True):
        difference = compared(mine, theirs, rtol, atol)
        assert difference is None, f"{name}: {difference}"


def compared(mine: Array, theirs: Array, rtol: float, atol: float) -> str | None:
    """What differs between two arrays; None if nothing does."""
    if mine.shape != theirs.shape or mine.dtype != theirs.dtype:
        return f"{mine.dtype}{mine.shape} instead of {theirs.dtype}{theirs.shape}"
    if theirs.dtype.kind in "biu":
        wrong = int(np.sum(mine != theirs))
        return f"{wrong} of {theirs.size} elements differ" if wrong else None
    wide = np.complex128 if theirs.dtype.kind == "c" else np.float64
    a, b = mine.astype(wide), theirs.astype(wide)
    if np.allclose(a, b, rtol, atol, equal_nan=True):
        return None
    with np.errstate(all="ignore"):
        return f"differs by up to {np.nanmax(np.abs(a - b))}"


def as_array(value: Any) -> Array:
    """An array of the node suite, which stores some as tensor messages."""
    return numpy_helper.to_array(value) if isinstance(value, TensorProto) else np.asarray(value)


def load(path: Any) -> onnx.ModelProto:
    """A model file without its external data."""
    return onnx.load(path, load_external_data=False)


def add_model() -> Any:
    """A model that adds the constant ``w`` to its input."""
    return model_of(
        "g (float[2] x) => (float[2] y) { y = Add(x, w) }",
        initializers={"w": np.array([1, 2], np.float32)},
    )


def refused(model: Any, message: str, **options: Any) -> None:
    """The import must end in a FrontendError whose sentence matches."""
    with pytest.raises(FrontendError, match=message) as caught:
        import_model(model, **options)
    text = str(caught.value)
    assert text[0].isupper() or text[0] == "'"
    assert text.endswith((".", "trusted."))
    assert len(text) < 2000
    assert text.isprintable()
