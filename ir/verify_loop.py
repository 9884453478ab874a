# SPDX-License-Identifier: Apache-2.0
"""The verifier of the loop IR. It holds kernels and host programs to these invariants:

* **L1** Names are legal. Buffers and loop variables are bound once in the whole function; a ``let``
  shadows nothing.
* **L2** Every variable in an expression is bound around it, by the same object; symbols are the
  kernel's.
* **L3** A buffer that is accessed is an argument or allocated around the access, by the same
  object, and has as many indices as dims.
* **L4** No input is written.
* **L5** A stored value has the element type of the buffer, indices are of type index, conditions
  are bool.
* **L6** A loop has a kind that exists; vectorized and unrolled loops have a constant extent.
* **L7** Only the outermost statement of a body is a parallel loop.
* **L8** Arguments are global; allocated buffers are not; register buffers have a constant shape.
* **L9** A block names a stage of the kernel and a part that the stage has, with as many indices in
  its point.
* **L10** A sequence is flat and has none or at least two statements.
* **L11** Only host programs place, launch, require and make outputs; only kernels have blocks and
  barriers; barriers and shared buffers lie outside of every loop over threads, which all
  threads would not reach together.
* **L12** Stages are well formed: outputs, accumulators, initial values and values agree in number
  and type, a target has as many indices as the output has dims, variables are the stage's own axes.
* **L13** A buffer has one writing stage, after which other stages may read it; kernel outputs have
  one each.
* **L14** An expression is well typed.
* **L15** In a host program a launched kernel exists and gets buffers and scalars as it declares
  them (checked where the kernels are given); outputs are numbered as the program has them.
* **L16** In a host program, the range of a symbol is required before anything is computed with it.
* **L17** In a host program, all sizes are known to fit 64 bits when they are computed.

A violation raises VerifyError with the number and the lines around the fault.
"""

from collections.abc import Iterable, Mapping
from typing import NoReturn

from tilewright.ir.buffer import Buffer
from tilewright.ir.dtypes import BOOL, INDEX
from tilewright.ir.errors import VerifyError
from tilewright.ir.expr import Const, Expr, Scalar, Symbol, Var, free_variables, reads
from tilewright.ir.host_sizes import size_fault
from tilewright.ir.lexer import is_name
from tilewright.ir.loop import (
    GPU_AXES,
    LOOP_KINDS,
    SIZE_KINDS,
    Alloc,
    Barrier,
    Block,
    Fits,
    For,
    Function,
    HostProgram,
    If,
    Kernel,
    Launch,
    Let,
    Output,
    Place,
    Require,
    Seq,
    Stmt,
    Store,
    While,
    expressions,
    shape_buffer,
)
from tilewright.ir.loop_printer import stmt_lines
from tilewright.ir.stage import Stage
from tilewright.ir.verify_expr import type_fault

_CONTEXT = 2
# What the parts of blocks are for each kind of stage; an opaque stage may have any.
_PARTS = {
    "map": ("map",),
    "reduce": ("init", "update"),
    "scan": ("init", "update"),
    "scatter": ("init", "update"),
}


def verify_kernel(kernel: Kernel) -> None:
    """Check all invariants of a kernel; VerifyError on the first that does not hold."""
    verifier = _Verifier(kernel)
    for b in (*kernel.inputs, *kernel.outputs):
        verifier.bind_buffer(b, None)
        if b.scope != "global":
            verifier.fail("L8", f"Argument '{b}' is not global.")
    for s in kernel.symbols:
        verifier.bind(s, None)
    for b in (*kernel.inputs, *kernel.outputs):
        verifier.check_exprs(b.shape, None)
    verify_stages(kernel, verifier)
    verifier.statement(kernel.body, outermost=True)


def verify_host(host: HostProgram, kernels: Mapping[str, Kernel] | None = None) -> None:
    """Check all invariants of a host program; VerifyError on the first that does not hold."""
    verifier = _Verifier(host, kernels)
    for b in host.inputs:
        verifier.bind_buffer(b, None)
        verifier.bind_buffer(shape_buffer(b), None)
    for b in host.constants:
        verifier.bind_buffer(b, None)
    verifier.statement(host.body, outermost=True)
    fault = size_fault(host)
    if fault is not None:
        verifier.fail(*fault)


