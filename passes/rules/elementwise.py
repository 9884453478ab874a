# SPDX-License-Identifier: Apache-2.0
"""Simplification of elementwise ops. All rules are exact: the same bits, signed zeros and NaNs
included.

``x + 0.0`` is not ``x`` (for -0.0), but ``x + -0.0`` and ``x - 0.0`` are; a division by a power of
two is a multiplication by its reciprocal; a cast chain is one cast where the middle type holds
every value of the first.
"""

import numpy as np

from tilewright.ir.dtypes import DType
from tilewright.ir.graph import Builder, Constant, Node, Value, constant_array
from tilewright.ir.op import Array
from tilewright.ir.ops.binary import Add, Mul, Sub
from tilewright.ir.ops.cast import Cast
from tilewright.ir.ops.elementwise import Elementwise
from tilewright.passes.rewriter import Rule
from tilewright.passes.rules.matching import (
    as_type,
    is_number,
    only_use,
    producer_of,
    splat,
)

_COMMUTATIVE = frozenset(
    (
        "add",
        "and",
        "bitwise_and",
        "bitwise_or",
        "bitwise_xor",
        "equal",
        "maximum",
        "minimum",
        "mul",
        "not_equal",
        "or",
        "xor",
    )
)
# Op -> the right operand that leaves the left one unchanged.
_NEUTRAL: dict[str, tuple[float, ...]] = {
    "add": (-0.0,),
    "bitwise_or": (0,),
    "bitwise_xor": (0,),
    "div": (1,),
    "mul": (1,),
    "pow": (1,),
    "shift_left": (0,),
    "shift_right": (0,),
    "sub": (0.0,),
}
_INVOLUTIONS = frozenset(("bitwise_not", "neg", "not"))
_IDEMPOTENT = frozenset(("abs", "ceil", "floor", "round", "sign", "trunc"))


def constant_to_the_right(node: Node, builder: Builder) -> Value | None:
    """``c + x`` becomes ``x + c``, so that other rules look in one place."""
    if node.op.name not in _COMMUTATIVE:
        return None
    x, y = node.operands
    if isinstance(x.op, Constant) and not isinstance(y.op, Constant):
        return builder(node.op, y, x)
    return None


def drop_neutral(node: Node, builder: Builder) -> Value | None:
    """``x * 1`` becomes ``x``."""
    neutral = _NEUTRAL.get(node.op.name)
    if neutral is None:
        return None
    x, y = node.operands
    value = splat(y, builder.constants)
    if value is None or not any(is_number(value, n) for n in neutral):
        return None
    return as_type(builder, x, node.result)


def square(node: Node, builder: Builder) -> Value | None:
    """``pow(x, 2)`` becomes ``x * x``: both are the rounded square."""
    if node.op.name != "pow" or not is_number(splat(node.operands[1], builder.constants), 2):
        return None
    x = node.operands[0]
    return as_type(builder, builder(Mul(), x, x), node.result)


def division_by_power_of_two(node: Node, builder: Builder) -> Value | None:
    """``x / 8`` becomes ``x * 0.125`` where the reciprocals are exact and normal."""
    if node.op.name != "div" or not node.result.type.dtype.is_float:
        return None
    divisor = constant_array(node.operands[1], builder.constants)
    reciprocal = None if divisor is None else _exact_reciprocal(divisor)
    if reciprocal is None:
        return None
    return builder(Mul(), node.operands[0], builder.constant(reciprocal))


def _exact_reciprocal(divisor: Array) -> Array | None:
    wide = divisor.astype(np.float64)
    if not np.all(np.isfinite(wide)) or not np.all(np.abs(np.frexp(wide)[0]) == 0.5):
        return None
    exponents = np.frexp(wide)[1]
    limit = {2: 14, 4: 126, 8: 1022}.get(divisor.dtype.itemsize, 0)
    if divisor.dtype.name == "bfloat16":
        limit = 126
    if np.any(np.abs(exponents - 1) > limit):
        return None
    return (1.0 / wide).astype(divisor.dtype)


