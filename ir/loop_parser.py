# SPDX-License-Identifier: Apache-2.0
"""Parser of the loop IR: kernels, stages, statements and host programs.

The grammar is in :mod:`tilewright.ir.loop` and :mod:`tilewright.ir.stage`. What
:mod:`tilewright.ir.loop_printer` printed parses to the identical object. Symbols may be used ahead
of their declaration (argument types come first); every other name is in scope from where it is
bound to the end of the braces around it.
"""

from collections.abc import Callable

from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import Expr, Scalar, Symbol, Var
from tilewright.ir.expr_parser import ExprParser
from tilewright.ir.lexer import Token
from tilewright.ir.loop import (
    BLOCK_PARTS,
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
    Stmt,
    Store,
    While,
    seq,
    shape_buffer,
)
from tilewright.ir.stage import KINDS, Stage


class LoopParser(ExprParser):
    """Parses functions of the loop IR."""

    # --- functions ---

    def function(self) -> Function:
        """A kernel or a host program; nothing of it stays in scope."""
        with self.bound():
            return self.host() if self.token.text == "host" else self.kernel()

    def kernel(self) -> Kernel:
        """A kernel."""
        self.expect("kernel")
        name = self._function_name()
        declared = self._symbols_until_next_function()
        inputs = self._arguments()
        self.expect("->")
        outputs = self._arguments()
        self.expect("{")
        symbols: list[Symbol] = []
        while self._is_declaration("symbol"):
            self.next()
            symbols.append(declared[self.symbol().name])
        while self._is_declaration("buffer"):
            self.next()
            self.buffer()
        stages: list[Stage] = []
        while self._is_declaration("stage"):
            self.next()
            stages.append(self.stage())
        return Kernel(name, inputs, outputs, tuple(symbols), tuple(stages), self._statements())

    def host(self) -> HostProgram:
        """A host program."""
        self.expect("host")
        name = self._function_name()
        self._symbols_until_next_function()
        inputs = self._arguments()
        self.expect("->")
        outputs = self._arguments()
        for each in inputs:
            self.buffers.setdefault(f"{each.name}.shape", shape_buffer(each))
        self.expect("{")
        constants = []
        while self._is_declaration("constant"):
            self.next()
            constants.append(self.buffer())
        self.expect("arena")
        arena = self.index_expr()
        return HostProgram(name, inputs, outputs, tuple(constants), arena, self._statements())

    def _function_name(self) -> str:
        return self.take("at", "the name of a function, such as '@main'")[1:]

    def _symbols_until_next_function(self) -> dict[str, Symbol]:
        depth = 0
        end = self.at
        for end in range(self.at, len(self.tokens)):
            depth += {"{": 1, "}": -1}.get(self.tokens[end].text, 0)
            if depth == 0 and self.tokens[end].text in ("kernel", "host"):
                break
        rest, self.tokens = self.tokens[end:], self.tokens[:end]
        self.tokens.append(Token("end", "", len(self.source)))
        try:
            return self.declare_symbols()
        finally:
            self.tokens[-1:] = rest

    def _arguments(self) -> tuple[Buffer, ...]:
        self.expect("(")
        return tuple(self.separated(self.buffer, ")"))

    def _is_declaration(self, word: str) -> bool:
        """True at ``word NAME``; a buffer of that name would be followed by a bracket."""
        return self.token.text == word and self.ahead().kind == "name"

    # --- stages ---

    def stage(self) -> Stage:
        """One stage, after the word ``stage``; see :mod:`tilewright.ir.stage`."""
        with self.bound():
            token = self.token
            kind = self.name("the kind of a stage")
            if kind not in KINDS:
                self.fail(f"A stage is one of {', '.join(KINDS)}, not '{kind}'.", token)
            name = self.name("the name of a stage")
            axes, reduce_axes = self._domain()
            self.expect("->")
            outputs, targets = self._targets()
            names: list[str] = []
            init: list[Expr] = []
            values: tuple[Expr, ...] = ()
            exclusive = False
            body: Stmt | None = None
            if kind == "map":
                self.expect("=")
                values = self._exprs()
            elif kind == "opaque":
                if self.accept("{"):
                    body = self._statements()
            else:
                self.expect(":")
                names, init = self._initial_values()
                exclusive = self.accept("exclusive")
            accumulators = tuple(Scalar(n, i.dtype) for n, i in zip(names, init, strict=True))
            if names:
                self.scope.update({a.name: a for a in accumulators})
                values = self._exprs()
            return Stage(
                kind, name, axes, reduce_axes, outputs, targets,
                accumulators, tuple(init), values, exclusive, body,
            )  # fmt: skip

    def _domain(self) -> tuple[tuple[Var, ...], tuple[Var, ...]]:
        self.expect("(")
        axes = self._axes()
        inner = self._axes() if self.accept(";") else ()
        self.expect(")")
        return axes, inner

    def _axes(self) -> tuple[Var, ...]:
        axes: list[Var] = []
        while self.token.kind == "name":
            axes.append(self._variable())
            if not self.accept(","):
                break
        return tuple(axes)

    def _variable(self) -> Var:
        name = self.name("the name of a variable")
        self.expect("in")
        made = Var(name, self.index_expr())
        self.scope[name] = made
        return made

    def _targets(self) -> tuple[tuple[Buffer, ...], tuple[Expr, ...]]:
        outputs = []
        cells: list[tuple[Expr, ...]] = []
        while True:
            token = self.token
            self.name("the output of a stage")
            outputs.append(self.lookup_buffer(token))
            self.expect("[")
            cells.append(tuple(self.separated(self.index_expr, "]")))
            if cells[-1] != cells[0]:
                self.fail("All outputs of a stage are written at the same indices.", token)
            if not self.accept(","):
                return tuple(outputs), cells[0]

    def _initial_values(self) -> tuple[list[str], list[Expr]]:
        names: list[str] = []
        init: list[Expr] = []
        while True:
            names.append(self.name("the name of an accumulator"))
            self.expect("=")
            init.append(self.expr())
            if not self.accept(","):
                self.expect("then")
                return names, init

    def _exprs(self) -> tuple[Expr, ...]:
        values = [self.expr()]
        while self.accept(","):
            values.append(self.expr())
        return tuple(values)

    # --- statements ---

    def _statements(self) -> Stmt:
        """Statements up to and over the closing brace."""
        with self.bound():
            stmts: list[Stmt] = []
            while not self.accept("}"):
                stmts.append(self.statement())
            return seq(stmts)

    def _braced(self) -> Stmt:
        self.expect("{")
        return self._statements()

    def statement(self) -> Stmt:
        """One statement."""
        token = self.token
        self.name("a statement")
        parse = self._STATEMENTS.get(token.text)
        if self.token.text == "[" and self.token.kind == "symbol":
            return self._store(token)
        if parse is None:
            self.fail(f"No statement starts with '{token.text}'.", token)
        return parse(self)

    def _store(self, token: Token) -> Stmt:
        target = self.lookup_buffer(token)
        self.expect("[")
        indices = tuple(self.separated(self.index_expr, "]"))
        if len(indices) != target.rank:
            self.fail(
                f"Buffer '{target.name}' of rank {target.rank} is written with "
                f"{len(indices)} indices.",
                token,
            )
        self.expect("=")
        at = self.token
        value = self.expr()
        if value.dtype is not target.dtype:
            self.fail(
                f"A value of type {value.dtype} is stored into '{target.name}' "
                f"of type {target.dtype}.",
                at,
            )
        return Store(target, indices, value)

    def _for(self) -> Stmt:
        with self.bound():
            var = self._variable()
            token = self.token
            kind = self.name("the kind of a loop")
            if kind not in LOOP_KINDS:
                self.fail(f"Loop kind '{kind}' is none of {', '.join(LOOP_KINDS)}.", token)
            return For(var, kind, self._braced())

    def _while(self) -> Stmt:
        condition = self.expr()
        return While(condition, self._braced())

    def _if(self) -> Stmt:
        condition = self.expr()
        then = self._braced()
        return If(condition, then, self._braced() if self.accept("else") else None)

    def _let(self) -> Stmt:
        with self.bound():
            var: Scalar | Symbol
            if self._is_declaration("symbol"):
                self.next()
                var = self.symbol()
                self.expect("=")
                value = self.expr()
            else:
                name = self.name("the name of a scalar")
                self.expect("=")
                value = self.expr()
                var = Scalar(name, value.dtype)
            self.scope[var.name] = var
            return Let(var, value, self._braced())

    def _alloc(self) -> Stmt:
        with self.bound():
            return Alloc(self.buffer(), self._braced())

    def _block(self) -> Stmt:
        token = self.token
        stage, _, part = self.name("a stage and its part").rpartition(".")
        if part not in BLOCK_PARTS or not stage:
            self.fail(
                f"A block is STAGE.PART with one of {', '.join(BLOCK_PARTS)}, not '{token.text}'.",
                token,
            )
        self.expect("(")
        point = tuple(self.separated(self.index_expr, ")"))
        return Block(stage, part, point, self._braced())

    def _barrier(self) -> Stmt:
        return Barrier()

    def _require(self) -> Stmt:
        condition = self.expr()
        message = self.string()
        self.expect("(")
        values = tuple(self.separated(self.expr, ")"))
        return Require(condition, message, values, self.accept("fault"))

    def _fits(self) -> Stmt:
        token = self.token
        kind = self.name("what has to fit")
        if kind not in SIZE_KINDS:
            self.fail(f"Sizes are those of {' or '.join(SIZE_KINDS)}, not of '{kind}'.", token)
        self.expect("(")
        sizes = tuple(self.separated(self.index_expr, ")"))
        message = self.string()
        self.expect("(")
        return Fits(sizes, kind, message, tuple(self.separated(self.index_expr, ")")))

    def _place(self) -> Stmt:
        placed = self.buffer()
        self.expect("at")
        return Place(placed, self.index_expr())

    def _output(self) -> Stmt:
        made = self.buffer()
        self.expect("as")
        return Output(made, self.integer())

    def _launch(self) -> Stmt:
        kernel = self._function_name()
        self.expect("(")
        buffers = []
        scalars: tuple[Expr, ...] = ()
        while self.token.kind == "name":
            buffers.append(self.lookup_buffer(self.next()))
            if not self.accept(","):
                break
        if self.accept(";"):
            scalars = tuple(self.separated(self.index_expr, ")"))
        else:
            self.expect(")")
        costs = []
        for word in ("tasks", "work", "workspace"):
            self.expect(word)
            costs.append(self.index_expr())
        tasks, work, workspace = costs
        origin = self.string()
        return Launch(kernel, tuple(buffers), scalars, tasks, work, workspace, origin)

    _STATEMENTS: dict[str, Callable[["LoopParser"], Stmt]] = {  # noqa: RUF012
        "for": _for,
        "while": _while,
        "if": _if,
        "let": _let,
        "alloc": _alloc,
        "block": _block,
        "barrier": _barrier,
        "require": _require,
        "fits": _fits,
        "place": _place,
        "output": _output,
        "launch": _launch,
    }


def parse_functions(text: str) -> list[Function]:
    """All kernels and host programs of a text; ParseError with line, column and a caret."""
    parser = LoopParser(text)
    functions: list[Function] = []
    while parser.token.kind != "end":
        functions.append(parser.function())
    return functions


def parse_kernel(text: str) -> Kernel:
    """The one kernel of a text; ParseError with line, column and a caret."""
    parser = LoopParser(text)
    kernel = parser.kernel()
    parser.end()
    return kernel


def parse_host(text: str) -> HostProgram:
    """The one host program of a text; ParseError with line, column and a caret."""
    parser = LoopParser(text)
    program = parser.host()
    parser.end()
    return program
