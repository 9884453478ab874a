# SPDX-License-Identifier: Apache-2.0
"""The evaluation of stages, each kind against numpy."""

import time

import numpy as np
import pytest

from tilewright.ir.errors import InterpreterError
from tilewright.ir.interpreter.stages import run_stages
from tilewright.ir.loop_parser import parse_kernel
from tilewright.ir.op import Array

RNG = np.random.default_rng(1)


def run(text: str, symbols: dict[str, int] | None = None, **inputs: Array) -> dict[str, Array]:
    """The buffers after the stages of a kernel that has no body."""
    return run_stages(parse_kernel(text).stages, inputs, symbols or {})


def floats(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


def test_map_with_broadcasting_and_guarded_padding() -> None:
    x, b = floats(3, 4), floats(4)
    result = run(
        "kernel @k(x: f32[n,4], b: f32[4]) -> (y: f32[n + 2,4]) {\n  symbol n in [1, 9]\n"
        "  stage map pad(i in n + 2, j in 4) -> y[i, j] = "
        "(guard(and((i >= 1), (i <= n)), x[i - 1, j], f32(0.0)) + b[j])\n}",
        {"n": 3}, x=x, b=b,
    )["y"]  # fmt: skip
    assert np.array_equal(result, np.pad(x, ((1, 1), (0, 0))) + b)


def test_reduction_is_sequential_in_its_own_type() -> None:
    x = floats(5, 300)
    result = run(
        "kernel @k(x: f32[5,300]) -> (y: f32[5]) {\n"
        "  stage reduce s(i in 5; k in 300) -> y[i] : acc = f32(0.5) then (acc + x[i, k])\n}",
        x=x,
    )["y"]
    total = np.full(5, 0.5, np.float32)
    for k in range(300):
        total = total + x[:, k]
    assert np.array_equal(result, total)


def test_reduction_in_chunks_equals_point_by_point() -> None:
    head = "kernel @k(x: f32[300,300], w: f32[300,40]) -> (y: f32[300,40]) {\n"
    stage = "  stage reduce s(i in 300, j in 40; k in 300) -> y[i, j] : acc = f32(0.0) then "
    x, w = floats(300, 300), floats(300, 40)
    fast = run(f"{head}{stage}(acc + (x[i, k] * w[k, j]))\n}}", x=x, w=w)["y"]
    slow = run(f"{head}{stage}neg(neg((acc + (x[i, k] * w[k, j]))))\n}}", x=x, w=w)["y"]
    assert np.array_equal(fast, slow)


def test_tuple_reduction() -> None:
    x = floats(4, 9)
    result = run(
        "kernel @k(x: f32[4,9]) -> (m: f32[4], p: i64[4]) {\n"
        "  stage reduce s(i in 4; k in 9) -> m[i], p[i] : best = f32(-inf), at = i64(0) then "
        "max(best, x[i, k]), select((best < x[i, k]), cast(k, i64), at)\n}",
        x=x,
    )
    assert np.array_equal(result["m"], x.max(1))
    assert np.array_equal(result["p"], x.argmax(1))


@pytest.mark.parametrize(("word", "wanted"), [("", [1, 3, 6]), ("exclusive ", [0, 1, 3])])
def test_scan(word: str, wanted: list[int]) -> None:
    result = run(
        "kernel @k(x: i32[2,3]) -> (y: i32[2,3]) {\n"
        f"  stage scan s(i in 2, j in 3) -> y[i, j] : acc = i32(0) then {word}(acc + x[i, j])\n}}",
        x=np.array([[1, 2, 3], [10, 20, 30]], np.int32),
    )["y"]
    assert result.tolist() == [wanted, [10 * w for w in wanted]]


def test_scatter_in_order() -> None:
    result = run(
        "kernel @k(x: f32[4], p: i64[5], u: f32[5]) -> (y: f32[4]) {\n"
        "  stage scatter s(c in 4; i in 5) -> y[min(max(cast(p[i], index), 0), 3)] : "
        "old = x[c] then ((old * f32(2.0)) + u[i])\n}",
        x=np.array([1, 2, 3, 4], np.float32),
        p=np.array([0, 2, 0, 2, 0]),
        u=np.array([1, 2, 3, 4, 5], np.float32),
    )["y"]
    assert result.tolist() == [((1 * 2 + 1) * 2 + 3) * 2 + 5, 2, (3 * 2 + 2) * 2 + 4, 4]


def test_opaque_stage_runs_its_body() -> None:
    result = run(
        "kernel @k(x: f32[3]) -> (y: f32[3]) {\n  buffer t: f32[3]\n"
        "  stage map a(i in 3) -> t[i] = (x[i] + f32(1.0))\n"
        "  stage opaque b() -> y[] { for i in 3 serial { y[2 - i] = t[i] } }\n}",
        x=np.array([1, 2, 3], np.float32),
    )
    assert result["y"].tolist() == [4, 3, 2]
    assert result["t"].tolist() == [2, 3, 4]


def test_empty_domains() -> None:
    result = run(
        "kernel @k(x: f32[n,4]) -> (y: f32[4], z: f32[n,4]) {\n  symbol n in [0, 9]\n"
        "  stage reduce s(j in 4; i in n) -> y[j] : acc = f32(-inf) then max(acc, x[i, j])\n"
        "  stage map m(i in n, j in 4) -> z[i, j] = neg(x[i, j])\n}",
        {"n": 0}, x=np.zeros((0, 4), np.float32),
    )  # fmt: skip
    assert result["y"].tolist() == [-np.inf] * 4
    assert result["z"].shape == (0, 4)


@pytest.mark.parametrize(
    ("expr", "message"),
    [
        ("x[i + 1]", "accesses 'x.i . 1.' out of bounds: index 4 on axis 0 of extent 4"),
        ("x[i - 1]", "index -1 on axis 0"),
        ("guard((i > 0), x[i + 1], f32(0.0))", "index 4 on axis 0"),
        ("y[i]", "reads 'y'|initial"),
    ],
)
def test_faults_are_found(expr: str, message: str) -> None:
    head = "kernel @k(x: f32[4]) -> (y: f32[4], z: f32[4])"
    text = f"{head} {{\n  stage map s(i in 4) -> z[i] = {expr}\n}}"
    with pytest.raises(InterpreterError, match=message):
        run(text, x=floats(4))


def test_medium_shapes_are_fast() -> None:
    x, w = floats(1, 16, 30, 30), floats(16, 16, 3, 3)
    start = time.perf_counter()
    y = run(
        "kernel @k(x: f32[1,16,30,30], w: f32[16,16,3,3]) -> (y: f32[1,16,28,28]) {\n"
        "  stage reduce c(n in 1, o in 16, h in 28, v in 28; i in 16, r in 3, s in 3)"
        " -> y[n, o, h, v] : acc = f32(0.0) then (acc + "
        "(x[n, i, h + r, v + s] * w[o, i, r, s]))\n}",
        x=x, w=w,
    )["y"]  # fmt: skip
    assert time.perf_counter() - start < 5
    patches = np.lib.stride_tricks.sliding_window_view(x, (3, 3), (2, 3))
    np.testing.assert_allclose(y, np.einsum("nihvrs,oirs->nohv", patches, w), rtol=1e-4, atol=1e-4)
