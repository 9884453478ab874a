# SPDX-License-Identifier: Apache-2.0
"""Intervals of values over dims, and the constants that closed expressions are."""

import numpy as np
import pytest

from tilewright.ir.bounds import bounds
from tilewright.ir.dtypes import BOOL, INDEX
from tilewright.ir.expr import UNBOUNDED, Const, Symbol, Var, index
from tilewright.ir.expr_parser import parse_expr
from tilewright.ir.fold import closed_value, folded
from tilewright.ir.rewrite import evaluate, substitute

N, M = Symbol("n", 0, UNBOUNDED), Symbol("m", 1, 100)
LEAST, MOST = -(1 << 63), (1 << 63) - 1
CASES = [
    ("cast(floor((cast(m, f32) * f32(0.7))), index)", 0, 70),
    ("cast((cast(m, f32) / f32(-3.0)), index)", -33, 0),
    ("cast((f32(10.0) / cast(m - 50, f32)), index)", LEAST, MOST),
    ("cast(sqrt(cast(m, f64)), index)", 1, 10),
    ("cast(sqrt(cast(m - 5, f64)), index)", LEAST, MOST),
    ("cast(log(cast(m, f32)), index)", 0, 4),
    ("cast(pow(cast(m, f32), f32(0.5)), index)", 0, 10),
    ("cast((sin(cast(n, f32)) * f32(9.0)), index)", -9, 9),
    ("cast(cast(n, f32), index)", 0, 1 << 31),
    ("cast(cast(n, f16), index)", 0, MOST),
    ("cast((cast(n, f16) - cast(n, f16)), index)", LEAST, MOST),
    ("cast((cast(n, f16) * cast(n, f16)), index)", LEAST, MOST),
    ("cast(cast(m, u8), index)", 1, 100),
    ("cast(cast(3*m, u8), index)", 0, 255),
    ("cast((cast(m - 10, i64) / cast(n, i64)), index)", -90, 90),
    ("cast(mod(cast(n, i64), cast(m, i64)), index)", 0, 100),
    ("cast(fmod(cast(m - 10, i64), i64(7)), index)", -7, 7),
    ("cast(abs(cast(m - 50, f32)), index)", 0, 50),
    ("cast(sign(cast(m, f32)), index)", 1, 1),
    ("select((n < m), m, 7)", 1, 100),
    ("2*select((n < m), m, 7) - 1", 1, 199),
]


@pytest.mark.parametrize(("text", "least", "greatest"), CASES)
def test_bounds_of_values_as_indices(text: str, least: int, greatest: int) -> None:
    e = parse_expr(text, N, M)
    assert bounds(e) == (least, greatest)
    for n in (0, 1, 7, 2048, 65_536, 1 << 24, (1 << 31) - 1):
        for m in (1, 2, 5, 10, 49, 51, 100):
            assert least <= evaluate(e, {"n": n, "m": m}) <= greatest


def test_nothing_is_known_of_what_a_loop_counts_in_another_type() -> None:
    """Kernels may fuse a product and a sum, and then round otherwise than the ends tell."""
    i = Var("i", index(8))
    assert bounds(parse_expr("cast(floor((cast(i, f32) * f32(0.7))), index)", i)) == (
        -np.inf,
        np.inf,
    )


def test_closed_expressions_become_constants() -> None:
    for text, value in (
        ("cast((cast(m, f16) * f16(1.1)), index)", 11),
        ("cast(cast(300*m, u8), index)", 184),
        ("cast(cast((0 - m), u16), index)", 65526),
        ("cast(sqrt(cast(m - 11, f32)), index)", 0),
        ("cast((f32(1.0) / cast(m - 10, f32)), index)", MOST),
        ("m // (m - 10)", 10),
        ("m % (m - 10)", 0),
        ("select((f32(0.5) < cast(m, f32)), m, 7)", 10),
        ("cast((cast(m, i64) / i64(-3)), index)", -3),
        ("bcast(m - 9, 4*m)", 40),
    ):
        e = substitute(parse_expr(text, M), {M: index(10)})
        assert isinstance(e, Const) and e.dtype is INDEX
        assert int(e.literal) == value
    condition = substitute(parse_expr("isnan(sqrt(cast(m - 11, f32)))", M), {M: index(10)})
    assert isinstance(condition, Const) and condition.dtype is BOOL and condition.value is True


def test_what_is_open_stays() -> None:
    e = parse_expr("cast((cast(m, f32) * f32(0.5)), index)", M)
    assert folded(e) is e
    with pytest.raises(TypeError, match="has no value of its own"):
        closed_value(e)
