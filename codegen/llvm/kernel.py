# SPDX-License-Identifier: Apache-2.0
"""Kernels: scheduled loop IR to one LLVM function with the kernel ABI.

Loops become explicit vectors, unrolled copies and counted loops exactly as the schedule says;
nothing is left to LLVM's vectorisers. The outermost parallel loop is the task loop over ``[begin,
end)``. A vectorised loop whose body cannot run in lockstep (a ``while``, an inner extent that
differs between lanes, a vectorised loop in another) is unrolled instead, which computes the same.
"""

from tilewright.codegen.llvm.addresses import Place, alias_scopes, memory_element
from tilewright.codegen.llvm.builder import Block as BasicBlock
from tilewright.codegen.llvm.builder import Builder, Module, Value, constant
from tilewright.codegen.llvm.environment import Environment
from tilewright.codegen.llvm.expressions import ExpressionEmitter
from tilewright.codegen.llvm.idle import idle_condition
from tilewright.codegen.llvm.indices import IndexEmitter, integer_constant
from tilewright.codegen.llvm.loops import LoopEmitter
from tilewright.codegen.llvm.polls import RUNNING, STATUS_CANCELLED, Intervals, poll_intervals
from tilewright.codegen.llvm.transposition import as_transposition, emit_transposition
from tilewright.ir.bounds import lower
from tilewright.ir.buffer import Buffer
from tilewright.ir.dtypes import INDEX
from tilewright.ir.errors import CodegenError
from tilewright.ir.expr import Expr, Symbol
from tilewright.ir.loop import (
    Alloc,
    Barrier,
    Block,
    For,
    If,
    Kernel,
    Let,
    Seq,
    Stmt,
    Store,
    While,
    walk,
)
from tilewright.ir.target import Target
from tilewright.passes.loop.lockstep import runs_in_lockstep
from tilewright.passes.loop.workspace import plan_workspace

MAX_UNROLLED = 1 << 14
_ATTRIBUTES = 'nounwind "no-builtins"'
_STATE = "the state of the run"


def emit_kernel(kernel: Kernel, target: Target) -> str:
    """LLVM IR text of a module that defines the function of ``kernel``; raises CodegenError naming
    it.
    """
    try:
        return KernelEmitter(kernel, target).emit()
    except CodegenError as error:
        told = f"Kernel '{kernel.name}': {error}"
        raise CodegenError(told, reason=error.reason) from error


