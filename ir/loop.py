# SPDX-License-Identifier: Apache-2.0
"""The tensor loop IR: statements, kernels and host programs. Immutable and hash-consed.

The whole grammar::

    stmt ::= Seq(stmt*)
           | For(var, kind, stmt)                for i in 16 parallel { ... }
           | While(condition, stmt)              while c { ... }
           | If(condition, stmt, stmt?)          if c { ... } else { ... }
           | Let(scalar, value, stmt)            let t = e { ... }
           | Store(buffer, indices, value)       x[i, j] = e
           | Alloc(buffer, stmt)                 alloc t: f32[6,16] @register { ... }
           | Block(stage, part, point, stmt)     block mm.update(m, n, k) { ... }
           | Barrier()                           barrier
           host only:
           | Require(condition, message, values, fault)
                                                 require c "message"(v, ...) fault
           | Fits(sizes, kind, message, values)  fits bytes (e, ...) "message"(v, ...)
           | Place(buffer, offset)               place t: f32[n,64] at 4*n
           | Output(buffer, number)              output y: f32[n,10] as 0
           | Launch(kernel, args, ...)           launch @k(x, w, y; n) tasks t work w workspace b

A loop runs from 0 to the extent of its variable. A :class:`Block` says which point of which stage
the statements inside it compute: ``part`` is ``map``, ``init``, ``update`` or ``copy``. It is what
the legality proof reads: the loops around a block give the order, the accesses inside it the
memory.

Loop kinds: ``serial``, ``parallel`` (iterations are independent tasks), ``vectorized`` (constant
extent, all iterations at once), ``unrolled`` (constant extent), or a GPU axis such as ``block.x``
and ``thread.x``.

A GPU kernel is said with the meaning that loops have anyway: block loops outermost, inside them the
threads' loops, several one after another, each a phase of the block; what stands between them
(serial loops, conditions, allocations) all threads of the block go through together. So an
interpreter and a proof read it like any other kernel, and a barrier says only that the code may not
let a thread go on to the next phase early. Code generation runs all phases in one set of threads.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from tilewright.ir.buffer import Buffer, buffer
from tilewright.ir.dtypes import I64
from tilewright.ir.expr import Expr, Scalar, Symbol, Var, reads
from tilewright.ir.interning import Term
from tilewright.ir.rewrite import rewrite, substitute
from tilewright.ir.stage import Stage
from tilewright.ir.types import tensor

GPU_AXES = tuple(f"{level}.{axis}" for level in ("block", "thread") for axis in "xyz")
LOOP_KINDS = ("serial", "parallel", "vectorized", "unrolled", *GPU_AXES)
SIZE_KINDS = ("bytes", "count")
BLOCK_PARTS = ("map", "init", "update", "copy")


class Stmt(Term):
    """Base of all statements."""

    __slots__ = ()

    def __str__(self) -> str:
        from tilewright.ir.loop_printer import stmt_text

        return stmt_text(self)

    __repr__ = __str__


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Seq(Stmt):
    """Statements one after another; build it with :func:`seq`, which flattens."""

    stmts: tuple[Stmt, ...]


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class For(Stmt):
    """``body`` for every value of ``var``, from 0 up; ``kind`` is one of ``LOOP_KINDS``."""

    var: Var
    kind: str
    body: Stmt


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class While(Stmt):
    """``body`` as long as ``condition`` holds. A kernel with one is opaque to the proof."""

    condition: Expr
    body: Stmt


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class If(Stmt):
    """``then`` where ``condition`` holds, else ``otherwise`` if there is one."""

    condition: Expr
    then: Stmt
    otherwise: Stmt | None = None


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Let(Stmt):
    """``body`` with ``var`` bound to ``value``, which is evaluated once."""

    var: Scalar | Symbol
    value: Expr
    body: Stmt


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Store(Stmt):
    """Write ``value`` to the element of ``buffer`` at logical ``indices``."""

    buffer: Buffer
    indices: tuple[Expr, ...]
    value: Expr


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Alloc(Stmt):
    """``body`` with fresh uninitialised memory for ``buffer``."""

    buffer: Buffer
    body: Stmt


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Block(Stmt):
    """``body`` computes ``part`` of ``stage`` at ``point``: its axes, for an update followed by its
    reduce axes.
    """

    stage: str
    part: str
    point: tuple[Expr, ...]
    body: Stmt


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Barrier(Stmt):
    """All threads of a GPU block have come here, and see what the others wrote; it stands between
    loops over threads.
    """


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Require(Stmt):
    """End the run with an error unless ``condition`` holds; ``{0}``, ``{1}`` in the message stand
    for ``values``.

    The error is of the inputs' shapes, or with ``fault`` of an index that was read from data.
    """

    condition: Expr
    message: str
    values: tuple[Expr, ...] = ()
    fault: bool = False


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Fits(Stmt):
    """End the run with an error unless all steps of computing ``sizes`` fit 64 bits
    (:mod:`tilewright.ir.sizes`); the message is that of a :class:`Require`.

    The ``kind`` says what there is too much of: ``bytes`` of memory, or a ``count`` of elements,
    tasks or work.
    """

    sizes: tuple[Expr, ...]
    kind: str
    message: str
    values: tuple[Expr, ...] = ()


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Place(Stmt):
    """From here on ``buffer`` lies ``offset`` bytes into the arena."""

    buffer: Buffer
    offset: Expr


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Output(Stmt):
    """From here on ``buffer`` is the memory of the model's output ``number``."""

    buffer: Buffer
    number: int


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Launch(Stmt):
    """Run ``kernel`` on ``buffers`` (inputs, then outputs) and ``scalars`` (its symbols, in order).

    ``tasks`` is the extent of its parallel loop, ``work`` an estimate of its cost in nanoseconds on
    one core (small work runs on the calling thread), ``workspace`` the scratch bytes of one task.
    ``origin`` names the model's nodes.
    """

    kernel: str
    buffers: tuple[Buffer, ...]
    scalars: tuple[Expr, ...]
    tasks: Expr
    work: Expr
    workspace: Expr
    origin: str


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Kernel(Term):
    """A kernel: arguments, the stages it has to compute, and loop IR that computes them.

    Arguments of the compiled function, in order: ``inputs``, ``outputs``, then ``symbols`` as
    integers. The body's outermost loop, if parallel, is the task loop. ``stages`` is the
    specification that the proof holds ``body`` to.
    """

    name: str
    inputs: tuple[Buffer, ...]
    outputs: tuple[Buffer, ...]
    symbols: tuple[Symbol, ...]
    stages: tuple[Stage, ...]
    body: Stmt

    def with_body(self, body: Stmt) -> "Kernel":
        return Kernel(self.name, self.inputs, self.outputs, self.symbols, self.stages, body)

    def stage(self, name: str) -> Stage:
        """The stage of that name; KeyError if there is none."""
        for s in self.stages:
            if s.name == name:
                return s
        raise KeyError(name)

    def __str__(self) -> str:
        from tilewright.ir.loop_printer import kernel_text

        return kernel_text(self)

    __repr__ = __str__


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class HostProgram(Term):
    """The program that runs a model: loop IR of kind ``host``.

    ``inputs`` and ``outputs`` are the model's, ``constants`` the buffers bound at load time. The
    shape of the input ``x`` is the buffer ``x.shape`` (i64, one dim) in :func:`shape_buffer`.
    ``arena`` is the size in bytes of the arena, an expression over ``symbols``, which the body
    binds with ``let`` before anything else.
    """

    name: str
    inputs: tuple[Buffer, ...]
    outputs: tuple[Buffer, ...]
    constants: tuple[Buffer, ...]
    arena: Expr
    body: Stmt

    def __str__(self) -> str:
        from tilewright.ir.loop_printer import host_text

        return host_text(self)

    __repr__ = __str__


