# SPDX-License-Identifier: Apache-2.0
"""Arrays in the memory order of a layout, and back.

The store keeps constants in logical shape; the artifact holds them as kernels address them. Both
directions are one pad, one reshape and one transposition.

>>> pack(np.arange(6).reshape(2, 3), Layout((1, 0), ((1, 2),))).tolist()
[0, 1, 3, 4, 2, 0, 5, 0]
"""

import math
from typing import Any

import numpy as np

from tilewright.ir.layout import Layout
from tilewright.ir.op import Array


def pack(array: Array, layout: Layout) -> Array:
    """The elements in memory order as a flat array; padding lanes are zero."""
    if layout.is_row_major:
        return np.ascontiguousarray(array).reshape(-1)
    split, order = _split(array.shape, layout)
    padded = [math.prod(parts) for parts in split]
    if tuple(padded) != array.shape:
        wider: Array = np.zeros(padded, dtype=array.dtype)
        wider[tuple(slice(0, extent) for extent in array.shape)] = array
        array = wider
    parts = array.reshape([part for axis in split for part in axis])
    return np.ascontiguousarray(parts.transpose(order)).reshape(-1)


def unpack(flat: Array, shape: tuple[int, ...], layout: Layout) -> Array:
    """The logical array of ``shape`` from its elements in memory order: the inverse of
    :func:`pack`.
    """
    if layout.is_row_major:
        return flat.reshape(shape)
    split, order = _split(shape, layout)
    sizes = [part for axis in split for part in axis]
    parts = flat.reshape([sizes[i] for i in order]).transpose(np.argsort(order))
    padded = parts.reshape([math.prod(axis) for axis in split])
    return np.ascontiguousarray(padded[tuple(slice(0, extent) for extent in shape)])


def _split(shape: tuple[int, ...], layout: Layout) -> tuple[list[list[int]], list[int]]:
    """Each axis as (outer, block, inner block...) extents, and the memory order of all these
    parts.
    """
    blocks: list[list[int]] = [[] for _ in shape]
    for axis, factor in layout.blocks:
        blocks[axis].append(factor)
    split = [
        [-(-extent // math.prod(factors)), *factors]
        for extent, factors in zip(shape, blocks, strict=True)
    ]
    first = [sum(len(parts) for parts in split[:axis]) for axis in range(len(shape))]
    order = [first[axis] for axis in layout.order]
    seen: dict[int, int] = {}
    for axis, _ in layout.blocks:
        seen[axis] = seen.get(axis, 0) + 1
        order.append(first[axis] + seen[axis])
    return split, order


def packed_bytes(shape: tuple[int, ...], dtype: "np.dtype[Any]", layout: Layout) -> int:
    """The size in memory of a constant in that layout."""
    split, _ = _split(shape, layout)
    return math.prod(part for axis in split for part in axis) * dtype.itemsize
