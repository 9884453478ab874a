# SPDX-License-Identifier: Apache-2.0
"""What surrounds the code being emitted: scopes, bindings, the vectorised variable and its mask.

Scopes mirror the dominance tree: a loop body or a branch opens one. An index expression is emitted
in the outermost scope that binds all its variables and remembered there, so address parts that a
loop does not change are computed before it, once. While an inner scope is open, its parent's
``tail`` is the block that ends in the jump into it: what is appended there dominates everything
that the parent emits later.

Variables of unrolled loops are bound to constants, which are substituted before anything is
emitted. Values that depend on memory are remembered for one statement only, by
:attr:`Environment.statement`.
"""

from collections.abc import Collection, Hashable, Iterator
from contextlib import contextmanager

from tilewright.codegen.llvm.builder import Block, Builder, Value
from tilewright.ir.errors import CodegenError
from tilewright.ir.expr import (
    Expr,
    Read,
    Scalar,
    Symbol,
    Var,
    add,
    free_variables,
    index,
    polynomial,
    terms_of,
    walk,
)
from tilewright.ir.interning import memoised
from tilewright.ir.rewrite import substitute


class Scope:
    """One node of the dominance tree: where hoisted code goes, and what is known there."""

    __slots__ = ("memo", "tail")

    def __init__(self, tail: Block) -> None:
        self.tail = tail
        self.memo: dict[Hashable, Value] = {}


@memoised
def is_pure(e: Expr) -> bool:
    """True if the value of ``e`` depends on its variables only, not on memory."""
    return not any(isinstance(n, Read) for n in walk(e))


@memoised
def follows_from_symbols(e: Expr) -> bool:
    """True if the value of ``e`` depends on symbols only."""
    return is_pure(e) and all(isinstance(v, Symbol) for v in free_variables(e))


