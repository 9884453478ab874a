# SPDX-License-Identifier: Apache-2.0
"""Edges of shapes in compiled models: dims that are 0 in a call, windows that hang over."""

import numpy as np
import onnx
import pytest

import tilewright

EMPTY_OR_NOT = """
<ir_version: 8, opset_import: ["" : 18]>
g (float[n, 3] x) => (float[a, 3] rest, float[b, 3] last, float[c, 3] back, float[d, 6] wide,
                      float[e, 3] picked) {
  zero = Constant<value_ints = [0]>()
  one = Constant<value_ints = [1]>()
  minus = Constant<value_ints = [-1]>()
  end = Constant<value_ints = [9223372036854775807]>()
  start = Constant<value_ints = [-9223372036854775807]>()
  rest = Slice(x, one, end, zero)
  last = Slice(x, minus, end, zero)
  back = Slice(x, minus, start, zero, minus)
  twice = Constant<value_floats = [1.0, 2.0]>()
  wide = Resize<mode = "nearest">(x, , twice)
  counts = Shape(x)
  n = Gather(counts, zero)
  first = Constant<value_int = 0>()
  stop = Squeeze(n)
  step = Constant<value_int = 1>()
  rows = Range(first, stop, step)
  picked = Gather<axis = 0>(x, rows)
}
"""


def test_a_dim_may_be_empty_where_it_is_sliced_resized_or_read_at() -> None:
    compiled = tilewright.compile(onnx.parser.parse_model(EMPTY_OR_NOT))
    for n in (0, 1, 2, 5):
        x = np.arange(n * 3, dtype=np.float32).reshape(n, 3)
        found = compiled.run({"x": x})
        want = {
            "rest": x[1:],
            "last": x[-1:],
            "back": x[::-1],
            "wide": x.repeat(2, 1),
            "picked": x,
        }
        for name, array in want.items():
            np.testing.assert_array_equal(found[name], array, name)


HANGING = """
<ir_version: 8, opset_import: ["" : 18]>
g (float[1, 1, h, w] x) => (float[1, 1, a, b] most, float[1, 1, c, d] mean) {
  most = MaxPool<kernel_shape = [3, 2], strides = [3, 2], ceil_mode = 1>(x)
  mean = AveragePool<kernel_shape = [3, 2], strides = [3, 2], ceil_mode = 1>(x)
}
"""


def test_windows_hang_over_dims_that_a_call_tells() -> None:
    compiled = tilewright.compile(onnx.parser.parse_model(HANGING))
    for h, w in ((1, 1), (2, 4), (4, 3), (7, 5)):
        x = np.arange(h * w, dtype=np.float32).reshape(h, w)
        blocks = [[x[i : i + 3, j : j + 2] for j in range(0, w, 2)] for i in range(0, h, 3)]
        found = compiled.run({"x": x[None, None]})
        for name, of in (("most", np.max), ("mean", np.mean)):
            want = [[of(block) for block in row] for row in blocks]
            np.testing.assert_allclose(found[name][0, 0], want, 1e-6)
    empty = compiled.run({"x": np.zeros((1, 1, 0, 4), np.float32)})
    assert {array.shape for array in empty.values()} == {(1, 1, 0, 2)}


REFUSED = """
<ir_version: 8, opset_import: ["" : 18]>
g (float[3] x) => (float[2, 3] y) <float[0, 3] none = {}> {
  pads = Constant<value_ints = [1, 0, 1, 0]>()
  edges = Pad<mode = "edge">(none, pads)
  y = Add(x, edges)
}
"""


def test_constants_that_no_call_fits_are_not_computed() -> None:
    compiled = tilewright.compile(onnx.parser.parse_model(REFUSED))
    with pytest.raises(tilewright.errors.InputError, match="An empty dim of 0 cannot be padded"):
        compiled.run({"x": np.zeros(3, np.float32)})