class StatementEmitter:
    """Emits statements of kernels; the host program's emitter adds its own."""

    def __init__(self, builder: Builder, indices: type[IndexEmitter] = IndexEmitter) -> None:
        self.builder = builder
        self.environment = Environment(builder)
        self.expressions = ExpressionEmitter(builder, self.environment, indices)
        self._in_idle_nest = False
        self.loops = LoopEmitter(builder, self._poll)
        self.polls: Intervals = {}
        self.state: Value | None = None  # where it is told whether the run goes on
        self._state_access = ""
        self._cancelled = BasicBlock("cancelled")

    # --- statements -------------------------------------------------------------------------------

    def statement(self, s: Stmt) -> None:
        """Emit one statement."""
        self.environment.new_statement()
        match s:
            case Seq(stmts):
                for child in stmts:
                    self.statement(child)
            case Block(_, _, _, body):
                self.statement(body)
            case For():
                self._for(s)
            case Store(buffer, indices, value):
                self.expressions.memory.store(buffer, indices, self.expressions.value(value))
            case Let(var, value, body):
                self._let(var, value, body)
            case If(condition, then, otherwise):
                self._if(condition, then, otherwise)
            case While(condition, body):
                self._while(condition, body)
            case Alloc(buffer, body):
                self._alloc(buffer, body)
            case Barrier():
                pass
            case _:
                raise CodegenError(f"Statement '{type(s).__name__}' has no code here.")

    def _let(self, var: Expr, value: Expr, body: Stmt) -> None:
        env = self.environment
        bound = (
            self.expressions.indices.index(value)
            if var.dtype is INDEX
            else self.expressions.value(value)
        )
        with env.scope(self.builder.block), env.bound(var, bound):
            self.statement(body)

    def _alloc(self, buffer: Buffer, body: Stmt) -> None:
        raise CodegenError(f"Buffer '{buffer.name}' cannot be allocated here.")

    # --- loops ------------------------------------------------------------------------------------

    def _for(self, loop: For) -> None:
        env, var = self.environment, loop.var
        extent = env.resolve(var.extent)
        number = integer_constant(extent)
        if number is not None and number <= 1:
            if number == 1:
                self._unrolled(loop, 1)
            return
        match loop.kind:
            case "serial" | "parallel":
                self._counted(
                    loop, constant(0, "i64"), self.expressions.indices.index(extent), extent
                )
            case "unrolled":
                self._unroll(loop, self._constant_extent(loop, number))
            case "vectorized":
                lanes = self._constant_extent(loop, number)
                if env.lane is not None or not runs_in_lockstep(loop):
                    self._unrolled(loop, lanes)
                else:
                    with env.scope(self.builder.block), env.bound_lanes(var, lanes):
                        self.statement(loop.body)
            case _:
                raise CodegenError(f"A '{loop.kind}' loop runs on a GPU only.")

    def _constant_extent(self, loop: For, number: int | None) -> int:
        if number is None or number > MAX_UNROLLED:
            raise CodegenError(
                f"Loop '{loop.var.name}' is {loop.kind}, so its extent '{loop.var.extent}' must be "
                f"a constant of at most {MAX_UNROLLED}. Split it first."
            )
        return number

    def _unroll(self, loop: For, count: int) -> None:
        turn = as_transposition(loop) if self.environment.lane is None else None
        if turn is not None and self.expressions.memory.in_memory(turn.read, turn.store):
            emit_transposition(turn, self.expressions.memory, self.builder)
        else:
            self._unrolled(loop, count)

    def _unrolled(self, loop: For, count: int) -> None:
        for i in range(count):
            with self.environment.bound_constant(loop.var, i):
                self.statement(loop.body)

    def _counted(self, loop: For, begin: Value, end: Value, extent: Expr | None) -> None:
        """A loop of whose extent it may be known that it is at least 1."""
        env, around = self.environment, self._in_idle_nest
        condition = None if around else idle_condition(loop)
        if condition is not None:
            end = self.builder.select(self.expressions.value(condition), begin, end)
            extent, self._in_idle_nest = None, True

        def body(counter: Value, before: BasicBlock) -> None:
            with env.scope(before), env.bound(loop.var, counter):
                self.statement(loop.body)

        runs = extent is not None and lower(extent) >= 1
        self.loops.loop(begin, end, self.polls.get(loop), runs, body)
        self._in_idle_nest = around

    def _while(self, condition: Expr, body: Stmt) -> None:
        b, env = self.builder, self.environment
        before, test, inside, after = b.block, *(b.new_block(n) for n in ("while", "do", "done"))
        b.branch(test)
        b.enter(test)
        with env.scope(before):
            truth = self.expressions.value(condition)
            fork = b.block
            b.branch_if(truth, inside, after)
            with env.scope(fork):
                b.enter(inside)
                self.statement(body)
                self._poll(test)
        b.enter(after)

    # --- polls ------------------------------------------------------------------------------------

    def _poll(self, onwards: BasicBlock) -> None:
        """Go on unless the run is to end; then the function returns."""
        b = self.builder
        if self.state is None:
            b.branch(onwards)
            return
        # Volatile: another thread writes it, and it is read anew each time.
        state = b.emit(f"load volatile i32, {self.state}, align 4{self._state_access}", "i32")
        b.branch_if(b.compare("ugt", state, constant(RUNNING, "i32")), self._cancelled, onwards)
        if self._cancelled not in b.blocks:
            self._cancelled.end = f"ret i32 {STATUS_CANCELLED}"
            b.blocks.append(self._cancelled)

    # --- conditions -------------------------------------------------------------------------------

    def _if(self, condition: Expr, then: Stmt, otherwise: Stmt | None) -> None:
        b = self.builder
        truth = self.expressions.value(condition)
        if truth.lanes:
            self._masked(truth, condition, then)
            if otherwise is not None:
                self._masked(b.op("xor", truth, b.like(True, truth)), condition, otherwise)
            return
        fork, inside, after = b.block, b.new_block("then"), b.new_block("endif")
        outside = b.new_block("else") if otherwise is not None else after
        b.branch_if(truth, inside, outside)
        self._branch(then, fork, inside, after)
        if otherwise is not None:
            self._branch(otherwise, fork, outside, after)
        b.enter(after)

    def _branch(self, body: Stmt, fork: BasicBlock, inside: BasicBlock, after: BasicBlock) -> None:
        with self.environment.scope(fork):
            self.builder.enter(inside)
            self.statement(body)
            self.builder.branch(after)

    def _masked(self, truth: Value, condition: Expr, body: Stmt) -> None:
        """``body`` for the lanes where ``truth`` holds, if there are any."""
        b, env = self.builder, self.environment
        mask = truth if env.mask is None else b.op("and", env.mask, truth)
        if _stays_in_registers(body):
            # Cheaper than the branch, and it keeps accumulators out of memory.
            with env.scope(b.block), env.masked(mask, condition):
                self.statement(body)
            return
        fork, inside, after = b.block, b.new_block("some"), b.new_block("endif")
        b.branch_if(b.any_lane(mask), inside, after)
        with env.scope(fork), env.masked(mask, condition):
            b.enter(inside)
            self.statement(body)
            b.branch(after)
        b.enter(after)


def _stays_in_registers(body: Stmt) -> bool:
    """True for straight code that writes register buffers only."""
    stores = [n for n in walk(body) if isinstance(n, Store)]
    straight = all(isinstance(n, Store | Block | Seq) for n in walk(body))
    return straight and all(n.buffer.scope == "register" for n in stores)


