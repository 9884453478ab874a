# SPDX-License-Identifier: Apache-2.0
"""Errors and speed of the math library: ``python -m benchmarks.math_accuracy [--write FILE]``.

An error is the distance of a result from the exact value (80-bit arithmetic, x86-64) in units of
the last place of the correctly rounded one. The sweep takes representations at random over the
whole range of the type, and more of them where a function is interesting. Speed is that of 4,096
numbers between 0.1 and 0.9 in the first-level cache, on one core, best of many runs.
"""

from __future__ import annotations

import argparse
import ctypes
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright.autotune.loading import Code
from tilewright.codegen.llvm.compile import compile_ir
from tilewright.codegen.llvm.kernel import emit_kernel
from tilewright.codegen.math import derive
from tilewright.ir.buffer import buffer
from tilewright.ir.dtypes import F32, F64, DType
from tilewright.ir.expr import Call, Read, Var, index
from tilewright.ir.loop import Kernel, Store, nest
from tilewright.ir.target import Target, parse_target
from tilewright.ir.types import tensor

Array = npt.NDArray[Any]
BEGIN, END = "<!-- generated: table -->\n", "<!-- end -->\n"
_FUNCTION = ctypes.CFUNCTYPE(
    ctypes.c_int32, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p
)


def _erf(x: Array) -> Array:
    a = abs(x)
    near = derive.erf(np.where(a < 2, x, 0))
    return np.where(a < 2, near, np.sign(x) * (1 - derive.erfc(np.maximum(a, 2))))


def _sigmoid(x: Array) -> Array:
    small = np.exp(-abs(x))
    return np.asarray(np.where(x < 0, small, 1) / (1 + small))


REFERENCES: dict[str, Callable[[Array], Array]] = {
    "exp": np.exp, "exp2": np.exp2, "expm1": np.expm1, "log": np.log, "log2": np.log2,
    "log1p": np.log1p, "sqrt": np.sqrt, "rsqrt": lambda x: 1 / np.sqrt(x), "sin": np.sin,
    "cos": np.cos, "tan": np.tan, "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan,
    "sinh": np.sinh, "cosh": np.cosh, "tanh": np.tanh, "asinh": np.arcsinh, "acosh": np.arccosh,
    "atanh": np.arctanh, "erf": _erf, "sigmoid": _sigmoid,
}  # fmt: skip
"""The functions of one argument, on 80-bit numbers."""

SPECIAL = (
    0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 0.5, -0.5, 2.0, 1e-45, -1e-45, 1.1754944e-38,
    3.4e38, -3.4e38, 88.72283, 88.72284, -87.3, -103.97, 709.78, 710.0, -745.1, -746.0, 1e300,
)  # fmt: skip
_SCALES = (1e-4, 0.1, 1, 2, 4, 10, 20, 90, 105, 160, 745, 1000, 1e5, 1e7)


