# SPDX-License-Identifier: Apache-2.0
"""Arithmetic on the elements of shapes: held to numpy in the element's own type, when it is folded
at import, when the expression is evaluated, and when the host program of a compiled model runs it.
"""

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from tests.frontends.random_elements import SIZE, SIZES, N, Traced, Unfit, chain, converted
from tilewright.api import in_memory
from tilewright.driver import CompileOptions, Report, build_module, optimize
from tilewright.frontends import elements
from tilewright.frontends.dims import Unknown
from tilewright.ir.bounds import bounds
from tilewright.ir.dtypes import BOOL, F16, F32, F64, I8, I32, I64, INDEX, U8, DType
from tilewright.ir.expr import Expr, Symbol, index
from tilewright.ir.fold import closed_value
from tilewright.ir.graph import Builder, ConstantStore, Graph, Module, Value
from tilewright.ir.interpreter.graphs import interpret_graph
from tilewright.ir.ops.dim_values import DimValues
from tilewright.ir.rewrite import substitute
from tilewright.ir.target import parse_target
from tilewright.ir.types import tensor
from tilewright.model import CompiledModel, from_memory

B, S, P = (Symbol(n, 1) for n in ("b", "s", "p"))


def value_at(e: elements.Element, size: int) -> Any:
    """What an element over the symbol is at a size."""
    if not isinstance(e, Expr):
        return e
    with np.errstate(all="ignore"):
        return closed_value(substitute(e, {N: index(size)}))


def check(t: Traced) -> None:
    for size, folded, expected in zip(SIZES, t.folded, t.expected, strict=True):
        assert folded == expected, (t.symbolic, size, "folded")
        assert value_at(t.symbolic, size) == expected, (t.symbolic, size, "evaluated")


@pytest.mark.parametrize("seed", range(60))
def test_chains_are_what_numpy_computes(seed: int) -> None:
    t = chain(random.Random(seed), 12)
    check(t)
    if isinstance(t.symbolic, Expr) and t.symbolic.dtype is INDEX:
        least, greatest = bounds(t.symbolic)
        assert all(least <= x <= greatest for x in t.expected)


def integers(seeds: Sequence[int]) -> list[Traced]:
    """Chains that end in an integer over the symbol."""
    found = []
    for seed in seeds:
        t = chain(random.Random(seed), 10)
        try:
            whole = converted(t, I64)
        except Unfit:
            continue
        if isinstance(whole.symbolic, Expr):
            found.append(whole)
    return found


def module_of(sizes: Sequence[Expr]) -> Module:
    """A module that gives the values of sizes over the dim of its input."""
    graph = Graph("main", [Value(tensor(U8, (N,)), "x")])
    store = ConstantStore()
    graph.set_outputs([Builder(graph, store)(DimValues(tuple(sizes)))])
    return Module(graph, {"n": N}, store, ["x"], ["y"])


def compiled(sizes: Sequence[Expr], target: str) -> CompiledModel:
    module, options, report = module_of(sizes), CompileOptions(), Report()
    optimize(module, parse_target(target), options, report)
    return from_memory(in_memory(build_module(module, parse_target(target), options, report)))


@pytest.mark.parametrize("target", ["x86-64", "x86-64-v3"])
def test_a_compiled_model_computes_what_is_folded(target: str) -> None:
    chains = integers(range(1000, 1100))
    assert len(chains) > 30
    sizes = [t.symbolic for t in chains if isinstance(t.symbolic, Expr)]
    module, model = module_of(sizes), compiled(sizes, target)
    for position, size in enumerate(SIZES):
        (found,) = interpret_graph(module, {"x": np.zeros(size, np.uint8)}).values()
        assert list(found) == [t.expected[position] for t in chains]
        found = model.run({"x": np.zeros(size, np.uint8)})["y"]
        assert list(found) == [t.expected[position] for t in chains]


def test_products_of_sizes_are_rounded_before_they_go_into_a_sum() -> None:
    """Where the target has a fused multiply-add: it would leave what the product was rounded by."""
    product = elements.times(elements.convert(N, I64, F32), elements.rounded(0.1, F32), F32)
    error = elements.times(elements.minus(product, 1.0, F32), 1e9, F32)
    length = elements.convert(error, F32, I64)
    assert isinstance(length, Expr)
    model = compiled([length], "x86-64-v3")
    sizes = range(1, 20)
    expected = [int((np.float32(n) * np.float32(0.1) - 1) * np.float32(1e9)) for n in sizes]
    assert [int(model(np.zeros(n, np.uint8))[0]) for n in sizes] == expected


# --- single operations ----------------------------------------------------------------------------


def text(e: elements.Element) -> str:
    return str(e)


