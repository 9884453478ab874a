# SPDX-License-Identifier: Apache-2.0
"""Expressions as C text.

Values are computed in their own type. Indices are ``int`` where their bounds show that they, and
every sum and product on the way to them, fit; else 64-bit integers. Both arms of a select may be
evaluated, those of a guard not: C's ``?:`` does for both.
"""

from tilewright.codegen.gpu.dialect import Dialect
from tilewright.codegen.gpu.functions import Functions
from tilewright.ir.bounds import bounds, is_nonnegative, lower
from tilewright.ir.buffer import Buffer
from tilewright.ir.dtypes import BOOL, I32, I64, INDEX, DType
from tilewright.ir.errors import CodegenError
from tilewright.ir.expr import (
    INFIX,
    Binary,
    Call,
    Cast,
    Compare,
    Const,
    Expr,
    Guard,
    IndexOp,
    Monomial,
    Poly,
    Read,
    Scalar,
    Select,
    Symbol,
    Unary,
    Var,
    index,
    polynomial,
)
from tilewright.ir.simplify import maximum

_LOGIC = {"and": "&&", "or": "||", "xor": "!=", "add": "||", "max": "||", "mul": "&&", "min": "&&"}
_BITS = {"and": "&", "or": "|", "xor": "^"}
_ROUNDING = {"ceil": "ceil", "floor": "floor", "round": "rint", "trunc": "trunc"}
_LIMIT = int(I32.max)


def fits(e: Expr) -> bool:
    """True if an index expression is known to fit an ``int``."""
    least, greatest = bounds(e)
    return least >= -_LIMIT and greatest <= _LIMIT


def bare(text: str) -> str:
    """``text`` without the parentheses around all of it."""
    depth = 0
    for position, character in enumerate(text):
        depth += {"(": 1, ")": -1}.get(character, 0)
        if depth == 0 and (position < len(text) - 1 or character != ")"):
            return text
    return text[1:-1]


