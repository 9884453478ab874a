# SPDX-License-Identifier: Apache-2.0
"""Tables that are also weights: one copy of the bytes for a gather of rows and a packed product.

A language model looks its tokens up in the table that is, transposed, the weight of its last layer.
The product is as fast as its packed weight; a gather reads a few rows, from whatever layout, since
ops see logical indices. So the gather takes the table in the layout under which its bytes are those
of the packed weight, and the artifact holds them once. It does so where the rows cost less that way
than a second copy: a cache line for each element that is read, against all bytes of the table.

Two products that want one constant in two layouts keep two copies: either would lose at each run.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.ir.graph import Constant, Module, Value
from tilewright.ir.layout import Layout
from tilewright.ir.op import Array
from tilewright.ir.rewrite import hinted

_LINE_BYTES = 64
_LEAST_BYTES = 1 << 16  # smaller tables are not worth the comparison
_READERS = frozenset(("gather", "gather_elements", "gather_nd"))


@dataclass(frozen=True)
class Packed:
    """A constant weight in row-major order, and the layout in which a product reads it."""

    weight: Value
    layout: Layout


def shared_tables(module: Module, packed: Sequence[Packed]) -> list[Packed]:
    """The row-major constants that are only looked up in and whose bytes are those of a packed
    weight, each with the layout under which they are.
    """
    found: list[Packed] = []
    for node in module.graph.nodes:
        if isinstance(node.op, Constant) and _is_table(node.result):
            layouts = (_common_layout(module, node.result, p) for p in packed)
            layout = next(filter(None, layouts), None)
            if layout is not None:
                found.append(Packed(node.result, layout))
    return found


def _is_table(value: Value) -> bool:
    """True for a constant that gathers alone read, and few elements of it."""
    type_ = value.type
    if not type_.layout.is_row_major or value.returned or not value.uses:
        return False
    if any(user.op.name not in _READERS or position for user, position in value.uses):
        return False
    size = math.prod(type_.static_shape) * type_.dtype.bytes
    read = sum(max(1, hinted(r.type.size)) for user, _ in value.uses for r in user.results)
    return size >= _LEAST_BYTES and read * (_LINE_BYTES - type_.dtype.bytes) <= size


def _common_layout(module: Module, table: Value, packed: Packed) -> Layout | None:
    """The layout of a table under which its bytes are those of a packed weight; None if its
    elements are others.
    """
    weight = packed.weight
    if weight is table or weight.type.dtype is not table.type.dtype:
        return packed.layout if weight is table else None
    assert isinstance(table.op, Constant) and isinstance(weight.op, Constant)
    if table.op.data == weight.op.data:
        return packed.layout
    shape = weight.type.static_shape
    if len(shape) != 2 or table.type.static_shape != shape[::-1]:
        return None
    if not _are_transposed(module.constants[table.op.data], module.constants[weight.op.data]):
        return None
    order = tuple(1 - axis for axis in packed.layout.order)
    return Layout(order, tuple((1 - axis, block) for axis, block in packed.layout.blocks))


def _are_transposed(a: Array, b: Array) -> bool:
    """True if matrices hold the same bits, one transposed; a row and a column tell most apart."""
    bits = np.dtype(f"u{a.dtype.itemsize}")
    a, b = a.view(bits), b.view(bits).T
    return np.array_equal(a[0], b[0]) and np.array_equal(a[:, 0], b[:, 0]) and np.array_equal(a, b)
