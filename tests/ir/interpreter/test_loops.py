# SPDX-License-Identifier: Apache-2.0
"""The interpreter of kernels: results of small kernels, and every kind of fault it has to find."""

import numpy as np
import pytest

from tilewright.ir.buffer import buffer
from tilewright.ir.dtypes import F32
from tilewright.ir.errors import InputError, InterpreterError
from tilewright.ir.expr import Binary, Expr, Read, index
from tilewright.ir.interpreter.loops import interpret_kernel
from tilewright.ir.interpreter.stages import run_stages
from tilewright.ir.loop import Kernel, Store
from tilewright.ir.loop_parser import parse_kernel
from tilewright.ir.op import Array
from tilewright.ir.types import tensor
from tilewright.ir.verify_loop import verify_kernel

MATMUL = """kernel @mm(x: f32[n,6], w: f32[6,m]{1,0;1:4}) -> (y: f32[n,m]{0,1;1:4}) {
  symbol n in [1, 64]
  symbol m in [1, 64]
  buffer t: f32[n,m]
  stage reduce mm(i in n, j in m; k in 6) -> t[i, j] :
    acc = f32(0.0) then (acc + (x[i, k] * w[k, j]))
  stage map relu(i in n, j in m) -> y[i, j] = max(t[i, j], f32(0.0))
  for io in (n + 3) // 4 parallel {
    alloc t: f32[4,m]{1,0} @workspace {
      for ii in 4 serial {
        if (4*io + ii < n) {
          for j in m serial {
            block mm.init(4*io + ii, j) {
              t[ii, j] = f32(0.0)
            }
          }
          for k in 6 serial {
            for j2 in m serial {
              block mm.update(4*io + ii, j2, k) {
                t[ii, j2] = (t[ii, j2] + (x[4*io + ii, k] * w[k, j2]))
              }
            }
          }
          for j3 in m serial {
            block relu.map(4*io + ii, j3) {
              y[4*io + ii, j3] = max(t[ii, j3], f32(0.0))
            }
          }
        }
      }
    }
  }
}"""
RNG = np.random.default_rng(0)
X = RNG.standard_normal((7, 6)).astype(np.float32)
W = RNG.standard_normal((6, 5)).astype(np.float32)
SYMBOLS = {"n": 7, "m": 5}


def run(kernel: Kernel, **options: bool) -> Array:
    return interpret_kernel(kernel, {"x": X, "w": W}, SYMBOLS, **options)["y"]  # type: ignore[arg-type]


def test_loops_agree_with_stages_to_the_bit() -> None:
    kernel = parse_kernel(MATMUL)
    verify_kernel(kernel)
    result = run(kernel)
    staged = run_stages(kernel.stages, {"x": X, "w": W}, SYMBOLS)["y"]
    assert np.array_equal(result, staged)
    np.testing.assert_allclose(result, np.maximum(X @ W, 0), rtol=1e-5, atol=1e-6)
    assert np.array_equal(run(kernel, reverse=True), result)
    assert np.array_equal(run(kernel, check_initialised=False), result)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("x[4*io + ii, k]", "x[4*io + ii, k + 1]", "'x[ii + 4*io, k + 1]' is out of bounds"),
        ("x[4*io + ii, k]", "x[4*io + ii - 1, k]", "out of bounds: index [-1, 0] of shape [7, 6]"),
        ("(4*io + ii < n)", "(4*io + ii < n + 1)", "index [7, 0] of shape [7, 6]"),
        ("w[k, j2]", "w[k, j2 + 4]", "index [0, 8] of shape [6, 5]"),
        ("t[ii, j] = f32(0.0)", "t[ii, 0] = f32(0.0)", "'t[ii, j2]' is read before it is written"),
        ("y[4*io + ii, j3]", "y[4*io + ii, 0]", "never writes 'y' at [0, 1]"),
        ("x[4*io + ii, k]", "x[4*io // (ii - ii), k]", "divided by zero"),
    ],
)  # fmt: skip
def test_faults_are_found_and_named(old: str, new: str, message: str) -> None:
    assert old in MATMUL
    with pytest.raises(InterpreterError) as error:
        run(parse_kernel(MATMUL.replace(old, new)))
    assert message in str(error.value)
    assert "'mm'" in str(error.value)


def test_reads_of_unwritten_memory_are_nan_without_the_check() -> None:
    kernel = parse_kernel(MATMUL.replace("t[ii, j] = f32(0.0)", "t[ii, 0] = f32(0.0)"))
    assert np.isnan(run(kernel, check_initialised=False)[:, 1:]).all()


def test_padding_of_a_blocked_axis_exists_and_is_zero() -> None:
    kernel = parse_kernel(
        "kernel @k(x: f32[5]{0;0:4}) -> (y: f32[8]) {\n"
        "  for i in 8 serial {\n    y[i] = x[i]\n  }\n}"
    )
    result = interpret_kernel(kernel, {"x": np.arange(1, 6, dtype=np.float32)})["y"]
    assert result.tolist() == [1, 2, 3, 4, 5, 0, 0, 0]
    wider = parse_kernel(str(kernel).replace("8", "9"))
    with pytest.raises(InterpreterError, match=r"index \[8\] of shape \[5\]"):
        interpret_kernel(wider, {"x": np.arange(1, 6, dtype=np.float32)})


