# SPDX-License-Identifier: Apache-2.0
"""Parser of scalar expressions, types and buffers: the part that both IRs share.

What was printed parses to the identical object: sums and products go through the canonical form,
every other node is built exactly as written. Nothing is simplified, so a hand-written ``i % 4``
stays what it says.
"""

import difflib
from collections.abc import Iterator
from contextlib import contextmanager

from tilewright.ir.buffer import SCOPES, Buffer, buffer
from tilewright.ir.dtypes import BOOL, BY_NAME, INDEX, STRING, DType
from tilewright.ir.expr import (
    BINARY_OPS,
    COMPARE_OPS,
    FALSE,
    INFIX,
    MATH_FUNCTIONS,
    TRUE,
    UNARY_OPS,
    Binary,
    Call,
    Cast,
    Compare,
    Const,
    Expr,
    Guard,
    IndexOp,
    Monomial,
    Read,
    Select,
    Symbol,
    Unary,
    const,
    index,
    mul,
    polynomial,
    terms_of,
)
from tilewright.ir.layout import Layout
from tilewright.ir.lexer import Cursor, Token
from tilewright.ir.types import TensorType, tensor

_OPERATORS = {text: op for op, text in INFIX.items()}
_ARITY = {
    **dict.fromkeys((*UNARY_OPS, *MATH_FUNCTIONS), 1),
    **dict.fromkeys((*BINARY_OPS, "bcast", "pow"), 2),
    **dict.fromkeys(("select", "guard", "fma"), 3),
}


