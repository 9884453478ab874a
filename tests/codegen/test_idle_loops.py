# SPDX-License-Identifier: Apache-2.0
"""When the iterations of a nest of loops do nothing, held to the loops themselves."""

import itertools

import numpy as np
import pytest

from tilewright.codegen.llvm.idle import idle_condition
from tilewright.codegen.llvm.kernel import emit_kernel
from tilewright.ir.expr import FALSE, TRUE, Binary, Expr, index
from tilewright.ir.interpreter.loops import interpret_kernel
from tilewright.ir.loop import For, Kernel
from tilewright.ir.loop_parser import parse_kernel
from tilewright.ir.rewrite import substitute
from tilewright.ir.target import parse_target

NESTS = {
    "perfect": "for i in n serial { for j in m serial { for k in p serial { STORE } } }",
    "with a tail": """for i in n serial {
        for j in m // 4 serial { for k in p serial { STORE } }
        for t in m % 4 serial { for q in p serial { STORE } } }""",
    "triangle": "for i in n serial { for j in i serial { for k in p serial { STORE } } }",
    "neighbours": """for i in n serial {
        for j in m serial { for k in p serial { STORE } for q in p serial { STORE } } }""",
    "condition": """for i in n serial {
        for j in m serial { if (j < 2) { for k in p serial { STORE } } } }""",
}
NEVER_IDLE = {
    "two loops": "for i in n serial { for j in m serial { STORE } }",
    "fixed sizes": "for i in 9 serial { for j in 9 serial { for k in p serial { STORE } } }",
    "a store": "for i in n serial { STORE for j in m serial { for k in p serial { STORE } } }",
}


def kernel_of(nest: str) -> Kernel:
    """It writes its output where an innermost statement runs."""
    symbols = "".join(f"  symbol {name} in [0, 8]\n" for name in "nmp")
    body = nest.replace("STORE", "y[0] = x[0]")
    return parse_kernel(f"kernel @k(x: f32[1]) -> (y: f32[1]) {{\n{symbols}  {body}\n}}")


def condition_of(kernel: Kernel) -> Expr | None:
    assert isinstance(kernel.body, For)
    return idle_condition(kernel.body)


def holds(e: Expr) -> bool:
    if isinstance(e, Binary):
        return (all if e.op == "and" else any)(map(holds, (e.x, e.y)))
    assert e in (TRUE, FALSE)
    return e is TRUE


@pytest.mark.parametrize("name", NESTS)
def test_a_nest_that_is_idle_runs_nothing(name: str) -> None:
    kernel = kernel_of(NESTS[name])
    condition = condition_of(kernel)
    assert condition is not None
    for sizes in itertools.product((0, 1, 3, 5), repeat=3):
        values = dict(zip("nmp", sizes, strict=True))
        x = np.ones(1, np.float32)
        y = interpret_kernel(kernel, {"x": x}, values, check_initialised=False)["y"]
        is_idle = holds(substitute(condition, {s: index(values[s.name]) for s in kernel.symbols}))
        assert not (is_idle and y[0] == 1)
        assert is_idle or values["p"] > 0


@pytest.mark.parametrize("name", NEVER_IDLE)
def test_what_is_not_worth_a_condition_has_none(name: str) -> None:
    assert condition_of(kernel_of(NEVER_IDLE[name])) is None


def test_one_condition_serves_a_whole_nest() -> None:
    text = emit_kernel(kernel_of(NESTS["perfect"]), parse_target("x86-64-v3"))
    assert text.count("select i1") == 1
