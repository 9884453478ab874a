# SPDX-License-Identifier: Apache-2.0
"""Sizes that a model computes from the dims of its inputs: when they make sense."""

from collections.abc import Iterator

from tilewright.ir.bounds import bounds_of_dims, lower
from tilewright.ir.dtypes import I64, INDEX
from tilewright.ir.expr import (
    Binary,
    Cast,
    Expr,
    Guard,
    IndexOp,
    Select,
    Unary,
    children,
    const,
    index,
)
from tilewright.ir.op import Requirement
from tilewright.ir.simplify import compare
from tilewright.ir.value_bounds import interval
from tilewright.ir.value_expr import cast


def always_evaluated(e: Expr) -> Iterator[Expr]:
    """As :func:`walk`, without what a condition chooses."""
    seen: set[Expr] = set()
    stack = [e]
    while stack:
        node = stack.pop()
        if node not in seen:
            seen.add(node)
            yield node
            is_choice = isinstance(node, Select | Guard)
            stack.extend(children(node)[:1] if is_choice else reversed(children(node)))


def makes_sense(size: Expr) -> Iterator[Requirement]:
    """That nothing is divided by 0, and no float made an integer that is none, on the way to a
    size; what a condition chooses may be both where it is not chosen.
    """
    for e in always_evaluated(size):
        match e:
            case IndexOp("floordiv" | "mod", _, b) if lower(b) < 1:
                yield compare("ge", b, 1), "A size would be divided by {0}.", (b,)
            case Binary("div" | "mod" | "fmod", _, b, dtype) if dtype.is_integer:
                plain = isinstance(b, Cast) and b.x.dtype is INDEX and dtype is I64
                divisor = b.x if isinstance(b, Cast) and plain else cast(b, INDEX)
                yield compare("ne", divisor, 0), "A size would be divided by {0}.", (divisor,)
            case Cast(x, dtype) if x.dtype.is_float and dtype.is_integer:
                most = 1 << (min(dtype.bits, 64) - 1)
                ends = interval(x, bounds_of_dims)
                if ends is None or not -most <= ends[0] <= ends[1] < most:
                    condition = compare("lt", Unary("abs", x, x.dtype), const(most, x.dtype))
                    problem = "A size would follow from a number that is no integer of {0} bits."
                    yield condition, problem, (index(dtype.bits),)
