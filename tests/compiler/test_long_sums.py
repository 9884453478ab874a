# SPDX-License-Identifier: Apache-2.0
"""Sums of any length: the error of a float32 sum of n terms is at most (8 + log2 n) roundings of
the sum of the absolute values of its terms, whatever axis they lie on and whatever they are.
"""

from typing import Any

import numpy as np
import onnx
import pytest

import tilewright

Array = np.ndarray[Any, Any]
F32 = np.float32
TARGETS = ("x86-64-v3", "native")


def terms(kind: str, shape: tuple[int, ...]) -> Array:
    """Terms that one chain of additions sums badly."""
    rng = np.random.default_rng(7)
    if kind == "equal":  # every rounding goes the same way
        return np.full(shape, 0.1, F32)
    if kind == "led":  # all that comes after the first is below half of its last bit
        x = np.full(shape, 1.0, F32)
        x.flat[0] = 2.0**24
        return x
    return rng.random(shape, F32) - F32(0.25)


def within(got: Array, want: Array, sizes: Array, n: int) -> None:
    """Hold a result against the float64 one; ``sizes`` are the sums of absolute values."""
    bound = (8 + np.log2(n)) * 2.0**-24 * sizes
    # What follows the sum (a division, the rounding of the product's terms) adds a rounding.
    bound = bound + 2.0**-23 * np.abs(want)
    assert got.shape == want.shape
    worst = np.max(np.abs(got.astype(np.float64) - want) - bound)
    assert worst <= 0, (worst, np.max(np.abs(got - want) / np.maximum(bound, 1e-300)))


def one_op(text: str, shape: tuple[int, ...], dims: list[str] | None, opset: int = 18) -> Any:
    declared = ", ".join(dims or map(str, shape))
    model = onnx.parser.parse_model(f"""
    <ir_version: 8, opset_import: ["" : {opset}]>
    g (float[{declared}] x) => (float[m] y) {{ y = {text} }}""")
    model.graph.output[0].type.tensor_type.ClearField("shape")
    return model


