# SPDX-License-Identifier: Apache-2.0
"""Every operation on every type that has it, against numpy: vectors, masked tails, and targets
without extensions.
"""

from typing import Any

import ml_dtypes  # noqa: F401  (gives numpy the small floats)
import numpy as np
import pytest
from elementwise_kernel import elementwise

from tests.targets import runnable_targets
from tilewright.codegen.llvm.kernel import emit_kernel
from tilewright.ir.dtypes import (
    BF16,
    BOOL,
    C64,
    F4E2M1,
    F8E4M3FN,
    F8E4M3FNUZ,
    F8E5M2,
    F8E5M2FNUZ,
    F16,
    F32,
    F64,
    I4,
    I8,
    I16,
    I32,
    I64,
    STRING,
    U4,
    U8,
    U16,
    U32,
    U64,
    DType,
)
from tilewright.ir.errors import CodegenError
from tilewright.ir.expr import Binary, Cast, Compare, Const, Expr, Select, Unary
from tilewright.ir.loop import Kernel

INTEGERS = (I8, I16, I32, I64, U8, U16, U32, U64)
SMALL_FLOATS = (F8E4M3FN, F8E4M3FNUZ, F8E5M2, F8E5M2FNUZ, F4E2M1)
FLOATS = (F64, F32, F16, BF16)
TARGETS = runnable_targets()


def samples(dtype: DType, count: int = 203) -> np.ndarray:
    """Values of all sizes, the special ones included."""
    rng = np.random.default_rng(len(dtype.name) * 1000 + dtype.bits)
    if dtype.is_bool:
        return rng.integers(0, 2, count).astype(np.bool_)
    if dtype.is_integer:
        least, greatest = int(dtype.min), int(dtype.max)
        numbers = [least, greatest, 0, 1]
        for _ in range(count - 4):
            low, high = (least, greatest) if rng.random() < 0.5 else (max(least, -5), 6)
            numbers.append(low + int(rng.random() * (high - low)))
        return np.array([int(x) for x in numbers], dtype=object).astype(dtype.numpy)
    values = rng.standard_normal(count) * np.exp(rng.uniform(-4, 4, count))
    values[:9] = [0.0, -0.0, np.inf, -np.inf, np.nan, 0.5, 1.5, 2.5, -0.5]
    values[9:20] = rng.integers(-4, 5, 11)
    with np.errstate(all="ignore"):
        return values.astype(dtype.numpy)


def pairs(dtype: DType) -> tuple[np.ndarray, np.ndarray]:
    """Two operands in which special values meet each other."""
    x = samples(dtype)
    y = np.roll(x[::-1], 3).copy()
    y[20:60], x[20:60] = x[20:60].copy(), np.resize(x[:20], 40)
    y[60:80] = x[60:80]
    return x, y


def same(actual: np.ndarray, expected: np.ndarray, name: str, zeros_equal: bool = False) -> None:
    """Bit equality, but any NaN equals any other, and zeros of both signs where that is said."""
    wrong = actual.view(f"u{actual.itemsize}") != expected.view(f"u{expected.itemsize}")
    if expected.dtype.kind not in "iub":
        with np.errstate(invalid="ignore"):
            a, e = actual.astype(np.float64), expected.astype(np.float64)
        wrong &= ~(np.isnan(a) & np.isnan(e))
        if zeros_equal:
            wrong &= a != e
    assert not wrong.any(), (
        name,
        np.flatnonzero(wrong)[:5],
        actual[wrong][:5],
        expected[wrong][:5],
    )


def check(
    run: Any, kernel: Kernel, inputs: tuple[np.ndarray, ...], expected: dict[str, np.ndarray]
) -> None:
    """Run on all targets; results must be the expected ones, bit by bit, and nothing written
    behind.
    """
    count = len(inputs[0])
    for target in TARGETS:
        outs = {o.name: np.full(count + 9, 3).astype(o.dtype.numpy) for o in kernel.outputs}
        run(kernel, [*inputs, *outs.values()], [count], target)
        for name, e in expected.items():
            actual = outs[name]
            same(actual[:count], e, f"{name} on {target}", name in ("min", "max", "sign"))
            assert (actual[count:] == np.full(9, 3).astype(e.dtype)).all(), "Written past the end."


