# SPDX-License-Identifier: Apache-2.0
"""Loop IR as the source of one Python function, statement by statement.

Nothing is optimised: every loop is a ``for``, every read an indexing of a numpy array in memory
order, every value a numpy scalar of its type, every index a Python int. Layouts are spelled out
here in plain division and remainder, so that the interpreter checks the simplifier instead of
relying on it. Negative indices raise IndexError as numpy does for too large ones; a line number
leads from the error back to the statement.

With ``check_initialised`` every buffer but the inputs has a mask of the cells that were written.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tilewright.ir.buffer import Buffer
from tilewright.ir.dtypes import BOOL, INDEX, DType
from tilewright.ir.errors import InterpreterError
from tilewright.ir.expr import (
    Binary,
    Call,
    Cast,
    Compare,
    Const,
    Expr,
    Guard,
    IndexOp,
    Poly,
    Read,
    Scalar,
    Select,
    Symbol,
    Unary,
    Var,
    children,
)
from tilewright.ir.interpreter import values
from tilewright.ir.loop import (
    Alloc,
    Barrier,
    Block,
    Fits,
    For,
    If,
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
)

# Python refuses more than 20 nested loops; deeper ones go into functions of their own.
_DEPTH = 15
_ANY_ORDER = ("parallel", "vectorized")
_SYMBOLS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}


@dataclass
class Source:
    """The source of a function ``run``, what it refers to, and the way back to the IR.

    ``statements`` maps line numbers to statements, ``names`` Python names to variables, ``buffers``
    buffers to Python names.
    """

    lines: list[str] = field(default_factory=list)
    references: dict[str, Any] = field(default_factory=dict)
    statements: dict[int, Stmt] = field(default_factory=dict)
    names: dict[str, Expr] = field(default_factory=dict)
    buffers: dict[Buffer, str] = field(default_factory=dict)

    @property
    def text(self) -> str:
        return "\n".join(self.lines) + "\n"


class Emitter:
    """Writes one function.

    ``initialised`` are the buffers whose every cell holds data from the start.
    """

    def __init__(
        self,
        initialised: Sequence[Buffer],
        check_initialised: bool = True,
        reverse: bool = False,
        trace: bool = False,
    ) -> None:
        self.source = Source()
        self.source.references.update(_RUNTIME)
        self._checked = check_initialised
        self._initialised = set(initialised)
        self._reverse = reverse
        self._trace = trace
        self._depth = 1
        self._loops = 0
        self._count = 0
        self._variables: dict[Expr, str] = {}
        self._masks: dict[Buffer, str] = {}
        self._constants: dict[Const, str] = {}
        self._temporaries: dict[Expr, str] = {}

    def function(self, buffers: Sequence[Buffer], symbols: Sequence[Symbol], body: Stmt) -> Source:
        """``run(buffers..., symbols...)`` for a body; it returns the masks of the buffers that have
        one.
        """
        parameters = [self.buffer(b) for b in buffers] + [self.variable(s) for s in symbols]
        self.source.lines.append(f"def run({', '.join(parameters)}):")
        for b in buffers:
            self.mask(b)
        self.statement(body)
        masks = ", ".join(f"{b.name!r}: {m}" for b, m in self._masks.items() if b in buffers)
        self.line(f"return {{{masks}}}")
        return self.source

    # --- names ---

    def fresh(self, kind: str, name: str = "") -> str:
        self._count += 1
        return f"{kind}{self._count}_{re.sub('[^A-Za-z0-9]', '_', name)}"

    def variable(self, v: Expr) -> str:
        """The Python name of a variable; the same for the same variable."""
        name = self._variables.get(v)
        if name is None:
            name = self._variables[v] = self.fresh("v", str(v))
            self.source.names[name] = v
        return name

    def buffer(self, b: Buffer) -> str:
        """The Python name of a buffer's array."""
        name = self.source.buffers.get(b)
        if name is None:
            name = self.source.buffers[b] = self.fresh("b", b.name)
        return name

    def mask(self, b: Buffer) -> None:
        """A mask of written cells for a buffer that is in scope."""
        if self._checked and b not in self._initialised:
            name = self._masks[b] = self.fresh("m", b.name)
            self.line(f"{name} = zeros({self.buffer(b)}.shape, bool)")

    def line(self, text: str, at: Stmt | None = None) -> None:
        self.source.lines.append("  " * self._depth + text)
        if at is not None:
            self.source.statements[len(self.source.lines)] = at

    # --- statements ---

    def statement(self, s: Stmt) -> None:
        """The lines of a statement."""
        self._temporaries = {}
        match s:
            case Seq(stmts):
                for each in stmts:
                    self.statement(each)
            case For(var, kind, body):
                self._for(s, var, kind, body)
            case While(condition, body):
                self.line(f"while {self.code(condition)}:", s)
                self._nested(body)
            case If(condition, then, otherwise):
                self._hoist(s)
                self.line(f"if {self.code(condition)}:", s)
                self._nested(then)
                if otherwise is not None:
                    self.line("else:")
                    self._nested(otherwise)
            case Let(var, value, body):
                self._hoist(s)
                self.line(f"{self.variable(var)} = {self.code(value)}", s)
                self.statement(body)
            case Store(buffer, indices, value):
                self._store(s, buffer, indices, value)
            case Alloc(buffer, body):
                shape = "".join(f"{d}, " for d in self._physical_shape(buffer))
                self.line(f"{self.buffer(buffer)} = fresh(({shape}), {self._dtype(buffer)})", s)
                self.mask(buffer)
                self.statement(body)
            case Block(stage, part, point, body):
                if self._trace:
                    at = "".join(f"{self.code(p)}, " for p in point)
                    self.line(f"on_block({stage!r}, {part!r}, ({at}))", s)
                self.statement(body)
            case Barrier():
                pass  # What stands before it has run for all threads already.
            case _:
                self.other_statement(s)

    def other_statement(self, s: Stmt) -> None:
        """A statement that kernels do not have."""
        if isinstance(s, Require | Fits | Place | Output | Launch):
            raise InterpreterError(
                f"The interpreter of kernels does not run '{type(s).__name__.lower()}'."
            )
        raise TypeError(f"No interpretation of {type(s).__name__}.")

    def _for(self, s: Stmt, var: Var, kind: str, body: Stmt) -> None:
        self._loops += 1
        inner = self._loops % _DEPTH == 0
        if inner:
            # Its own function: what it binds is used only inside.
            name = self.fresh("f")
            self.line(f"def {name}():")
            self._depth += 1
        extent = self.code(var.extent)
        backwards = self._reverse and (kind in _ANY_ORDER or "." in kind)
        span = f"range({extent} - 1, -1, -1)" if backwards else f"range({extent})"
        self.line(f"for {self.variable(var)} in {span}:", s)
        self._nested(body)
        if inner:
            self._depth -= 1
            self.line(f"{name}()")
        self._loops -= 1

    def _nested(self, body: Stmt) -> None:
        self._depth += 1
        before = len(self.source.lines)
        self.statement(body)
        if len(self.source.lines) == before:
            self.line("pass")
        self._depth -= 1

    def _store(self, s: Stmt, buffer: Buffer, indices: tuple[Expr, ...], value: Expr) -> None:
        self._hoist(s)
        place = self._place(buffer, indices)
        mask = self._masks.get(buffer)
        if mask is None:
            self.line(f"{self.buffer(buffer)}[{place}] = {self.code(value)}", s)
            return
        self.line(f"{self.buffer(buffer)}[(k := {place})] = {self.code(value)}", s)
        self.line(f"{mask}[k] = True", s)

    def _hoist(self, s: Stmt) -> None:
        """Evaluate once what a statement uses twice, except what only a guard protects."""
        uses: dict[Expr, int] = {}
        order: list[Expr] = []
        for root in expressions(s):
            self._count_uses(root, uses, order)
        for e in order:
            if uses[e] > 1 and children(e):
                code = self.code(e)
                name = self._temporaries[e] = self.fresh("t")
                self.line(f"{name} = {code}", s)

    def _count_uses(self, root: Expr, uses: dict[Expr, int], order: list[Expr]) -> None:
        stack = [(root, False)]
        while stack:
            e, done = stack.pop()
            if done:
                order.append(e)
                continue
            uses[e] = uses.get(e, 0) + 1
            if uses[e] > 1:
                continue
            stack.append((e, True))
            always = (e.condition, e.other) if isinstance(e, Guard) else children(e)
            stack.extend((c, False) for c in always)

    # --- memory ---

    def _dtype(self, buffer: Buffer) -> str:
        return self._reference("dtype", buffer.dtype.name, buffer.dtype.numpy)

    def _reference(self, kind: str, name: str, value: Any) -> str:
        key = f"{kind}_{name}"
        self.source.references[key] = value
        return key

    def _physical_shape(self, b: Buffer) -> list[str]:
        shape = [self.code(d) for d in b.shape]
        factors = _factors(b)
        outer = [
            f"-(-{shape[a]} // {factors[a]})" if a in factors else shape[a] for a in b.layout.order
        ]
        return [*outer, *(str(factor) for _, factor in b.layout.blocks)]

    def _place(self, b: Buffer, indices: tuple[Expr, ...]) -> str:
        """The physical indices as a tuple expression."""
        if not b.layout.blocks:
            codes = [self._checked_index(i) for i in indices]
            return f"({''.join(f'{codes[a]}, ' for a in b.layout.order)})"
        names = [self.fresh("i") for _ in indices]
        bound = ", ".join(
            f"{n} := {self._checked_index(i)}" for n, i in zip(names, indices, strict=True)
        )
        factors = _factors(b)
        outer = [
            f"{names[a]} // {factors[a]}" if a in factors else names[a] for a in b.layout.order
        ]
        inner: list[str] = []
        divisor = dict.fromkeys(factors, 1)
        for axis, factor in reversed(b.layout.blocks):
            inner.append(f"{names[axis]} // {divisor[axis]} % {factor}")
            divisor[axis] *= factor
        return f"(({bound},) and ({', '.join([*outer, *reversed(inner)])}))"

    def _checked_index(self, e: Expr) -> str:
        code = self.code(e)
        if isinstance(e, Var) or (isinstance(e, Const) and int(e.literal) >= 0):
            return code
        name = self.fresh("i")
        return f"({name} if ({name} := {code}) >= 0 else negative())"

    # --- expressions ---

    def code(self, e: Expr) -> str:
        """A Python expression for ``e``: an int for an index, else a numpy scalar (or a bool)."""
        known = self._temporaries.get(e)
        if known is not None:
            return known
        match e:
            case Const():
                return self._constant(e)
            case Symbol() | Var() | Scalar():
                return self.variable(e)
            case Poly(terms):
                products = ["*".join([str(c), *(self.code(a) for a in m)]) for m, c in terms]
                return f"({' + '.join(products)})"
            case IndexOp(op, a, b):
                x, y = self.code(a), self.code(b)
                infix = {"floordiv": "//", "mod": "%"}.get(op)
                return f"({x} {infix} {y})" if infix else f"{op}({x}, {y})"
            case Compare(op, x, y):
                return f"({self.code(x)} {_SYMBOLS[op]} {self.code(y)})"
            case Select(c, x, y):
                return f"select({self.code(c)}, {self.code(x)}, {self.code(y)})"
            case Guard(c, x, other):
                return f"({self.code(x)} if {self.code(c)} else {self.code(other)})"
            case Read(buffer, indices):
                return self._read(e, buffer, indices)
        return self._operation(e)

    def _constant(self, e: Const) -> str:
        if e.dtype is INDEX or e.dtype is BOOL:
            literal = e.literal if e.dtype is INDEX else str(e.literal == "true")
            return f"({literal})" if literal.startswith("-") else literal
        name = self._constants.get(e)
        if name is None:
            name = self._constants[e] = self.fresh("c")
            self.source.references[name] = values.constant(e.literal, e.dtype)
        return name

    def _read(self, e: Read, buffer: Buffer, indices: tuple[Expr, ...]) -> str:
        place = self._place(buffer, indices)
        array = self.buffer(buffer)
        mask = self._masks.get(buffer)
        if mask is None:
            code = f"{array}[{place}]"
        else:
            key = self.fresh("k")
            code = f"({array}[{key}] if {mask}[{key} := {place}] else unwritten({str(e)!r}))"
        return f"int({code})" if e.dtype is INDEX else code

    def _operation(self, e: Expr) -> str:
        match e:
            case Binary(op, x, y, dtype):
                return self._binary(op, self.code(x), self.code(y), dtype)
            case Unary(op, x, _):
                if op == "neg" and x.dtype.bits >= 8:
                    return f"(-{self.code(x)})"
                dtype_name = self._reference("type", x.dtype.name, x.dtype)
                return f"unary({op!r}, {self.code(x)}, {dtype_name})"
            case Cast(x, dtype):
                return self._cast(self.code(x), x.dtype, dtype)
            case Call(function, args, dtype):
                inner = "".join(f"{self.code(a)}, " for a in args)
                return (
                    f"call({function!r}, ({inner}), {self._reference('type', dtype.name, dtype)})"
                )
        raise TypeError(f"No interpretation of {type(e).__name__}.")

    def _binary(self, op: str, x: str, y: str, dtype: DType) -> str:
        plain = {"add": "+", "sub": "-", "mul": "*"}
        if dtype.is_float:
            plain["div"] = "/"
        bits = {"and": "&", "or": "|", "xor": "^"}
        if dtype.bits >= 8 and op in plain and not dtype.is_bool:
            return f"({x} {plain[op]} {y})"
        if dtype.bits >= 8 and op in bits:
            return f"({x} {bits[op]} {y})"
        if op in ("min", "max") and dtype.bits >= 8:
            return f"{op}imum({x}, {y})"
        return f"binary({op!r}, {x}, {y}, {self._reference('type', dtype.name, dtype)})"

    def _cast(self, x: str, source: DType, dtype: DType) -> str:
        if dtype is INDEX and source.is_integer and source.bits >= 8:
            return f"int({x})"
        is_plain = dtype.is_float and dtype.numpy.isbuiltin == 1
        if is_plain and (source.is_float or source.bits >= 8):
            return f"{self._reference('np', dtype.name, dtype.numpy.type)}({x})"
        types = (
            self._reference("type", source.name, source),
            self._reference("type", dtype.name, dtype),
        )
        code = f"cast({x}, {types[0]}, {types[1]})"
        return f"int({code})" if dtype is INDEX else code


