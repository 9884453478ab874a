# SPDX-License-Identifier: Apache-2.0
"""No operation becomes a call of a math or compiler library, on any target."""

import pytest
from elementwise_kernel import elementwise

from tilewright.codegen.llvm.compile import compile_ir
from tilewright.codegen.llvm.kernel import emit_kernel
from tilewright.codegen.llvm.symbols import undefined_symbols
from tilewright.ir.dtypes import BF16, BOOL, F16, F32, F64, I8, I64, U64, DType
from tilewright.ir.expr import MATH_FUNCTIONS, Binary, Call, Cast, Expr, Unary
from tilewright.ir.target import parse_target

ARITHMETIC = ("add", "sub", "mul", "div", "mod", "fmod", "min", "max")
ROUNDING = ("neg", "abs", "sign", "ceil", "floor", "round", "trunc")


def everything(dtype: DType, a: Expr, b: Expr) -> dict[str, Expr]:
    """All operations on a type, by name."""
    results: dict[str, Expr] = {f"binary_{op}": Binary(op, a, b, dtype) for op in ARITHMETIC}
    results |= {f"unary_{op}": Unary(op, a, dtype) for op in ROUNDING}
    if dtype.is_float:
        count = {"pow": 2, "fma": 3}
        for function in MATH_FUNCTIONS:
            args = (a, b, a)[: count.get(function, 1)]
            results[f"math_{function}"] = Call(function, args, dtype)
    return results | {f"to_{t}": Cast(a, t) for t in (F32, F64, F16, BF16, I64, I8, U64, BOOL)}


@pytest.mark.parametrize("target", ["aarch64", "x86-64-v4", "x86-64-v2", "x86-64"])
@pytest.mark.parametrize("dtype", [F32, F64, F16, I8, I64], ids=str)
def test_objects_need_no_symbols(target: str, dtype: DType) -> None:
    described = parse_target(target)
    kernel = elementwise(
        f"everything_{dtype}", (dtype, dtype), lambda a, b: everything(dtype, a, b)
    )
    assert undefined_symbols(compile_ir(emit_kernel(kernel, described), described)) == []
