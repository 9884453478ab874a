# SPDX-License-Identifier: Apache-2.0
"""Sizes beyond 64 bits, memory that the system refuses, and large dims beside a dim of 0.

A run ends with a typed error that says how much is needed and for what; the model then runs on.
"""

from collections.abc import Callable

import numpy as np
import onnx
import pytest

import tilewright
from tilewright import errors

F32 = np.float32
Shape = tuple[int, ...]


def compiled(body: str, inputs: str, output: str = "float[a, b, c] y") -> tilewright.CompiledModel:
    text = f'<ir_version: 9, opset_import: ["" : 18]> g ({inputs}) => ({output}) {{ {body} }}'
    return tilewright.compile(onnx.parser.parse_model(text))


def spread(*shape: int) -> np.ndarray:
    """An array of any shape in four bytes."""
    return np.broadcast_to(F32(0), shape)


SPREAD = "float[u,1,1] u, float[1,v,1] v, float[1,1,w] w"
CUBE = "t = Add(u, v)  b = Add(t, w)  axis = Constant<value_ints = [0]>()  first = Squeeze(axis) "
GREAT = (2**21, 2**21, 2**20)


def feeds(u: int, v: int, w: int) -> dict[str, np.ndarray]:
    return {"u": spread(u, 1, 1), "v": spread(1, v, 1), "w": spread(1, 1, w)}


@pytest.mark.parametrize(
    ("value", "named"),
    [
        ("CumSum(b, first)", "Value 'b' of 'Add_0+Add_1' of type float32[u,v,w]"),
        ("Softmax(b)", "of type float32[u,v,w]"),
        ("Concat<axis = 1>(b, b)", "Add_0+Add_1"),
        ("Transpose<perm = [1, 2, 0]>(b)", ""),
        ("Pad(b, pads)", "float32[u + 2,v + 2,w + 2]"),
        ("Tile(b, twos)", ""),
        ("Reshape(b, flat)", ""),
        ("Slice(b, one, most, one)", "float32[u,-min(1, v) + v,w]"),
        ("Where(less, b, t)", ""),
    ],
)  # fmt: skip
def test_an_intermediate_value_beyond_64_bits(value: str, named: str) -> None:
    extra = """
        pads = Constant<value_ints = [1, 1, 1, 1, 1, 1]>()  flat = Constant<value_ints = [-1]>()
        one = Constant<value_ints = [1]>()  most = Constant<value_ints = [9223372036854775807]>()
        twos = Constant<value_ints = [2, 2, 2]>()  less = Less(b, t)
    """
    body = f"{CUBE}{extra} z = {value}  s = CumSum(z, first)  y = ReduceMax<keepdims = 0>(s)"
    model = compiled(body, SPREAD, "float y")
    for shape in (GREAT, (2**22, 2**21, 2**19), (2**22, 2**22, 2**22)):
        with pytest.raises(errors.OutOfMemoryError, match="9223372036854775807") as caught:
            model.run(feeds(*shape))
        assert named in str(caught.value)
        assert f"'u' is {shape[0]}, 'v' is {shape[1]} and 'w' is {shape[2]}" in str(caught.value)
    assert 0 <= model.run(feeds(2, 3, 4))["y"] < 1


def test_more_work_than_can_be_counted() -> None:
    model = compiled(f"{CUBE} y = ReduceMax<keepdims = 0>(b)", SPREAD, "float y")
    with pytest.raises(errors.TilewrightError, match=r"Add_0.* more than 9223372036854775807"):
        model.run(feeds(2**22, 2**22, 2**22))
    assert model.run(feeds(2, 3, 4))["y"] == 0


@pytest.mark.parametrize("last", ["ReduceSum<keepdims = 0>(z)", "Relu(z)", "Reshape(z, flat)"])
def test_a_product_of_empty_matrices_beyond_64_bits(last: str) -> None:
    output = "float y" if "Sum" in last else "float[p] y" if "flat" in last else "float[p, q] y"
    body = f"flat = Constant<value_ints = [-1]>() z = MatMul(a, b) y = {last}"
    model = compiled(body, "float[m, k] a, float[k, n] b", output)
    with pytest.raises(errors.OutOfMemoryError):
        model.run({"a": np.zeros((2**31, 0), F32), "b": np.zeros((0, 2**31), F32)})
    found = model.run({"a": np.zeros((2, 0), F32), "b": np.zeros((0, 3), F32)})["y"]
    assert not found.any()