def test_integer_division_truncates() -> None:
    assert elements.divide(-7, 2, I64) == -3
    assert text(elements.divide(S + 1, 2, I64)) == "(s + 1) // 2"
    assert (
        text(elements.divide(S - 10, 5, I64)) == "-(max(-s + 10, 0) // 5) + (max(0, s - 10) // 5)"
    )
    assert text(elements.divide(S, P - S, I64)) == "cast((cast(s, i64) / cast(p - s, i64)), index)"
    with pytest.raises(Unknown):
        elements.divide(S, 0, I64)


def test_integers_wrap() -> None:
    assert elements.times(1 << 20, 1 << 20, I32) == 0
    assert elements.plus((1 << 63) - 1, 1, I64) == -(1 << 63)
    assert text(elements.convert(S, I64, U8)) == "cast(cast(s, u8), index)"
    assert elements.convert(Symbol("s", 1, 100), I64, I8) is Symbol("s", 1, 100)


def test_floats_round_in_their_type() -> None:
    scaled = elements.times(elements.convert(S, I64, F32), elements.rounded(0.7, F32), F32)
    length = elements.convert(elements.whole("floor", scaled, F32), F32, I64)
    assert text(length) == f"cast((cast(s, f32) * f32({float(np.float32(0.7))})), index)"
    assert value_at(substitute(index(length), {S: N}), 10) == 7
    small = elements.convert(Symbol("s", 1, 1000), I64, F32)
    assert text(elements.convert(elements.times(small, 2.0, F32), F32, I64)) == "2*s"


def test_what_a_type_does_not_hold_exactly_is_not_taken_to_be_whole() -> None:
    for dtype, exact in ((F64, "s"), (F32, "cast(cast(s, f32), index)")):
        assert text(elements.convert(elements.convert(S, I64, dtype), dtype, I64)) == exact
    small = Symbol("s", 1, 2048)
    assert elements.convert(elements.convert(small, I64, F16), F16, I64) is small


def test_conditions() -> None:
    assert elements.decide("ge", S, 1, I64)
    assert not elements.decide("eq", S + 3, 2, I64)
    with pytest.raises(Unknown):
        elements.decide("eq", S, 4, I64)
    half = elements.divide(elements.convert(S, I64, F32), 2.0, F32)
    assert elements.compare("gt", half, 0.25, F32) is True
    below = elements.compare("lt", S, 24, I64)
    assert text(elements.choose(below, S, 24, I64)) == "min(24, s)"
    assert text(elements.choose(below, 24, S, I64)) == "max(24, s)"
    equal = elements.compare("eq", S, 24, I64)
    assert text(elements.choose(equal, 3, S, I64)) == "select((s == 24), 3, s)"
    assert text(elements.convert(equal, BOOL, I64)) == "select((s == 24), 1, 0)"
    for x in (True, False):
        assert elements.disjunction(equal, x) is (True if x else equal)
        assert elements.conjunction(equal, x) is (equal if x else False)


@pytest.mark.parametrize(
    ("base", "exponent", "dtype", "exponents", "expected"),
    [
        (S, 3, I64, I64, "s*s*s"),
        (S, 2.0, I64, F32, "s*s"),
        (2, S, I64, I64, "cast(round(pow(f64(2.0), cast(s, f64))), index)"),
        (3, -1, I64, I64, "0"),
        (5, 3, I64, I64, "125"),
        (2.0, 0.5, F32, F32, str(float(np.sqrt(np.float32(2))))),
    ],
)
def test_powers(base: Any, exponent: Any, dtype: DType, exponents: DType, expected: str) -> None:
    assert text(elements.power(base, exponent, dtype, exponents)) == expected


def test_lengths_of_ranges() -> None:
    assert elements.count(0, 7, 2, I64) == 4
    assert elements.count(7, 0, -2, I64) == 4
    assert elements.count(0, 7.0, elements.rounded(0.7, F32), F32) == 10
    assert text(elements.count(0, S, 2, I64)) == "(s + 1) // 2"
    downwards = elements.count(0, 10, elements.minus(P, S, I64), I64)
    assert isinstance(downwards, Expr)
    for p, s, length in ((5, 1, 3), (1, 5, 0), (3, 3, -1)):
        assert closed_value(substitute(downwards, {P: index(p), S: index(s)})) == length


def test_expressions_stay_small() -> None:
    grown: Any = S
    with pytest.raises(Unknown):
        for _ in range(100):
            grown = elements.times(grown, grown, I64)
    grown = S
    with pytest.raises(Unknown):
        for _ in range(200):
            tripled = elements.times(grown, 3, I64)
            grown = elements.divide(elements.plus(tripled, 1, I64), 2, I64)


def test_the_size_itself() -> None:
    check(SIZE)