def undo(node: Node, builder: Builder) -> Value | None:
    """``neg(neg(x))`` becomes ``x``, ``abs(abs(x))`` becomes ``abs(x)``."""
    name = node.op.name
    inner = producer_of(node.operands[0], name) if node.operands else None
    if inner is None:
        return None
    if name in _INVOLUTIONS:
        return inner.operands[0]
    return inner.result if name in _IDEMPOTENT else None


def repeated_bound(node: Node, builder: Builder) -> Value | None:
    """``maximum(maximum(x, c), c)`` becomes ``maximum(x, c)``."""
    if node.op.name not in ("maximum", "minimum"):
        return None
    x, y = node.operands
    inner = producer_of(x, node.op.name)
    same = inner is not None and inner.operands[1] is y
    return x if same and x.type.shape == node.result.type.shape else None


def cast_chain(node: Node, builder: Builder) -> Value | None:
    """A cast to the same type goes; ``cast(cast(x, a), b)`` becomes ``cast(x, b)`` where ``a``
    loses nothing.
    """
    if not isinstance(node.op, Cast):
        return None
    x = node.operands[0]
    if x.type.dtype is node.op.dtype:
        return x
    inner = producer_of(x, "cast")
    if inner is None or not _holds(x.type.dtype, inner.operands[0].type.dtype):
        return None
    return builder(node.op, inner.operands[0])


def _holds(wide: DType, narrow: DType) -> bool:
    """True if a cast through ``wide`` is the same as none, whatever follows."""
    if narrow.is_bool:
        return wide.is_float or wide.is_integer
    if narrow.kind == wide.kind == "float":
        # 16-bit floats differ in range and precision; the wider ones hold all of these.
        return wide.bits >= 32 and wide.bits >= narrow.bits
    return wide.kind == narrow.kind and wide.is_integer and wide.bits >= narrow.bits


def constant_condition(node: Node, builder: Builder) -> Value | None:
    """``where(true, x, y)`` becomes ``x``."""
    if node.op.name != "where":
        return None
    condition, x, y = node.operands
    if x is y:
        return as_type(builder, x, node.result)
    value = splat(condition, builder.constants)
    if value is None:
        return None
    return as_type(builder, x if value else y, node.result)


def drop_broadcast_operand(node: Node, builder: Builder) -> Value | None:
    """An elementwise op broadcasts by itself, where its result keeps its shape."""
    if not isinstance(node.op, Elementwise):
        return None
    for position, operand in enumerate(node.operands):
        source = producer_of(operand, "broadcast_to")
        if source is None:
            continue
        operands = list(node.operands)
        operands[position] = source.operands[0]
        types = node.op.infer([v.type for v in operands])
        if types[0].shape == node.result.type.shape:
            return builder(node.op, *operands)
    return None


def sink_broadcast(node: Node, builder: Builder) -> Value | None:
    """``exp(broadcast_to(x))`` becomes ``broadcast_to(exp(x))``: fewer elements to compute."""
    if not isinstance(node.op, Elementwise) or len(node.operands) != 1:
        return None
    source = producer_of(node.operands[0], "broadcast_to")
    if source is None or not only_use(node.operands[0]):
        return None
    return builder(source.op, builder(node.op, source.operands[0]))


def add_of_negation(node: Node, builder: Builder) -> Value | None:
    """``x + neg(y)`` becomes ``x - y``, ``x - neg(y)`` becomes ``x + y``."""
    if not isinstance(node.op, Add | Sub):
        return None
    x, y = node.operands
    inner = producer_of(y, "neg")
    if inner is None:
        return None
    return builder(Sub() if isinstance(node.op, Add) else Add(), x, inner.operands[0])


RULES: tuple[Rule, ...] = (
    constant_to_the_right,
    drop_neutral,
    square,
    division_by_power_of_two,
    undo,
    repeated_bound,
    cast_chain,
    constant_condition,
    drop_broadcast_operand,
    sink_broadcast,
    add_of_negation,
)
