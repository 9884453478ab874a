# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest

from tilewright.ir.expr import index
from tilewright.ir.layout import Layout, channels_last, row_major
from tilewright.ir.layout_data import pack, packed_bytes, unpack

CASES = [
    ((3, 5), row_major(2)),
    ((3, 5), Layout((1, 0))),
    ((2, 3, 4, 5), channels_last(4)),
    ((5, 3, 2, 2), Layout((0, 2, 3, 1), ((0, 4),))),
    ((7, 6), Layout((1, 0), ((1, 4),))),
    ((9, 10), Layout((1, 0), ((0, 2), (1, 4), (0, 3)))),
    ((), row_major(0)),
    ((0, 3), Layout((1, 0), ((0, 2),))),
]


@pytest.mark.parametrize(("shape", "layout"), CASES)
def test_pack_puts_every_element_where_the_layout_says(
    shape: tuple[int, ...], layout: Layout
) -> None:
    array = np.arange(1, 1 + int(np.prod(shape)), dtype=np.int32).reshape(shape)
    dims = tuple(index(d) for d in shape)
    flat = pack(array, layout)
    expected = np.zeros(int(str(layout.size(dims))), dtype=np.int32)
    for point in np.ndindex(*shape):
        expected[int(str(layout.offset(dims, tuple(map(index, point)))))] = array[point]
    assert flat.tolist() == expected.tolist()
    assert flat.nbytes == packed_bytes(shape, flat.dtype, layout)


@pytest.mark.parametrize(("shape", "layout"), CASES)
def test_unpack_is_the_inverse(shape: tuple[int, ...], layout: Layout) -> None:
    array = np.arange(int(np.prod(shape)), dtype=np.int16).reshape(shape)
    assert np.array_equal(unpack(pack(array, layout), shape, layout), array)