def sweep(dtype: DType, count: int) -> Array:
    """``count`` representations at random, half as many numbers on intervals, and special
    values.
    """
    rng = np.random.default_rng(11)
    bits = rng.integers(0, 2**dtype.bits - 1, count, dtype=f"u{dtype.bytes}").view(dtype.numpy)
    uniform = [rng.uniform(-s, s, count // (2 * len(_SCALES))) for s in _SCALES]
    with np.errstate(over="ignore", invalid="ignore"):
        return np.concatenate([bits, np.concatenate(uniform), SPECIAL]).astype(dtype.numpy)


def ulps(actual: Array, exact: Array) -> npt.NDArray[np.float64]:
    """Errors in units of the last place of the rounded result; a wrong special value, or a zero of
    the wrong sign, is infinitely wrong.
    """
    with np.errstate(all="ignore"):
        rounded = exact.astype(actual.dtype)
        finite = np.isfinite(rounded)
        unit = np.spacing(abs(np.where(finite, rounded, 1))).astype(np.longdouble)
        distance = abs(np.where(np.isfinite(actual), actual, np.inf).astype(np.longdouble) - exact)
        same = (np.isnan(actual) & np.isnan(rounded)) | (actual == rounded)
        error = np.where(finite, np.where(finite, distance, 0) / unit, np.where(same, 0, np.inf))
        zeros = (rounded == 0) & (actual == 0) & (np.signbit(rounded) != np.signbit(actual))
        return np.where(zeros, np.inf, error).astype(np.float64)


def compiled(function: str, dtype: DType, target: Target) -> Any:
    """Machine code that applies a function to blocks of 4,096 elements, a task a block."""
    block, lanes = 4096, 2 * target.lanes(dtype.bytes)
    blocks = index(1 << 20)
    x, y = (buffer(name, tensor(dtype, (blocks, block))) for name in "xy")
    task, outer, inner = Var("t", blocks), Var("o", index(block // lanes)), Var("i", index(lanes))
    place = (task, outer * lanes + inner)
    store = Store(y, place, Call(function, (Read(x, place),), dtype))
    loops = [(task, "parallel"), (outer, "serial"), (inner, "vectorized")]
    kernel = Kernel(f"{function}_{dtype}", (x,), (y,), (), (), nest(loops, store))
    return Code(compile_ir(emit_kernel(kernel, target), target), kernel.name)


def worst_error(function: str, dtype: DType, target: Target, count: int) -> float:
    """The greatest error over the sweep."""
    x = sweep(dtype, count)
    if function == "erf":
        # Its reference is a long series.
        x = np.concatenate([x[::8], x[-len(SPECIAL) :]])
    x = np.resize(x, (-(-len(x) // 4096) * 4096,))
    y = np.zeros_like(x)
    code = compiled(function, dtype, target)
    arguments = (ctypes.c_void_p * 2)(x.ctypes.data, y.ctypes.data)
    _FUNCTION(code.address)(arguments, 0, len(x) // 4096, None)
    with np.errstate(all="ignore"):
        exact = REFERENCES[function](x.astype(np.longdouble))
    return float(ulps(y, exact).max())


def speed(function: str, dtype: DType, target: Target) -> float:
    """Elements a nanosecond: tasks that all work on the same block."""
    x = np.random.default_rng(0).uniform(0.1, 0.9, 4096).astype(dtype.numpy)
    y = np.zeros_like(x)
    code = compiled(function, dtype, target)
    arguments = (ctypes.c_void_p * 2)(x.ctypes.data, y.ctypes.data)
    call = _FUNCTION(code.address)
    best = float("inf")
    for _ in range(400):
        start = time.perf_counter_ns()
        call(arguments, 0, 1, None)
        best = min(best, time.perf_counter_ns() - start)
    return 4096 / best


def table(count: int) -> str:
    """The Markdown table of all functions."""
    columns = [
        "function",
        "float32, ULP",
        "without FMA",
        "float64, ULP",
        "without FMA",
        "float32/ns",
    ]
    lines = [f"| {' | '.join(columns)} |", "| --- " * len(columns) + "|"]
    targets = parse_target("x86-64-v3"), parse_target("x86-64")
    for function in REFERENCES:
        errors = [worst_error(function, d, t, count) for d in (F32, F64) for t in targets]
        cells = [f"{e:.2f}" for e in errors] + [f"{speed(function, F32, targets[0]):.1f}"]
        lines.append(f"| {function} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Print the table, or put it into a page between its marks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1 << 20, help="numbers for each function")
    parser.add_argument("--write", type=Path, help="the page to put the table into")
    options = parser.parse_args()
    text = table(options.count)
    if options.write is None:
        print(text, end="")
        return
    page = options.write.read_text(encoding="utf-8")
    head, tail = page.split(BEGIN)[0], page.split(END)[1]
    options.write.write_text(f"{head}{BEGIN}{text}{END}{tail}", encoding="utf-8")


if __name__ == "__main__":
    main()
