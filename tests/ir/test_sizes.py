# SPDX-License-Identifier: Apache-2.0
"""What is known to fit 64 bits, held to plain integers at the edges of symbols."""

import itertools
from collections.abc import Sequence

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tilewright.ir.expr import Expr, Symbol, add, index, mul, sub
from tilewright.ir.expr_parser import parse_expr
from tilewright.ir.rewrite import evaluate
from tilewright.ir.simplify import bcast, ceildiv, floordiv, maximum, minimum, mod
from tilewright.ir.sizes import (
    GREATEST,
    LEAST,
    Fitted,
    bounds_each_term,
    can_fit,
    is_proven,
    steps,
    sums,
    value_range,
)

U, V, W = Symbol("u"), Symbol("v"), Symbol("w", 1, 3000)
EDGES = (0, 1, 3000, 1 << 21, 1 << 31)
CALLS = [
    dict(zip("uvw", values, strict=True)) for values in itertools.product(EDGES, EDGES, (1, 3000))
]
NUMBERS = st.sampled_from((1, 2, 3, 4, 63, 64, 1 << 31, 1 << 32, (1 << 62) - 1))
ATOMS = st.one_of(st.sampled_from((U, V, W)), NUMBERS.map(index))


def _grown(inner: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    pairs = st.tuples(inner, inner)
    divided = st.tuples(inner, NUMBERS)
    return st.one_of(
        *(pairs.map(lambda p, f=f: f(*p)) for f in (add, mul, sub, minimum, maximum, bcast)),
        *(divided.map(lambda p, f=f: f(*p)) for f in (floordiv, ceildiv, mod)),
    )


SIZES = st.recursive(ATOMS, _grown, max_leaves=7)


def fits(sizes: Sequence[Expr], call: dict[str, int]) -> bool:
    """By the definition: no result on the way leaves 64 bits."""
    return all(
        LEAST <= evaluate(step, call) <= GREATEST
        for e in sizes
        for s in sums(e)
        for step in steps(s)
    )


@settings(max_examples=40, deadline=None)
@given(SIZES)
@example(mul(mul(U, V), 2))
@example(add(mul(mul(U, V), 2), -1))
@example(mul(mul(U, W), 1 << 20))
def test_what_is_proven_fits_and_lies_in_its_range(e: Expr) -> None:
    proven = Fitted().missing([e]) == []
    for call in CALLS:
        least, greatest = value_range(e)
        assert least <= evaluate(e, call) <= greatest
        assert fits([e], call) or not proven


@settings(max_examples=40, deadline=None)
@given(SIZES, SIZES)
@example(mul(mul(U, V), 64), mul(mul(U, V), 4))
@example(add(mul(mul(U, V), 64), mul(U, 64)), add(mul(U, 64), 0))
@example(mul(mul(U, V), 64), add(mul(mul(U, V), 4), 1))
@example(mul(sub(U, V), mul(mul(U, V), W)), mul(mul(mul(U, V), W), U))
def test_what_a_size_that_fits_shows_of_another(first: Expr, second: Expr) -> None:
    fitted = Fitted()
    fitted.add([first])
    known = fitted.missing([second]) == []
    for call in CALLS:
        if known and fits([first], call):
            assert fits([second], call)


def test_a_term_by_term_bound() -> None:
    def bounds(greater: str, e: str) -> bool:
        return bounds_each_term(*(parse_expr(text, U, V, W) for text in (greater, e)))

    assert bounds("64*u*v + 64*u", "4*u*v")
    assert bounds("64*u*v + 64*u", "64*u")
    assert not bounds("64*u*v + 64*u", "65*u")
    assert not bounds("64*u*v + 64*u", "64*v")
    assert not bounds("64*u*v - 64*u", "4*u*v")
    assert not bounds("64*u*v", "4*u*v - 1")


def test_steps_go_factor_by_factor_then_term_by_term() -> None:
    e = parse_expr("4*u*v*w + 8*u + 3", U, V, W)
    assert [str(s) for s in steps(e)] == [
        "u", "u*v", "u*v*w", "4*u*v*w", "4*u*v*w", "u", "8*u", "4*u*v*w + 8*u", "3",
        "4*u*v*w + 8*u + 3",
    ]  # fmt: skip
    assert list(steps(index(0))) == []


@pytest.mark.parametrize(
    ("text", "proven"),
    [
        ("4294967295*u", True),
        ("4294967296*u", False),
        ("u*v", True),
        ("2*u*v", False),
        ("2*u*v - 1", False),  # its first step does not fit, though it does
        ("min(2*u*v, 5)", False),
        ("u*w*1431655", True),
    ],
)
def test_the_edge_of_proof(text: str, proven: bool) -> None:
    assert (Fitted().missing([parse_expr(text, U, V, W)]) == []) is proven


def test_numbers_that_no_register_holds() -> None:
    assert is_proven(index(GREATEST)) and not is_proven(index(GREATEST + 1))
    assert can_fit(mul(U, GREATEST)) and not can_fit(mul(U, GREATEST + 1))
    assert Fitted().missing([index(1 << 63)]) == [index(1 << 63)]