def test_a_dim_that_is_a_product() -> None:
    model = compiled(
        f"{CUBE} flat = Constant<value_ints = [-1]>() y = Reshape(b, flat)", SPREAD, "float[p] y"
    )
    with pytest.raises(errors.OutOfMemoryError, match=r"Output 'y' of type float32\[u\*v\*w\]"):
        model.run(feeds(2**22, 2**21, 2**21))
    told = r"'y' has the shape \(35184372088832,\), which takes 140737488355328 bytes"
    with pytest.raises(errors.OutOfMemoryError, match=told):
        model.run(feeds(2**15, 2**15, 2**15))
    assert model.run(feeds(3, 1, 2))["y"].shape == (6,)


def test_more_memory_than_a_huge_page() -> None:
    """Below, at and beyond the sizes from which the arena begins at a page of 2 MiB."""
    body = f"{CUBE} s = CumSum(b, first) y = ReduceMax<keepdims = 0>(s)"
    model = compiled(body, SPREAD, "float y")
    for n in (511, 512, 513, 1023, 1024, 1025, 2049):  # of 8 KiB
        (result,) = model.run(feeds(n, 1, 2048)).values()
        assert result == 0


def test_memory_that_the_system_refuses() -> None:
    """Of an intermediate value and of an output: the bytes, and what needs them."""
    body = f"{CUBE} s = CumSum(b, first) y = ReduceMax<keepdims = 0>(s)"
    model = compiled(body, SPREAD, "float y")
    with pytest.raises(errors.OutOfMemoryError) as caught:
        model.run(feeds(2**14, 2**15, 2**14))
    text = str(caught.value)
    assert str(4 * 2**43) in text and "of them for 'b' of 'Add_0+Add_1'" in text
    assert model.run(feeds(2, 2, 2))["y"] == 0
    model = compiled("y = Add(u, v)", "float[u, 1] u, float[1, v] v", "float[u, v] y")
    with pytest.raises(errors.OutOfMemoryError, match=r"output 'y' .* takes 35184372088832 bytes"):
        model.run({"u": spread(2**22, 1), "v": spread(1, 2**21)})
    assert model.run({"u": spread(2, 1), "v": spread(1, 3)})["y"].shape == (2, 3)


def test_an_input_whose_copy_does_not_fit() -> None:
    model = compiled("y = ReduceMax<keepdims = 0>(x)", "float[n, m] x", "float y")
    for dtype in (F32, np.dtype(">f4")):
        x = np.broadcast_to(np.zeros((), dtype), (2**21, 2**22))
        with pytest.raises(
            errors.OutOfMemoryError, match=r"copy of input 'x' .* takes 35184372088832 bytes"
        ):
            model.run({"x": x})
    assert model.run({"x": spread(2, 3)})["y"] == 0


EMPTY: dict[str, tuple[str, str, Callable[[int, int, int], Shape]]] = {
    "rows": ("Softmax<axis = 2>(x)", "float[a, b, c] y", lambda n, m, k: (n, m, k)),
    "columns": ("Softmax<axis = 1>(x)", "float[a, b, c] y", lambda n, m, k: (n, m, k)),
    "running sums": ("CumSum(x, last)", "float[a, b, c] y", lambda n, m, k: (n, m, k)),
    "transposed": ("Transpose<perm = [2, 0, 1]>(x)", "float[a,b,c] y", lambda n, m, k: (k, n, m)),
    "a sum of rows": ("ReduceSum<keepdims = 0>(soft)", "float y", lambda n, m, k: ()),
    "a sum": ("ReduceSum<keepdims = 0>(x)", "float y", lambda n, m, k: ()),
}


@pytest.mark.parametrize("name", EMPTY)
def test_large_dims_beside_an_empty_one_take_no_time(name: str) -> None:
    value, output, shape = EMPTY[name]
    two = "two = Constant<value_ints = [2]>() last = Squeeze(two) soft = Softmax<axis = 2>(x)"
    model = compiled(f"{two} y = {value}", "float[n, m, k] x", output)
    for dims in ((2**30, 2**30, 0), (2**20, 0, 2**30), (0, 2**30, 2**30), (2, 0, 3)):
        assert model.run({"x": np.zeros(dims, F32)})["y"].shape == shape(*dims)


def test_loops_around_nothing_take_no_time() -> None:
    """No value has all three dims, but the loops of one kernel do."""
    model = compiled(f"{CUBE} y = ReduceSum<keepdims = 0>(b)", SPREAD, "float y")
    many = {"u": spread(2**20, 1, 1), "v": spread(1, 2**20, 1), "w": np.zeros((1, 1, 0), F32)}
    assert model.run(many)["y"] == 0
    assert model.run(feeds(2, 3, 4))["y"] == 0
