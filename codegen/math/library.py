# SPDX-License-Identifier: Apache-2.0
"""The entry of the math library: a call of an elementary function on float32 or double lanes."""

from collections.abc import Sequence

from tilewright.codegen.llvm.builder import Builder, Value
from tilewright.ir.errors import CodegenError


def math_call(b: Builder, function: str, args: Sequence[Value]) -> Value:
    """The value of one of ``MATH_FUNCTIONS``; all arguments have one type."""
    match function:
        case "sqrt":
            return b.intrinsic("sqrt", args[0])
        case "rsqrt":
            return b.div(b.like(1.0, args[0]), b.intrinsic("sqrt", args[0]))
        case "fma":
            return b.fma(*args)
    raise CodegenError(f"Function '{function}' has no code for '{args[0].element}'.")
