# SPDX-License-Identifier: Apache-2.0
"""Which sizes make sense only under a condition, and what that is."""

import pytest

from tilewright.ir.expr import Symbol
from tilewright.ir.expr_parser import parse_expr
from tilewright.passes.sizes import always_evaluated, makes_sense

N, M = Symbol("n", 0, 1 << 31), Symbol("m", 1, 64)


@pytest.mark.parametrize(
    ("size", "conditions"),
    [
        ("n // m", []),
        ("m // n", ["(n >= 1)"]),
        ("2*(m % max(0, n - 3)) + 1", ["(max(0, n - 3) >= 1)"]),
        ("cast((i64(7) / cast(n - 3, i64)), index)", ["(n - 3 != 0)"]),
        ("cast(mod(i32(7), cast(n, i32)), index)", ["(cast(cast(n, i32), index) != 0)"]),
        ("cast((cast(n, f32) * f32(0.7)), index)", []),
        ("cast((cast(m, f16) * f16(0.7)), index)", []),
        (
            "cast((f32(1.0) / cast(n, f32)), index)",
            ["(abs((f32(1.0) / cast(n, f32))) < f32(9.223372036854776e+18))"],
        ),
        ("cast(cast(sqrt(cast(n, f64)), i32), index)", []),
        (
            "cast(cast((cast(n, f64) * f64(8.0)), i32), index)",
            ["(abs((cast(n, f64) * f64(8.0))) < f64(2147483648.0))"],
        ),
        ("select((n == 0), 1, m // n)", []),
        ("select((m // n == 0), 1, m)", ["(n >= 1)"]),
    ],
)
def test_conditions_under_which_a_size_makes_sense(size: str, conditions: list[str]) -> None:
    e = parse_expr(size, N, M)
    assert [str(condition) for condition, _, _ in makes_sense(e)] == conditions


def test_what_a_condition_chooses_is_not_always_evaluated() -> None:
    e = parse_expr("select((n == 0), 7, m // n) + n", N, M)
    assert {str(x) for x in always_evaluated(e)} == {str(e), "select((n == 0), 7, m // n)"} | {
        "(n == 0)",
        "n",
        "0",
    }