Function = Kernel | HostProgram


def shape_buffer(source: Buffer) -> Buffer:
    """The buffer ``x.shape`` with the run-time shape of an input ``x``, one i64 for each dim."""
    return buffer(f"{source.name}.shape", tensor(I64, (source.rank,)))


def seq(stmts: Iterable[Stmt]) -> Stmt:
    """Statements in sequence, flattened; a single one is returned as it is."""
    flat: list[Stmt] = []
    for s in stmts:
        flat.extend(s.stmts if isinstance(s, Seq) else (s,))
    return flat[0] if len(flat) == 1 else Seq(tuple(flat))


def nest(loops: Iterable[tuple[Var, str]], body: Stmt) -> Stmt:
    """``body`` inside loops, given outermost first as (variable, kind)."""
    for var, kind in reversed(list(loops)):
        body = For(var, kind, body)
    return body


def children(s: Stmt) -> tuple[Stmt, ...]:
    """The direct sub-statements."""
    match s:
        case Seq(stmts):
            return stmts
        case (
            For(_, _, body)
            | While(_, body)
            | Let(_, _, body)
            | Alloc(_, body)
            | Block(_, _, _, body)
        ):
            return (body,)
        case If(_, then, None):
            return (then,)
        case If(_, then, otherwise) if otherwise is not None:
            return (then, otherwise)
    return ()


def walk(s: Stmt) -> Iterator[Stmt]:
    """Every sub-statement in program order, ``s`` itself first."""
    stack = [s]
    while stack:
        node = stack.pop()
        yield node
        stack.extend(reversed(children(node)))