class KernelEmitter(StatementEmitter):
    """Emits one kernel."""

    def __init__(self, kernel: Kernel, target: Target) -> None:
        self.module = Module(target)
        super().__init__(Builder(self.module))
        self.kernel = kernel
        self.plan = plan_workspace(kernel)
        self.polls = poll_intervals(kernel)

    def emit(self) -> str:
        """The text of the kernel's module."""
        b, kernel = self.builder, self.kernel
        self._bind_arguments()
        begin, end = Value("%begin", "i64"), Value("%end", "i64")
        body = kernel.body
        if isinstance(body, For) and body.kind == "parallel":
            self._counted(body, begin, end, None)
        else:
            once, done = b.new_block("once"), b.new_block("return")
            fork = b.block
            b.branch_if(b.compare("slt", begin, end), once, done)
            with self.environment.scope(fork):
                b.enter(once)
                self.statement(body)
                b.branch(done)
            b.enter(done)
        b.ret(constant(0, "i32"))
        self.module.functions.append(
            f"define i32 @{kernel.name}(ptr %args, i64 %begin, i64 %end, ptr %workspace) "
            f"{_ATTRIBUTES} {{\n{b.body()}\n}}"
        )
        return self.module.text()

    def _bind_arguments(self) -> None:
        b, env, kernel = self.builder, self.environment, self.kernel
        buffers = (*kernel.inputs, *kernel.outputs)
        written = {s.buffer for s in walk(kernel.body) if isinstance(s, Store)}
        names = [x.name for x in (*buffers, *self.plan.offsets)]
        names += [_STATE] if self.polls else []
        self.alias = alias_scopes(self.module, names, self.plan.overlapping)
        arguments: list[Buffer | Symbol] = [*buffers, *kernel.symbols]
        for number, argument in enumerate(arguments):
            slot = b.emit(f"getelementptr i8, ptr %args, i64 {8 * number}", "ptr")
            if isinstance(argument, Buffer):
                pointer = b.emit(f"load ptr, {slot}, align 8", "ptr")
                self.expressions.addresses.places[argument] = Place(
                    pointer,
                    0,
                    argument.dtype.bytes,
                    argument not in written,
                    alias=self.alias[argument.name],
                )
            else:
                env.values[argument] = b.emit(f"load i64, {slot}, align 8", "i64")
                env.depths[argument] = 0
        if self.polls:
            slot = b.emit(f"getelementptr i8, ptr %args, i64 {8 * len(arguments)}", "ptr")
            self.state = b.emit(f"load ptr, {slot}, align 8", "ptr")
            self._state_access = self.alias[_STATE]
        for buffer, offset in self.plan.offsets.items():
            start = self.expressions.indices.index(offset)
            pointer = b.emit(f"getelementptr i8, ptr %workspace, {start}", "ptr")
            self.expressions.addresses.places[buffer] = Place(
                pointer, 0, 64, alias=self.alias[buffer.name]
            )

    def _alloc(self, buffer: Buffer, body: Stmt) -> None:
        env, places = self.environment, self.expressions.addresses.places
        if buffer.scope == "register":
            # The copies of an unrolled loop take turns in one place.
            if buffer not in places or places[buffer].lanes != env.lanes:
                places[buffer] = self._register_place(buffer)
        elif buffer.scope not in ("register", "workspace"):
            raise CodegenError(f"Buffer '{buffer.name}' of scope '{buffer.scope}' needs a GPU.")
        place = places[buffer]
        place.private, place.lanes = env.lane, env.lanes
        place.bound = env.bound_variables()
        if buffer.scope == "register" and any(isinstance(s, If) for s in walk(body)):
            self._clear(buffer, place)
        self.statement(body)

    def _clear(self, buffer: Buffer, place: Place) -> None:
        """Zeros, of which LLVM drops what is overwritten: lanes that no condition lets through
        compute on them, and what happens to lie there may be subnormal, which is slow.
        """
        size = integer_constant(self.environment.resolve(buffer.layout.size(buffer.shape)))
        assert size is not None
        count = size * max(1, place.lanes) * buffer.dtype.bytes
        b = self.builder
        b.module.declare("llvm.memset.p0.i64", "void", ["ptr", "i8", "i64", "i1 immarg"])
        # Not one large store, which would keep the buffer in memory.
        b.emit_void(
            f"call void @llvm.memset.p0.i64(ptr align {place.align} {place.pointer.text}, "
            f"i8 0, i64 {count}, i1 false){place.alias}"
        )

    def _register_place(self, buffer: Buffer) -> Place:
        env = self.environment
        size = integer_constant(env.resolve(buffer.layout.size(buffer.shape)))
        if size is None:
            raise CodegenError(
                f"Register buffer '{buffer.name}' has the symbolic shape {list(buffer.shape)}. "
                "Registers need constant extents: use the scope 'workspace'."
            )
        target = self.module.target
        align = target.vector_bits // 8
        element = memory_element(buffer.dtype, target)
        return Place(self.builder.allocate(element, size * max(1, env.lanes), align), 0, align)
