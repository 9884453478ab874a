# SPDX-License-Identifier: Apache-2.0
"""Exact quotients of dims, and the dims of reshapes."""

import pytest

from tilewright.frontends.dims import exact_quotient, reshaped_dims
from tilewright.ir.expr import Symbol, index

B, S, P = (Symbol(n, 1) for n in ("b", "s", "p"))


def test_exact_quotients() -> None:
    cases = [
        (B * S * 768, B * S * 12, "64"),
        (B * (P + 1) * 768, B * (P + 1) * 12, "64"),
        ((B + S) * (B + S), B + S, "b + s"),
        (B * B - S * S, B + S, "b - s"),
        (index(0), B, "0"),
    ]
    for a, b, quotient in cases:
        assert str(exact_quotient(a, b)) == quotient
    for a, b in ((B + 1, B), (B * 3, index(2)), (B, index(0))):
        assert exact_quotient(a, b) is None


def test_reshape_dims() -> None:
    shape = (B, S, index(768))
    assert reshaped_dims(shape, [0, 0, 12, -1], False) == [B, S, index(12), index(64)]
    assert reshaped_dims(shape, [B * S, -1], False)[1] is index(768)
    for wanted in ([-1, -1], [0, 0, 0, 0], [-2], [0, -1]):
        with pytest.raises(ValueError, match=r"shape|rank"):
            reshaped_dims((index(2), index(3), index(4)), wanted, wanted == [0, -1])
