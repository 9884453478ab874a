# SPDX-License-Identifier: Apache-2.0
"""What rules ask of values: constants, their single value, single uses."""

from typing import Any

import numpy as np

from tilewright.ir.graph import Builder, ConstantStore, Node, Value, constant_array
from tilewright.ir.op import Array
from tilewright.ir.ops.broadcast_to import BroadcastTo


def splat(value: Value, constants: ConstantStore) -> Any | None:
    """The one value of all elements of a constant (seen through a broadcast), as a numpy scalar;
    else None.
    """
    if isinstance(value.op, BroadcastTo) and value.producer is not None:
        value = value.producer.operands[0]
    array = constant_array(value, constants)
    if array is None or array.size == 0:
        return None
    first = array.reshape(-1)[0]
    same = (
        array.size == 1 or bool(np.all(array == first)) or bool(_is_nan(first) and _all_nan(array))
    )
    if same and first == 0 and array.dtype.kind not in "iub" and array.size > 1:
        same = len(np.unique(np.signbit(array))) == 1
    return first if same else None


def _is_nan(x: Any) -> bool:
    return bool(x != x)


def _all_nan(array: Array) -> bool:
    return bool(np.all(array != array))


def is_number(x: Any | None, number: float) -> bool:
    """True if ``x`` is that number; the sign of a floating zero counts."""
    if x is None or not bool(x == number):
        return False
    return number != 0 or x.dtype.kind in "iub" or bool(np.signbit(x) == np.signbit(number))


def producer_of(value: Value, op: str) -> Node | None:
    """The node that makes ``value``, if it is of that op."""
    node = value.producer
    return node if node is not None and node.op.name == op else None


def only_use(value: Value) -> bool:
    """True if nothing but one operand uses the value."""
    return value.use_count == 1


def as_type(builder: Builder, value: Value, like: Value) -> Value:
    """``value`` broadcast to the shape of ``like`` if it has another."""
    if value.type.shape == like.type.shape:
        return value
    return builder(BroadcastTo(like.type.shape), value)
