# SPDX-License-Identifier: Apache-2.0
"""Index arithmetic: symbolic expressions to 64-bit integers, invariant parts hoisted.

A sum is emitted term by term from the outermost scope inwards, so ``256*m + 16*k + 3`` in a loop
over ``k`` costs one multiplication before the loop. Divisors are positive by the language; where a
bound does not prove it, the divisor is raised to 1, since hoisted code must not trap.
"""

from collections.abc import Callable
from contextlib import nullcontext

from tilewright.codegen.llvm.builder import Builder, Value, constant, vector_constant
from tilewright.codegen.llvm.environment import Environment, follows_from_symbols, is_pure
from tilewright.ir.bounds import is_nonnegative, lower
from tilewright.ir.dtypes import INDEX
from tilewright.ir.errors import CodegenError
from tilewright.ir.expr import (
    Const,
    Expr,
    IndexOp,
    Monomial,
    Poly,
    Scalar,
    Symbol,
    Var,
    free_variables,
    polynomial,
    terms_of,
)

Terms = tuple[tuple[Monomial, int], ...]


class IndexEmitter:
    """Emits index expressions; ``value`` emits what is not index arithmetic, such as a number read
    from memory.
    """

    def __init__(
        self, builder: Builder, environment: Environment, value: Callable[[Expr], Value]
    ) -> None:
        self.builder = builder
        self.environment = environment
        self._value = value

    def index(self, e: Expr) -> Value:
        """The value of ``e``: an i64, or a vector of them where lanes differ."""
        return self._emit(self.environment.resolve(e))

    def _emit(self, e: Expr) -> Value:
        env = self.environment
        if isinstance(e, Const):
            return constant(int(e.literal), "i64")
        if e is env.lane:
            return vector_constant(range(env.lanes), "i64")
        if isinstance(e, Var | Symbol | Scalar):
            bound = env.values.get(e)
            if bound is None:
                raise CodegenError(
                    f"Variable '{e}' is used outside of the loop or 'let' that binds it."
                )
            return bound
        if isinstance(e, Poly):
            return self.sum(e.terms)
        if isinstance(e, IndexOp):
            return self._remembered(e, e, lambda: self._operation(e))
        if follows_from_symbols(e):
            return self._remembered(e, e, lambda: self._size(e))
        return self._value(e)

    def _size(self, e: Expr) -> Value:
        """What symbols give in another way than by index arithmetic. It may be emitted far before
        the statement that asks for it, so nothing that this has computed is of use there.
        """
        with self.environment.apart():
            return self._value(e)

    def _remembered(self, key: object, e: Expr, emit: Callable[[], Value]) -> Value:
        env = self.environment
        if not is_pure(e):
            return env.recall_in_statement(key) or env.statement[-1].setdefault(key, emit())
        home = env.home(e)
        known = env.recall(key, home)
        if known is not None:
            return known
        with env.insertion(home) if home < env.depth else nullcontext():
            return env.remember(key, home, emit())

    def depth(self, monomial: Monomial) -> int:
        """The depth of the scope in which a product can be computed."""
        env = self.environment
        return max((env.home(a) if is_pure(a) else env.depth for a in monomial), default=0)

    def sum(self, terms: Terms) -> Value:
        """The sum of products, outer scopes first."""
        e = polynomial(dict(terms))
        if not isinstance(e, Poly):
            return self._emit(e)
        return self._remembered(e, e, lambda: self._sum(e.terms))

    def _sum(self, terms: Terms) -> Value:
        depths = [self.depth(m) for m, _ in terms]
        innermost = max(depths)
        # A constant goes last, where an addressing mode or an instruction can absorb it.
        outer = tuple(t for t, d in zip(terms, depths) if d < innermost and t[0])
        inner = [t for t, d in zip(terms, depths) if not (d < innermost and t[0])]
        total = self.sum(outer) if outer else None
        for monomial, coefficient in inner:
            product = self._product(monomial, coefficient)
            total = product if total is None else self._plus(total, product)
        assert total is not None
        return total

    def _plus(self, x: Value, y: Value) -> Value:
        return self.builder.op("add nsw", x, y)

    def _times(self, x: Value, y: Value) -> Value:
        return self.builder.op("mul nsw", x, y)

    def _product(self, monomial: Monomial, coefficient: int) -> Value:
        env = self.environment
        if len(monomial) == 1 and monomial[0] is env.lane:
            return vector_constant([coefficient * i for i in range(env.lanes)], "i64")
        product: Value | None = None
        for atom in monomial:
            factor = self._emit(atom)
            product = factor if product is None else self._times(product, factor)
        if product is None:
            return constant(coefficient, "i64")
        if coefficient == 1:
            return product
        return self._times(product, constant(coefficient, "i64"))

    def _operation(self, e: IndexOp) -> Value:
        b = self.builder
        x, y = self._emit(e.a), self._emit(e.b)
        x, y = b.matched(x, y)
        match e.op:
            case "min":
                return b.intrinsic("smin", x, y)
            case "max":
                return b.intrinsic("smax", x, y)
            case "bcast":
                return b.select(b.compare("eq", x, b.like(1, x)), y, x)
        if not isinstance(e.b, Const) and lower(e.b) < 1:
            y = b.intrinsic("smax", y, b.like(1, y))
        if is_nonnegative(e.a):
            return b.op("udiv" if e.op == "floordiv" else "urem", x, y)
        remainder = b.op("srem", x, y)
        negative = b.compare("slt", remainder, b.like(0, remainder))
        if e.op == "mod":
            return b.select(negative, b.op("add", remainder, y), remainder)
        quotient = b.op("sdiv", x, y)
        return b.op("add", quotient, b.convert("sext", negative, "i64"))


def split_lane(e: Expr, lane: Var) -> tuple[Expr, Expr] | None:
    """``e`` as ``coefficient*lane + rest`` with both free of ``lane``; None where it is not affine
    in it.
    """
    coefficient: dict[Monomial, int] = {}
    rest: dict[Monomial, int] = {}
    for monomial, number in terms_of(e):
        others = tuple(a for a in monomial if a is not lane)
        if any(lane in free_variables(a) for a in others) or len(monomial) - len(others) > 1:
            return None
        into = rest if len(others) == len(monomial) else coefficient
        into[others] = into.get(others, 0) + number
    return polynomial(coefficient), polynomial(rest)


def integer_constant(e: Expr) -> int | None:
    """The number that an index expression is, or None."""
    return int(e.literal) if isinstance(e, Const) and e.dtype is INDEX else None
