# SPDX-License-Identifier: Apache-2.0
"""Host programs as machine code: shapes, checks, memory and launches, with services made here."""

import ctypes
import time
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from host_machine import NATIVE, Machine, Tensor

from tilewright.codegen.llvm.host import PART_SLOTS, emit_host
from tilewright.ir.buffer import buffer
from tilewright.ir.dtypes import F32, INDEX
from tilewright.ir.expr import Call, Cast, Read, Symbol, Unary, Var, const, index
from tilewright.ir.loop import (
    Fits,
    For,
    HostProgram,
    Kernel,
    Launch,
    Let,
    Output,
    Place,
    Require,
    Store,
    seq,
    shape_buffer,
)
from tilewright.ir.simplify import compare
from tilewright.ir.types import tensor
from tilewright.ir.verify_loop import verify_host

N, M = Symbol("n", 1, 64), Symbol("m", 1, 64)
EXACT = Call("sqrt", (Cast(N, F32),), F32)
ROOT = Cast(Unary("floor", EXACT, F32), INDEX)


@pytest.fixture(params=[PART_SLOTS, 1], autouse=True)
def part_slots(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Every program as one function, and with each statement in a function of its own."""
    monkeypatch.setattr("tilewright.codegen.llvm.host.PART_SLOTS", request.param)
    return int(request.param)


def rows_kernel() -> Kernel:
    """``y[i, j] = x[i, j] + w[j]``, a task a row."""
    x, w, y = (buffer(n, tensor(F32, s)) for n, s in (("x", (N, 3)), ("w", (3,)), ("y", (N, 3))))
    i, j = Var("i", N), Var("j", index(3))
    store = Store(y, (i, j), Read(x, (i, j)) + Read(w, (j,)))
    return Kernel("rows", (x, w), (y,), (N,), (), For(i, "parallel", For(j, "serial", store)))


def program(work: Any, workspace: int = 0) -> HostProgram:
    """Twice the kernel of :func:`rows_kernel`, by a value in the arena."""
    x, y = buffer("x", tensor(F32, (N, 3))), buffer("y", tensor(F32, (N, 3)))
    w, t = buffer("w", tensor(F32, (3,))), buffer("t", tensor(F32, (N, 3)))
    shape = shape_buffer(x)
    bound = Cast(Read(shape, (index(0),)), INDEX)
    columns = Cast(Read(shape, (index(1),)), INDEX)

    def launch(source: Any, target: Any, origin: str) -> Launch:
        buffers = (source, w, target)
        return Launch("rows", buffers, (N,), N, work, index(workspace), origin)

    body = seq(
        [
            Require(
                compare("eq", columns, index(3)), "Input 'x' has {0} columns, not 3.", (columns,)
            ),
            Require(compare("le", N, index(64)), "Dim n is {0}, above {1}.", (N, index(64))),
            Place(t, index(128)),
            launch(x, t, "first"),
            Output(y, 0),
            launch(t, y, "second"),
        ]
    )
    checked = Let(N, bound, body)
    return HostProgram("main", (x,), (y,), (w,), N * 12 + 128, checked)


X = np.arange(15, dtype=np.float32).reshape(5, 3)
W = np.float32([1, 10, 100])


def test_a_program_is_cut_into_parts(part_slots: int) -> None:
    text = emit_host(program(index(10)), NATIVE, "tw_host").text
    parts = text.count("define internal i32 @tw.part")
    assert parts == (0 if part_slots > 1 else 4)


def test_a_size_in_another_type_is_computed_once(part_slots: int) -> None:
    """In the scope of the symbol that it follows from, whichever statement asks for it first: here
    a check inside the scope of another, which has a part of it as a value of its own.
    """
    x, y = buffer("x", tensor(F32, (N, M))), buffer("y", tensor(F32, (ROOT, M)))
    n, m = (Cast(Read(shape_buffer(x), (index(a),)), INDEX) for a in (0, 1))
    i, j = Var("i", N), Var("j", M)
    store = Store(buffer("y", tensor(F32, (N, M))), (i, j), const(1.0, F32))
    ones = Kernel(
        "ones", (), (store.buffer,), (N, M), (), For(i, "parallel", For(j, "serial", store))
    )
    below = compare("lt", EXACT, const(6.0, F32))
    body = seq(
        [
            Require(compare("ge", N, 2), "{0} is too few.", (N,)),
            Require(below, "A root of {0}.", (ROOT * M,)),
            Require(compare("ge", ROOT, M), "{0} is not {1}.", (ROOT, M)),
            Output(y, 0),
            Launch("ones", (y,), (ROOT, M), ROOT, index(1), index(0), ""),
        ]
    )
    host = HostProgram("main", (x,), (y,), (), index(64), Let(N, n, Let(M, m, body)))
    if part_slots > 1:
        text = emit_host(host, NATIVE, "tw_host").text
        assert text.count("call i64 @llvm.fptosi.sat.i64.f32(") == 1
    machine = Machine(host, [ones])
    assert machine(np.zeros((26, 3), np.float32)) == 0
    assert np.array_equal(machine.outputs[0], np.ones((5, 3)))
    for rows, columns, message, values in (
        (36, 2, "A root of {0}.", [12]),
        (4, 3, "{0} is not {1}.", [2, 3]),
    ):
        assert machine(np.zeros((rows, columns), np.float32)) == 2
        assert machine.log == [("fail", 2, message, values)]


def test_small_work_calls_kernels_directly() -> None:
    machine = Machine(program(index(100)), [rows_kernel()])
    assert machine(X, constants=[W]) == 0
    assert np.array_equal(machine.outputs[0], X + 2 * W)
    assert machine.log == [("arena", 188), ("output", 0, [5, 3])]
    assert machine.emitted.calls == (("rows", "first"), ("rows", "second"))


def test_direct_calls_get_their_workspace() -> None:
    machine = Machine(program(index(100), workspace=64), [rows_kernel()])
    assert machine(X, constants=[W]) == 0
    assert machine.log.count(("workspace", 64)) == 2


def test_large_work_and_profiling_go_through_the_runtime() -> None:
    for work, direct in ((index(10**9), True), (index(1), False)):
        machine = Machine(program(work), [rows_kernel()], direct)
        assert machine(X, constants=[W]) == 0
        assert np.array_equal(machine.outputs[0], X + 2 * W)
        launches = [x for x in machine.log if x[0] == "launch"]
        assert launches == [("launch", 5, 0, 0), ("launch", 5, 0, 1)]


def test_the_threshold_follows_the_shape() -> None:
    machine = Machine(program(N * 1000), [rows_kernel()])
    assert machine(X, constants=[W]) == 0
    assert not any(x[0] == "launch" for x in machine.log)
    assert machine(np.zeros((60, 3), np.float32), constants=[W]) == 0
    assert sum(x[0] == "launch" for x in machine.log) == 2


def test_failed_requirement_ends_the_run() -> None:
    machine = Machine(program(index(1)), [rows_kernel()])
    assert machine(np.zeros((5, 4), np.float32), constants=[W]) == 2
    assert machine.log == [("fail", 2, "Input 'x' has {0} columns, not 3.", [4])]


def test_index_fault_has_a_status_of_its_own() -> None:
    """The condition may read what a kernel has written."""
    x, y = (buffer(name, tensor(F32, (2,))) for name in "xy")
    i = Var("i", index(2))
    copy = Kernel("copy", (x,), (y,), (), (), For(i, "serial", Store(y, (i,), Read(x, (i,)))))
    value = Cast(Read(y, (index(1),)), INDEX)
    check = Require(compare("lt", value, 5), "Index {0}, not {1}.", (value, -value), True)
    launch = Launch("copy", (x, y), (), index(1), index(1), index(0), "")
    body = seq([Output(y, 0), launch, Fits((-value,), "count", "Too low."), check])
    machine = Machine(HostProgram("main", (x,), (y,), (), index(64), body), [copy])
    assert machine(np.array([9, 3], np.float32)) == 0
    assert machine(np.array([1, 7], np.float32)) == 10
    assert machine.log[-1] == ("fail", 10, "Index {0}, not {1}.", [7, -7])
    assert machine(np.array([9, 3], np.float32)) == 0


def test_an_output_that_is_refused_ends_the_run() -> None:
    machine = Machine(program(index(1)), [rows_kernel()])
    machine.refuse = "output"
    assert machine(X, constants=[W]) == 5
    assert machine.log[-1][0] == "output"


def test_an_arena_that_is_refused_names_the_greatest_value() -> None:
    machine = Machine(program(index(1)), [rows_kernel()])
    machine.refuse = "arena"
    assert machine(X, constants=[W]) == 5
    told = "the intermediate values need {0} bytes, {1} of them for 't' of 'first'."
    assert machine.log[1:] == [("fail", 5, f"Out of memory: {told}", [188, 60])]


def test_which_value_is_the_greatest_follows_the_shape() -> None:
    x, y = buffer("x", tensor(F32, (N, M))), buffer("y", tensor(F32, (N, M)))
    values = [buffer(f"t{i}", tensor(F32, s)) for i, s in enumerate([(N,), (M,), (N, 2), (M, 3)])]
    places = [
        s
        for t in values
        for s in (Place(t, index(0)), Launch("k", (x, t), (), N, N, index(0), f"of {t.name}"))
    ]
    dims = [Cast(Read(shape_buffer(x), (index(i),)), INDEX) for i in (0, 1)]
    ranges = [
        Require(compare(op, d, index(bound)), "No.")
        for d, s in zip(dims, (N, M))
        for op, bound in (("ge", s.lo), ("le", s.hi))
    ]
    body = Let(N, dims[0], Let(M, dims[1], seq([*ranges, *places])))
    host = HostProgram("main", (x,), (y,), (), N * 8 + M * 12, body)
    verify_host(host)
    machine = Machine(host, [Kernel("k", (), (), (), (), seq([]))])
    machine.refuse = "arena"
    for shape, named, size in (((50, 2), "t2", 400), ((2, 50), "t3", 600), ((60, 40), "t2", 480)):
        assert machine(np.zeros(shape, np.float32)) == 5
        _, _, message, numbers = machine.log[-1]
        assert f"'{named}' of 'of {named}'" in message and numbers[1] == size


def test_a_workspace_that_is_refused_is_left_to_the_runtime() -> None:
    machine = Machine(program(index(1), workspace=64), [rows_kernel()])
    machine.refuse = "workspace"
    assert machine(X, constants=[W]) == 0
    assert [each[0] for each in machine.log if each[0] in ("workspace", "launch")] == [
        "workspace",
        "launch",
    ] * 2


def test_status_of_a_kernel_is_returned() -> None:
    machine = Machine(program(index(10**9)), [rows_kernel()])
    machine.kernel_status = 7
    assert machine(X, constants=[W]) == 7
    assert sum(x[0] == "launch" for x in machine.log) == 1


def test_a_thousand_scalar_kernels_cost_microseconds() -> None:
    x, y = buffer("x", tensor(F32)), buffer("y", tensor(F32))
    add = Kernel("add", (x,), (y,), (), (), Store(y, (), Read(x, ()) + 1.0))
    slots = [buffer(f"t{i}", tensor(F32)) for i in range(999)]
    chain = [x, *slots, y]
    body = []
    for number, (source, target) in enumerate(pairwise(chain)):
        is_last = number == len(chain) - 2
        body.append(Output(y, 0) if is_last else Place(target, index(64 * (number % 2))))
        body.append(Launch("add", (source, target), (), index(1), index(1), index(0), f"{number}"))
    machine = Machine(HostProgram("main", (x,), (y,), (), index(128), seq(body)), [add])
    value = np.zeros((), np.float32)
    assert machine(value) == 0 and machine.outputs[0] == 1000
    # The fastest of many runs, over some seconds if need be: the machine may be busy for longer
    # than a few hundred runs take. Measured: 11 us.
    tensors = (Tensor * 1)(Tensor(value.ctypes.data, None, 0, 12))
    deadline, best = time.monotonic() + 10, np.inf
    while best >= 30e-6 and time.monotonic() < deadline:
        best = min(best, *(_seconds(machine, tensors) for _ in range(300)))
    assert best < 30e-6


def _seconds(machine: Machine, tensors: Any) -> float:
    start = time.perf_counter()
    machine.entry(None, ctypes.addressof(machine.services), tensors, None)
    return time.perf_counter() - start
