# SPDX-License-Identifier: Apache-2.0
"""What value operators mean, case by case, on scalars and arrays, and equally in generated code."""

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tilewright.ir.dtypes import (
    BF16,
    BOOL,
    F16,
    F32,
    F64,
    I4,
    I8,
    I32,
    I64,
    INDEX,
    U4,
    U8,
    U32,
    DType,
)
from tilewright.ir.interpreter import values
from tilewright.ir.interpreter.loops import interpret_kernel
from tilewright.ir.interpreter.stages import run_stages
from tilewright.ir.loop_parser import parse_kernel

NAN, INF = math.nan, math.inf
LEAST = -(2**31)

BINARY = [
    ("add", I8, 127, 1, -128),
    ("sub", U8, 0, 1, 255),
    ("mul", I32, 2**16, 2**16, 0),
    ("add", F16, 2048, 1, 2048),
    ("add", BF16, 256, 1, 256),
    ("div", I32, 7, 2, 3),
    ("div", I32, -7, 2, -3),
    ("div", I32, 7, -2, -3),
    ("div", I32, 7, 0, 0),
    ("div", I32, LEAST, -1, LEAST),
    ("div", U8, 200, 7, 28),
    ("mod", I32, -7, 3, 2),
    ("mod", I32, 7, -3, -2),
    ("mod", I32, 7, 0, 0),
    ("fmod", I32, -7, 3, -1),
    ("fmod", I32, 7, -3, 1),
    ("fmod", I32, 7, 0, 0),
    ("mod", F32, -7, 3, 2),
    ("fmod", F32, -7, 3, -1),
    ("div", F32, 1, 0, INF),
    ("div", F32, 0, 0, NAN),
    ("min", F32, NAN, 1, NAN),
    ("max", F32, 1, NAN, NAN),
    ("max", F32, -INF, 3, 3),
    ("min", I8, -128, 127, -128),
    ("shl", I32, 1, 33, 2),
    ("shr", I32, -8, 1, -4),
    ("shr", U32, 2**31, 31, 1),
    ("and", U8, 0b1100, 0b1010, 0b1000),
    ("xor", BOOL, True, True, False),
    ("or", BOOL, False, True, True),
    ("add", I4, 7, 1, -8),
    ("mul", U4, 5, 5, 9),
    ("div", I4, -7, 2, -3),
]
UNARY = [
    ("neg", U8, 1, 255),
    ("neg", F32, 0.0, -0.0),
    ("abs", I8, -128, -128),
    ("sign", F32, -3.0, -1.0),
    ("sign", F32, NAN, NAN),
    ("round", F32, 2.5, 2.0),
    ("round", F32, -1.5, -2.0),
    ("trunc", F32, -1.5, -1.0),
    ("floor", F32, -1.5, -2.0),
    ("ceil", F32, 1.25, 2.0),
    ("floor", I32, 5, 5),
    ("bitwise_not", U8, 1, 254),
    ("bitwise_not", I4, 0, -1),
    ("not", BOOL, True, False),
    ("isnan", F32, NAN, True),
    ("isinf", F32, -INF, True),
]
CASTS = [
    (F32, I32, 2.9, 2),
    (F32, I32, -2.9, -2),
    (F32, I32, 3e9, 2**31 - 1),
    (F32, I32, -INF, LEAST),
    (F32, I32, NAN, 0),
    (F32, U8, -1, 0),
    (F32, U8, 300, 255),
    (F64, I64, 2.0**63, 2**63 - 1),
    (I32, I8, 300, 44),
    (I32, U8, -1, 255),
    (I64, I4, 9, -7),
    (I4, I32, -7, -7),
    (U4, F32, 15, 15),
    (I64, F32, 2**24 + 1, 2**24),
    (F64, F32, 1e300, INF),
    (F32, F16, 65520, INF),
    (F32, BF16, 1.00390625, 1.0),
    (BOOL, F32, True, 1),
    (F32, BOOL, NAN, True),
    (F32, BOOL, -0.0, False),
    (I32, BOOL, 256, True),
    (I64, INDEX, -3, -3),
    (INDEX, I32, 2**32 + 5, 5),
    (INDEX, F32, 7, 7),
    (F32, INDEX, 7.9, 7),
]


def scalar(value: Any, dtype: DType) -> Any:
    return np.asarray(value).astype(dtype.numpy)


def same(result: Any, wanted: Any, dtype: DType) -> None:
    """Equal in type and value; zeros by sign too, NaN to NaN."""
    array = np.asarray(result)
    assert array.dtype == dtype.numpy
    for found in array.reshape(-1).astype(object if dtype.is_integer else np.float64):
        assert found == wanted or (math.isnan(found) and math.isnan(wanted))
        if dtype.is_float and wanted == 0:
            assert math.copysign(1, found) == math.copysign(1, wanted)


def literal(value: Any, dtype: DType) -> str:
    return str(bool(value)).lower() if dtype.is_bool else f"{dtype}({value})"


