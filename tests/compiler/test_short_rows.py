# SPDX-License-Identifier: Apache-2.0
"""Softmax, norms and reductions over rows of a few points, against numpy in float64."""

import ctypes
import mmap
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import pytest

import tilewright
from tests.targets import runnable_targets

TARGETS = runnable_targets()
ROWS = (1, 7, 8, 15, 16, 17, 33, 130)


def softmax(x: Any) -> Any:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


OPS = {
    "Softmax<axis = -1>(x)": softmax,
    "LogSoftmax<axis = -1>(x)": lambda x: np.log(softmax(x)),
    "ReduceSum(x, last)": lambda x: x.sum(-1, keepdims=True),
    "ReduceMax(x, last)": lambda x: x.max(-1, keepdims=True),
    "ReduceL2(x, last)": lambda x: np.sqrt((x * x).sum(-1, keepdims=True)),
    "LpNormalization<axis = -1>(x)": lambda x: x / np.sqrt((x * x).sum(-1, keepdims=True)),
}
TYPES = {"float": (np.float32, 1e-5), "double": (np.float64, 1e-12), "float16": (np.float16, 2e-3)}


def model(op: str, dtype: str, *dims: Any) -> onnx.ModelProto:
    text = f"""<ir_version: 8, opset_import: ["" : 18]>
    g ({dtype}[{", ".join(map(str, dims))}] x) => ({dtype}[a, b, c] y) {{
      last = Constant<value_ints = [-1]>()
      y = {op}
    }}"""
    return onnx.parser.parse_model(text)


def cases() -> Iterator[Any]:
    """Each op on each target, and one length of each type."""
    for target in TARGETS:
        yield from ((op, "float", (3,), target) for op in OPS)
        yield "Softmax<axis = -1>(x)", "float", (2, 15), target
        yield from (("Softmax<axis = -1>(x)", t, (5,), target) for t in ("double", "float16"))
        yield "ReduceSum(x, last)", "float", (1, 4, 8, 11, 16), target


@pytest.mark.parametrize(("op", "dtype", "lengths", "target"), list(cases()))
def test_rows_of_few_points(op: str, dtype: str, lengths: tuple[int, ...], target: str) -> None:
    kind, tolerance = TYPES[dtype]
    rng = np.random.default_rng(7)
    for length in lengths:
        compiled = tilewright.compile(model(op, dtype, 3, "n", length), target)
        for rows in ROWS:
            x = rng.uniform(-3, 3, (3, rows, length)).astype(kind)
            (y,) = compiled.run({"x": x}).values()
            wanted = OPS[op](x.astype(np.float64))
            np.testing.assert_allclose(y, wanted, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("target", TARGETS)
def test_fixed_numbers_of_rows(target: str) -> None:
    rng = np.random.default_rng(8)
    for rows, length in ((5, 3), (16, 2), (31, 7), (257, 3), (4125, 2)):
        x = rng.uniform(-3, 3, (1, rows, length)).astype(np.float32)
        compiled = tilewright.compile(model("Softmax<axis = -1>(x)", "float", *x.shape), target)
        (y,) = compiled.run({"x": x}).values()
        np.testing.assert_allclose(y, softmax(x.astype(np.float64)), rtol=1e-5)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("length", (2, 3, 4, 5, 8))
def test_nothing_behind_the_last_row_is_read(length: int, target: str) -> None:
    """The input ends where memory does: a read behind it ends the process."""
    size = mmap.PAGESIZE
    memory = mmap.mmap(-1, 4 * size)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    assert not ctypes.CDLL(None).mprotect(ctypes.c_void_p(address + 3 * size), size, 0)
    for rows in (16, 32, 40):
        count = rows * length
        x = np.frombuffer(memory, np.float32, count, offset=3 * size - 4 * count)
        x = x.reshape(1, rows, length)
        x[...] = np.arange(count).reshape(x.shape)
        compiled = tilewright.compile(model("ReduceMax(x, last)", "float", *x.shape), target)
        (y,) = compiled.run({"x": x}).values()
        np.testing.assert_array_equal(y, x.max(-1, keepdims=True))
