# SPDX-License-Identifier: Apache-2.0
"""Placement of workspace buffers: neighbours share memory, nested ones never do."""

from typing import Any

import pytest

from tilewright.ir.buffer import Buffer, buffer
from tilewright.ir.dtypes import F32
from tilewright.ir.errors import CodegenError
from tilewright.ir.expr import Symbol, Var, const, index
from tilewright.ir.loop import Alloc, For, Kernel, Stmt, Store, seq
from tilewright.ir.rewrite import evaluate
from tilewright.ir.simplify import ceildiv
from tilewright.ir.types import tensor
from tilewright.passes.loop.workspace import plan_workspace, workspace_bytes

N = Symbol("n", 1)
OUT = buffer("out", tensor(F32, (1,)))
STORE = Store(OUT, (index(0),), const(0.0, F32))


def scratch(name: str, *shape: Any) -> Buffer:
    return buffer(name, tensor(F32, shape), "workspace")


def kernel(body: Stmt) -> Kernel:
    return Kernel("k", (), (OUT,), (N,), (), body)


def test_neighbours_share_and_lanes_have_copies() -> None:
    a, b, c = (scratch(x, N, 3) for x in "abc")
    d = scratch("d", 5)
    lanes = For(Var("v", index(8)), "vectorized", Alloc(d, STORE))
    k = kernel(Alloc(a, seq([Alloc(b, STORE), Alloc(c, lanes)])))
    plan = plan_workspace(k)
    row = 64 * ceildiv(N * 12, 64)
    assert plan.offsets[a] is index(0)
    assert plan.offsets[b] is plan.offsets[c] is row
    assert plan.offsets[d] is workspace_bytes(k) - 192
    assert evaluate(workspace_bytes(k), {"n": 10}) == 2 * 128 + 192
    assert plan.overlapping == {frozenset("bc"), frozenset("bd")}


def test_buffer_allocated_in_two_places_lies_behind_all_around_it() -> None:
    t, u, v = scratch("t", 4), scratch("u", 4), scratch("v", 100)
    k = kernel(seq([Alloc(t, Alloc(u, STORE)), Alloc(v, Alloc(t, STORE))]))
    plan = plan_workspace(k)
    offsets = {b.name: int(str(o)) for b, o in plan.offsets.items()}
    assert offsets == {"v": 0, "t": 448, "u": 512}
    assert plan.total is index(576)
    assert plan.overlapping == {frozenset("uv")}


def test_buffers_inside_each_other_are_refused() -> None:
    t, u = scratch("t", 4), scratch("u", 4)
    k = kernel(seq([Alloc(t, Alloc(u, STORE)), Alloc(u, Alloc(t, STORE))]))
    with pytest.raises(CodegenError, match="'t' and 'u' of kernel 'k' are allocated inside each"):
        plan_workspace(k)


def test_size_in_a_loop_variable_is_bounded() -> None:
    i = Var("i", N)
    k = kernel(For(i, "serial", Alloc(scratch("t", i + 1), STORE)))
    assert workspace_bytes(k) is 64 * ceildiv(N * 4, 64)
    j = Var("j", N)
    k = kernel(For(j, "serial", Alloc(scratch("t", j * j - j * 3 + 9), STORE)))
    with pytest.raises(CodegenError, match="which no symbol bounds"):
        workspace_bytes(k)
