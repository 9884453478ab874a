# SPDX-License-Identifier: Apache-2.0
"""Expressions print and parse back to the same object; the verifier of types accepts them."""

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.ir.buffer import buffer
from tilewright.ir.dtypes import BF16, BOOL, F16, F32, F64, I8, I64, INDEX, U32, DType
from tilewright.ir.errors import ParseError
from tilewright.ir.expr import (
    COMPARE_OPS,
    MATH_FUNCTIONS,
    Binary,
    Call,
    Cast,
    Compare,
    Const,
    Expr,
    Guard,
    Read,
    Scalar,
    Select,
    Symbol,
    Unary,
    Var,
    const,
    index,
)
from tilewright.ir.expr_parser import parse_expr
from tilewright.ir.lexer import tokenize
from tilewright.ir.simplify import bcast, floordiv, maximum, mod
from tilewright.ir.types import tensor
from tilewright.ir.verify_expr import type_fault

N, I = Symbol("n", 1, 64), Var("i", index(8))  # noqa: E741
FLOATS, INTEGERS = (F64, F32, F16, BF16), (I8, I64, U32)
BUFFERS = {d: buffer(f"x_{d}", tensor(d, (N, 8))) for d in (*FLOATS, *INTEGERS, BOOL, INDEX)}
SCALARS = {d: Scalar(f"acc.{d}", d) for d in (*FLOATS, *INTEGERS, BOOL, INDEX)}
NAMES = (N, I, *BUFFERS.values(), *SCALARS.values())
INDICES = st.sampled_from(
    [I, N, index(3), index(-3), N * 4 - I + 1, floordiv(N + 3, 4), mod(I, N), maximum(I - N, 0)]
    + [bcast(N, Symbol("n", 1, 64)), I * I - 2, -floordiv(I * 3 - 7, 5) * N, mod(I - 9, 4) * I]
)


def values(dtype: DType, depth: int = 3) -> st.SearchStrategy[Expr]:
    """Random value expressions of a type."""
    reads = st.builds(lambda a, b: Read(BUFFERS[dtype], (a, b)), INDICES, INDICES)
    leaves = [reads, st.just(SCALARS[dtype])]
    if dtype.is_bool:
        leaves.append(st.sampled_from([Const("true", BOOL), Const("false", BOOL)]))
        leaves.append(st.builds(Compare, st.sampled_from(COMPARE_OPS), INDICES, INDICES))
    elif dtype.is_float:
        leaves.append(st.floats().map(lambda v: const(v, dtype)))
    else:
        leaves.append(st.integers(int(dtype.min), int(dtype.max)).map(lambda v: const(v, dtype)))
    if not depth:
        return st.one_of(leaves)
    inner = values(dtype, depth - 1)
    return st.one_of(*leaves, *_operations(dtype, inner, depth))


def _operations(
    dtype: DType, inner: st.SearchStrategy[Expr], depth: int
) -> list[st.SearchStrategy[Expr]]:
    condition = values(BOOL, 0) if dtype.is_bool else values(BOOL, depth - 1)
    found: list[st.SearchStrategy[Expr]] = [
        st.builds(Select, condition, inner, inner),
        st.builds(Guard, condition, inner, inner),
    ]
    binary = ["and", "or", "xor"] if dtype.is_bool else ["add", "sub", "mul", "div", "min", "max"]
    binary += ["mod", "fmod"] if not dtype.is_bool else []
    binary += ["and", "shl", "shr"] if dtype.is_integer else []
    found.append(
        st.builds(lambda o, x, y: Binary(o, x, y, dtype), st.sampled_from(binary), inner, inner)
    )
    unary = ["not"] if dtype.is_bool else ["neg", "abs", "sign", "round"]
    found.append(st.builds(lambda o, x: Unary(o, x, dtype), st.sampled_from(unary), inner))
    if dtype.is_bool:
        found.append(st.builds(lambda x: Unary("isnan", x, BOOL), values(F32, 0)))
        found.append(st.builds(Compare, st.sampled_from(COMPARE_OPS), values(I8, 0), values(I8, 0)))
    else:
        found.append(st.builds(lambda x: Cast(x, dtype), INDICES))
    if dtype.is_float:
        found.append(
            st.builds(
                lambda f, x, y, z: Call(f, (x, y, z)[: {"pow": 2, "fma": 3}.get(f, 1)], dtype),
                st.sampled_from(MATH_FUNCTIONS), inner, inner, inner,
            )
        )  # fmt: skip
    return found


