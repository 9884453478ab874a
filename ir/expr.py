# SPDX-License-Identifier: Apache-2.0
"""Scalar expressions: symbolic dims, buffer indices and the arithmetic of kernels in one language.

Expressions are immutable and hash-consed: equal means identical. Two worlds share the classes:

* **index** expressions (dtype ``index``): dims, indices, extents. Sums and products are kept in one
  canonical form, a polynomial (:class:`Poly`) over atoms: symbols, loop variables, and opaque
  floor-divisions, remainders, minima, maxima, broadcasts, choices by a condition and values of
  other types made indices: numbers read from memory, sizes that a model computes. Integers of
  unbounded size; ``+ - *`` on them build that form, ``floordiv`` and friends, which know bounds,
  live in :mod:`tilewright.ir.simplify`.
* **value** expressions (every other dtype): what a kernel computes. The grammar is closed:
  constants, reads, scalars bound by the context, unary and binary arithmetic, comparisons,
  ``select``, ``guard``, casts and calls of math functions. Integer arithmetic wraps, integer
  division truncates and never traps (division and remainder by zero give 0), shifts are taken
  modulo the width, ``min`` and ``max`` give NaN if an operand is NaN.

Text form: ``4*i + j``, ``(i + 3) // 4``, ``i % 4``, ``min(a, b)``, ``x[i, j]``, ``(a + b)``,
``f32(1.5)``, ``cast(x, f32)``, ``select(c, a, b)``, ``guard(c, a, b)``, ``exp(x)``.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Union

import numpy as np

from tilewright.ir.dtypes import BOOL, INDEX, DType
from tilewright.ir.interning import Term, memoised

if TYPE_CHECKING:
    from tilewright.ir.buffer import Buffer

Monomial = tuple["Expr", ...]
Operand = Union["Expr", int, float, bool]

UNARY_OPS = (
    "neg",
    "not",
    "abs",
    "sign",
    "ceil",
    "floor",
    "round",
    "trunc",
    "bitwise_not",
    "isnan",
    "isinf",
)
BINARY_OPS = (
    "add", "sub", "mul", "div", "mod", "fmod", "min", "max",
    "and", "or", "xor", "shl", "shr",
)  # fmt: skip
COMPARE_OPS = ("eq", "ne", "lt", "le", "gt", "ge")
MATH_FUNCTIONS = (
    "exp", "exp2", "expm1", "log", "log2", "log1p", "sqrt", "rsqrt", "sin", "cos", "tan",
    "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "sigmoid",
    "pow", "fma",
)  # fmt: skip
INFIX = {
    "add": "+",
    "sub": "-",
    "mul": "*",
    "div": "/",
    "eq": "==",
    "ne": "!=",
    "lt": "<",
    "le": "<=",
    "gt": ">",
    "ge": ">=",
}


class Expr(Term):
    """Base of all expressions. ``dtype`` is the element type of the value."""

    __slots__ = ()
    dtype: DType

    def __add__(self, other: Operand) -> "Expr":
        return add(self, other)

    def __radd__(self, other: Operand) -> "Expr":
        return add(other, self)

    def __sub__(self, other: Operand) -> "Expr":
        return sub(self, other)

    def __rsub__(self, other: Operand) -> "Expr":
        return sub(other, self)

    def __mul__(self, other: Operand) -> "Expr":
        return mul(self, other)

    def __rmul__(self, other: Operand) -> "Expr":
        return mul(other, self)

    def __truediv__(self, other: Operand) -> "Expr":
        return binary("div", self, other)

    def __neg__(self) -> "Expr":
        return mul(self, -1) if self.dtype is INDEX else Unary("neg", self, self.dtype)

    def __str__(self) -> str:
        return text(self)

    def __repr__(self) -> str:
        return text(self)


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Const(Expr):
    """A constant; build it with :func:`const`, which rounds the value to the dtype.

    ``literal`` is the canonical spelling, so that -0.0 and 0.0, and 1 and 1.0, stay apart.
    """

    literal: str
    dtype: DType

    @property
    def value(self) -> int | float | bool:
        if self.dtype.is_bool:
            return self.literal == "true"
        return float(self.literal) if self.dtype.is_float else int(self.literal)


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Symbol(Expr):
    """A dim known only at run time: ``lo <= value <= hi`` and a multiple of ``multiple``.

    ``hint`` is the value that heuristics should expect. ``hi`` is ``UNBOUNDED`` where nothing is
    known.
    """

    name: str
    lo: int = 0
    hi: int = 1 << 31
    multiple: int = 1
    hint: int = 0

    @property
    def dtype(self) -> DType:  # type: ignore[override]
        return INDEX


UNBOUNDED = 1 << 31


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Var(Expr):
    """A loop variable, or an axis of a stage: ranges over ``0 <= value < extent``.

    Names are unique within a kernel.
    """

    name: str
    extent: Expr

    @property
    def dtype(self) -> DType:  # type: ignore[override]
        return INDEX


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Scalar(Expr):
    """A value bound by its context: a ``let``, or the accumulator of a reduction."""

    name: str
    dtype: DType


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Poly(Expr):
    """A canonical polynomial: ``terms`` is a sorted tuple of (monomial, coefficient), never a lone
    atom.

    A monomial is a sorted tuple of atoms (with repetition); the constant term has the empty one.
    """

    terms: tuple[tuple[Monomial, int], ...]

    @property
    def dtype(self) -> DType:  # type: ignore[override]
        return INDEX


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class IndexOp(Expr):
    """An opaque atom of index arithmetic: ``floordiv``, ``mod``, ``min``, ``max`` or ``bcast``.

    ``floordiv`` and ``mod`` round to minus infinity and have positive divisors. ``bcast(a, b)`` is
    the extent of two dims broadcast together: ``b`` where ``a`` is 1, else ``a``.
    """

    op: str
    a: Expr
    b: Expr

    @property
    def dtype(self) -> DType:  # type: ignore[override]
        return INDEX


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Unary(Expr):
    """One of ``UNARY_OPS`` on a value."""

    op: str
    x: Expr
    dtype: DType


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Binary(Expr):
    """One of ``BINARY_OPS`` on two values of one dtype; ``and or xor`` serve bool and integers."""

    op: str
    x: Expr
    y: Expr
    dtype: DType


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Compare(Expr):
    """One of ``COMPARE_OPS``; operands are two values of one dtype, or two index expressions."""

    op: str
    x: Expr
    y: Expr

    @property
    def dtype(self) -> DType:  # type: ignore[override]
        return BOOL


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Select(Expr):
    """``x`` where ``condition`` holds, else ``y``; both may be evaluated."""

    condition: Expr
    x: Expr
    y: Expr

    @property
    def dtype(self) -> DType:  # type: ignore[override]
        return self.x.dtype


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Guard(Expr):
    """``x`` where ``condition`` holds, else ``other``; ``x`` is not evaluated where it does not
    hold.
    """

    condition: Expr
    x: Expr
    other: Expr

    @property
    def dtype(self) -> DType:  # type: ignore[override]
        return self.x.dtype


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Cast(Expr):
    """A conversion; float to integer truncates and saturates, NaN gives 0; to and from ``index``
    too.
    """

    x: Expr
    dtype: DType


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Call(Expr):
    """One of ``MATH_FUNCTIONS`` on values of one float dtype."""

    function: str
    args: tuple[Expr, ...]
    dtype: DType


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Read(Expr):
    """The element of ``buffer`` at logical ``indices``."""

    buffer: "Buffer"
    indices: tuple[Expr, ...]

    @property
    def dtype(self) -> DType:  # type: ignore[override]
        return self.buffer.dtype


# --- construction ---------------------------------------------------------------------------------


def const(value: int | float | bool, dtype: DType) -> Const:
    """A constant of ``dtype``; floats are rounded to it, integers must fit."""
    if dtype.is_bool:
        return Const("true" if value else "false", dtype)
    if dtype.is_float:
        with np.errstate(over="ignore"):
            rounded = float(np.asarray(value, dtype=np.float64).astype(dtype.numpy))
        return Const(repr(rounded), dtype)
    return Const(str(int(value)), dtype)


def index(value: Operand) -> Expr:
    """An index expression from an int, or the expression itself."""
    if isinstance(value, Expr):
        if value.dtype is not INDEX:
            raise TypeError(f"Index arithmetic got '{value}' of type {value.dtype}.")
        return value
    return Const(str(int(value)), INDEX)


ZERO = index(0)
ONE = index(1)
TRUE = Const("true", BOOL)
FALSE = Const("false", BOOL)


def _pair(x: Operand, y: Operand) -> tuple[Expr, Expr]:
    if not isinstance(x, Expr):
        x = const(x, y.dtype) if isinstance(y, Expr) else index(x)
    if not isinstance(y, Expr):
        y = const(y, x.dtype)
    if x.dtype is not y.dtype:
        raise TypeError(
            f"Operands '{x}' of type {x.dtype} and '{y}' of type {y.dtype} differ in type."
        )
    return x, y


def add(x: Operand, y: Operand) -> Expr:
    """``x + y``: canonical for index operands, a :class:`Binary` for values."""
    x, y = _pair(x, y)
    if x.dtype is not INDEX:
        return Binary("add", x, y, x.dtype)
    terms = dict(terms_of(x))
    for monomial, coefficient in terms_of(y):
        terms[monomial] = terms.get(monomial, 0) + coefficient
    return polynomial(terms)


def sub(x: Operand, y: Operand) -> Expr:
    """``x - y``."""
    x, y = _pair(x, y)
    if x.dtype is not INDEX:
        return Binary("sub", x, y, x.dtype)
    terms = dict(terms_of(x))
    for monomial, coefficient in terms_of(y):
        terms[monomial] = terms.get(monomial, 0) - coefficient
    return polynomial(terms)


def mul(x: Operand, y: Operand) -> Expr:
    """``x * y``."""
    x, y = _pair(x, y)
    if x.dtype is not INDEX:
        return Binary("mul", x, y, x.dtype)
    return polynomial(multiply(dict(terms_of(x)), terms_of(y)))


def multiply(x: dict[Monomial, int], y: tuple[tuple[Monomial, int], ...]) -> dict[Monomial, int]:
    """The terms of a product of two sums of terms; not yet in canonical form."""
    terms: dict[Monomial, int] = {}
    for m, c in x.items():
        for n, d in y:
            product = tuple(sorted(m + n, key=text)) if m and n else m or n
            terms[product] = terms.get(product, 0) + c * d
    return terms


def binary(op: str, x: Operand, y: Operand) -> Expr:
    """A binary operation on two values of one dtype."""
    x, y = _pair(x, y)
    return Binary(op, x, y, x.dtype)


def terms_of(e: Expr) -> tuple[tuple[Monomial, int], ...]:
    """The terms of an index expression seen as a polynomial."""
    if isinstance(e, Poly):
        return e.terms
    if isinstance(e, Const):
        value = int(e.literal)
        return (((), value),) if value else ()
    return (((e,), 1),)


def polynomial(terms: dict[Monomial, int]) -> Expr:
    """The canonical expression of a sum of terms; ``c*(a//c) + a%c`` becomes ``a``."""
    terms = {m: c for m, c in terms.items() if c}
    for monomial in [m for m in terms if any(isinstance(a, IndexOp) and a.op == "mod" for a in m)]:
        whole = _recombined(monomial, terms)
        if whole is not None:
            return whole
    if not terms:
        return ZERO
    if len(terms) == 1:
        ((monomial, coefficient),) = terms.items()
        if not monomial:
            return Const(str(coefficient), INDEX)
        if coefficient == 1 and len(monomial) == 1:
            return monomial[0]
    return Poly(tuple(sorted(terms.items(), key=_term_key)))


def _term_key(term: tuple[Monomial, int]) -> tuple[bool, int, tuple[str, ...]]:
    monomial, _ = term
    return not monomial, -len(monomial), tuple(text(a) for a in monomial)


def _recombined(monomial: Monomial, terms: dict[Monomial, int]) -> Expr | None:
    """Use ``b*(a//b) + a%b == a`` on the term of ``monomial`` if its partner is there too."""
    coefficient = terms[monomial]
    for position, atom in enumerate(monomial):
        if not (isinstance(atom, IndexOp) and atom.op == "mod"):
            continue
        rest = monomial[:position] + monomial[position + 1 :]
        partner = mul(IndexOp("floordiv", atom.a, atom.b), atom.b)
        for factor in rest:
            partner = mul(partner, factor)
        parts = terms_of(partner)
        if len(parts) != 1 or terms.get(parts[0][0]) != coefficient * parts[0][1]:
            continue
        remaining = {m: c for m, c in terms.items() if m not in (monomial, parts[0][0])}
        whole: Expr = mul(atom.a, coefficient)
        for factor in rest:
            whole = mul(whole, factor)
        return add(polynomial(remaining), whole)
    return None


# --- traversal ------------------------------------------------------------------------------------


def children(e: Expr) -> tuple[Expr, ...]:
    """The direct sub-expressions; loop variables and symbols have none."""
    match e:
        case Poly(terms):
            return tuple(a for m, _ in terms for a in m)
        case IndexOp(_, a, b) | Compare(_, a, b) | Binary(_, a, b, _):
            return (a, b)
        case Unary(_, x, _) | Cast(x, _):
            return (x,)
        case Select(c, a, b) | Guard(c, a, b):
            return (c, a, b)
        case Call(_, args, _):
            return args
        case Read(_, indices):
            return indices
    return ()


def walk(e: Expr) -> Iterator[Expr]:
    """Every distinct sub-expression of ``e``, itself included, parents first."""
    seen: set[Expr] = set()
    stack = [e]
    while stack:
        node = stack.pop()
        if node not in seen:
            seen.add(node)
            yield node
            stack.extend(reversed(children(node)))


@memoised
def free_variables(e: Expr) -> frozenset[Expr]:
    """The :class:`Var`, :class:`Symbol` and :class:`Scalar` atoms in ``e``."""
    if isinstance(e, Var | Symbol | Scalar):
        return frozenset((e,))
    parts = [free_variables(child) for child in children(e)]
    return parts[0] if len(parts) == 1 else frozenset().union(*parts)


def reads(e: Expr) -> list[Read]:
    """The distinct reads in ``e``."""
    return [n for n in walk(e) if isinstance(n, Read)]


# --- text -----------------------------------------------------------------------------------------


@memoised
def text(e: Expr) -> str:
    """The text form of an expression; also the sort key of atoms, so it must be deterministic."""
    match e:
        case Const(literal, dtype):
            return literal if dtype is INDEX or dtype.is_bool else f"{dtype}({literal})"
        case Symbol(name) | Var(name) | Scalar(name):
            return name
        case Poly(terms):
            return _poly_text(terms)
        case IndexOp("floordiv", a, b):
            return f"{_factor(a)} // {_factor(b)}"
        case IndexOp("mod", a, b):
            return f"{_factor(a)} % {_factor(b)}"
        case IndexOp(op, a, b):
            return f"{op}({a}, {b})"
        case Binary(op, x, y, _) | Compare(op, x, y):
            return f"({x} {INFIX[op]} {y})" if op in INFIX else f"{op}({x}, {y})"
        case Unary(op, x, _):
            return f"{op}({x})"
        case Select(c, x, y):
            return f"select({c}, {x}, {y})"
        case Guard(c, x, y):
            return f"guard({c}, {x}, {y})"
        case Cast(x, dtype):
            return f"cast({x}, {dtype})"
        case Call(function, args, _):
            return f"{function}({', '.join(map(text, args))})"
        case Read(buffer, indices):
            return f"{buffer.name}[{', '.join(map(text, indices))}]"
    raise TypeError(f"No text form for {type(e).__name__}.")


def _factor(e: Expr) -> str:
    compound = isinstance(e, Poly) or (isinstance(e, IndexOp) and e.op in ("floordiv", "mod"))
    return f"({e})" if compound else text(e)


def _poly_text(terms: tuple[tuple[Monomial, int], ...]) -> str:
    out = ""
    for monomial, coefficient in terms:
        factors = [_factor(a) for a in monomial]
        if abs(coefficient) != 1 or not factors:
            factors.insert(0, str(abs(coefficient)))
        sign = "-" if coefficient < 0 else "+"
        product = "*".join(factors)
        out = f"{out} {sign} {product}" if out else (f"-{product}" if coefficient < 0 else product)
    return out
