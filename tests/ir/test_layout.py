# SPDX-License-Identifier: Apache-2.0
"""Layouts: every element has a place of its own, within the size, where ``pack`` puts it."""

import itertools
import math

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tilewright.ir.bounds import bounds, lower, upper
from tilewright.ir.expr import Symbol, Var, index
from tilewright.ir.expr_parser import ExprParser
from tilewright.ir.layout import Layout, channels_last, row_major, shape_of
from tilewright.ir.layout_data import pack, unpack
from tilewright.ir.rewrite import evaluate


@st.composite
def layouts(draw: st.DrawFn) -> tuple[tuple[int, ...], Layout]:
    """A small shape and a layout of its rank, with up to three blocks."""
    shape = tuple(draw(st.lists(st.integers(1, 6), min_size=1, max_size=3)))
    order = tuple(draw(st.permutations(range(len(shape)))))
    block = st.tuples(st.integers(0, len(shape) - 1), st.integers(2, 4))
    return shape, Layout(order, tuple(draw(st.lists(block, max_size=3))))


@given(layouts())
@settings(max_examples=60, deadline=None)
def test_offsets_are_distinct_and_agree_with_pack(case: tuple[tuple[int, ...], Layout]) -> None:
    shape, layout = case
    dims = shape_of(shape)
    size = int(str(layout.size(dims)))
    assert size == math.prod(int(str(d)) for d in layout.physical_shape(dims))
    array = np.arange(1, math.prod(shape) + 1).reshape(shape)
    packed = pack(array, layout)
    assert packed.size == size
    seen = set()
    for point in itertools.product(*map(range, shape)):
        offset = int(str(layout.offset(dims, shape_of(point))))
        assert 0 <= offset < size
        assert packed[offset] == array[point]
        seen.add(offset)
    assert len(seen) == array.size
    padding = np.delete(packed, sorted(seen))
    assert not padding.any()
    assert np.array_equal(unpack(packed, shape, layout), array)


@given(layouts())
@example(((1, 1), Layout((1, 0), ((1, 2), (0, 2), (1, 2)))))
@settings(max_examples=40, deadline=None)
def test_symbolic_offset_evaluates_to_the_static_one(
    case: tuple[tuple[int, ...], Layout],
) -> None:
    shape, layout = case
    symbols = tuple(Symbol(f"d{a}", 1, 6) for a in range(len(shape)))
    axes = tuple(Var(f"i{a}", d) for a, d in enumerate(symbols))
    offset = layout.offset(symbols, axes)
    values = {s.name: extent for s, extent in zip(symbols, shape, strict=True)}
    for point in itertools.islice(itertools.product(*map(range, shape)), 40):
        known = values | {v.name: i for v, i in zip(axes, point, strict=True)}
        assert evaluate(offset, known) == int(str(layout.offset(shape_of(shape), shape_of(point))))
    assert lower(offset) >= 0


@given(layouts())
@settings(max_examples=40, deadline=None)
def test_bounds_of_the_offset_stay_within_the_size(case: tuple[tuple[int, ...], Layout]) -> None:
    shape, layout = case
    axes = tuple(Var(f"i{a}", index(n)) for a, n in enumerate(shape))
    for place, extent in zip(
        layout.physical_indices(axes), layout.physical_shape(shape_of(shape)), strict=True
    ):
        assert lower(place) >= 0
        assert upper(place) < bounds(extent)[0]


@given(layouts())
@settings(max_examples=40, deadline=None)
def test_text_parses_back(case: tuple[tuple[int, ...], Layout]) -> None:
    shape, layout = case
    assert ExprParser(str(layout)).layout(len(shape)) is layout


def test_named_layouts() -> None:
    assert str(channels_last(4)) == "{0,2,3,1}"
    assert channels_last(2) is row_major(2)
    assert row_major(3).is_row_major
    n = Symbol("n", 1, 100)
    blocked = Layout((0, 1), ((1, 16),))
    assert [str(d) for d in blocked.physical_shape((n, n))] == ["n", "(n + 15) // 16", "16"]
    assert [str(d) for d in blocked.strides((n, index(32)))] == ["32", "16", "1"]
