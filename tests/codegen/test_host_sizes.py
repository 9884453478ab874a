# SPDX-License-Identifier: Apache-2.0
"""Sizes of host programs as machine code: at the edges of symbols a run either computes what plain
integers give, or ends because 64 bits do not hold it, as in the interpreter.
"""

import itertools
import random

import numpy as np
import pytest
from host_machine import Machine

from tilewright.codegen.llvm.host import PART_SLOTS
from tilewright.ir.buffer import buffer
from tilewright.ir.dtypes import F32, INDEX
from tilewright.ir.errors import CodegenError, InputError
from tilewright.ir.expr import FALSE, Cast, Expr, Read, Symbol, add, index, mul, sub
from tilewright.ir.expr_parser import parse_expr
from tilewright.ir.interpreter.host import interpret_host
from tilewright.ir.loop import (
    Fits,
    HostProgram,
    Let,
    Output,
    Require,
    map_stmt,
    seq,
    shape_buffer,
)
from tilewright.ir.rewrite import evaluate
from tilewright.ir.simplify import bcast, ceildiv, compare, floordiv, maximum, minimum, mod
from tilewright.ir.sizes import GREATEST, LEAST, can_fit, steps, sums
from tilewright.ir.types import tensor
from tilewright.ir.verify_loop import verify_host

SYMBOLS = U, V, W = (Symbol("u"), Symbol("v"), Symbol("w"))
EDGES = (0, 1, 2, 1 << 21, (1 << 31) - 1, 1 << 31)
CALLS = list(itertools.product(EDGES, repeat=3))
X, Y = buffer("x", tensor(F32, (U, V, W, 0))), buffer("y", tensor(F32))

BY_HAND = (
    "4*u*v*w",
    "2*u*v",
    "64*u*v*w + 64*u*v",
    "2*u*v - 1",
    "2*u*v - 2*u*v*w",
    "64*((4*u*v*w + 63) // 64)",
    "min(4*u*v*w, 7)",
    "max(u*v*w, 3*u) // 5",
    "bcast(u*v, w) * 4",
    "(u*v*w) % 7",
)


def random_sizes(count: int) -> list[Expr]:
    rng = random.Random(0)
    sizes: list[Expr] = []
    while len(sizes) < count:
        e: Expr = rng.choice(SYMBOLS)
        for _ in range(rng.randint(1, 5)):
            number = rng.choice((1, 2, 4, 64, 1 << 31, 1 << 40))
            f = rng.choice((add, mul, mul, sub, minimum, maximum, bcast, floordiv, ceildiv, mod))
            binary = f not in (floordiv, ceildiv, mod) and rng.random() < 0.7
            e = f(e, rng.choice(SYMBOLS) if binary else number)
        if all(map(can_fit, sums(e))):
            sizes.append(e)
    return sizes


def program(e: Expr) -> HostProgram:
    """It tells ``e`` by a requirement that never holds, in the part that launches kernels."""
    values = [Cast(Read(shape_buffer(X), (index(i),)), INDEX) for i in range(3)]
    checks = [
        Require(compare("le", v, s.hi), "Too large.") for s, v in zip(SYMBOLS, values, strict=True)
    ]
    told = Require(FALSE, "The size is {0}.", (e,))
    fits = Fits((e,), "bytes", "Too much: {0}, {1}, {2}.", SYMBOLS)
    body = seq([*checks, fits, Output(Y, 0), told])
    for symbol, value in zip(SYMBOLS, values, strict=True):
        body = Let(symbol, value, body)
    return HostProgram("main", (X,), (Y,), (), index(0), body)


SIZES = [*(parse_expr(text, *SYMBOLS) for text in BY_HAND), *random_sizes(24)]


@pytest.fixture(params=[PART_SLOTS, 1], autouse=True)
def part_slots(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every program as one function, and with each statement in a function of its own."""
    monkeypatch.setattr("tilewright.codegen.llvm.host.PART_SLOTS", request.param)


@pytest.mark.parametrize("e", SIZES, ids=str)
def test_a_size_is_exact_or_refused(e: Expr) -> None:
    host = program(e)
    verify_host(host)
    machine = Machine(host, [])
    results = [step for s in sums(e) for step in steps(s)]
    outcomes = set()
    for call in CALLS:
        names = dict(zip("uvw", call, strict=True))
        fits = all(LEAST <= evaluate(r, names) <= GREATEST for r in results)
        outcomes.add(fits)
        status = machine.run_shape((*call, 0))
        if fits:
            assert machine.log[-1] == ("fail", 2, "The size is {0}.", [evaluate(e, names)])
        else:
            assert machine.log[-1] == ("fail", 5, "Too much: {0}, {1}, {2}.", list(call))
        assert status == machine.log[-1][1]
    assert True in outcomes


@pytest.mark.parametrize("text", BY_HAND)
def test_the_interpreter_refuses_the_same(text: str) -> None:
    e = parse_expr(text, *SYMBOLS)
    host, machine = program(e), Machine(program(e), [])
    for call in ((2, 3, 1), (1 << 20, 1 << 10, 1 << 3), (1 << 20, 1 << 20, 1 << 20)):
        machine.run_shape((*call, 0))
        _, _, message, values = machine.log[-1]
        x = np.lib.stride_tricks.as_strided(np.zeros(1, np.float32), (*call, 0), (0, 0, 0, 0))
        with pytest.raises(InputError) as caught:
            interpret_host(host, {}, {"x": x}, {})
        assert str(caught.value) == message.format(*values)


def test_code_for_a_size_that_nothing_checked_is_refused() -> None:
    host = program(parse_expr("4*u*v*w", *SYMBOLS))
    body = map_stmt(host.body, lambda s: seq([]) if isinstance(s, Fits) else None)
    unchecked = HostProgram("main", (X,), (Y,), (), index(0), body)
    with pytest.raises(CodegenError, match=r"'4\*u\*v\*w' is computed before it is known to fit"):
        Machine(unchecked, [])