class ExprParser(Cursor):
    """Parses expressions whose names are looked up in ``scope`` (variables) and ``buffers``."""

    def __init__(self, source: str) -> None:
        super().__init__(source)
        self.scope: dict[str, Expr] = {}
        self.buffers: dict[str, Buffer] = {}

    @contextmanager
    def bound(self) -> Iterator[None]:
        """Names that are added inside are forgotten afterwards."""
        scope, buffers = self.scope, self.buffers
        self.scope, self.buffers = dict(scope), dict(buffers)
        try:
            yield
        finally:
            self.scope, self.buffers = scope, buffers

    # --- expressions ---

    def expr(self) -> Expr:
        """An expression of any type."""
        x = self._sum()
        token = self.token
        if token.kind == "symbol" and _OPERATORS.get(token.text) in COMPARE_OPS:
            self.next()
            y = self._sum()
            self._same_type(x, y, token)
            return Compare(_OPERATORS[token.text], x, y)
        return x

    def index_expr(self) -> Expr:
        """An expression that must be of type index."""
        token = self.token
        e = self.expr()
        if e.dtype is not INDEX:
            self.fail(f"Expected an index expression, found '{e}' of type {e.dtype}.", token)
        return e

    def _same_type(self, x: Expr, y: Expr, token: Token) -> None:
        if x.dtype is not y.dtype:
            self.fail(
                f"Operands '{x}' of type {x.dtype} and '{y}' of type {y.dtype} differ in type.",
                token,
            )

    def _sum(self) -> Expr:
        x = self._product()
        if self.token.text not in ("+", "-"):
            return x
        terms: dict[Monomial, int] = {}
        is_index = x.dtype is INDEX
        if is_index:
            terms = dict(terms_of(x))
        while self.token.kind == "symbol" and self.token.text in ("+", "-"):
            token = self.next()
            y = self._product()
            self._same_type(x, y, token)
            if is_index:
                sign = 1 if token.text == "+" else -1
                for monomial, coefficient in terms_of(y):
                    terms[monomial] = terms.get(monomial, 0) + sign * coefficient
            else:
                x = Binary(_OPERATORS[token.text], x, y, x.dtype)
        # All terms at once: partial sums must not be rewritten.
        return polynomial(terms) if is_index else x

    def _product(self) -> Expr:
        x = self._unary()
        while self.token.kind == "symbol" and self.token.text in ("*", "/", "//", "%"):
            token = self.next()
            y = self._unary()
            self._same_type(x, y, token)
            x = self._multiplied(token, x, y)
        return x

    def _multiplied(self, token: Token, x: Expr, y: Expr) -> Expr:
        if token.text in ("//", "%"):
            if x.dtype is not INDEX:
                self.fail(f"'{token.text}' is for index expressions; write 'div' or 'mod'.", token)
            return IndexOp("floordiv" if token.text == "//" else "mod", x, y)
        if x.dtype is not INDEX:
            return Binary(_OPERATORS[token.text], x, y, x.dtype)
        if token.text == "/":
            self.fail("Index expressions are divided with '//'.", token)
        return mul(x, y)

    def _unary(self) -> Expr:
        if not self.accept("-"):
            return self._primary()
        x = self._unary()
        return mul(x, -1) if x.dtype is INDEX else Unary("neg", x, x.dtype)

    def _primary(self) -> Expr:
        token = self.token
        if token.kind == "int":
            return index(int(self.next().text))
        if self.accept("("):
            inner = self.expr()
            self.expect(")")
            return inner
        if token.kind != "name":
            self.unexpected("an expression")
        self.next()
        if self.token.text == "(" and self.token.kind == "symbol":
            self.next()
            return self._call(token)
        if self.token.text == "[" and self.token.kind == "symbol":
            self.next()
            return self._read(token)
        if token.text in ("true", "false"):
            return TRUE if token.text == "true" else FALSE
        return self.lookup(token)

    def lookup(self, token: Token) -> Expr:
        """The variable or symbol that a name stands for."""
        found = self.scope.get(token.text)
        if found is None:
            self.fail(f"Unknown name '{token.text}'.{self._near(token.text, self.scope)}", token)
        return found

    def lookup_buffer(self, token: Token) -> Buffer:
        """The buffer that a name stands for."""
        found = self.buffers.get(token.text)
        if found is None:
            near = self._near(token.text, self.buffers)
            self.fail(f"Unknown buffer '{token.text}'.{near}", token)
        return found

    @staticmethod
    def _near(name: str, known: "dict[str, Expr] | dict[str, Buffer]") -> str:
        near = difflib.get_close_matches(name, list(known), 1)
        return f" Did you mean '{near[0]}'?" if near else ""

    def _read(self, token: Token) -> Expr:
        source = self.lookup_buffer(token)
        indices = tuple(self.separated(self.index_expr, "]"))
        if len(indices) != source.rank:
            self.fail(
                f"Buffer '{source.name}' of rank {source.rank} is read with {len(indices)} "
                f"{'index' if len(indices) == 1 else 'indices'}.",
                token,
            )
        return Read(source, indices)

    def _call(self, token: Token) -> Expr:
        name = token.text
        if name in BY_NAME:
            return self._literal(BY_NAME[name])
        if name == "cast":
            x = self.expr()
            self.expect(",")
            dtype = self.dtype()
            self.expect(")")
            return Cast(x, dtype)
        if name not in _ARITY:
            near = difflib.get_close_matches(name, [*_ARITY, *BY_NAME, "cast"], 1)
            hint = f" Did you mean '{near[0]}'?" if near else ""
            self.fail(f"Unknown function '{name}'.{hint}", token)
        return self._apply(token, self.separated(self.expr, ")"))

    def _literal(self, dtype: DType) -> Expr:
        token = self.token
        # Only the empty string is a value of the IR; it is written with nothing between.
        if dtype is STRING and self.accept(")"):
            return Const("", STRING)
        sign = "-" if self.accept("-") else ""
        digits = self.next()
        fits = ("int",) if dtype.is_integer else ("int", "float")
        is_special = dtype.is_float and digits.text in ("inf", "nan")
        if digits.kind not in fits and not is_special:
            self.fail(f"Expected a literal of type {dtype}, found '{digits.text}'.", token)
        self.expect(")")
        if dtype.is_float:
            return const(float(sign + digits.text), dtype)
        value = int(sign + digits.text)
        if not dtype.min <= value <= dtype.max:
            self.fail(f"{value} does not fit into {dtype}.", token)
        return const(value, dtype)

    def _apply(self, token: Token, args: list[Expr]) -> Expr:
        name = token.text
        wanted = _ARITY[name]
        if len(args) != wanted:
            self.fail(f"'{name}' takes {wanted} arguments, got {len(args)}.", token)
        operands = args[1:] if name in ("select", "guard") else args
        for other in operands[1:]:
            self._same_type(operands[0], other, token)
        if name in ("select", "guard"):
            if args[0].dtype is not BOOL:
                self.fail(f"The condition '{args[0]}' is of type {args[0].dtype}.", token)
            return (Select if name == "select" else Guard)(*args)
        if name in UNARY_OPS:
            return Unary(name, args[0], BOOL if name in ("isnan", "isinf") else args[0].dtype)
        if name == "bcast" or (name in ("min", "max") and args[0].dtype is INDEX):
            return IndexOp(name, *args)
        if name in BINARY_OPS:
            return Binary(name, args[0], args[1], args[0].dtype)
        return Call(name, tuple(args), args[0].dtype)

    # --- types, buffers, symbols ---

    def dtype(self) -> DType:
        token = self.token
        name = self.name("an element type")
        if name not in BY_NAME:
            near = difflib.get_close_matches(name, list(BY_NAME), 1)
            hint = f" Did you mean '{near[0]}'?" if near else ""
            self.fail(f"Unknown element type '{name}'.{hint}", token)
        return BY_NAME[name]

    def layout(self, rank: int | None = None) -> Layout:
        """``{0,2,3,1;0:16}``; checked against ``rank`` if that is given."""
        start = self.expect("{")
        order: list[int] = []
        while self.token.kind == "int":
            order.append(self.integer())
            if not self.accept(","):
                break
        blocks: list[tuple[int, int]] = []
        if self.accept(";"):
            blocks = self.separated(self._layout_block, "}")
        else:
            self.expect("}")
        if sorted(order) != list(range(len(order) if rank is None else rank)):
            self.fail("The order of a layout names every axis once.", start)
        if any(axis >= len(order) or factor < 1 for axis, factor in blocks):
            self.fail("A block of a layout names an axis and a positive factor.", start)
        return Layout(tuple(order), tuple(blocks))

    def _layout_block(self) -> tuple[int, int]:
        axis = self.integer()
        self.expect(":")
        return axis, self.integer()

    def tensor_type(self) -> TensorType:
        """``f32[n,64]``, with a layout where a brace and a digit follow."""
        dtype = self.dtype()
        self.expect("[")
        dims = tuple(self.separated(self.index_expr, "]"))
        has_layout = self.token.text == "{" and self.ahead().kind == "int"
        return tensor(dtype, dims, self.layout(len(dims)) if has_layout else None)

    def buffer(self) -> Buffer:
        """``x: f32[n,64] @register``; it is in scope from here on."""
        name = self.name("the name of a buffer")
        self.expect(":")
        kind = self.tensor_type()
        scope = "global"
        if self.token.kind == "at":
            token = self.next()
            scope = token.text[1:]
            if scope not in SCOPES:
                self.fail(f"Scope '{scope}' is none of {', '.join(SCOPES)}.", token)
        made = buffer(name, kind, scope)
        self.buffers[name] = made
        return made

    def symbol(self) -> Symbol:
        """``n in [1, 64] multiple 8 hint 16``."""
        name = self.name("the name of a symbol")
        self.expect("in")
        self.expect("[")
        lo = self.integer()
        self.expect(",")
        hi = self.integer()
        self.expect("]")
        multiple = self.integer() if self.accept("multiple") else 1
        hint = self.integer() if self.accept("hint") else 0
        return Symbol(name, lo, hi, multiple, hint)

    def declare_symbols(self) -> dict[str, Symbol]:
        """Bring every ``symbol NAME in [...]`` of the rest of the text into scope, ahead of its
        place.
        """
        found: dict[str, Symbol] = {}
        at = self.at
        for position in range(at, len(self.tokens) - 3):
            words = [t.text for t in self.tokens[position : position + 4]]
            if words[0] == "symbol" and words[2:] == ["in", "["]:
                self.at = position + 1
                token = self.token
                symbol = self.symbol()
                if found.setdefault(symbol.name, symbol) is not symbol:
                    self.fail(f"Symbol '{symbol.name}' is declared twice, differently.", token)
        self.at = at
        self.scope.update(found)
        return found


def parse_expr(text: str, *names: "Expr | Buffer") -> Expr:
    """The expression that ``text`` says; ``names`` are the variables and buffers it may mention."""
    parser = ExprParser(text)
    for known in names:
        if isinstance(known, Buffer):
            parser.buffers[known.name] = known
        else:
            parser.scope[str(known)] = known
    result = parser.expr()
    parser.end()
    return result