def verify_stages(kernel: Kernel, verifier: "_Verifier") -> None:
    """Check L12 and L13."""
    written = set(kernel.inputs)
    names: set[str] = set()
    for stage in kernel.stages:
        fault = _stage_fault(stage, kernel.symbols)
        if fault is None and stage.name in names:
            fault = "Its name is taken by another stage."
        if fault is not None:
            verifier.fail("L12", f"Stage '{stage.name}': {fault}\n  {stage}")
        names.add(stage.name)
        for read in stage.reads():
            if read.buffer not in written and read.buffer not in stage.outputs:
                verifier.fail(
                    "L13", f"Stage '{stage.name}' reads '{read.buffer.name}' before it is written."
                )
        for b in stage.outputs:
            if b in written:
                verifier.fail("L13", f"Stage '{stage.name}' writes '{b.name}' a second time.")
            written.add(b)
    missing = [b for b in kernel.outputs if b not in written]
    if kernel.stages and missing:
        verifier.fail("L13", f"No stage writes the output '{missing[0].name}'.")


def _stage_fault(stage: Stage, symbols: Iterable[Symbol]) -> str | None:
    """What is wrong with a stage by itself, as a sentence."""
    axes: set[Expr] = {*stage.axes, *stage.reduce_axes}
    if len(axes) != len(stage.axes) + len(stage.reduce_axes):
        return "An axis appears twice."
    if any(len(stage.targets) != b.rank for b in stage.outputs) and stage.kind != "opaque":
        return "A target has not as many indices as the output has dims."
    count = len(stage.outputs)
    if stage.kind == "map" and (stage.accumulators or stage.init or stage.reduce_axes):
        return "A map has no accumulators and no reduce axes."
    if stage.kind in ("reduce", "scan", "scatter"):
        if not len(stage.accumulators) == len(stage.init) == len(stage.values):
            return "Accumulators, initial values and values differ in number."
        for a, i, v in zip(stage.accumulators, stage.init, stage.values, strict=True):
            if not a.dtype is i.dtype is v.dtype:
                return (
                    f"Accumulator '{a}' of type {a.dtype} starts as {i.dtype}, becomes {v.dtype}."
                )
    if stage.kind != "opaque":
        carried_only = stage.kind == "scan" and len(stage.values) > count
        if len(stage.values) != count and not carried_only:
            return f"There are {len(stage.values)} values for {count} outputs."
        for b, v in zip(stage.outputs, stage.values, strict=False):
            if b.dtype is not v.dtype:
                return f"A value of type {v.dtype} goes into '{b.name}' of type {b.dtype}."
    known = axes | set(symbols) | set(stage.accumulators)
    for e in (*stage.targets, *stage.init, *stage.values, *(v.extent for v in (*stage.axes,))):
        unknown = [v for v in free_variables(e) if v not in known]
        if unknown:
            return f"'{unknown[0]}' in '{e}' is no axis, accumulator or symbol."
        fault = type_fault(e)
        if fault is not None:
            return fault
    return None