REDUCTIONS = {
    "all": ((40_003,), (0,)),
    "last": ((3, 20_001), (1,)),
    "last of few": ((2, 37), (1,)),
    "first": ((5_003, 70), (0,)),
    "first of two columns": ((20_001, 2), (0,)),
    "first of seven columns": ((6_001, 7), (0,)),
    "middle": ((2, 4_099, 33), (1,)),
    "outer and inner": ((70, 3, 301), (0, 2)),
    "outer two": ((60, 70, 5), (0, 1)),
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("kind", ["equal", "led", "mixed"])
@pytest.mark.parametrize("name", REDUCTIONS)
def test_a_sum(name: str, kind: str, target: str) -> None:
    shape, axes = REDUCTIONS[name]
    x = terms(kind, shape)
    exact = x.astype(np.float64)
    n = int(np.prod([shape[a] for a in axes]))
    want, sizes = exact.sum(axes), np.abs(exact).sum(axes)
    constant = onnx.helper.make_node("Constant", [], ["axes"], value_ints=list(axes))
    for dims in (None, [f"d{i}" for i in range(len(shape))]):
        model = one_op("ReduceSum<keepdims = 0>(x, axes)", shape, dims)
        model.graph.node.insert(0, constant)
        got = tilewright.compile(model, target).run({"x": x})["y"]
        within(np.asarray(got), want, sizes, n)


POOLS = {
    "global": ("GlobalAveragePool(x)", (1, 3, 120, 121), (120, 121)),
    "a window": ("AveragePool<kernel_shape = [40, 50]>(x)", (1, 2, 41, 52), (40, 50)),
    "a small window": ("AveragePool<kernel_shape = [7, 7]>(x)", (1, 5, 9, 20), (7, 7)),
}


@pytest.mark.parametrize("kind", ["equal", "mixed"])
@pytest.mark.parametrize("name", POOLS)
def test_a_pool(name: str, kind: str) -> None:
    text, shape, window = POOLS[name]
    x = terms(kind, shape)
    views = np.lib.stride_tricks.sliding_window_view(x.astype(np.float64), window, axis=(2, 3))
    n = int(np.prod(window))
    got = tilewright.compile(one_op(text, shape, None)).run({"x": x})["y"]
    within(np.asarray(got), views.mean((4, 5)), np.abs(views).mean((4, 5)), n)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("shape", [(2, 9_001, 1), (1, 9_001, 40), (9, 5_003, 33), (3, 700, 16)])
@pytest.mark.parametrize("symbolic", [False, True])
def test_a_product(shape: tuple[int, int, int], target: str, symbolic: bool) -> None:
    rows, depth, columns = shape
    x = terms("mixed", (rows, depth)) + F32(0.5)
    w = np.random.default_rng(1).random((depth, columns), F32)
    dims = ["m", str(depth)] if symbolic else None
    model = one_op("MatMul(x, w)", x.shape, dims)
    model.graph.initializer.append(onnx.numpy_helper.from_array(w, "w"))
    got = tilewright.compile(model, target).run({"x": x})["y"]
    exact = x.astype(np.float64), w.astype(np.float64)
    within(np.asarray(got), exact[0] @ exact[1], np.abs(exact[0]) @ np.abs(exact[1]), depth)


def test_a_product_over_a_symbolic_axis() -> None:
    model = onnx.parser.parse_model("""
    <ir_version: 8, opset_import: ["" : 18]>
    g (float[5, k] x, float[k, 20] w) => (float[5, 20] y) { y = MatMul(x, w) }""")
    compiled = tilewright.compile(model, "x86-64-v3")
    for depth in (1, 7, 255, 256, 257, 5_000):
        x, w = terms("equal", (5, depth)), np.full((depth, 20), 1.5, F32)
        got = np.asarray(compiled.run({"x": x, "w": w})["y"])
        want = x.astype(np.float64) @ w.astype(np.float64)
        assert np.max(np.abs(got - want) / want) <= 40 * 2.0**-24


@pytest.mark.parametrize("weights", [(1, 3_000, 1, 1), (5, 300, 3, 3), (1, 1, 60, 61)])
def test_a_convolution(weights: tuple[int, ...]) -> None:
    shape = (1, weights[1], weights[2] + 1, weights[3] + 2)
    x, w = terms("equal", shape), np.ones(weights, F32)
    model = one_op("Conv(x, w)", shape, None)
    model.graph.initializer.append(onnx.numpy_helper.from_array(w, "w"))
    got = np.asarray(tilewright.compile(model).run({"x": x})["y"])
    want = float(np.prod(weights[1:])) * np.float64(F32(0.1))
    # Products are in chains of up to 256: a rounding each, all the same way, would be the worst.
    assert np.max(np.abs(got - want)) <= 40 * 2.0**-24 * want


CHAINS = {
    "softmax of a row": ("Softmax<axis = 1>(x)", (1, 30_001), 1),
    "softmax of columns": ("Softmax<axis = 0>(x)", (3_001, 37), 0),
    "softmax of two columns": ("Softmax<axis = 0>(x)", (3_001, 2), 0),
    "softmax of channels": ("Softmax<axis = 1>(x)", (2, 301, 35), 1),
}


@pytest.mark.parametrize("name", CHAINS)
def test_a_softmax(name: str) -> None:
    text, shape, axis = CHAINS[name]
    x = terms("equal", shape)
    x.flat[0] = 3
    powers = np.exp(x.astype(np.float64) - 3)
    want = powers / powers.sum(axis, keepdims=True)
    for dims in (None, [f"d{i}" for i in range(len(shape))]):
        got = np.asarray(tilewright.compile(one_op(text, shape, dims)).run({"x": x})["y"])
        assert np.max(np.abs(got - want) / want) <= 2e-6


def test_the_bits_do_not_depend_on_threads() -> None:
    x = terms("mixed", (64, 3_001))
    model = one_op("ReduceMean<axes = [1], keepdims = 0>(x)", x.shape, ["n", "k"], opset=13)
    results = [
        np.asarray(tilewright.compile(model, "native", threads=t).run({"x": x})["y"])
        for t in (1, 2)
    ]
    assert results[0].tobytes() == results[1].tobytes()


SHORT = {
    "a window of one": ("AveragePool<kernel_shape = [1, 1]>(x)", (1, 1, 2, 2)),
    "a window of one, many channels": ("AveragePool<kernel_shape = [1, 1]>(x)", (1, 40, 3, 2)),
    "an image of one": ("GlobalAveragePool(x)", (2, 5, 1, 1)),
    "one operand": ("Sum(x)", (3, 1, 4)),
    "an exponential sum over one": ("ReduceLogSumExp<axes = [1]>(x)", (3, 1, 4)),
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", SHORT)
def test_a_sum_of_one_term(name: str, target: str) -> None:
    text, shape = SHORT[name]
    x = terms("mixed", shape)
    for dims in (None, ["n", *map(str, shape[1:])]):
        model = one_op(text, shape, dims, opset=13)
        got = np.asarray(tilewright.compile(model, target).run({"x": x})["y"])
        np.testing.assert_allclose(got, x, rtol=1e-6, atol=1e-6)