def _floor_mod(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.where(y == 0, 0, np.mod(x, np.where(y == 0, 1, y))).astype(x.dtype)


def _c_mod(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.where(y == 0, 0, np.fmod(x, np.where(y == 0, 1, y))).astype(x.dtype)


def _truncated(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    safe = np.where(y == 0, 1, y).astype(x.dtype)
    quotient = (x - np.fmod(x, safe)) // safe
    return np.where(y == 0, 0, quotient).astype(x.dtype)


def _shift(op: Any) -> Any:
    return lambda x, y: op(x, (y & (x.dtype.itemsize * 8 - 1)).astype(x.dtype))


ARITHMETIC = {"add": np.add, "sub": np.subtract, "mul": np.multiply}
INTEGER_BINARY = ARITHMETIC | {
    "div": _truncated, "mod": _floor_mod, "fmod": _c_mod, "min": np.minimum, "max": np.maximum,
    "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
    "shl": _shift(np.left_shift), "shr": _shift(np.right_shift),
}  # fmt: skip
COMPARISONS = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater,
    "ge": np.greater_equal,
}  # fmt: skip
FLOAT_BINARY = ARITHMETIC | {
    "div": np.divide, "mod": lambda x, y: _python_mod(x, y), "fmod": np.fmod,
    "min": np.minimum, "max": np.maximum,
}  # fmt: skip


def _python_mod(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """numpy's remainder, computed as numpy does for float64, from exact C remainders."""
    remainder = np.fmod(x, y)
    moved = np.where((remainder != 0) & ((remainder < 0) != (y < 0)), remainder + y, remainder)
    return np.where(remainder == 0, np.copysign(np.zeros_like(x), y), moved).astype(x.dtype)


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_integer_operations(run: Any, dtype: DType) -> None:
    x, y = pairs(dtype)
    unary = {"neg": np.negative, "abs": np.abs, "sign": np.sign, "bitwise_not": np.invert}

    def values(a: Expr, b: Expr) -> dict[str, Expr]:
        results: dict[str, Expr] = {op: Binary(op, a, b, dtype) for op in INTEGER_BINARY}
        results |= {op: Unary(op, a, dtype) for op in unary}
        return results | {op: Compare(op, a, b) for op in COMPARISONS}

    with np.errstate(all="ignore"):
        expected = {op: f(x, y) for op, f in (INTEGER_BINARY | COMPARISONS).items()}
        expected |= {op: f(x) for op, f in unary.items()}
    check(run, elementwise(f"integer_{dtype}", (dtype, dtype), values), (x, y), expected)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_float_operations(run: Any, dtype: DType) -> None:
    x, y = pairs(dtype)
    unary = {
        "neg": np.negative, "abs": np.abs, "sign": np.sign, "ceil": np.ceil, "floor": np.floor,
        "round": np.rint, "trunc": np.trunc,
    }  # fmt: skip

    def values(a: Expr, b: Expr) -> dict[str, Expr]:
        results: dict[str, Expr] = {op: Binary(op, a, b, dtype) for op in FLOAT_BINARY}
        results |= {op: Unary(op, a, dtype) for op in unary}
        results |= {op: Unary(op, a, BOOL) for op in ("isnan", "isinf")}
        return results | {op: Compare(op, a, b) for op in COMPARISONS}

    with np.errstate(all="ignore"):
        wide = np.float64 if dtype is F64 else np.float32
        a, b = x.astype(wide), y.astype(wide)
        expected = {op: f(a, b).astype(x.dtype) for op, f in FLOAT_BINARY.items()}
        expected |= {op: f(a, b) for op, f in COMPARISONS.items()}
        expected |= {op: f(a).astype(x.dtype) for op, f in unary.items()}
        expected |= {"isnan": np.isnan(a), "isinf": np.isinf(a)}
    check(run, elementwise(f"float_{dtype}", (dtype, dtype), values), (x, y), expected)


def test_bool_operations(run: Any) -> None:
    x, y = samples(BOOL), samples(BOOL)[::-1].copy()

    def values(a: Expr, b: Expr) -> dict[str, Expr]:
        results: dict[str, Expr] = {op: Binary(op, a, b, BOOL) for op in ("and", "or", "xor")}
        results |= {op: Compare(op, a, b) for op in COMPARISONS}
        return results | {
            "not": Unary("not", a, BOOL),
            "select": Select(a, b, Unary("not", b, BOOL)),
        }

    expected = {"and": x & y, "or": x | y, "xor": x ^ y, "not": ~x, "select": np.where(x, y, ~y)}
    expected |= {op: f(x, y) for op, f in COMPARISONS.items()}
    check(run, elementwise("bools", (BOOL, BOOL), values), (x, y), expected)


def _saturated(x: np.ndarray, dtype: DType) -> np.ndarray:
    """Float to integer as the IR defines it, by exact Python integers."""
    numbers = []
    for v in x.astype(np.float64):
        if np.isnan(v):
            numbers.append(0)
        elif np.isinf(v):
            numbers.append(int(dtype.max) if v > 0 else int(dtype.min))
        else:
            numbers.append(max(int(dtype.min), min(int(dtype.max), int(v))))
    return np.array(numbers, dtype=object).astype(dtype.numpy)


@pytest.mark.parametrize("source", (*FLOATS, *INTEGERS, BOOL), ids=str)
def test_casts(run: Any, source: DType) -> None:
    x = samples(source)
    if source.is_float:
        with np.errstate(all="ignore"):
            x[30:60] = (x[30:60].astype(np.float64) * 1e9).astype(x.dtype)
    targets = [*FLOATS, *INTEGERS, BOOL]

    def values(a: Expr) -> dict[str, Expr]:
        return {f"to_{t}": Cast(a, t) for t in targets}

    expected = {}
    with np.errstate(all="ignore"):
        for t in targets:
            if t.is_bool:
                expected[f"to_{t}"] = x.astype(np.float64) != 0 if source is BF16 else x != 0
            elif source.is_float and t.is_integer:
                expected[f"to_{t}"] = _saturated(x, t)
            else:
                expected[f"to_{t}"] = x.astype(t.numpy)
    check(run, elementwise(f"cast_{source}", (source,), values), (x,), expected)


@pytest.mark.parametrize("dtype", SMALL_FLOATS, ids=str)
def test_small_float_storage(run: Any, dtype: DType) -> None:
    every_code = np.arange(16 if dtype.bits == 4 else 256, dtype=np.uint8).view(dtype.numpy)
    decoded = every_code.astype(np.float32)
    kernel = elementwise(f"decode_{dtype}", (dtype,), lambda a: {"wide": Cast(a, F32)})
    check(run, kernel, (every_code,), {"wide": decoded})
    finite = np.sort(decoded[np.isfinite(decoded)])
    middle = (finite[1:] + finite[:-1]) / 2
    x = np.concatenate([finite, middle, np.nextafter(middle, np.float32(9e9)), finite * 1.7])
    if dtype is not F4E2M1:
        x = np.concatenate([x, np.array([np.nan, np.inf, -np.inf], np.float32)])
    x = x.astype(np.float32)
    kernel = elementwise(f"encode_{dtype}", (F32,), lambda a: {"narrow": Cast(a, dtype)})
    check(run, kernel, (x,), {"narrow": x.astype(dtype.numpy)})


def test_double_to_half_rounds_once(run: Any) -> None:
    halves = np.arange(0x7C00, dtype=np.uint16).view(np.float16).astype(np.float64)
    middle = (halves[1:] + halves[:-1]) / 2
    x = np.concatenate([middle, np.nextafter(middle, 1e9), np.nextafter(middle, -1)])
    kernel = elementwise("double_to_half", (F64,), lambda a: {"half": Cast(a, F16)})
    check(run, kernel, (x,), {"half": x.astype(np.float16)})


@pytest.mark.parametrize("dtype", (I4, U4), ids=str)
def test_four_bit_integers(run: Any, dtype: DType) -> None:
    every = np.arange(int(dtype.min), int(dtype.max) + 1, dtype=np.int16)
    a, b = (g.ravel() for g in np.meshgrid(every, every))

    def values(x: Expr, y: Expr) -> dict[str, Expr]:
        return {op: Binary(op, x, y, dtype) for op in ("add", "mul", "min", "max")}

    def wrapped(v: np.ndarray) -> np.ndarray:
        return ((v - every[0]) % 16 + every[0]).astype(np.int8).astype(dtype.numpy)

    expected = {
        "add": wrapped(a + b), "mul": wrapped(a * b),
        "min": wrapped(np.minimum(a, b)), "max": wrapped(np.maximum(a, b)),
    }  # fmt: skip
    operands = wrapped(a), wrapped(b)
    check(run, elementwise(f"four_{dtype}", (dtype, dtype), values), operands, expected)


def test_remainder_of_distant_magnitudes(run: Any) -> None:
    rng = np.random.default_rng(5)
    for dtype, unsigned in ((F32, np.uint32), (F64, np.uint64)):
        bits = rng.integers(0, np.iinfo(unsigned).max, (2, 400), dtype=unsigned)
        x, y = bits.view(dtype.numpy)
        x[:20], y[20:40] = np.inf, np.inf
        x[40:60] = np.float64(1e-40)
        kernel = elementwise(
            f"far_{dtype}", (dtype, dtype), lambda a, b: {"fmod": Binary("fmod", a, b, a.dtype)}
        )
        with np.errstate(all="ignore"):
            check(run, kernel, (x, y), {"fmod": np.fmod(x, y)})


def test_complex_arithmetic_is_refused() -> None:
    kernel = elementwise("complex", (C64, C64), lambda a, b: {"sum": Binary("add", a, b, C64)})
    with pytest.raises(CodegenError, match="Values of type 'c64' cannot be computed"):
        emit_kernel(kernel, TARGETS[0])


def test_strings_are_refused() -> None:
    empty = Const("", STRING)
    kernel = elementwise("strings", (BOOL,), lambda x: {"y": Compare("eq", empty, empty)})
    with pytest.raises(CodegenError, match="Values of type 'string' cannot be computed"):
        emit_kernel(kernel, TARGETS[0])