def test_guards_protect_and_selects_do_not() -> None:
    text = (
        "kernel @k(x: f32[4]) -> (y: f32[6]) {\n"
        "  for i in 6 serial {\n    y[i] = PICK((i < 4), x[i], f32(-1.0))\n  }\n}"
    )
    x = np.arange(4, dtype=np.float32)
    result = interpret_kernel(parse_kernel(text.replace("PICK", "guard")), {"x": x})["y"]
    assert result.tolist() == [0, 1, 2, 3, -1, -1]
    with pytest.raises(InterpreterError, match=r"'x\[i\]' is out of bounds"):
        interpret_kernel(parse_kernel(text.replace("PICK", "select")), {"x": x})


def test_what_a_guard_protects_is_not_hoisted() -> None:
    kernel = parse_kernel(
        "kernel @k(x: f32[4]) -> (y: f32[6]) {\n"
        "  for i in 6 serial {\n"
        "    y[i] = guard((i < 4), (x[i] * x[i]), guard((i < 5), f32(7.0), f32(8.0)))\n  }\n}"
    )
    result = interpret_kernel(kernel, {"x": np.arange(4, dtype=np.float32)})["y"]
    assert result.tolist() == [0, 1, 4, 9, 7, 8]


def test_deep_nests_and_while_and_let() -> None:
    loops = [f"for i{d} in {2 if d % 7 == 0 else 1} serial {{" for d in range(40)]
    body = "let t = (c[0] + i32(1)) { c[0] = t }"
    text = (
        "kernel @k() -> (c: i32[1]) {\n c[0] = i32(0)\n"
        + " ".join(loops)
        + body
        + "}" * 40
        + "\n while (c[0] < i32(100)) { c[0] = (c[0] * i32(2)) }\n}"
    )
    kernel = parse_kernel(text)
    assert interpret_kernel(kernel, {})["c"].tolist() == [128]  # 2**6 = 64 steps, doubled
    assert parse_kernel(str(kernel)) is kernel


def test_shared_expressions_are_evaluated_once() -> None:
    # As text the value doubles with every step; as an expression it has 60 parts.
    x = buffer("x", tensor(F32, (1,)))
    y = buffer("y", tensor(F32, (1,)))
    value: Expr = Read(x, (index(0),))
    for _ in range(60):
        value = Binary("add", value, value, F32)
    kernel = Kernel("k", (x,), (y,), (), (), Store(y, (index(0),), value))
    assert interpret_kernel(kernel, {"x": np.ones(1, np.float32)})["y"][0] == 2.0**60


def test_blocks_are_reported() -> None:
    seen: list[tuple[str, str, tuple[int, ...]]] = []
    interpret_kernel(
        parse_kernel(MATMUL), {"x": X, "w": W}, SYMBOLS, on_block=lambda *event: seen.append(event)
    )
    updates = [point for stage, part, point in seen if (stage, part) == ("mm", "update")]
    assert sorted(updates) == [(i, j, k) for i in range(7) for j in range(5) for k in range(6)]
    assert seen[0] == ("mm", "init", (0, 0))


def test_indices_read_from_memory() -> None:
    kernel = parse_kernel(
        "kernel @k(x: f32[4], p: i64[3]) -> (y: f32[3]) {\n"
        "  for i in 3 serial {\n    y[i] = x[min(max(cast(p[i], index), 0), 3)]\n  }\n}"
    )
    x = np.arange(4, dtype=np.float32)
    y = interpret_kernel(kernel, {"x": x, "p": np.array([2, -5, 9])})["y"]
    assert y.tolist() == [2, 0, 3]


@pytest.mark.parametrize(
    ("inputs", "symbols", "message"),
    [
        ({"x": X}, SYMBOLS, "no array for 'w"),
        ({"x": X, "w": W}, {"n": 7}, "needs a value for symbol 'm'"),
        ({"x": X[:3], "w": W}, SYMBOLS, r"is float32\[3, 6\], not float32\[7, 6\]"),
        ({"x": X.astype(np.float64), "w": W}, SYMBOLS, "is float64"),
    ],
)
def test_wrong_arguments(inputs: dict[str, Array], symbols: dict[str, int], message: str) -> None:
    with pytest.raises(InputError, match=message):
        interpret_kernel(parse_kernel(MATMUL), inputs, symbols)


def test_host_statements_are_refused_in_kernels() -> None:
    kernel = parse_kernel('kernel @k() -> () {\n  require (1 < 2) "never"()\n}')
    with pytest.raises(InterpreterError, match="does not run 'require'"):
        interpret_kernel(kernel, {})