def in_kernel(expr: str, source: DType, operands: dict[str, Any], dtype: DType) -> Any:
    """The value of an expression over one-element buffers, by the interpreters of kernels and
    stages.
    """
    inputs = ", ".join(f"{n}: {source}[1]" for n in operands)
    kernel = parse_kernel(
        f"kernel @k({inputs}) -> (r: {dtype}[1]) {{\n"
        f"  stage map s(i in 1) -> r[i] = {expr.replace('[0]', '[i]')}\n  r[0] = {expr}\n}}"
    )
    arrays = {n: scalar([v], source) for n, v in operands.items()}
    result = interpret_kernel(kernel, arrays)["r"]
    again = run_stages(kernel.stages, arrays, {})["r"]
    assert result.tobytes() == again.tobytes() or np.isnan(result.astype(np.float64)).all()
    return result


@pytest.mark.parametrize(("op", "dtype", "x", "y", "wanted"), BINARY)
def test_binary(op: str, dtype: DType, x: Any, y: Any, wanted: Any) -> None:
    infix = {"add": "+", "sub": "-", "mul": "*", "div": "/"}
    with np.errstate(all="ignore"):
        same(values.binary(op, scalar(x, dtype)[()], scalar(y, dtype)[()], dtype), wanted, dtype)
        same(values.binary(op, scalar([x, x], dtype), scalar([y], dtype), dtype), wanted, dtype)
    text = f"(a[0] {infix[op]} b[0])" if op in infix else f"{op}(a[0], b[0])"
    same(in_kernel(text, dtype, {"a": x, "b": y}, dtype), wanted, dtype)


@pytest.mark.parametrize(("op", "dtype", "x", "wanted"), UNARY)
def test_unary(op: str, dtype: DType, x: Any, wanted: Any) -> None:
    result = BOOL if op in ("not", "isnan", "isinf") else dtype
    with np.errstate(all="ignore"):
        same(values.unary(op, scalar([x], dtype), dtype), wanted, result)
    same(in_kernel(f"{op}(a[0])", dtype, {"a": x}, result), wanted, result)


@pytest.mark.parametrize(("source", "dtype", "x", "wanted"), CASTS)
def test_cast(source: DType, dtype: DType, x: Any, wanted: Any) -> None:
    with np.errstate(all="ignore"):
        same(values.cast(scalar([x], source), source, dtype), wanted, dtype)
    if dtype is not INDEX and source is not INDEX:
        same(in_kernel(f"cast(a[0], {dtype})", source, {"a": x}, dtype), wanted, dtype)


@pytest.mark.parametrize(
    ("function", "args", "wanted"),
    [
        ("exp", (1.0,), math.e),
        ("rsqrt", (4.0,), 0.5),
        ("erf", (0.5,), math.erf(0.5)),
        ("sigmoid", (-800.0,), 0.0),
        ("sigmoid", (800.0,), 1.0),
        ("pow", (2.0, 0.5), math.sqrt(2)),
        ("log", (0.0,), -INF),
        ("sqrt", (-1.0,), NAN),
        ("atanh", (0.5,), math.atanh(0.5)),
        ("expm1", (1e-9,), math.expm1(1e-9)),
        ("fma", (2.0, 3.0, 1.0), 7.0),
    ],
)
@pytest.mark.parametrize("dtype", [F64, F32, F16, BF16], ids=str)
def test_math_functions_round_once(
    function: str, args: tuple[float, ...], wanted: float, dtype: DType
) -> None:
    operands = tuple(scalar([a], dtype) for a in args)
    if function == "expm1" and dtype is not F64:
        wanted = math.expm1(float(operands[0][0]))
    with np.errstate(all="ignore"):
        result = np.asarray(values.call(function, operands, dtype))
    assert result.dtype == dtype.numpy
    expected = np.asarray([wanted]).astype(dtype.numpy)
    np.testing.assert_allclose(
        result.astype(np.float64), expected.astype(np.float64), rtol=1e-15 if dtype is F64 else 0
    )


def test_fma_rounds_once() -> None:
    x = 1.0 + 2.0**-12
    wide = np.float32(x)
    product = np.float32(x * x)
    exact = values.call("fma", (wide, wide, -product), F32)
    assert float(exact) == x * x - float(product) != 0.0
    # A sum just above the middle of two floats, by less than float64 can say.
    half = np.float32(2.0**-24)
    small = np.float32(2.0**-60)
    assert float(values.call("fma", (small, np.float32(1), np.float32(1)), F32)) == 1.0
    above = values.call("fma", (half, np.float32(1 + 2.0**-23), np.float32(1)), F32)
    assert float(above) == 1 + 2.0**-23
    tiny = 1.0 + 2.0**-30
    assert float(values.call("fma", (tiny, tiny, -1.0 - 2.0**-29), F64)) == 2.0**-60


def test_constants_have_their_type() -> None:
    assert values.constant("1.5", BF16).dtype == ml_dtypes.bfloat16
    assert values.constant("-1", I8) == np.int8(-1)
    assert values.constant("12", INDEX) == 12
    assert values.constant("true", BOOL) is True
