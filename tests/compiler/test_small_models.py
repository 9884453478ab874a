# SPDX-License-Identifier: Apache-2.0
"""Small models from end to end, each of a kind that once did not compile or gave something else."""

import numpy as np
import onnx
import pytest

import tilewright
from tilewright import errors

ATTENTION = """
<ir_version: 8, opset_import: ["" : 17]>
decoder (float[heads, past, 8] cache, float[heads, seq, 8] new, float[heads, seq, 8] query)
    => (float[heads, seq, 8] attended, float[heads, total, 8] keys) {
  keys = Concat<axis = 1>(cache, new)
  columns = Transpose<perm = [0, 2, 1]>(keys)
  scores = MatMul(query, columns)
  weights = Softmax(scores)
  attended = MatMul(weights, keys)
}
"""


def test_a_cache_may_be_empty() -> None:
    """As at the first call of a decoder; and there may be no head, or no token, at all."""
    model = tilewright.compile(onnx.parser.parse_model(ATTENTION))
    rng = np.random.default_rng(0)
    for heads, past, seq in ((2, 0, 3), (2, 5, 1), (2, 5, 0), (0, 5, 3), (2, 0, 0)):
        cache, new, query = (
            rng.standard_normal((heads, n, 8), np.float32) for n in (past, seq, seq)
        )
        found = model.run({"cache": cache, "new": new, "query": query})
        keys = np.concatenate([cache, new], axis=1)
        weights = np.exp(query @ keys.transpose(0, 2, 1))
        attended = weights @ keys / weights.sum(axis=2, keepdims=True)
        np.testing.assert_array_equal(found["keys"], keys)
        np.testing.assert_allclose(found["attended"], attended, rtol=1e-4, atol=1e-5)


def test_a_concat_of_a_hundred_parts() -> None:
    parts = ", ".join(["x", "y"] * 50)
    model = tilewright.compile(
        onnx.parser.parse_model(
            '<ir_version: 8, opset_import: ["" : 17]> '
            f"g (float[n] x, float[2] y) => (float[m] z) {{ z = Concat<axis = 0>({parts}) }}"
        )
    )
    for n in (0, 1, 5):
        x, y = np.arange(n, dtype=np.float32), np.float32([-1, -2])
        np.testing.assert_array_equal(model(x, y), np.concatenate([x, y] * 50))


SLICED_SCATTER = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[n, 6] x, int64[k, 3] where, float[k, 3] new) => (float[n, 3] y) <int64[1] zero = {0},
    int64[1] last = {3}, int64[1] first = {100}, int64[1] axis = {1}, int64[1] back = {-1},
    int64[1] end = {-100}> {
  window = Slice(x, zero, last, axis)
  turned = Slice(window, first, end, zero, back)
  y = ScatterElements<axis = 0, reduction = "add">(turned, where, new)
}
"""


def test_a_scatter_into_a_slice() -> None:
    """The data of a scatter is read before the updates: here a window of rows in reverse order."""
    model = tilewright.compile(onnx.parser.parse_model(SLICED_SCATTER))
    rng = np.random.default_rng(0)
    for n, k in ((1, 1), (5, 3), (4, 9), (3, 0)):
        x, new = (rng.standard_normal(s, np.float32) for s in ((n, 6), (k, 3)))
        where = rng.integers(-n, n, (k, 3))
        expected = x[::-1, :3].copy()
        np.add.at(expected, (where % n, np.arange(3)), new)
        found = model.run({"x": x, "where": where, "new": new})["y"]
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


DENSE_OVER_FREQUENCIES = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[n, 3, t, 8] x, float[8, 8] w) => (float[n, 3, u, 7] y) {
  dense = MatMul(x, w)
  y = MaxPool<kernel_shape = [2, 2]>(dense)
}
"""


def test_a_pool_after_a_dense_layer_on_the_last_axis() -> None:
    """Rows of the matrix product are ``3*n*t``; the pool reads channels last."""
    parsed = onnx.parser.parse_model(DENSE_OVER_FREQUENCIES)
    rng = np.random.default_rng(0)
    w = rng.standard_normal((8, 8), np.float32)
    parsed.graph.input.pop()
    parsed.graph.initializer.append(onnx.numpy_helper.from_array(w, "w"))
    model = tilewright.compile(parsed)
    for n, t in ((2, 5), (1, 2), (0, 3)):
        x = rng.standard_normal((n, 3, t, 8), np.float32)
        dense = x @ w
        expected = np.maximum(dense[..., 1:, :], dense[..., :-1, :])
        expected = np.maximum(expected[..., 1:], expected[..., :-1])
        np.testing.assert_allclose(model(x), expected, rtol=1e-4, atol=1e-5)


def test_an_output_larger_than_memory() -> None:
    model = tilewright.compile(
        onnx.parser.parse_model(
            '<ir_version: 8, opset_import: ["" : 17]> '
            "g (float[n, 1] x, float[1, m] y) => (float[n, m] z) { z = Add(x, y) }"
        )
    )
    many = np.zeros(1 << 23, np.float32)
    with pytest.raises(errors.OutOfMemoryError, match=r"output 'z' has the shape \(8388608, 8388"):
        model(many[:, None], many[None, :])
    assert model(many[:2, None], many[None, :3]).shape == (2, 3)


EMPTY = {
    "no rows": ("float[0,4] x, float[4,3] w", "MatMul(x, w)", (0, 3)),
    "no columns": ("float[2,4] x, float[4,0] w", "MatMul(x, w)", (2, 0)),
    "an empty sum": ("float[2,0] x, float[0,3] w", "MatMul(x, w)", (2, 3)),
    "no channels": ("float[2,0,9,9] x, float[3,0,3,3] w", "Conv(x, w)", (2, 3, 7, 7)),
    "no images": ("float[0,4,9,9] x, float[3,4,3,3] w", "Conv(x, w)", (0, 3, 7, 7)),
    "no classes": ("float[3,0] x", "Softmax(x)", (3, 0)),
    "nothing to add": ("float[3,0] x, float[3,2] z", "Concat<axis = 1>(x, z)", (3, 2)),
}


@pytest.mark.parametrize("case", EMPTY)
def test_static_dims_of_zero(case: str) -> None:
    inputs, call, shape = EMPTY[case]
    header = '<ir_version: 8, opset_import: ["" : 17]>'
    model = onnx.parser.parse_model(f"{header} g ({inputs}) => (float[d] y) {{ y = {call} }}")
    model.graph.output[0].type.tensor_type.ClearField("shape")
    compiled = tilewright.compile(model)
    given = {p.name: np.ones([int(d) for d in p.shape], np.float32) for p in compiled.inputs}
    (found,) = compiled.run(given).values()
    expected = np.ones(shape) if case == "nothing to add" else np.zeros(shape)
    np.testing.assert_array_equal(found, expected.astype(np.float32))
