# SPDX-License-Identifier: Apache-2.0
"""Index arithmetic held to plain integers: random expressions, random values of their variables."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tilewright.ir.bounds import (
    INFINITY,
    bounds,
    eliminate,
    is_nonnegative,
    known_equal,
    known_le,
    known_lt,
    lower,
    multiple_of,
    upper,
)
from tilewright.ir.dtypes import BOOL, F32, INDEX
from tilewright.ir.expr import (
    FALSE,
    ONE,
    TRUE,
    UNBOUNDED,
    ZERO,
    Binary,
    Compare,
    Const,
    Expr,
    IndexOp,
    Poly,
    Symbol,
    Var,
    add,
    const,
    free_variables,
    index,
    mul,
    sub,
)
from tilewright.ir.expr_parser import parse_expr
from tilewright.ir.rewrite import evaluate, hinted, substitute
from tilewright.ir.simplify import bcast, ceildiv, compare, floordiv, maximum, minimum, mod
from tilewright.ir.value_expr import guard, logical_and, select

P, Q = Symbol("p", 1, 6), Symbol("q", 1, 6)
N = Symbol("n", 1, 9)
M = Symbol("m", 4, 24, 4)
S = Symbol("s", 0, 7)
SYMBOLS = (N, M, S, P, Q)
VARS = (
    Var("i", index(4)),
    Var("j", index(16)),
    Var("k", N),
    Var("l", add(M, 1)),
    Var("u", index(1)),
)
NAIVE: dict[str, Callable[[int, int], int]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "floordiv": lambda a, b: a // b,
    "mod": lambda a, b: a % b,
    "min": min,
    "max": max,
    "bcast": lambda a, b: b if a == 1 else a,
}
BUILD: dict[str, Callable[[Expr, Expr], Expr]] = {
    "add": add,
    "sub": sub,
    "mul": mul,
    "floordiv": floordiv,
    "mod": mod,
    "min": minimum,
    "max": maximum,
}
Values = Mapping[str, int]


@dataclass(frozen=True)
class Case:
    """An expression as the constructors made it, and what it means."""

    expr: Expr
    meaning: Callable[[Values], int]
    spelling: str

    def __repr__(self) -> str:
        return f"{self.spelling} = {self.expr}"


def _leaf(e: Expr) -> Case:
    return Case(e, lambda values: values[str(e)], str(e))


def _constant(value: int) -> Case:
    return Case(index(value), lambda _: value, str(value))


def _broadcast(a: Expr, b: Expr) -> Case:
    meaning = NAIVE["bcast"]
    return Case(
        bcast(a, b), lambda values: meaning(plain(a, values), plain(b, values)), f"bcast({a}, {b})"
    )


LEAVES = st.one_of(
    st.sampled_from([_leaf(e) for e in (*SYMBOLS, *VARS)]),
    st.sampled_from([_broadcast(a, b) for a, b in ((P, Q), (Q, P), (P * 1, Q * 1), (Q, ONE))]),
    st.integers(-20, 20).map(_constant),
)
DIVISORS = st.one_of(st.integers(1, 17).map(_constant), st.sampled_from([_leaf(N), _leaf(M)]))


def _combine(cases: st.SearchStrategy[Case]) -> st.SearchStrategy[Case]:
    def join(op: str, a: Case, b: Case) -> Case:
        return Case(
            BUILD[op](a.expr, b.expr),
            lambda values: NAIVE[op](a.meaning(values), b.meaning(values)),
            f"{op}({a.spelling}, {b.spelling})",
        )

    return st.one_of(
        st.builds(join, st.sampled_from(["add", "sub", "mul", "min", "max"]), cases, cases),
        st.builds(join, st.sampled_from(["add", "sub"]), cases, cases),
        st.builds(join, st.sampled_from(["floordiv", "mod"]), cases, DIVISORS),
    )


CASES = st.recursive(LEAVES, _combine, max_leaves=7)


@st.composite
def assignments(draw: st.DrawFn) -> dict[str, int]:
    """Values of all symbols and variables that respect their ranges."""
    values = {
        s.name: draw(st.integers(-(-s.lo // s.multiple), s.hi // s.multiple)) * s.multiple
        for s in SYMBOLS
    }
    # Dims that broadcast: equal, or one of them 1.
    values["q"] = draw(st.sampled_from([1, values["p"]])) if values["p"] > 1 else values["q"]
    for v in VARS:
        values[v.name] = draw(st.integers(0, plain(v.extent, values) - 1))
    return values


def plain(e: Expr, values: Values) -> int:
    """The value of an expression by plain recursion, without any simplification."""
    match e:
        case Const(literal):
            return int(literal)
        case Symbol(name) | Var(name):
            return values[name]
        case Poly(terms):
            total = 0
            for monomial, coefficient in terms:
                product = coefficient
                for atom in monomial:
                    product *= plain(atom, values)
                total += product
            return total
        case IndexOp(op, a, b):
            return NAIVE[op](plain(a, values), plain(b, values))
    raise TypeError(type(e))


def holds(e: Expr, values: Values) -> bool:
    """The truth of a comparison of index expressions."""
    if isinstance(e, Compare):
        x, y = plain(e.x, values), plain(e.y, values)
        return {"lt": x < y, "le": x <= y, "gt": x > y, "ge": x >= y, "eq": x == y, "ne": x != y}[
            e.op
        ]
    return e is TRUE


@given(CASES, st.lists(assignments(), min_size=4, max_size=4))
@settings(max_examples=120, deadline=None)
def test_simplified_expression_means_the_same(case: Case, points: list[dict[str, int]]) -> None:
    for values in points:
        wanted = case.meaning(values)
        assert plain(case.expr, values) == wanted
        assert evaluate(case.expr, values) == wanted
        least, greatest = bounds(case.expr)
        assert least <= wanted <= greatest
        divisor = multiple_of(case.expr)
        assert wanted % divisor == 0 if divisor else wanted == 0


@given(CASES)
@settings(max_examples=60, deadline=None)
def test_text_parses_back_to_the_same_object(case: Case) -> None:
    assert parse_expr(str(case.expr), *SYMBOLS, *VARS) is case.expr


@given(CASES, assignments())
@settings(max_examples=60, deadline=None)
def test_renaming_keeps_the_meaning(case: Case, values: dict[str, int]) -> None:
    fresh = {v: Var(f"{v.name}_new", v.extent) for v in VARS}
    renamed = substitute(case.expr, dict(fresh.items()))
    assert free_variables(renamed).isdisjoint(VARS)
    assert plain(renamed, {**values, **{f"{v.name}_new": values[v.name] for v in VARS}}) == (
        case.meaning(values)
    )


@given(CASES, CASES, assignments())
@settings(max_examples=60, deadline=None)
def test_proven_relations_hold(a: Case, b: Case, values: dict[str, int]) -> None:
    x, y = a.meaning(values), b.meaning(values)
    if known_le(a.expr, b.expr):
        assert x <= y
    if known_lt(a.expr, b.expr):
        assert x < y
    equal = known_equal(a.expr, b.expr)
    if equal is not None:
        assert equal == (x == y)
    if is_nonnegative(a.expr):
        assert x >= 0
    for op, truth in (("lt", x < y), ("le", x <= y), ("gt", x > y), ("ge", x >= y), ("eq", x == y)):
        assert holds(compare(op, a.expr, b.expr), values) == truth


@given(CASES, CASES, assignments())
@settings(max_examples=60, deadline=None)
def test_substitution_means_evaluation_in_two_steps(
    a: Case, b: Case, values: dict[str, int]
) -> None:
    v = VARS[1]
    inner = b.meaning(values)
    assume(0 <= inner < 16)
    replaced = substitute(a.expr, {v: minimum(maximum(b.expr, 0), 15)})
    assert plain(replaced, values) == a.meaning({**values, v.name: inner})


@given(CASES, st.booleans(), st.lists(assignments(), min_size=4, max_size=4))
@settings(max_examples=60, deadline=None)
def test_elimination_bounds_the_expression(
    case: Case, least: bool, points: list[dict[str, int]]
) -> None:
    end = eliminate(case.expr, lambda v: True, least)
    if end is None:
        return
    assert not any(isinstance(v, Var) for v in free_variables(end))
    for values in points:
        value, bound = case.meaning(values), plain(end, values)
        assert bound <= value if least else value <= bound


@given(CASES, st.integers(1, 12), assignments())
@settings(max_examples=60, deadline=None)
def test_division_identities(case: Case, divisor: int, values: dict[str, int]) -> None:
    quotient, remainder = floordiv(case.expr, divisor), mod(case.expr, divisor)
    whole = add(mul(quotient, divisor), remainder)
    assert plain(whole, values) == case.meaning(values)
    if isinstance(case.expr, Var | Symbol) and remainder is not ZERO:
        assert whole is case.expr  # with no remainder there is nothing to tell it by
    assert plain(ceildiv(case.expr, divisor), values) == -(-case.meaning(values) // divisor)


A, B, C = VARS[:3]


@pytest.mark.parametrize(
    ("expr", "text"),
    [
        (floordiv(A * 16 + B, 16), "i"),
        (mod(A * 16 + B, 16), "j"),
        (floordiv(A * 32 + B * 2 + Var("b", index(2)), 2), "16*i + j"),
        (floordiv(floordiv(Var("x", index(100)), 3), 4), "x // 12"),
        (add(mul(floordiv(M, 3), 3), mod(M, 3)), "m"),
        (floordiv(M, 4), "m // 4"),
        (mod(M, 4), "0"),
        (mod(M * 3 + 4, 2), "0"),
        (floordiv(N * 8 + 8, 8), "n + 1"),
        (floordiv(A * N + C, N), "i"),
        (floordiv(M * N, N * 2), "m // 2"),
        (floordiv(M * N * N + B * N, N * N * 3), "(m*n + j) // (3*n)"),
        (mod(A * N + C, N), "k"),
        (minimum(A, 4), "i"),
        (minimum(A + 1, A), "i"),
        (maximum(N, 1), "n"),
        (sub(minimum(N, 5), minimum(N, 5)), "0"),
        (compare("lt", A, 4), "true"),
        (compare("ge", C, N), "false"),
        (compare("eq", N, 12), "false"),
        (ceildiv(N * 4, 4), "n"),
        (mul(N + 1, N - 1), "n*n - 1"),
    ],
)
def test_simplification(expr: Expr, text: str) -> None:
    assert str(expr) == text


def test_bounds_of_many_variables_and_nested_minima_are_found_fast() -> None:
    start = time.perf_counter()
    total, least = ZERO, ZERO
    for i in range(12):
        total = total + Var(f"v{i}", index(i + 2)) * N
        least = minimum(least + Var(f"w{i}", N), M * 4 + i)
    assert bounds(total) == (0, sum(9 * (i + 1) for i in range(12)))
    assert lower(M * 4 + N * 9 - least) >= 0
    assert time.perf_counter() - start < 2


def test_bounds_of_symbols_and_variables() -> None:
    assert bounds(N) == (1, 9)
    assert bounds(Symbol("free", 0, UNBOUNDED)) == (0, INFINITY)
    assert bounds(C) == (0, 8)
    assert lower(N - C) == 1  # k < n
    assert upper(A * 4 + Var("r", index(4))) == 15


def test_broadcast_extents() -> None:
    one, other = Symbol("a", 1, 8), Symbol("b", 1, 8)
    assert bcast(one, 1) is one
    assert bcast(1, other) is other
    assert bcast(one, one) is one
    assert bcast(one, 5) is index(5)
    assert bcast(one, other) is bcast(other, one)
    assert bounds(bcast(one, other)) == (1, 8)
    for a, b in ((1, 1), (1, 6), (6, 1), (6, 6)):
        assert evaluate(bcast(one, other), {"a": a, "b": b}) == max(a, b)
    assert evaluate(bcast(Symbol("z", 0, 8), other), {"z": 0, "b": 1}) == 0


def test_conditions() -> None:
    c = compare("lt", N, 5)
    x, y = const(1.0, F32), const(2.0, F32)
    assert logical_and(TRUE, c, TRUE) is c
    assert logical_and(c, FALSE) is FALSE
    assert logical_and() is TRUE
    assert select(TRUE, x, y) is x
    assert select(c, x, x) is x
    assert guard(FALSE, x, y) is y
    both = logical_and(c, compare("gt", N, 2))
    assert isinstance(both, Binary) and both.dtype is BOOL
    assert substitute(both, {N: index(3)}) is TRUE


@pytest.mark.parametrize(
    ("text", "simplified"),
    [
        ("cast(cast(j, i64), index)", "j"),
        ("cast(((cast(j, i64) * i64(2)) - i64(1)), index)", "2*j - 1"),
        ("cast(mod(max(cast(j, i64), i64(3)), i64(5)), index)", "max(3, j) % 5"),
        ("cast(mod(cast(j, i64), i64(-5)), index)", "cast(mod(cast(j, i64), i64(-5)), index)"),
        ("cast((cast(j, i32) + i32(1)), index)", "cast((cast(j, i32) + i32(1)), index)"),
        ("cast((cast(j, i64) / i64(2)), index)", "cast((cast(j, i64) / i64(2)), index)"),
    ],
)
def test_arithmetic_in_64_bits_is_index_arithmetic(text: str, simplified: str) -> None:
    j, i = Var("j", index(16)), Var("k", index(16))
    assert str(substitute(parse_expr(text, j), {j: i})) == simplified.replace("j", "k")


def test_hints_are_what_heuristics_expect() -> None:
    assert hinted(Symbol("h", 1, 100, 1, 32) * 2) == 64
    assert hinted(N) == 1
    assert hinted(A) == 3


def test_errors() -> None:
    with pytest.raises(TypeError, match="differ in type"):
        add(const(1.0, F32), A)
    with pytest.raises(TypeError, match="Index arithmetic"):
        floordiv(const(1.0, F32), 2)
    with pytest.raises(KeyError):
        evaluate(N + 1, {})
    assert ZERO.dtype is INDEX