class Environment:
    """The scopes and bindings at the point of emission."""

    def __init__(self, builder: Builder) -> None:
        self.builder = builder
        self.scopes = [Scope(builder.block)]
        self.values: dict[Expr, Value] = {}
        self.depths: dict[Expr, int] = {}
        self.constants: dict[Expr, Expr] = {}
        self.lane: Var | None = None
        self.lanes = 0
        self.mask: Value | None = None
        self.conditions: tuple[Expr, ...] = ()
        self.statement: list[dict[Hashable, Value]] = [{}]
        self._numbers: dict[Expr, int] = {}
        self._resolved: dict[Expr, Expr] = {}
        self._splits: dict[Expr, _Split | None] = {}
        self._splits_of: dict[frozenset[Expr], dict[Expr, _Split | None]] = {
            frozenset(): self._splits
        }

    # --- scopes -----------------------------------------------------------------------------------

    @property
    def depth(self) -> int:
        return len(self.scopes) - 1

    @contextmanager
    def scope(self, dominator: Block) -> Iterator[None]:
        """A scope for code that is entered from ``dominator``, whose end the enclosing scope
        hoists to.
        """
        self.scopes[-1].tail = dominator
        self.scopes.append(Scope(dominator))
        yield
        self.scopes.pop()

    @contextmanager
    def branch(self, dominator: Block) -> Iterator[None]:
        """A scope within a statement: what is read in it is not known after it."""
        self.statement.append({})
        with self.scope(dominator):
            yield
        self.statement.pop()

    def home(self, e: Expr) -> int:
        """The depth of the outermost scope that binds all variables of ``e``."""
        return max((self._depth(v) for v in free_variables(e)), default=0)

    def _depth(self, v: Expr) -> int:
        try:
            return self.depths[v]
        except KeyError:
            raise CodegenError(
                f"Variable '{v}' is used outside of the loop or 'let' that binds it."
            ) from None

    @contextmanager
    def insertion(self, depth: int) -> Iterator[None]:
        """Emit into the scope of that depth."""
        if depth >= self.depth:
            yield
        else:
            with self.builder.at(self.scopes[depth].tail):
                yield

    def recall(self, key: Hashable, depth: int) -> Value | None:
        """What was remembered under ``key`` in the scope of that depth."""
        return self.scopes[depth].memo.get(key)

    def remember(self, key: Hashable, depth: int, value: Value) -> Value:
        self.scopes[depth].memo[key] = value
        return value

    def recall_anywhere(self, key: Hashable) -> Value | None:
        """What was remembered under ``key`` in this scope or one around it."""
        for scope in reversed(self.scopes):
            if key in scope.memo:
                return scope.memo[key]
        return None

    def recall_in_statement(self, key: Hashable) -> Value | None:
        for memo in reversed(self.statement):
            if key in memo:
                return memo[key]
        return None

    def new_statement(self) -> None:
        """Forget what was read: memory may have changed."""
        self.statement = [{}]

    @contextmanager
    def apart(self) -> Iterator[None]:
        """Code that shares nothing with the statement around it but what scopes remember."""
        saved, self.statement = self.statement, [{}]
        yield
        self.statement = saved

    # --- bindings ---------------------------------------------------------------------------------

    @contextmanager
    def bound(self, v: Expr, value: Value) -> Iterator[None]:
        """``v`` stands for ``value``, which the current scope has computed."""
        outer = (self.values[v], self.depths[v]) if v in self.values else None
        self.values[v], self.depths[v] = value, self.depth
        yield
        if outer is None:
            del self.values[v], self.depths[v]
        else:
            self.values[v], self.depths[v] = outer

    @contextmanager
    def bound_constant(self, v: Var, value: int) -> Iterator[None]:
        """``v`` is a number: one iteration of an unrolled loop."""
        saved = self._resolved, self._splits
        self._resolved = {}
        self.constants[v] = index(value)
        self._numbers[v] = value
        self._splits = self._splits_of.setdefault(frozenset(self.constants), {})
        yield
        del self.constants[v], self._numbers[v]
        self._resolved, self._splits = saved

    @contextmanager
    def bound_lanes(self, v: Var, lanes: int) -> Iterator[None]:
        """``v`` takes all its values at once."""
        self.lane, self.lanes, self.depths[v] = v, lanes, self.depth
        yield
        self.lane, self.lanes = None, 0
        del self.depths[v]

    @contextmanager
    def masked(self, mask: Value | None, *conditions: Expr) -> Iterator[None]:
        """Only the lanes of ``mask`` are active, those in which the ``conditions`` hold too."""
        saved = self.mask, self.conditions
        self.mask, self.conditions = mask, (*self.conditions, *conditions)
        yield
        self.mask, self.conditions = saved

    def bound_variables(self) -> frozenset[Expr]:
        """The variables that have one value here, in all lanes."""
        return frozenset((*self.values, *self.constants))

    def varies(self, e: Expr) -> bool:
        """True if the lanes of the vectorised loop may see different values of ``e``."""
        if self.lane is None:
            return False
        return any(
            v is self.lane or (isinstance(v, Scalar) and v in self.values and self.values[v].lanes)
            for v in free_variables(e)
        )

    def resolve(self, e: Expr) -> Expr:
        """``e`` with the variables of unrolled loops replaced by their numbers."""
        if not self.constants:
            return e
        known = self._resolved.get(e)
        if known is None:
            known = self._resolved[e] = self._substituted(e)
        return known

    def _substituted(self, e: Expr) -> Expr:
        if free_variables(e).isdisjoint(self.constants):
            return e
        split = self._split(e)
        if split is None:
            return substitute(e, self.constants)
        return add(*self._filled_in(split))

    def split(self, e: Expr) -> tuple[Expr, int]:
        """``resolve(e)`` as an expression without a constant, and the constant.

        In a sum in which variables of unrolled loops occur as ``coefficient*variable`` only, the
        expression is the same for all copies of the loop body.
        """
        split = self._split(e)
        if split is not None:
            return self._filled_in(split)
        resolved = self.resolve(e)
        terms = terms_of(resolved)
        if terms and not terms[-1][0]:
            return polynomial(dict(terms[:-1])), terms[-1][1]
        return resolved, 0

    def _filled_in(self, split: "_Split") -> tuple[Expr, int]:
        rest, number, coefficients = split
        return rest, number + sum(c * self._numbers[v] for v, c in coefficients)

    def _split(self, e: Expr) -> "_Split | None":
        if e not in self._splits:
            self._splits[e] = _linear_split(e, self.constants.keys())
        return self._splits[e]


_Split = tuple[Expr, int, tuple[tuple[Expr, int], ...]]


def _linear_split(e: Expr, unrolled: Collection[Expr]) -> _Split | None:
    """``e`` as a part without ``unrolled`` variables and constant, the constant, and coefficients
    of those variables; None if they occur in another way.
    """
    rest: dict[tuple[Expr, ...], int] = {}
    number = 0
    coefficients = []
    for monomial, coefficient in terms_of(e):
        if not monomial:
            number = coefficient
        elif len(monomial) == 1 and monomial[0] in unrolled:
            coefficients.append((monomial[0], coefficient))
        elif any(v in unrolled for atom in monomial for v in free_variables(atom)):
            return None
        else:
            rest[monomial] = coefficient
    return polynomial(rest), number, tuple(coefficients)
