# SPDX-License-Identifier: Apache-2.0
"""Simplifying constructors of value expressions: conjunctions, selections, guards and casts.

They look at their operands only; comparisons, which know ranges, are in
:mod:`tilewright.ir.simplify`.
"""

from tilewright.ir.dtypes import BOOL, DType
from tilewright.ir.expr import (
    FALSE,
    TRUE,
    Binary,
    Cast,
    Const,
    Expr,
    Guard,
    Select,
    const,
)


def logical_and(*conditions: Expr) -> Expr:
    """The conjunction of conditions; true ones drop out."""
    result: Expr = TRUE
    for condition in conditions:
        if condition is FALSE:
            return FALSE
        if condition is TRUE or condition is result:
            continue
        result = condition if result is TRUE else Binary("and", result, condition, BOOL)
    return result


def select(condition: Expr, x: Expr, y: Expr) -> Expr:
    """``x`` where ``condition`` holds, else ``y``."""
    if condition is TRUE or x is y:
        return x
    return y if condition is FALSE else Select(condition, x, y)


def guard(condition: Expr, x: Expr, other: Expr) -> Expr:
    """``x`` where ``condition`` holds, else ``other``, with ``x`` not evaluated there."""
    if condition is TRUE:
        return x
    return other if condition is FALSE else Guard(condition, x, other)


def cast(x: Expr, dtype: DType) -> Expr:
    """A conversion; none if the type is right already, and done at once for a number of dims."""
    if x.dtype is dtype:
        return x
    if isinstance(x, Const) and x.dtype.is_integer:
        number = int(x.literal)
        if dtype.is_float or (dtype.is_integer and dtype.min <= number <= dtype.max):
            return const(number, dtype)
    return Cast(x, dtype)
