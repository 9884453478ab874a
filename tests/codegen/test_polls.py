# SPDX-License-Identifier: Apache-2.0
"""Kernels ask whether their run goes on: seldom enough, often enough, and with the same results."""

import ctypes
import threading
import time
from collections.abc import Callable

import numpy as np
import pytest

from tests.codegen.conftest import NATIVE, Runner
from tilewright.codegen.llvm.kernel import emit_kernel
from tilewright.codegen.llvm.polls import STATUS_CANCELLED, poll_intervals
from tilewright.ir.loop import For, Kernel
from tilewright.ir.loop_parser import parse_kernel

# y[i] = 2*x[i]; one task.
FLAT = """
kernel @flat(x: f32[n]) -> (y: f32[n]) {
  symbol n in [0, 2147483648]
  for i in n serial {
    y[i] = (x[i] + x[i])
  }
}
"""

# The same with much to do in each iteration.
HEAVY = """
kernel @heavy(x: f32[n]) -> (y: f32[n,32]) {
  symbol n in [0, 2147483648]
  for i in n serial {
    for j in 32 unrolled {
      y[i, j] = (x[i] + x[i])
    }
  }
}
"""

# y[i] = the sum of a row of x; a task a row, each of them long.
ROWS = """
kernel @rows(x: f32[n,m]) -> (y: f32[n]) {
  symbol n in [0, 2147483648]
  symbol m in [0, 2147483648]
  for i in n parallel {
    y[i] = f32(0.0)
    for j in m serial {
      for k in 3 serial {
        y[i] = (y[i] + x[i, j])
      }
    }
  }
}
"""

# A million million steps: nobody waits for the end.
ENDLESS = """
kernel @endless(x: f32[8]) -> (y: f32[8]) {
  for a in 1048576 serial {
    for b in 67108864 serial {
      for c in 8 serial {
        y[c] = (y[c] + x[c])
      }
    }
  }
}
"""

SHORT = """
kernel @short(x: f32[64,64]) -> (y: f32[64,64]) {
  for i in 64 serial {
    for j in 64 serial {
      y[i, j] = (x[i, j] + x[i, j])
    }
  }
}
"""

SIZES = (0, 1, 3, 63, 64, 65, 4095, 4096, 4097, 3 * 4096, 10001)


def intervals(text: str) -> dict[str, tuple[int, bool]]:
    found = poll_intervals(parse_kernel(text))
    return {
        s.var.name: (each.iterations, each.pieces)
        for s, each in found.items()
        if isinstance(s, For)
    }


@pytest.mark.parametrize(
    ("work", "iterations"),
    [(64, 4096), (65, 64), (1 << 14, 64), ((1 << 14) + 1, 4), (1 << 20, 4), ((1 << 20) + 1, 1)],
)
def test_the_more_an_iteration_does_the_more_often_its_loop_asks(
    work: int, iterations: int
) -> None:
    text = FLAT.replace(
        "    y[i] = (x[i] + x[i])", f"    for j in {work} serial {{ y[i] = (x[i] + x[i]) }}"
    )
    assert intervals(text)["i"][0] == iterations


def test_how_often_loops_ask() -> None:
    assert intervals(FLAT) == {"i": (4096, True)}
    assert intervals(HEAVY) == {"i": (4096, False)}
    assert intervals(SHORT) == {}
    rows = intervals(ROWS)
    assert rows["j"][0] == 4096 and rows["i"][0] <= 64
    endless = intervals(ENDLESS)
    assert endless["b"][0] == 4096 and endless["a"][0] <= 64


def test_a_short_kernel_has_no_trace_of_it() -> None:
    assert "volatile" not in emit_kernel(parse_kernel(SHORT), NATIVE)
    assert "volatile" in emit_kernel(parse_kernel(FLAT), NATIVE)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("text", [FLAT, HEAVY])
def test_results_are_the_same(run: Runner, text: str, size: int) -> None:
    x = np.arange(size, dtype=np.float32)
    y = np.full((size, 32) if text is HEAVY else size, -1, np.float32)
    run(parse_kernel(text), [x, y], [size])
    np.testing.assert_array_equal(y.T, np.broadcast_to(2 * x, y.T.shape))


@pytest.mark.parametrize("tasks", [(0, 7), (2, 5), (6, 7), (3, 3)])
@pytest.mark.parametrize("length", [0, 1, 4096, 4099])
def test_tasks_are_the_same(run: Runner, tasks: tuple[int, int], length: int) -> None:
    x = np.ones((7, length), np.float32)
    y = np.full(7, -1, np.float32)
    run(parse_kernel(ROWS), [x, y], [7, length], tasks=tasks)
    expected = np.full(7, -1, np.float32)
    expected[slice(*tasks)] = 3 * length
    np.testing.assert_array_equal(y, expected)


def started(
    run: Runner, kernel: Kernel, *arrays: np.ndarray
) -> tuple[np.ndarray, Callable[[], int]]:
    """The state of a run, and a call of the kernel with it."""
    state = np.ones(1, np.int32)
    sizes = [arrays[0].shape[0]] * len(kernel.symbols)
    pointers = [a.ctypes.data for a in arrays]
    args = (ctypes.c_uint64 * (len(pointers) + len(sizes) + 1))(
        *pointers, *sizes, state.ctypes.data
    )
    function = run.function(kernel)
    return state, lambda: function(args, 0, 1, None)


def test_a_kernel_stops_at_its_first_question(run: Runner) -> None:
    for text, done in ((FLAT, 4096), (HEAVY, 4096)):
        x = np.ones(10000, np.float32)
        y = np.zeros((10000, 32) if text is HEAVY else 10000, np.float32)
        state, call = started(run, parse_kernel(text), x, y)
        state[0] = 2
        assert call() == STATUS_CANCELLED
        assert (y[:done] == 2).all() and not y[done:].any()
        state[0] = 1
        assert call() == 0 and (y == 2).all()


def test_one_task_that_would_take_years(run: Runner) -> None:
    x, y = np.ones(8, np.float32), np.zeros(8, np.float32)
    state, call = started(run, parse_kernel(ENDLESS), x, y)
    timer = threading.Timer(0.1, lambda: state.__setitem__(0, 2))
    timer.start()
    start = time.monotonic()
    assert call() == STATUS_CANCELLED
    assert time.monotonic() - start < 1
    timer.join()
