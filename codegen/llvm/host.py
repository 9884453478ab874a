# SPDX-License-Identifier: Apache-2.0
"""The host program: loop IR of kind ``host`` to the entry function of an image.

The entry gets a table of services from the runtime (``runtime/include/tw_abi.h``): it asks for the
arena and for the memory of outputs, reports failed requirements, and launches kernels. A launch
with little work calls its kernel directly, at the cost of some stores and two calls; larger ones go
through the runtime, which spreads their tasks over threads.

A program of many launches or checks becomes several functions, since LLVM takes time that grows
with the square of a function's size: thousands of pointers would live through thousands of blocks.
The parts share a *frame* of the entry: the arena, the symbols, the outputs so far.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TypeVar

from tilewright.codegen.llvm.addresses import Place
from tilewright.codegen.llvm.builder import Block, Builder, Module, Value, constant
from tilewright.codegen.llvm.host_frame import (
    Frame,
    buffers_used,
    entry_buffers,
    innermost,
    slots_of,
    split_parts,
)
from tilewright.codegen.llvm.host_indices import HostIndices
from tilewright.codegen.llvm.host_run import SERVICES, STATE, define_run
from tilewright.codegen.llvm.kernel import StatementEmitter
from tilewright.codegen.llvm.polls import ALWAYS
from tilewright.ir.bounds import known_le
from tilewright.ir.buffer import Buffer
from tilewright.ir.errors import CodegenError
from tilewright.ir.expr import TRUE, Expr
from tilewright.ir.host_sizes import greatest_buffers
from tilewright.ir.loop import (
    Fits,
    For,
    HostProgram,
    Launch,
    Output,
    Require,
    Seq,
    Stmt,
    shape_buffer,
    walk,
)
from tilewright.ir.loop import Place as PlaceStmt
from tilewright.ir.target import Target
from tilewright.passes.host_checks import plain

DIRECT_WORK = 10_000
"""Work in nanoseconds below which a kernel runs on the calling thread: a fork and join costs some
microseconds.
"""

STATUS_INPUT = 2
STATUS_MEMORY = 5
STATUS_INDEX = 10
_REFUSED = (
    "Out of memory: the intermediate values need {{0}} bytes, {{1}} of them for '{}' of '{}'."
)
_TENSOR_BYTES = 24
PART_SLOTS = 256
"""What one function has of arguments of launches and of checks; a program of no more is one
function.
"""


@dataclass(frozen=True)
class EmittedHost:
    """LLVM IR text of the entry; its messages and its launches, as (kernel, origin), by their
    numbers, after those of an earlier program.
    """

    text: str
    messages: tuple[str, ...]
    calls: tuple[tuple[str, str], ...]


def emit_host(
    host: HostProgram,
    target: Target,
    symbol: str,
    earlier: EmittedHost | None = None,
    constants: Sequence[int] | None = None,
) -> EmittedHost:
    """LLVM IR of a host program as the function ``symbol``; it refers to its kernels by name.

    A second program of an image goes on with the tables of the ``earlier`` one, and ``constants``
    are the numbers that its constants have in the table that both share.
    """
    return HostEmitter(host, target, earlier, constants).emit(symbol)


S = TypeVar("S", bound=Stmt)


def _all(host: HostProgram, kind: type[S]) -> list[S]:
    return [s for s in walk(host.body) if isinstance(s, kind)]


class HostEmitter(StatementEmitter):
    """Emits one host program."""

    def __init__(
        self,
        host: HostProgram,
        target: Target,
        earlier: EmittedHost | None = None,
        constants: Sequence[int] | None = None,
    ) -> None:
        messages = {} if earlier is None else {m: n for n, m in enumerate(earlier.messages)}
        calls = [] if earlier is None else list(earlier.calls)
        numbers = range(len(host.constants)) if constants is None else constants
        self.constants = dict(zip(host.constants, numbers, strict=True))
        self._first_call = len(calls)
        self._start(host, Module(target), messages, calls)
        self.polls = dict.fromkeys((s for s in walk(host.body) if isinstance(s, For)), ALWAYS)

    def _start(
        self,
        host: HostProgram,
        module: Module,
        messages: dict[str, int],
        calls: list[tuple[str, str]],
    ) -> None:
        self.module = module
        # Sizes are rounded after every operation, as their types say.
        super().__init__(Builder(self.module, contracts=False), HostIndices)
        assert isinstance(self.expressions.indices, HostIndices)
        self._indices = self.expressions.indices
        self.state = self._load("ptr", Value("%services", "ptr"), STATE)
        self.host = host
        self.messages = messages
        self.calls = calls
        self._arena: Value | None = None
        self._divided: Stmt | None = None
        self._services: dict[str, Value] = {}
        self._leave = self.builder.new_block("leave")
        self._leaving: list[tuple[Value, Block]] = []

    def emit(self, symbol: str) -> EmittedHost:
        """The text of the whole module."""
        b = self.builder
        launches = _all(self.host, Launch)
        if sum(map(slots_of, walk(self.host.body))) > PART_SLOTS:
            self._divided = innermost(self.host.body)[1]
        self._bind_memory()
        self._args = self._scratch_for(launches)
        ranks = [len(s.buffer.shape) for s in _all(self.host, Output)]
        counts = [len(s.values) for s in walk(self.host.body) if isinstance(s, Require | Fits)]
        self._numbers = self._scratch(max([*ranks, *counts, 2]))
        self.statement(self.host.body)
        self._finish()
        parameters = "ptr %call, ptr %services, ptr %inputs, ptr %constants"
        self.module.functions.append(
            f'define i32 @{symbol}({parameters}) nounwind "no-builtins" {{\n{b.body()}\n}}'
        )
        for kernel in dict(self.calls[self._first_call :]):
            self.module.declare(kernel, "i32", ["ptr", "i64", "i64", "ptr"])
        return EmittedHost(self.module.text(), tuple(self.messages), tuple(self.calls))

    def _finish(self) -> None:
        """The ends of the function: success, and the one for what fails."""
        b = self.builder
        b.ret(constant(0, "i32"))
        if self._leaving:
            b.enter(self._leave)
            b.ret(b.phi(self._leaving))

    # --- memory -----------------------------------------------------------------------------------

    def _bind_memory(self) -> None:
        """Pointers of inputs, their shapes and constants, and the services, as far as this function
        needs them, all loaded at the start.
        """
        places = self.expressions.addresses.places
        needed = entry_buffers(self.host, isinstance(self._divided, Seq))
        for number, source in enumerate(self.host.inputs):
            at = number * _TENSOR_BYTES
            if source in needed:
                data = self._load("ptr", Value("%inputs", "ptr"), at)
                places[source] = Place(data, 0, source.dtype.bytes, read_only=True)
            if shape_buffer(source) in needed:
                shape = self._load("ptr", Value("%inputs", "ptr"), at + 8)
                places[shape_buffer(source)] = Place(shape, 0, 8, read_only=True)
        for source, number in self.constants.items():
            if source in needed:
                data = self._load("ptr", Value("%constants", "ptr"), number * 8)
                places[source] = Place(data, 0, 64, read_only=True)
        for name in ("arena", "output", "fail"):
            self._services[name] = self._load("ptr", Value("%services", "ptr"), SERVICES[name])

    def _load(self, kind: str, base: Value, offset: int) -> Value:
        address = self._address(base, offset)
        return self.builder.emit(f"load {kind}, {address}, align 8", kind)

    def _address(self, base: Value, offset: int) -> Value:
        return self.builder.emit(f"getelementptr i8, {base}, i64 {offset}", "ptr")

    def _scratch_for(self, launches: list[Launch]) -> Value:
        return self._scratch(1 + max(map(slots_of, launches), default=0))

    def _scratch(self, slots: int) -> Value:
        return self.builder.allocate("i64", slots, 8)

    def _pointer(self, buffer: Buffer) -> Value:
        place = self.expressions.addresses.places.get(buffer)
        if place is None:
            raise CodegenError(f"Buffer '{buffer.name}' is launched before it has memory.")
        return place.pointer

    def _fill(self, array: Value, values: list[Value]) -> None:
        for number, v in enumerate(values):
            self.builder.emit_void(f"store {v}, {self._address(array, 8 * number)}, align 8")

    def _call(self, service: str, result: str, *args: Value) -> Value:
        given = ", ".join(map(str, (Value("%call", "ptr"), *args)))
        return self.builder.emit(f"call {result} {self._services[service].text}({given})", result)

    # --- statements -------------------------------------------------------------------------------

    def statement(self, s: Stmt) -> None:
        """Emit one statement of a host program."""
        match s:
            case Require():
                self.environment.new_statement()
                self._require(s)
            case Fits():
                self.environment.new_statement()
                self._fits(s)
            case PlaceStmt(buffer, offset):
                start = self.expressions.indices.index(offset)
                pointer = self.builder.emit(
                    f"getelementptr i8, {self._arena_start()}, {start}", "ptr"
                )
                self.expressions.addresses.places[buffer] = Place(
                    pointer, self.environment.depth, 64
                )
            case Output(buffer, number):
                self._output(buffer, number)
            case Launch():
                self._launch(s)
            case Seq(stmts) if s is self._divided:
                self._parts(stmts)
            case _:
                super().statement(s)

    def _index(self, e: Expr) -> Value:
        return self._indices.index(e)

    def _leave_if(self, condition: Value, status: Value) -> None:
        """Return ``status`` where ``condition`` holds: from one block for all such places."""
        b = self.builder
        onwards = b.new_block("next")
        self._leaving.append((status, b.block))
        b.branch_if(condition, self._leave, onwards)
        b.enter(onwards)

    def _require(self, s: Require) -> None:
        if s.condition is TRUE:
            return
        b = self.builder
        holds = self.expressions.value(s.condition)
        numbers = [self._index(v) for v in s.values]
        fail, onwards = b.new_block("fail"), b.new_block("next")
        b.branch_if(holds, onwards, fail)
        b.enter(fail)
        status = STATUS_INDEX if s.fault else STATUS_INPUT
        self._fail(status, self._message(s.message), numbers)
        b.enter(onwards)

    def _fits(self, s: Fits) -> None:
        b = self.builder
        numbers = [self._index(v) for v in s.values]
        self._indices.begin()
        for size in s.sizes:
            self._index(size)
        overflow = self._indices.end(s.sizes)
        if overflow is None:
            return
        fail, onwards = b.new_block("fail"), b.new_block("next")
        b.branch_if(overflow, fail, onwards)
        b.enter(fail)
        status = STATUS_MEMORY if s.kind == "bytes" else STATUS_INPUT
        self._fail(status, self._message(s.message), numbers)
        b.enter(onwards)

    def _message(self, text: str) -> Value:
        return constant(self.messages.setdefault(text, len(self.messages)), "i32")

    def _fail(self, status: int, message: Value, numbers: list[Value]) -> None:
        """End the run with a message about some numbers."""
        self._fill(self._numbers, numbers)
        count = constant(len(numbers), "i32")
        code = constant(status, "i32")
        self.builder.ret(self._call("fail", "i32", code, message, self._numbers, count))

    def _arena_start(self) -> Value:
        """The arena, asked for where the first buffer is placed: all symbols are bound there."""
        if self._arena is None:
            b = self.builder
            size = self._index(self.host.arena)
            message, greatest = self._greatest_value()
            self._arena = self._call("arena", "ptr", size)
            fail, onwards = b.new_block("fail"), b.new_block("next")
            b.branch_if(b.compare("eq", self._arena, Value("null", "ptr")), fail, onwards)
            b.enter(fail)
            self._fail(STATUS_MEMORY, message, [size, greatest])
            b.enter(onwards)
        return self._arena

    def _greatest_value(self) -> tuple[Value, Value]:
        """The message about the value that takes most of the arena, and its bytes."""
        b = self.builder
        found: tuple[Value, Value] | None = None
        for buffer, size in greatest_buffers([s.buffer for s in _all(self.host, PlaceStmt)]):
            launches = (s for s in _all(self.host, Launch) if buffer in s.buffers)
            origin = next((s.origin for s in launches), "?")
            message = self._message(_REFUSED.format(buffer.name, plain(origin)))
            bytes_ = self._index(size)
            if found is None:
                found = message, bytes_
            else:
                more = b.compare("sgt", bytes_, found[1])
                found = b.select(more, message, found[0]), b.select(more, bytes_, found[1])
        assert found is not None
        return found

    def _output(self, buffer: Buffer, number: int) -> None:
        b = self.builder
        self._fill(self._numbers, [self._index(d) for d in buffer.shape])
        rank = constant(len(buffer.shape), "i32")
        pointer = self._call("output", "ptr", constant(number, "i32"), rank, self._numbers)
        self._leave_if(
            b.compare("eq", pointer, Value("null", "ptr")), constant(STATUS_MEMORY, "i32")
        )
        place = Place(pointer, self.environment.depth, buffer.dtype.bytes)
        self.expressions.addresses.places[buffer] = place

    # --- parts ------------------------------------------------------------------------------------

    def _parts(self, stmts: Sequence[Stmt]) -> None:
        """Functions for some statements each, called in turn: first those that check the inputs,
        then, once there is an arena, those that launch kernels.
        """
        first = next(i for i, s in enumerate(stmts) if not isinstance(s, Require | Fits))
        frame = Frame.of(self.host, self.environment.values, self.constants)
        memory = self._scratch(frame.slots)
        for symbol, slot in frame.symbols.items():
            self._store(self.environment.values[symbol], memory, slot)
        self._call_parts(stmts[:first], frame, memory)
        if any(isinstance(s, PlaceStmt) for s in stmts):
            self._store(self._arena_start(), memory, 0)
        self._call_parts(stmts[first:], frame, memory)

    def _call_parts(self, stmts: Sequence[Stmt], frame: Frame, memory: Value) -> None:
        call, services = Value("%call", "ptr"), Value("%services", "ptr")
        shared = [call, services, Value("%inputs", "ptr"), Value("%constants", "ptr"), memory]
        for part in split_parts(stmts, PART_SLOTS):
            name = PartEmitter(self, frame).emit_part(part)
            status = self.builder.call(name, "i32", 0, shared)
            self._leave_if(self.builder.compare("ne", status, constant(0, "i32")), status)

    def _store(self, value: Value, array: Value, slot: int) -> None:
        self.builder.emit_void(f"store {value}, {self._address(array, 8 * slot)}, align 8")

    # --- launches ---------------------------------------------------------------------------------

    def _launch(self, s: Launch) -> None:
        number = len(self.calls)
        self.calls.append((s.kernel, s.origin))
        values = [*(self._pointer(x) for x in s.buffers), *(self._index(e) for e in s.scalars)]
        assert self.state is not None
        values.append(self.state)
        tasks, workspace = self._index(s.tasks), self._index(s.workspace)
        small = self._is_small(s, tasks)
        self._fill(self._args, values)
        status = self.builder.call(
            define_run(self.module),
            "i32",
            0,
            [
                Value("%call", "ptr"),
                Value("%services", "ptr"),
                Value(f"@{s.kernel}", "ptr"),
                self._args,
                tasks,
                workspace,
                constant(number, "i64"),
                small,
            ],
        )
        self._leave_if(self.builder.compare("ne", status, constant(0, "i32")), status)

    def _is_small(self, s: Launch, tasks: Value) -> Value:
        """The condition under which a kernel had better run on the calling thread."""
        if known_le(s.tasks, 1) or known_le(s.work, DIRECT_WORK):
            return constant(True, "i1")
        if known_le(2, s.tasks) and known_le(DIRECT_WORK + 1, s.work):
            return constant(False, "i1")
        b = self.builder
        small = b.compare("sle", self._index(s.work), constant(DIRECT_WORK, "i64"))
        return b.op("or", small, b.compare("sle", tasks, constant(1, "i64")))


class PartEmitter(HostEmitter):
    """Emits some statements of a program as a function of their own.

    A pointer is loaded where it is first needed, so that none lives longer than the part.
    """

    def __init__(self, entry: HostEmitter, frame: Frame) -> None:
        self._start(entry.host, entry.module, entry.messages, entry.calls)
        self.polls = entry.polls
        self._indices.fitted = entry._indices.fitted
        self._frame = frame
        self._memory = Value("%frame", "ptr")

    def emit_part(self, stmts: Sequence[Stmt]) -> str:
        """The name of the function, which is added to the module."""
        name = f"tw.part.{len(self.module.functions)}"
        inner = [n for s in stmts for n in walk(s)]
        self._args = self._scratch_for([s for s in inner if isinstance(s, Launch)])
        ranks = [len(s.buffer.shape) for s in inner if isinstance(s, Output)]
        counts = [len(s.values) for s in inner if isinstance(s, Require | Fits)]
        self._numbers = self._scratch(max([*ranks, *counts, 1]))
        for service in ("output", "fail"):
            at = SERVICES[service]
            self._services[service] = self._load("ptr", Value("%services", "ptr"), at)
        with ExitStack() as stack:
            for symbol in self._frame.used(stmts):
                value = self._load("i64", self._memory, 8 * self._frame.symbols[symbol])
                stack.enter_context(self.environment.bound(symbol, value))
            for s in stmts:
                for used in buffers_used(s):
                    self._pointer(used)
                self.statement(s)
        self._finish()
        parameters = "ptr %call, ptr %services, ptr %inputs, ptr %constants, ptr %frame"
        self.module.functions.append(
            f'define internal i32 @{name}({parameters}) noinline nounwind "no-builtins" '
            f"{{\n{self.builder.body()}\n}}"
        )
        return name

    def _arena_start(self) -> Value:
        if self._arena is None:
            self._arena = self._load("ptr", self._memory, 0)
        return self._arena

    def _pointer(self, buffer: Buffer) -> Value:
        places, frame = self.expressions.addresses.places, self._frame
        if buffer not in places:
            if buffer in frame.shapes:
                at = frame.shapes[buffer] * _TENSOR_BYTES + 8
                pointer = self._load("ptr", Value("%inputs", "ptr"), at)
            elif buffer in frame.inputs:
                at = frame.inputs[buffer] * _TENSOR_BYTES
                pointer = self._load("ptr", Value("%inputs", "ptr"), at)
            elif buffer in frame.constants:
                at = 8 * frame.constants[buffer]
                pointer = self._load("ptr", Value("%constants", "ptr"), at)
            elif buffer in frame.outputs:
                pointer = self._load("ptr", self._memory, 8 * frame.outputs[buffer])
            else:
                self.statement(frame.placed[buffer])
                return places[buffer].pointer
            places[buffer] = Place(pointer, self.environment.depth, buffer.dtype.bytes)
        return places[buffer].pointer

    def _output(self, buffer: Buffer, number: int) -> None:
        super()._output(buffer, number)
        pointer = self.expressions.addresses.places[buffer].pointer
        self._store(pointer, self._memory, self._frame.outputs[buffer])
