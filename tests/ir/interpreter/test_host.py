# SPDX-License-Identifier: Apache-2.0
"""The interpreter of host programs: symbols, checks, the arena, launches."""

import numpy as np
import pytest

from tilewright.ir.errors import IndexFaultError, InputError, InterpreterError
from tilewright.ir.interpreter.host import interpret_host
from tilewright.ir.loop import HostProgram, Kernel
from tilewright.ir.loop_parser import LoopParser, parse_functions
from tilewright.ir.op import Array
from tilewright.ir.verify_loop import verify_host, verify_kernel

KERNELS = """
kernel @matmul(x: f32[n,3], w: f32[3,2]{1,0}) -> (y: f32[n,2]) {
  symbol n in [1, 8]
  for i in n parallel {
    for j in 2 serial {
      y[i, j] = f32(0.0)
      for k in 3 serial {
        y[i, j] = (y[i, j] + (x[i, k] * w[k, j]))
      }
    }
  }
}
kernel @add(x: f32[s], y: f32[s]) -> (z: f32[s]) {
  symbol s in [1, 64]
  for i in s serial {
    z[i] = (x[i] + y[i])
  }
}
"""
HOST = """
host @main(x: f32[n,3]) -> (y: f32[n,2]) {
  constant w: f32[3,2]{1,0}
  arena 128*n
  let symbol n in [0, 8] = cast(x.shape[0], index) {
    require (x.shape[1] == i64(3)) "Dim 1 of 'x' is {0}, not 3."(x.shape[1])
    require (n <= 8) "Dim 0 of 'x' is {0}, above 8."(n)
    require (n <= 6) "Dim 0 of 'x' is {0}, above 6."(n)
    place t: f32[n,2] at 0
    launch @matmul(x, w, t; n) tasks n work 100*n workspace 0 "Gemm_0"
    place u: f32[n,2]{0,1;0:4} at 64*n
    launch @matmul(x, w, t; n) tasks n work 100*n workspace 0 "Gemm_1"
    output y: f32[n,2] as 0
    launch @add(t, t, y; 2*n) tasks 1 work 10 workspace 0 "Add_0"
  }
}
"""
X = np.arange(12, dtype=np.float32).reshape(4, 3)
W = np.arange(6, dtype=np.float32).reshape(3, 2)


def run(host: str = HOST, x: Array = X) -> Array:
    functions = {f.name: f for f in parse_functions(KERNELS + host)}
    program = functions.pop("main")
    assert isinstance(program, HostProgram)
    kernels = {n: f for n, f in functions.items() if isinstance(f, Kernel)}
    for kernel in kernels.values():
        verify_kernel(kernel)
    verify_host(program)
    return interpret_host(program, kernels, {"x": x}, {"w": W})["y"]


def test_launches_and_placed_memory() -> None:
    assert np.array_equal(run(), 2 * (X @ W))
    assert np.array_equal(run(x=X[:1]), 2 * (X[:1] @ W))


def test_a_buffer_placed_over_live_data_shows() -> None:
    overlapping = HOST.replace(
        'launch @matmul(x, w, t; n) tasks n work 100*n workspace 0 "Gemm_1"', ""
    )
    assert np.array_equal(run(overlapping), 2 * (X @ W))
    assert np.isnan(run(overlapping.replace("at 64*n", "at 4*n"))).any()


_FAULT = '(n <= 3) "Index {0} is bad."(n) fault'


@pytest.mark.parametrize(
    ("old", "new", "error", "message"),
    [
        ("at 64*n", "at 100*n", InterpreterError, "lies at bytes 400 to 432|of an arena of 512"),
        ("at 64*n", "at 128*n", InterpreterError, "of an arena of 512"),
        ("add(t, t, y; 2*n)", "add(t, t, y; n)", InterpreterError, "gets 8 elements"),
        (
            "@add(t, t, y; 2*n)",
            "@add(t, y; 2*n)",
            InterpreterError,
            "takes 3 buffers and 1 symbols",
        ),
        ("@add", "@sub", InterpreterError, "no kernel 'sub'"),
        ("(n <= 6)", "(n <= 3)", InputError, "Dim 0 of 'x' is 4, above 6."),
        (
            "(n <= 6) \"Dim 0 of 'x' is {0}, above 6.\"(n)",
            _FAULT,
            IndexFaultError,
            "Index 4 is bad.",
        ),
    ],
)
def test_faults(old: str, new: str, error: type[Exception], message: str) -> None:
    assert old in HOST
    if new == "at 100*n":
        run(HOST.replace(old, "at 96*n"))
    host = HOST.replace(old, new)
    if new == "at 100*n":
        host = host.replace("arena 128*n", "arena 104*n")
        message = "lies at bytes 400 to 432 of an arena of 416"
    with pytest.raises(error, match=message):
        run(host)


def test_wrong_feeds() -> None:
    with pytest.raises(InputError, match="Dim 1 of 'x' is 2, not 3"):
        run(x=X[:, :2])
    with pytest.raises(InputError, match="rank 1"):
        run(x=X[0])
    with pytest.raises(InputError, match="of type float64"):
        run(x=X.astype(np.float64))


def test_a_missing_output_is_found() -> None:
    with pytest.raises(InterpreterError, match="was never given memory"):
        run(
            HOST.replace("output y: f32[n,2] as 0", "place v: f32[n,2] at 0").replace(
                "t, y;", "t, v;"
            )
        )


def test_programs_print_and_parse_back() -> None:
    for function in parse_functions(KERNELS + HOST):
        assert LoopParser(str(function)).function() is function