def expressions(s: Stmt) -> tuple[Expr, ...]:
    """The expressions directly in ``s``, not those of its sub-statements."""
    match s:
        case While(e, _) | If(e, _, _) | Let(_, e, _) | Place(_, e):
            return (e,)
        case For(var, _, _):
            return (var.extent,)
        case Store(_, indices, value):
            return (*indices, value)
        case Block(_, _, point, _):
            return point
        case Require(condition, _, values, _):
            return (condition, *values)
        case Fits(sizes, _, _, values):
            return (*sizes, *values)
        case Launch(_, _, scalars, tasks, work, workspace, _):
            return (*scalars, tasks, work, workspace)
        case Alloc(buffer, _) | Output(buffer, _):
            return buffer.shape
    return ()


def outer_buffers(s: Stmt) -> list[Buffer]:
    """The buffers that ``s`` reads or writes and does not allocate."""
    own: set[Buffer] = set()
    found: dict[Buffer, None] = {}
    for node in walk(s):
        if isinstance(node, Alloc):
            own.add(node.buffer)
        for e in expressions(node):
            found.update(dict.fromkeys(read.buffer for read in reads(e)))
        if isinstance(node, Store):
            found[node.buffer] = None
    return [b for b in found if b not in own]


def map_stmt(
    s: Stmt,
    on_stmt: Callable[[Stmt], Stmt | None] = lambda _: None,
    on_expr: Callable[[Expr], Expr] | None = None,
) -> Stmt:
    """Rebuild ``s``: ``on_stmt`` sees every statement first and may replace it whole; ``on_expr``
    maps expressions.

    Buffers and loop variables are kept; to change those, replace the statements that bind them.
    What does not change is returned as it is.
    """
    replaced = on_stmt(s)
    if replaced is not None:
        return replaced
    inner = [map_stmt(c, on_stmt, on_expr) for c in children(s)]
    same = all(n is c for n, c in zip(inner, children(s), strict=True))
    if on_expr is None:
        return s if same else _rebuilt(s, inner, lambda e: e)
    own = _own_expressions(s)
    if same and all(on_expr(e) is e for e in own):
        return s
    return _rebuilt(s, inner, on_expr)


def _own_expressions(s: Stmt) -> tuple[Expr, ...]:
    """The expressions of ``s`` that :func:`map_stmt` maps: all but extents and shapes."""
    return () if isinstance(s, For | Alloc | Output) else expressions(s)


def _rebuilt(s: Stmt, inner: list[Stmt], on_expr: Callable[[Expr], Expr]) -> Stmt:
    """``s`` with other sub-statements and mapped expressions."""
    match s:
        case Seq():
            return seq(inner)
        case For(var, kind, _):
            return For(var, kind, inner[0])
        case While(condition, _):
            return While(on_expr(condition), inner[0])
        case If(condition, _, otherwise):
            return If(on_expr(condition), inner[0], inner[1] if otherwise is not None else None)
        case Let(var, value, _):
            return Let(var, on_expr(value), inner[0])
        case Store(buffer, indices, value):
            return Store(buffer, tuple(map(on_expr, indices)), on_expr(value))
        case Alloc(buffer, _):
            return Alloc(buffer, inner[0])
        case Block(stage, part, point, _):
            return Block(stage, part, tuple(map(on_expr, point)), inner[0])
        case Require(condition, message, values, fault):
            return Require(on_expr(condition), message, tuple(map(on_expr, values)), fault)
        case Fits(sizes, kind, message, values):
            mapped = tuple(map(on_expr, sizes))
            return Fits(mapped, kind, message, tuple(map(on_expr, values)))
        case Place(buffer, offset):
            return Place(buffer, on_expr(offset))
        case Launch(kernel, buffers, scalars, tasks, work, workspace, origin):
            mapped = tuple(map(on_expr, scalars))
            return Launch(
                kernel, buffers, mapped, on_expr(tasks), on_expr(work), on_expr(workspace), origin
            )
    return s


def substitute_stmt(s: Stmt, replacements: dict[Expr, Expr]) -> Stmt:
    """Replace variables by expressions in all expressions of ``s``, extents of loop variables
    included.
    """
    if not replacements:
        return s
    memo: dict[Expr, Expr] = {}

    def on_stmt(node: Stmt) -> Stmt | None:
        if not isinstance(node, For):
            return None
        extent = substitute(node.var.extent, replacements)
        if extent is node.var.extent:
            return None
        renewed = Var(node.var.name, extent)
        inner = substitute_stmt(node.body, {**replacements, node.var: renewed})
        return For(renewed, node.kind, inner)

    return map_stmt(s, on_stmt, lambda e: rewrite(e, replacements.get, memo))
