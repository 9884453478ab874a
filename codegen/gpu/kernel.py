# SPDX-License-Identifier: Apache-2.0
"""Kernels as source of a C-like language: the phases of a block, one after another, in one set of
threads.

A loop over blocks or threads becomes a variable that the device sets. What stands in the loops over
threads of some axes only is run by the first thread of the others. Loops, conditions and barriers
around the phases are the same for all threads, since no variable of a thread is known there.
Arguments are the kernel's inputs and outputs, its symbols as 64-bit integers, and, if the kernel
has workspace buffers, a pointer to ``workspace_bytes`` for each block.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

from tilewright.codegen.gpu.dialect import Dialect
from tilewright.codegen.gpu.expressions import Expressions, bare, fits
from tilewright.ir.buffer import Buffer
from tilewright.ir.dtypes import I32, INDEX
from tilewright.ir.errors import CodegenError
from tilewright.ir.expr import ONE, ZERO, Const, Expr, Guard, Read, Var, add, children, mul
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
    map_stmt,
    substitute_stmt,
    walk,
)
from tilewright.passes.loop.phases import is_block_loop, is_thread_loop
from tilewright.passes.loop.threads import launch_shape, privatize
from tilewright.passes.loop.workspace import plan_workspace

_RESERVED = frozenset(
    {
        "auto", "barrier", "bool", "break", "case", "char", "class", "const", "constant",
        "continue", "default", "do", "double", "else", "enum", "extern", "false", "float",
        "for", "global", "goto", "half", "if", "inline", "int", "kernel", "local", "long",
        "new", "operator", "private", "register", "return", "scratch", "short", "signed",
        "sizeof", "static", "struct", "switch", "template", "this", "true", "typedef", "union",
        "unsigned", "void", "volatile", "while", "workspace",
    }
)  # fmt: skip


def kernel_source(kernel: Kernel, dialect: Dialect) -> str:
    """The source of a module that defines ``kernel``; CodegenError naming it if it has no code for
    GPUs.
    """
    try:
        return _Printer(kernel, dialect).module()
    except CodegenError as error:
        raise CodegenError(f"Kernel '{kernel.name}': {error}") from error


class _Printer:
    def __init__(self, kernel: Kernel, dialect: Dialect) -> None:
        self.dialect = dialect
        self.shape = launch_shape(kernel)
        self.plan = plan_workspace(kernel)
        try:
            private = privatize(kernel)
        except ValueError as error:
            raise CodegenError(
                f"The threads of a block do not divide the register buffer '{error}' in one way."
            ) from error
        self.kernel = private.with_body(_without_unit_loops(private.body))
        self.expressions = Expressions(dialect)
        self.names = self.expressions.names
        self._taken = set(_RESERVED)
        self._lines: list[str] = []
        self._depth = 1

    # --- the module ---

    def module(self) -> str:
        kernel, dialect = self.kernel, self.dialect
        written = {s.buffer for s in walk(kernel.body) if isinstance(s, Store)}
        parameters = [
            f"{dialect.pointer(b.dtype, b not in written)}{self._named(b, b.name)}"
            for b in (*kernel.inputs, *kernel.outputs)
        ]
        parameters += [f"{dialect.wide} {self._named(s, s.name)}" for s in kernel.symbols]
        if self.plan.total is not ZERO:
            parameters.append(f"{dialect.memory}unsigned char *workspace")
            self._line(f"{dialect.memory}unsigned char *scratch = workspace + {self._scratch()};")
        for s in walk(kernel.body):
            if isinstance(s, Alloc) and s.buffer.scope == "shared":
                self._line(f"{dialect.shared}{self._array(s.buffer)};")
        self._statement(kernel.body, frozenset())
        head = dialect.head(kernel.name, parameters, self.shape)
        body = "\n".join(self._lines)
        return f"{self.expressions.functions.text()}{head}\n{{\n{body}\n}}\n"

    def _scratch(self) -> str:
        """The offset of the block's own part of the workspace."""
        number: Expr = ZERO
        for axis in (2, 1, 0):
            block = Var(f"block {axis}", self.shape.grid[axis])
            self.names[block] = f"({self.dialect.wide}){self.dialect.block_index(axis)}"
            number = add(mul(number, self.shape.grid[axis]), block)
        return self.expressions.index(mul(number, self.plan.total))

    def _named(self, item: Expr | Buffer, name: str) -> str:
        """A C name for a variable or buffer."""
        stem = re.sub(r"\W", "_", name)
        text, number = stem, 1
        while text in self._taken:
            number += 1
            text = f"{stem}_{number}"
        self._taken.add(text)
        self.names[item] = text
        return text

    def _array(self, b: Buffer) -> str:
        size = b.layout.size(b.shape)
        if not isinstance(size, Const):
            raise CodegenError(
                f"Buffer '{b.name}' of scope '{b.scope}' has the symbolic shape {list(b.shape)}. "
                "Split its loops first."
            )
        return f"{self.dialect.element(b.dtype)} {self._named(b, b.name)}[{size}]"

    # --- statements ---

    def _line(self, text: str) -> None:
        self._lines.append("  " * self._depth + text)

    @contextmanager
    def _braces(self, head: str) -> Iterator[None]:
        self._line(f"{head} {{" if head else "{")
        self._depth += 1
        yield
        self._depth -= 1
        self._line("}")

    def _statement(self, s: Stmt, axes: frozenset[int] | None) -> None:
        """Print a statement; ``axes`` are those of the loops over threads around it, None once its
        threads are chosen.
        """
        if axes is not None and not any(
            is_thread_loop(n) or isinstance(n, Barrier) for n in walk(s)
        ):
            others = [a for a in range(3) if a not in axes and self.shape.block[a] > 1]
            axes = None
            if others:
                first = " && ".join(f"{self.dialect.thread_index(a)} == 0" for a in others)
                with self._braces(f"if ({first})"):
                    self._statement(s, None)
                return
        match s:
            case Seq(stmts):
                for child in stmts:
                    self._statement(child, axes)
            case Block(_, _, _, body):
                self._statement(body, axes)
            case For():
                self._for(s, axes)
            case Store(buffer, indices, value):
                self._store(buffer, indices, value)
            case Let(var, value, body):
                with self._braces(""):
                    text = bare(self.expressions.value(value))
                    self._define(var, self.dialect.type(var.dtype), var.name, text)
                    self._statement(body, axes)
            case If(condition, then, otherwise):
                with self._braces(f"if ({bare(self.expressions.value(condition))})"):
                    self._statement(then, axes)
                if otherwise is not None:
                    with self._braces("else"):
                        self._statement(otherwise, axes)
            case While(condition, body):
                with self._braces(f"while ({bare(self.expressions.value(condition))})"):
                    self._statement(body, axes)
            case Alloc(buffer, body):
                self._alloc(buffer, body, axes)
            case Barrier():
                self._line(self.dialect.barrier)
            case _:
                raise CodegenError(f"Statement '{type(s).__name__}' has no code for GPUs.")

    def _for(self, s: For, axes: frozenset[int] | None) -> None:
        var, extent = s.var, bare(self.expressions.index(s.var.extent))
        kind = self.dialect.type(I32 if fits(var.extent) else INDEX)
        if is_block_loop(s):
            number = self.dialect.block_index("xyz".index(s.kind[-1]))
            self._define(var, kind, var.name, number)
            self._statement(s.body, axes)
        elif is_thread_loop(s):
            self._thread_loop(s, axes or frozenset())
        elif s.kind == "parallel":
            raise CodegenError(f"The parallel loop '{var}' is not bound to an axis of the GPU.")
        else:
            name = self._named(var, var.name)
            if s.kind in ("unrolled", "vectorized"):
                self._line("#pragma unroll")
            with self._braces(f"for ({kind} {name} = 0; {name} < {extent}; ++{name})"):
                self._statement(s.body, axes)

    def _thread_loop(self, s: For, axes: frozenset[int]) -> None:
        var, axis, extent = s.var, "xyz".index(s.kind[-1]), int(str(s.var.extent))
        with nullcontext() if axes else self._braces(""):
            self._define(var, self.dialect.type(I32), var.name, self.dialect.thread_index(axis))
            with (
                self._braces(f"if ({self.names[var]} < {extent})")
                if extent < self.shape.block[axis]
                else nullcontext()
            ):
                self._statement(s.body, axes | {axis})

    def _define(self, item: Expr, kind: str, name: str, text: str) -> None:
        self._line(f"const {kind} {self._named(item, name)} = {text};")

    def _alloc(self, buffer: Buffer, body: Stmt, axes: frozenset[int] | None) -> None:
        if buffer.scope == "register":
            self._line(f"{self._array(buffer)};")
        elif buffer.scope == "workspace":
            if axes:
                raise CodegenError(
                    f"Workspace buffer '{buffer.name}' is allocated by each thread. "
                    "Place it in registers."
                )
            pointer = f"{self.dialect.memory}{self.dialect.element(buffer.dtype)} *"
            offset = bare(self.expressions.index(self.plan.offsets[buffer]))
            name = self._named(buffer, buffer.name)
            self._line(f"{pointer}{name} = ({pointer})(scratch + {offset});")
        self._statement(body, axes)

    def _store(self, buffer: Buffer, indices: tuple[Expr, ...], value: Expr) -> None:
        shared = _used_twice((*indices, value))
        with self._braces("") if shared else nullcontext():
            for e in shared:
                text = bare(self.expressions.value(e))
                self._define(e, self.dialect.type(e.dtype), "value", text)
            target = self.expressions.access(buffer, indices)
            self._line(f"{target} = {bare(self.expressions.value(value))};")
        for e in shared:
            del self.names[e]


def _used_twice(roots: tuple[Expr, ...]) -> list[Expr]:
    """Values that a statement uses several times, operands first, without those that only a guard
    lets be evaluated.
    """
    uses: dict[Expr, int] = {}
    order: list[Expr] = []
    stack = [(e, False) for e in reversed(roots)]
    while stack:
        e, done = stack.pop()
        if done:
            order.append(e)
            continue
        uses[e] = uses.get(e, 0) + 1
        if uses[e] == 1:
            stack.append((e, True))
            always = (e.condition, e.other) if isinstance(e, Guard) else children(e)
            stack.extend((c, False) for c in reversed(always))
    return [
        e
        for e in order
        if uses[e] > 1 and e.dtype is not INDEX and (children(e) or isinstance(e, Read))
    ]


def _without_unit_loops(body: Stmt) -> Stmt:
    """``body`` with the variables of loops of one iteration replaced by 0."""

    def on_stmt(s: Stmt) -> Stmt | None:
        if not (isinstance(s, For) and s.var.extent is ONE):
            return None
        return _without_unit_loops(substitute_stmt(s.body, {s.var: ZERO}))

    return map_stmt(body, on_stmt)
