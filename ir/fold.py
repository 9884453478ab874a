# SPDX-License-Identifier: Apache-2.0
"""The value of an expression that nothing is left open in: no variable, no symbol, no read.

It is computed by the scalar semantics of the reference interpreter
(:mod:`tilewright.ir.interpreter.values`), each operation in its own type. So a size that is known
when a model is compiled is the one that the host program would compute.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright.ir.dtypes import INDEX
from tilewright.ir.expr import (
    Binary,
    Call,
    Cast,
    Compare,
    Const,
    Expr,
    Guard,
    IndexOp,
    Poly,
    Read,
    Select,
    Unary,
    children,
    const,
    free_variables,
)
from tilewright.ir.interning import memoised
from tilewright.ir.interpreter import values

_INDEX_OPS: dict[str, Callable[[int, int], int]] = {
    # As in compiled code, a divisor that is not positive counts as 1.
    "floordiv": lambda a, b: a // max(b, 1),
    "mod": lambda a, b: a % max(b, 1),
    "min": min,
    "max": max,
    "bcast": lambda a, b: b if a == 1 else a,
}


@memoised
def is_closed(e: Expr) -> bool:
    """True if the value of an expression depends on nothing."""
    return not free_variables(e) and not _reads(e)


@memoised
def _reads(e: Expr) -> bool:
    return isinstance(e, Read) or any(map(_reads, children(e)))


def folded(e: Expr) -> Expr:
    """The constant that a closed expression is; any other expression as it is."""
    if isinstance(e, Const) or not is_closed(e):
        return e
    with np.errstate(all="ignore"):
        value = closed_value(e)
    return const(float(value) if e.dtype.is_float else value, e.dtype)


@memoised
def closed_value(e: Expr) -> Any:
    """The value of a closed expression: an int for an index, else a numpy scalar or a bool."""
    match e:
        case Const(literal, dtype):
            return values.constant(literal, dtype)
        case Poly(terms):
            return sum(c * math.prod(closed_value(a) for a in m) for m, c in terms)
        case IndexOp(op, a, b):
            return _INDEX_OPS[op](closed_value(a), closed_value(b))
        case Unary(op, x, _):
            return values.unary(op, closed_value(x), x.dtype)
        case Binary(op, x, y, dtype):
            return values.binary(op, closed_value(x), closed_value(y), dtype)
        case Compare(op, x, y):
            return values.COMPARISONS[op](closed_value(x), closed_value(y))
        case Select(c, x, y) | Guard(c, x, y):
            return closed_value(x if closed_value(c) else y)
        case Cast(x, dtype):
            return _converted(closed_value(x), x, dtype)
        case Call(function, args, dtype):
            return values.call(function, tuple(map(closed_value, args)), dtype)[()]
    raise TypeError(f"'{e}' has no value of its own.")


def _converted(value: Any, x: Expr, dtype: Any) -> Any:
    if x.dtype is INDEX:
        value = (value + (1 << 63)) % (1 << 64) - (1 << 63)
    result = values.cast(value, x.dtype, dtype)
    return int(result) if dtype is INDEX else np.asarray(result)[()]