class Expressions:
    """Prints expressions; ``names`` holds the C names of variables, buffers and temporaries."""

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect
        self.functions = Functions(dialect)
        self.names: dict[Expr | Buffer, str] = {}

    def value(self, e: Expr) -> str:
        """The text of an expression; it binds at least as tightly as a C operand needs."""
        if e in self.names:
            return self.names[e]
        if e.dtype is INDEX and isinstance(e, Const | Poly | IndexOp):
            return self.index(e)
        match e:
            case Const():
                return self._constant(e)
            case Read(buffer, indices):
                text = self.access(buffer, indices)
                return f"({text} != 0)" if buffer.dtype is BOOL else text
            case Unary(op, x, _):
                return self._unary(op, self.value(x), x.dtype)
            case Binary(op, x, y, dtype):
                return self._binary(op, self.value(x), self.value(y), dtype)
            case Compare(op, x, y):
                return f"({self.value(x)} {INFIX[op]} {self.value(y)})"
            case Select(c, x, y) | Guard(c, x, y):
                return f"({self.value(c)} ? {self.value(x)} : {self.value(y)})"
            case Cast(x, dtype):
                return self._cast(self.value(x), x.dtype, dtype)
            case Call(function, args, dtype):
                return self._call(function, [self.value(a) for a in args], dtype)
            case Var() | Symbol() | Scalar():
                raise CodegenError(f"'{e}' is used outside of the statement that binds it.")
        raise CodegenError(f"Expression '{e}' has no code for GPUs.")

    def access(self, buffer: Buffer, indices: tuple[Expr, ...]) -> str:
        """The element of a buffer at logical indices."""
        offset = buffer.layout.offset(buffer.shape, indices)
        return f"{self.names[buffer]}[{bare(self.index(offset))}]"

    # --- indices ---

    def index(self, e: Expr) -> str:
        """The text of an index expression."""
        return self._index(e)[0]

    def _index(self, e: Expr) -> tuple[str, bool]:
        """The text of an index expression, and whether it is a 64-bit integer."""
        match e:
            case Const(literal):
                dtype = I32 if fits(e) else I64
                return self.dialect.integer(int(literal), dtype), dtype is I64
            case Poly(terms):
                return self._sum(terms)
            case IndexOp(op, a, b):
                return self._index_operation(op, a, b)
            case Var():
                return self.value(e), not fits(e.extent)
        return self.value(e), True

    def _sum(self, terms: tuple[tuple[Monomial, int], ...]) -> tuple[str, bool]:
        text, wide, least, greatest = "", False, 0.0, 0.0
        for monomial, coefficient in terms:
            low, high = bounds(polynomial({monomial: coefficient}))
            least, greatest = least + low, greatest + high
            product, is_wide = self._product(monomial, abs(coefficient))
            if not text:
                text, wide = f"-{product}" if coefficient < 0 else product, is_wide
                continue
            if not (wide or is_wide or -_LIMIT <= least <= greatest <= _LIMIT):
                text, is_wide = self._widened(text), True
            text = f"{text} {'-' if coefficient < 0 else '+'} {product}"
            wide = wide or is_wide
        return f"({text})" if len(terms) > 1 or text.startswith("-") else text, wide

    def _product(self, monomial: Monomial, coefficient: int) -> tuple[str, bool]:
        factors = [self._index(a) for a in monomial]
        if coefficient != 1 or not factors:
            factors.insert(0, self._index(index(coefficient)))
        texts, wide = [text for text, _ in factors], any(is_wide for _, is_wide in factors)
        size = float(coefficient)
        for a in monomial:
            size *= max(1.0, *(abs(n) for n in bounds(a)))
        if size > _LIMIT and not wide:
            texts[0], wide = self._widened(texts[0]), True
        return "*".join(texts), wide

    def _widened(self, text: str) -> str:
        return f"({self.dialect.wide})({bare(text)})"

    def _index_operation(self, op: str, a: Expr, b: Expr) -> tuple[str, bool]:
        if op in ("floordiv", "mod") and lower(b) < 1:
            b = maximum(b, 1)
        (x, x_wide), (y, y_wide) = self._index(a), self._index(b)
        wide = x_wide or y_wide
        if op in ("floordiv", "mod") and is_nonnegative(a):
            return f"({x} {'/' if op == 'floordiv' else '%'} {y})", wide
        if op == "bcast":
            return f"({x} == 1 ? {y} : {x})", wide
        name = {"mod": "floormod"}.get(op, op)
        return self.functions.call(name, I64 if wide else I32, bare(x), bare(y)), wide

    # --- values ---

    def _constant(self, e: Const) -> str:
        if e.dtype.is_bool:
            return e.literal
        if e.dtype.is_float:
            self.dialect.type(e.dtype)
            return self.dialect.literal(float(e.literal), e.dtype)
        return self.dialect.integer(int(e.literal), e.dtype)

    def _wrapped(self, text: str, dtype: DType) -> str:
        return f"(({self.dialect.type(dtype)})({text}))"

    def _binary(self, op: str, x: str, y: str, dtype: DType) -> str:
        if dtype.is_bool:
            if op not in _LOGIC:
                raise CodegenError(f"Operation '{op}' has no code for type 'bool'.")
            return f"({x} {_LOGIC[op]} {y})"
        if dtype.is_float and op in ("add", "sub", "mul", "div"):
            return f"({x} {INFIX[op]} {y})"
        if dtype.is_float and op == "fmod":
            return f"fmod({x}, {y})"
        if self.functions.has(op, dtype):
            return self.functions.call(op, dtype, x, y)
        if op in _BITS:
            return self._wrapped(f"{x} {_BITS[op]} {y}", dtype)
        unsigned = self.functions.unsigned(dtype)
        if op in ("add", "sub", "mul"):
            return self._wrapped(f"({unsigned}){x} {INFIX[op]} ({unsigned}){y}", dtype)
        count = f"({y} & {dtype.bits - 1})"
        if op == "shl":
            return self._wrapped(f"({unsigned}){x} << {count}", dtype)
        if op == "shr":
            return self._wrapped(f"{x} >> {count}", dtype)
        raise CodegenError(f"Operation '{op}' has no code for type '{dtype}'.")

    def _unary(self, op: str, x: str, dtype: DType) -> str:
        if op in ("isnan", "isinf"):
            if not dtype.is_float:
                return "false"
            infinity = self.dialect.literal(float("inf"), dtype)
            return f"(isnan({x}) != 0)" if op == "isnan" else f"(fabs({x}) == {infinity})"
        if op in _ROUNDING:
            return f"{_ROUNDING[op]}({x})" if dtype.is_float else x
        if op == "not" or dtype.is_bool:
            return f"(!{x})"
        if op == "neg":
            return f"(-{x})" if dtype.is_float else self._binary("sub", "0", x, dtype)
        if op == "bitwise_not":
            return self._wrapped(f"~{x}", dtype)
        if op == "abs" and dtype.is_float:
            return f"fabs({x})"
        return self.functions.call(op, dtype, x)

    def _cast(self, x: str, source: DType, target: DType) -> str:
        if source is target:
            return x
        if target.is_bool:
            return f"({x} != 0)"
        if source.is_float and target.is_integer:
            return self.functions.saturate(x, source, target)
        return f"(({self.dialect.type(target)}){x})"

    def _call(self, function: str, args: list[str], dtype: DType) -> str:
        self.dialect.type(dtype)
        if self.functions.has(function, dtype):
            return self.functions.call(function, dtype, *args)
        return f"{function}({', '.join(args)})"
