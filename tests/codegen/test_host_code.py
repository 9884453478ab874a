# SPDX-License-Identifier: Apache-2.0
"""Host programs as machine code: shapes, checks, memory and launches, with services made here."""

import ctypes
import time
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import llvmlite.binding as llvm
import numpy as np
import pytest

from tilewright.codegen.llvm.compile import compile_many
from tilewright.codegen.llvm.host import PART_SLOTS, EmittedHost, emit_host
from tilewright.codegen.llvm.kernel import emit_kernel
from tilewright.ir.buffer import buffer
from tilewright.ir.dtypes import F32, INDEX
from tilewright.ir.expr import Cast, Read, Symbol, Var, index
from tilewright.ir.loop import (
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
from tilewright.ir.target import parse_target
from tilewright.ir.types import tensor

NATIVE = parse_target("native")
P, I32, I64 = ctypes.c_void_p, ctypes.c_int32, ctypes.c_int64
KERNEL = ctypes.CFUNCTYPE(I32, P, I64, I64, P)
HOST = ctypes.CFUNCTYPE(I32, P, P, P, P)
LAUNCH = ctypes.CFUNCTYPE(I32, P, P, P, I64, I64, I64)
MEMORY = ctypes.CFUNCTYPE(P, P, I64)
OUTPUT = ctypes.CFUNCTYPE(P, P, I32, I32, ctypes.POINTER(I64))
FAIL = ctypes.CFUNCTYPE(I32, P, I32, I32, ctypes.POINTER(I64), I32)

N = Symbol("n", 1, 64)


@pytest.fixture(params=[PART_SLOTS, 1], autouse=True)
def part_slots(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Every program as one function, and with each statement in a function of its own."""
    monkeypatch.setattr("tilewright.codegen.llvm.host.PART_SLOTS", request.param)
    return int(request.param)


class Services(ctypes.Structure):
    """``tw_services`` of the runtime's ABI."""

    _fields_ = (
        ("size", I64), ("direct", I64), ("launch", LAUNCH), ("arena", MEMORY),
        ("workspace", MEMORY), ("output", OUTPUT), ("fail", FAIL),
    )  # fmt: skip


class Tensor(ctypes.Structure):
    """``tw_tensor`` of the runtime's ABI."""

    _fields_ = (("data", P), ("shape", P), ("rank", I32), ("dtype", I32))


class Machine:
    """A host program with its kernels, loaded, and services that note what they are asked for."""

    def __init__(
        self, program: HostProgram, kernels: Sequence[Kernel], direct: bool = True
    ) -> None:
        self.emitted: EmittedHost = emit_host(program, NATIVE, "tw_host")
        names = [k.name for k in kernels]
        texts = [self.emitted.text, *(emit_kernel(k, NATIVE) for k in kernels)]
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        library = llvm.JITLibraryBuilder().export_symbol("tw_host")
        for obj in compile_many(texts, NATIVE, external=names):
            library = library.add_object_img(obj)
        self._jit = llvm.create_lljit_compiler()
        self._library = library.link(self._jit, "host")
        self.entry = HOST(self._library["tw_host"])
        self.log: list[tuple[Any, ...]] = []
        self.arena = np.full(1 << 16, 0xA5, np.uint8)
        self.outputs: dict[int, np.ndarray] = {}
        self.refuse = ""
        self.kernel_status = 0
        self.services = Services(
            ctypes.sizeof(Services), int(direct), LAUNCH(self._launch), MEMORY(self._arena),
            MEMORY(self._workspace), OUTPUT(self._output), FAIL(self._fail),
        )  # fmt: skip

    def _launch(self, _: int, fn: int, args: int, tasks: int, scratch: int, call: int) -> int:
        self.log.append(("launch", tasks, scratch, call))
        for task in reversed(range(tasks)):
            KERNEL(fn)(args, task, task + 1, self.arena.ctypes.data + 32768)
        return self.kernel_status

    def _arena(self, _: int, size: int) -> int | None:
        self.log.append(("arena", size))
        return None if self.refuse == "arena" else self.arena.ctypes.data

    def _workspace(self, _: int, size: int) -> int | None:
        self.log.append(("workspace", size))
        return None if self.refuse == "workspace" else self.arena.ctypes.data + 32768

    def _output(self, _: int, number: int, rank: int, shape: Any) -> int | None:
        self.log.append(("output", number, shape[:rank]))
        self.outputs[number] = np.zeros(shape[:rank], np.float32)
        return None if self.refuse == "output" else int(self.outputs[number].ctypes.data)

    def _fail(self, _: int, status: int, message: int, values: Any, count: int) -> int:
        self.log.append(("fail", status, self.emitted.messages[message], values[:count]))
        return status

    def __call__(self, *inputs: np.ndarray, constants: Sequence[np.ndarray] = ()) -> int:
        self.log.clear()
        shapes = [np.array(x.shape, np.int64) for x in inputs]
        tensors = (Tensor * max(1, len(inputs)))(
            *(Tensor(x.ctypes.data, s.ctypes.data, x.ndim, 12) for x, s in zip(inputs, shapes))
        )
        pointers = (P * max(1, len(constants)))(*(c.ctypes.data for c in constants))
        return int(self.entry(None, ctypes.addressof(self.services), tensors, pointers))


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
    body = seq([Output(y, 0), launch, check])
    machine = Machine(HostProgram("main", (x,), (y,), (), index(64), body), [copy])
    assert machine(np.array([9, 3], np.float32)) == 0
    assert machine(np.array([1, 7], np.float32)) == 10
    assert machine.log[-1] == ("fail", 10, "Index {0}, not {1}.", [7, -7])
    assert machine(np.array([9, 3], np.float32)) == 0


@pytest.mark.parametrize("service", ["arena", "workspace", "output"])
def test_memory_that_is_refused_ends_the_run(service: str) -> None:
    machine = Machine(program(index(1), workspace=64), [rows_kernel()])
    machine.refuse = service
    assert machine(X, constants=[W]) == 5
    assert machine.log[-1][0] == service


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
    # The fastest of many runs: the machine may be busy. Measured: 11 us.
    tensors = (Tensor * 1)(Tensor(value.ctypes.data, None, 0, 12))
    best = min(_seconds(machine, tensors) for _ in range(300))
    assert best < 30e-6


def _seconds(machine: Machine, tensors: Any) -> float:
    start = time.perf_counter()
    machine.entry(None, ctypes.addressof(machine.services), tensors, None)
    return time.perf_counter() - start