def _factors(b: Buffer) -> dict[int, int]:
    factors: dict[int, int] = {}
    for axis, factor in b.layout.blocks:
        factors[axis] = factors.get(axis, 1) * factor
    return factors


# --- what generated code calls ---


def fresh_memory(shape: tuple[int, ...], dtype: "np.dtype[Any]") -> "np.ndarray[Any, Any]":
    """Memory filled with bytes of ones:

    NaN as a float, so that a read of it shows in the results.
    """
    array = np.zeros(shape, dtype=dtype)
    if dtype.kind not in "bO" and dtype.itemsize and array.size:
        array.reshape(-1).view(np.uint8)[...] = 0xFF
    return array


def _negative() -> int:
    raise IndexError("index is negative")


class Unwritten(Exception):
    """A cell was read before anything was written to it."""


def _unwritten(access: str) -> Any:
    raise Unwritten(access)


def _bcast(a: int, b: int) -> int:
    return b if a == 1 else a


def _select(condition: Any, x: Any, y: Any) -> Any:
    return x if condition else y


def _minimum(x: Any, y: Any) -> Any:
    return x if x < y or x != x else y


def _maximum(x: Any, y: Any) -> Any:
    return x if x > y or x != x else y


def _scalar(function: Any) -> Any:
    def apply(*args: Any) -> Any:
        return np.asarray(function(*args))[()]

    return apply


_RUNTIME: dict[str, Any] = {
    "zeros": np.zeros,
    "fresh": fresh_memory,
    "negative": _negative,
    "unwritten": _unwritten,
    "bcast": _bcast,
    "select": _select,
    "minimum": _minimum,
    "maximum": _maximum,
    "unary": _scalar(values.unary),
    "binary": _scalar(values.binary),
    "call": _scalar(values.call),
    "cast": _scalar(values.cast),
}
