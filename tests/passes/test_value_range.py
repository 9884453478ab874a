# SPDX-License-Identifier: Apache-2.0
"""What is known of the integers in a value: ranges that hold, and are tight enough to be of use."""

from collections.abc import Callable

import numpy as np
import pytest

from tilewright.ir.dtypes import BOOL, F32, I8, I32, I64, U8
from tilewright.ir.expr import Expr, Symbol, index
from tilewright.ir.graph import Builder, ConstantStore, Graph, Value
from tilewright.ir.ops.arg_reduce import Argmax
from tilewright.ir.ops.binary import Add, Maximum, Minimum, Mod, Mul, Sub
from tilewright.ir.ops.cast import Cast
from tilewright.ir.ops.concat import Concat
from tilewright.ir.ops.dim_values import DimValues
from tilewright.ir.ops.iota import Iota
from tilewright.ir.ops.transpose import Transpose
from tilewright.ir.ops.where import Where
from tilewright.ir.types import tensor
from tilewright.passes.value_range import RangeAnalysis

N = Symbol("n", 0, 100)
Make = Callable[[Builder, dict[str, Value]], Value]


def count(b: Builder, dim: Expr = N) -> Value:
    return b(Iota((dim,), 0))


def number(b: Builder, value: int) -> Value:
    return b.constant(np.array(value))


# How a value is made, a dim that it can index whatever the inputs, and one that it may not.
CASES: dict[str, tuple[Make, Expr, Expr]] = {
    "constant": (lambda b, x: b.constant([3, -4]), index(4), index(3)),
    "counting": (lambda b, x: count(b), N, N - 1),
    "sum": (lambda b, x: b(Add(), count(b), number(b, 2)), N + 2, N + 1),
    "difference": (lambda b, x: b(Sub(), count(b), number(b, 2)), index(100), index(1)),
    "product": (lambda b, x: b(Mul(), count(b), number(b, 3)), 3 * N, 3 * N - 3),
    "remainder": (lambda b, x: b(Mod(), x["i"], number(b, 7)), index(7), index(6)),
    "held": (
        lambda b, x: b(Minimum(), b(Maximum(), x["i"], number(b, -2)), number(b, 1)),
        index(2),
        index(1),
    ),
    "chosen": (lambda b, x: b(Where(), x["c"], count(b), number(b, 5)), N + 6, N),
    "joined": (lambda b, x: b(Concat(0), count(b), b.constant([4])), N + 5, N),
    "greatest": (lambda b, x: b(Argmax(1), x["f"]), index(9), index(8)),
    "dims": (lambda b, x: b(DimValues((N,))), N + 1, N),
    "bytes": (lambda b, x: b(Cast(I64), x["u"]), index(256), index(255)),
    "flags": (lambda b, x: b(Cast(I32), x["c"]), index(2), index(1)),
    "turned": (lambda b, x: b(Transpose((1, 0)), b(Iota((N, index(4)), 1))), index(4), index(3)),
}


@pytest.mark.parametrize("name", CASES)
def test_indices_that_are_known_to_be_in_range(name: str) -> None:
    make, dim, smaller = CASES[name]
    found, analysis = _analysed(make)
    assert analysis.are_indices(found, dim)
    assert not analysis.are_indices(found, smaller)


UNKNOWN: dict[str, Make] = {
    "input": lambda b, x: x["i"],
    "of-floats": lambda b, x: b(Cast(I64), x["f"]),
    "that-wraps": lambda b, x: b(Cast(I8), b(Add(), count(b), number(b, 100))),
    "sum-that-wraps": lambda b, x: b(Add(), x["i"], number(b, 1)),
    "product-of-unknown": lambda b, x: b(Mul(), x["i"], number(b, 3)),
    "remainder-by-unknown": lambda b, x: b(Mod(), count(b), x["i"]),
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_indices_of_which_nothing_is_known(name: str) -> None:
    found, analysis = _analysed(UNKNOWN[name])
    assert not analysis.are_indices(found, index(120))


def test_a_long_chain_ends() -> None:
    def chain(b: Builder, x: dict[str, Value]) -> Value:
        found = count(b)
        for _ in range(5000):
            found = b(Minimum(), found, x["i"])
        return found

    found, analysis = _analysed(chain)
    assert not analysis.are_indices(found, N)


def _analysed(make: Make) -> tuple[Value, RangeAnalysis]:
    graph, constants = Graph("main"), ConstantStore()
    types = {
        "i": tensor(I64, (N,)),
        "u": tensor(U8, (N,)),
        "c": tensor(BOOL, (N,)),
        "f": tensor(F32, (N, 9)),
    }
    inputs = {name: Value(t, name) for name, t in types.items()}
    graph.inputs = list(inputs.values())
    return make(Builder(graph, constants), inputs), RangeAnalysis(constants)