@pytest.mark.parametrize("dtype", [F64, F32, BF16, I8, I64, U32, BOOL], ids=str)
def test_text_parses_back_to_the_same_object(dtype: DType) -> None:
    @given(values(dtype))
    @settings(max_examples=40, deadline=None)
    def check(e: Expr) -> None:
        assert parse_expr(str(e), *NAMES) is e
        assert type_fault(e) is None

    check()


@given(st.floats(width=32))
@settings(max_examples=100, deadline=None)
def test_floats_are_exact_to_the_bit(value: float) -> None:
    parsed = parse_expr(str(const(value, F32)))
    assert isinstance(parsed, Const)
    if value == value:
        assert struct.pack("f", parsed.value) == struct.pack("f", value)
    else:
        assert parsed.value != parsed.value


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("j + 4*i + i", "5*i + j"),
        ("(i + 1)*(i - 1)", "i*i - 1"),
        ("2*3*i", "6*i"),
        ("i - i", "0"),
        ("-(i - j)", "-i + j"),
        ("-i // 2", "(-i) // 2"),
        ("i*2 // 3 % 4", "((2*i) // 3) % 4"),
        ("8*(i // 8) + i % 8", "i"),
        ("i < j", "(i < j)"),
        ("(i) <= (j)", "(i <= j)"),
        ("- f32(1.5)", "neg(f32(1.5))"),
        ("f32(1) + f32(2) * f32(3)", "(f32(1.0) + (f32(2.0) * f32(3.0)))"),
        ("f32(0.1)", "f32(0.10000000149011612)"),
        ("f32(1e60)", "f32(inf)"),
        ("f32(-nan)", "f32(nan)"),
        ("float32(2.5)", "f32(2.5)"),
        ("string()", "string()"),
    ],
)
def test_hand_written_text(text: str, canonical: str) -> None:
    i, j = Var("i", index(8)), Var("j", index(8))
    assert str(parse_expr(text, i, j)) == canonical


@pytest.mark.parametrize(
    "text",
    ["", "i +", "i j", "(i", "i /2", "f32(1.5) // f32(2.0)", "i32(1.5)", "u32(-1)", "i & j", "a.b"],
)
def test_wrong_text_is_refused(text: str) -> None:
    with pytest.raises(ParseError, match="Line 1, column"):
        parse_expr(text, I, Var("j", index(8)))


def test_comments_are_lines_and_division_is_not() -> None:
    tokens = tokenize("// first\n  // second\na // b\n")
    assert [t.text for t in tokens] == ["a", "//", "b", ""]


@pytest.mark.parametrize(
    ("expr", "message"),
    [
        (Binary("add", const(1, F32), const(1, F64), F32), "Operands are of types f32 and f64"),
        (Binary("plus", const(1, F32), const(1, F32), F32), "no operation 'plus'"),
        (Binary("shl", const(1, F32), const(1, F32), F32), "not for floats"),
        (Binary("add", I, I, INDEX), "Operands are of types index"),
        (Compare("lt", I, const(1, I64)), "Operands are of types index and i64"),
        (Select(const(1, F32), I, I), "The condition is of type f32"),
        (Call("exp", (const(1, I64),), I64), "one float type"),
        (Call("fma", (const(1, F32),), F32), "has 1 arguments"),
        (Unary("isnan", const(1, I64), BOOL), "is for floats"),
        (Unary("neg", const(1, F32), F64), "does not fit the result"),
        (Read(BUFFERS[F32], (const(1, F32), I)), "a value where an index"),
    ],
)
def test_ill_typed_expressions_are_found(expr: Expr, message: str) -> None:
    fault = type_fault(Select(Const("true", BOOL), expr, expr))
    assert fault is not None and message in fault