class _Verifier:
    """Checks the statements of one function, carrying what is in scope."""

    def __init__(self, function: Function, kernels: Mapping[str, Kernel] | None = None) -> None:
        self.function = function
        self.kernels = kernels
        self.is_host = isinstance(function, HostProgram)
        self.variables: dict[str, Expr] = {}
        self.buffers: dict[str, Buffer] = {}
        self.inputs = set(function.inputs)
        self.names: set[str] = set()
        self.in_threads = False
        self._checked: set[Expr] = set()

    def fail(self, rule: str, message: str, at: Stmt | None = None) -> NoReturn:
        """Raise VerifyError, showing the lines around a statement."""
        what = "Host program" if self.is_host else "Kernel"
        text = [f"[{rule}] {what} '{self.function.name}': {message}"]
        if at is not None:
            lines = stmt_lines(self.function.body, 1)
            place = next((i for i, (_, _, s) in enumerate(lines) if s is at), 0)
            for i in range(max(0, place - _CONTEXT), min(len(lines), place + _CONTEXT + 1)):
                depth, line, _ = lines[i]
                text.append(f"{'>' if i == place else ' '} {'  ' * depth}{line}")
        raise VerifyError("\n".join(text))

    # --- scope ---

    def bind(self, v: Expr, at: Stmt | None) -> None:
        """Bring a variable into scope."""
        name = str(v)
        if not is_name(name):
            self.fail("L1", f"'{name}' is no legal name.", at)
        if name in self.variables or (isinstance(v, Var) and name in self.names):
            self.fail("L1", f"The name '{name}' is bound a second time.", at)
        if isinstance(v, Var):
            self.names.add(name)
        self.variables[name] = v

    def bind_buffer(self, b: Buffer, at: Stmt | None) -> None:
        """Bring a buffer into scope."""
        if not is_name(b.name):
            self.fail("L1", f"'{b.name}' is no legal name.", at)
        if f"{b.name}[" in self.names:
            self.fail("L1", f"The buffer name '{b.name}' is bound a second time.", at)
        self.names.add(f"{b.name}[")
        self.buffers[b.name] = b

    def check_exprs(self, exprs: Iterable[Expr], at: Stmt | None) -> None:
        """L2, L3 and L14 for some expressions."""
        for e in exprs:
            for v in free_variables(e):
                if self.variables.get(str(v)) is not v:
                    known = (
                        "another object of that name is"
                        if str(v) in self.variables
                        else "it is not"
                    )
                    self.fail("L2", f"'{v}' in '{e}': {known} bound here.", at)
            for read in reads(e):
                self._access(read.buffer, read.indices, at)
            if e not in self._checked:
                fault = type_fault(e)
                if fault is not None:
                    self.fail("L14", fault, at)
                self._checked.add(e)

    def _access(self, b: Buffer, indices: tuple[Expr, ...], at: Stmt | None) -> None:
        if self.buffers.get(b.name) is not b:
            self.fail("L3", f"Buffer '{b}' is accessed where it does not exist.", at)
        if len(indices) != b.rank:
            self.fail("L3", f"Buffer '{b}' is accessed with {len(indices)} indices.", at)
        if any(i.dtype is not INDEX for i in indices):
            self.fail("L5", f"An index of an access to '{b.name}' is no index expression.", at)

    # --- statements ---

    def statement(self, s: Stmt, outermost: bool = False) -> None:
        """Check a statement and what is in it."""
        if not isinstance(s, For):
            self.check_exprs((e for e in expressions(s) if not isinstance(s, Alloc | Output)), s)
        match s:
            case Seq(stmts):
                if len(stmts) == 1 or any(isinstance(c, Seq) for c in stmts):
                    self.fail("L10", "A sequence is not flat.", s)
                for c in stmts:
                    self.statement(c)
            case For():
                self._for(s, outermost)
            case While(condition, body) | If(condition, body, _):
                self._condition(condition, s)
                self._inside(body)
                if isinstance(s, If) and s.otherwise is not None:
                    self._inside(s.otherwise)
            case Let(var, value, body):
                self._let(s, var, value, body, outermost)
            case Store(buffer, indices, value):
                self._access(buffer, indices, s)
                if buffer in self.inputs:
                    self.fail("L4", f"The input '{buffer.name}' is written.", s)
                if value.dtype is not buffer.dtype:
                    self.fail("L5", f"A {value.dtype} is stored into '{buffer}'.", s)
            case Alloc(buffer, body):
                self._alloc(s, buffer, body)
            case Block():
                self._block(s)
            case _:
                self._other(s)

    def _inside(self, body: Stmt) -> None:
        variables, buffers = dict(self.variables), dict(self.buffers)
        self.statement(body)
        self.variables, self.buffers = variables, buffers

    def _condition(self, condition: Expr, s: Stmt) -> None:
        if condition.dtype is not BOOL:
            self.fail("L5", f"The condition '{condition}' is of type {condition.dtype}.", s)

    def _for(self, s: For, outermost: bool) -> None:
        if s.kind not in LOOP_KINDS:
            self.fail("L6", f"There is no loop kind '{s.kind}'.", s)
        if s.kind in ("vectorized", "unrolled") and not isinstance(s.var.extent, Const):
            self.fail("L6", f"The extent of the {s.kind} loop '{s.var}' is not constant.", s)
        if s.kind == "parallel" and not outermost:
            self.fail("L7", f"The parallel loop '{s.var}' is not the outermost statement.", s)
        self.check_exprs((s.var.extent,), s)
        variables, in_threads = dict(self.variables), self.in_threads
        self.in_threads = in_threads or s.kind in GPU_AXES[3:]
        self.bind(s.var, s)
        self._inside(s.body)
        self.variables, self.in_threads = variables, in_threads

    def _let(self, s: Let, var: Scalar | Symbol, value: Expr, body: Stmt, outermost: bool) -> None:
        if var.dtype is not value.dtype:
            self.fail("L5", f"'{var}' of type {var.dtype} is bound to a {value.dtype}.", s)
        variables = dict(self.variables)
        self.bind(var, s)
        self.statement(body, outermost and self.is_host)
        self.variables = variables

    def _alloc(self, s: Alloc, b: Buffer, body: Stmt) -> None:
        self.check_exprs(b.shape, s)
        if b.scope == "global":
            self.fail("L8", f"'{b}' is allocated, but global.", s)
        if b.scope == "shared" and self.in_threads:
            self.fail("L11", f"'{b}' is allocated inside a loop over threads.", s)
        if b.scope == "register" and not b.type.is_static:
            self.fail("L8", f"The shape of the register buffer '{b}' is not constant.", s)
        buffers = dict(self.buffers)
        self.bind_buffer(b, s)
        self.statement(body)
        self.buffers = buffers

    def _block(self, s: Block) -> None:
        if not isinstance(self.function, Kernel):
            self.fail("L11", "A host program has no blocks.", s)
        stage = next((t for t in self.function.stages if t.name == s.stage), None)
        if stage is None:
            self.fail("L9", f"There is no stage '{s.stage}'.", s)
        if stage.kind != "opaque" and s.part != "copy":
            if s.part not in _PARTS[stage.kind]:
                self.fail("L9", f"The {stage.kind} stage '{s.stage}' has no part '{s.part}'.", s)
            arity = len(stage.axes) + (len(stage.reduce_axes) if s.part == "update" else 0)
            if stage.kind == "scan" and s.part == "init":
                arity = len(stage.axes) - 1
            elif stage.kind == "scatter" and s.part == "update":
                arity = len(stage.reduce_axes)
            if len(s.point) != arity:
                self.fail(
                    "L9",
                    f"The point of '{s.stage}.{s.part}' has {len(s.point)} of {arity} indices.",
                    s,
                )
        self._inside(s.body)

    def _other(self, s: Stmt) -> None:
        is_host_only = isinstance(s, Require | Fits | Place | Output | Launch)
        if is_host_only is not self.is_host:
            where = "host program" if self.is_host else "kernel"
            self.fail("L11", f"A {where} has no '{type(s).__name__.lower()}'.", s)
        match s:
            case Barrier():
                if self.in_threads:
                    self.fail("L11", "A barrier is inside a loop over threads.", s)
            case Require(condition, _, _):
                self._condition(condition, s)
            case Fits(_, kind, _, _):
                if kind not in SIZE_KINDS:
                    self.fail("L17", f"There are no sizes of '{kind}'.", s)
            case Place(buffer, _):
                self.check_exprs(buffer.shape, s)
                self.bind_buffer(buffer, s)
            case Output(buffer, number):
                self.check_exprs(buffer.shape, s)
                outputs = self.function.outputs
                if not 0 <= number < len(outputs) or outputs[number].name != buffer.name:
                    self.fail("L15", f"'{buffer.name}' is not output {number} of the program.", s)
                self.bind_buffer(buffer, s)
            case Launch():
                self._launch(s)

    def _launch(self, s: Launch) -> None:
        for b in s.buffers:
            if self.buffers.get(b.name) is not b:
                self.fail("L3", f"Buffer '{b}' is passed where it does not exist.", s)
        if self.kernels is None:
            return
        kernel = self.kernels.get(s.kernel)
        if kernel is None:
            self.fail("L15", f"There is no kernel '{s.kernel}'.", s)
        wanted = (*kernel.inputs, *kernel.outputs)
        if len(s.buffers) != len(wanted) or len(s.scalars) != len(kernel.symbols):
            self.fail(
                "L15",
                f"'{s.kernel}' takes {len(wanted)} buffers and {len(kernel.symbols)} scalars.",
                s,
            )
        for given, want in zip(s.buffers, wanted, strict=True):
            if given.dtype is not want.dtype:
                self.fail("L15", f"'{given}' is passed for '{want}'.", s)
