# SPDX-License-Identifier: Apache-2.0
"""Index expressions and conditions as isl objects.

A :class:`Frame` fixes the parameters of one question: symbols, and loops that stay at one iteration
while it is asked. A :class:`Domain` is a tuple of dims inside a frame, usually the loop variables
of a statement. Sums, products with constants, ``floordiv`` and ``mod`` by constants become affine
expressions; ``min`` and ``max`` piecewise ones. Anything else (a product of variables, a value read
from memory, and what it is held to by ``min`` and ``max``) is *opaque*: a dim or parameter of its
own, of which only the interval is known. Opaque dims make a set of readers larger than it is, which
is sound; writers must not have any.
"""

from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import product
from typing import Any

import islpy as isl

from tilewright.ir.bounds import INFINITY, bounds
from tilewright.ir.dtypes import BOOL, INDEX
from tilewright.ir.expr import (
    FALSE,
    TRUE,
    UNBOUNDED,
    Binary,
    Compare,
    Const,
    Expr,
    IndexOp,
    Poly,
    Symbol,
    Unary,
    Var,
    free_variables,
    polynomial,
    reads,
    sub,
)
from tilewright.ir.interning import memoised
from tilewright.ir.rewrite import CONSTRUCTORS

_DIM = isl.dim_type.set
_PARAM = isl.dim_type.param


def _val(number: int | float | str) -> Any:
    """A whole number for islpy, which takes longer ones than 64 bits as text."""
    whole = int(number)
    return whole if whole.bit_length() < 64 else isl.Val(str(whole))


class _Piecewise(Exception):
    """The expression is not one affine expression."""


@memoised
def opaque_atoms(e: Expr) -> tuple[Expr, ...]:
    """The largest parts of an index expression that isl cannot express."""
    match e:
        case Const() | Symbol() | Var():
            return ()
        case Poly(terms):
            found: dict[Expr, None] = {}
            for monomial, _ in terms:
                if len(monomial) > 1:
                    found[polynomial({monomial: 1})] = None
                else:
                    found.update(dict.fromkeys(o for a in monomial for o in opaque_atoms(a)))
            return tuple(found)
        case IndexOp("floordiv" | "mod", a, Const()):
            return opaque_atoms(a)
        case IndexOp("min" | "max", a, b) if not reads(e):
            return tuple(dict.fromkeys((*opaque_atoms(a), *opaque_atoms(b))))
    return (e,)


def limits(e: Expr, inner: str, outer: str) -> list[Expr]:
    """Expressions without values from memory, each a bound of ``e``: from below with "max" and
    "min", from above with "min" and "max". ``max(0, min(x[i], n - 1))`` is at most
    ``max(0, n - 1)``.
    """
    if not reads(e):
        return [e]
    match e:
        case IndexOp(op, a, b) if op == inner:
            return limits(a, inner, outer) + limits(b, inner, outer)
        case IndexOp(op, a, b) if op == outer:
            pairs = product(limits(a, inner, outer), limits(b, inner, outer))
            return [CONSTRUCTORS[op](x, y) for x, y in pairs]
    return []


def is_condition(e: Expr) -> bool:
    """True for a comparison of index expressions, or a combination of such, that isl can
    express.
    """
    match e:
        case Compare(_, x, _):
            return x.dtype is INDEX
        case Binary("and" | "or", x, y, dtype) if dtype is BOOL:
            return is_condition(x) and is_condition(y)
        case Unary("not", x, _):
            return is_condition(x)
    return e is TRUE or e is FALSE


def index_parts(e: Expr) -> Iterable[Expr]:
    """The index expressions that a condition compares."""
    match e:
        case Compare(_, x, y) if x.dtype is INDEX:
            return (x, y)
        case Binary("and" | "or", x, y, dtype) if dtype is BOOL:
            return (*index_parts(x), *index_parts(y))
        case Unary("not", x, _):
            return index_parts(x)
    return ()


def closure(items: Iterable[Expr]) -> dict[Expr, None]:
    """All variables and symbols in ``items`` and in the extents of those variables, in a fixed
    order.
    """
    found: dict[Expr, None] = {}
    waiting = list(items)
    while waiting:
        e = waiting.pop()
        for v in sorted(free_variables(e), key=str):
            if v not in found and isinstance(v, Var | Symbol):
                found[v] = None
                if isinstance(v, Var):
                    waiting.append(v.extent)
    return found


class Names:
    """One isl name for every parameter of a proof, so that objects of different frames fit
    together.

    ``sizes`` are expressions that are never negative, whatever the ranges of their symbols allow.
    """

    def __init__(self, context: isl.Context, sizes: Iterable[Expr] = ()) -> None:
        self.context = context
        self.sizes = tuple(e for e in sizes if not opaque_atoms(e))
        self._names: dict[Expr, str] = {}

    def of(self, e: Expr) -> str:
        return self._names.setdefault(e, f"p{len(self._names)}")


class Frame:
    """The parameters of a question."""

    def __init__(self, names: Names, parameters: Sequence[Expr]) -> None:
        self.context = names.context
        self.sizes = names.sizes
        self.parameters = tuple(parameters)
        self.named = {names.of(e): e for e in self.parameters}
        space = isl.Space.set_alloc(self.context, len(self.parameters), 0)
        for number, name in enumerate(self.named):
            space = space.set_dim_name(_PARAM, number, name)
        self.space = space

    @cached_property
    def known(self) -> Any:
        """The parameter set of all values that the parameters may take."""
        return Domain(self, "", (), self.parameters).set.params()


class Domain:
    """A named tuple of ``dims`` in a frame. ``ranged`` are the dims and parameters whose ranges the
    set should state.
    """

    def __init__(
        self, frame: Frame, name: str, dims: Sequence[Expr], ranged: Sequence[Expr]
    ) -> None:
        self.frame = frame
        self.name = name
        self.dims = tuple(dims)
        space = frame.space.add_dims(_DIM, len(self.dims))
        self.space = space.set_tuple_name(_DIM, name) if name else space
        self._zero = isl.Aff.zero_on_domain(isl.LocalSpace.from_space(self.space))
        self._at: dict[Expr, tuple[Any, int]] = {}
        for number, e in enumerate(frame.parameters):
            self._at[e] = (_PARAM, number)
        for number, e in enumerate(self.dims):
            self._at[e] = (isl.dim_type.in_, number)
        self._memo: dict[Expr, Any] = {}
        self.exact = True
        self.set = self._ranges(ranged)

    # --- expressions ---

    def aff(self, e: Expr) -> Any:
        """One affine expression; raises _Piecewise where there is none."""
        known = self._memo.get(e)
        if known is None:
            known = self._memo[e] = self._aff(e)
        return known

    def _aff(self, e: Expr) -> Any:
        if e in self._at:
            return self._zero.set_coefficient_val(*self._at[e], 1)
        match e:
            case Const(literal):
                return self._zero.set_constant_val(_val(literal))
            case Poly(terms):
                total = self._zero
                rest = []
                for monomial, coefficient in terms:
                    atom = monomial[0] if len(monomial) == 1 else polynomial({monomial: 1})
                    if not monomial:
                        total = total.set_constant_val(_val(coefficient))
                    elif atom in self._at:
                        total = total.set_coefficient_val(*self._at[atom], _val(coefficient))
                    else:
                        rest.append((self.aff(atom), coefficient))
                for aff, coefficient in rest:
                    total = total.add(aff.scale_val(_val(coefficient)))
                return total
            case IndexOp("floordiv", a, Const(literal)):
                return self.aff(a).scale_down_val(_val(literal)).floor()
            case IndexOp("mod", a, Const(literal)):
                return self.aff(a).mod_val(_val(literal))
            case IndexOp("min" | "max", _, _):
                raise _Piecewise
        raise KeyError(f"'{e}' is neither a dim nor a parameter of '{self.name}'.")

    def piecewise(self, e: Expr) -> Any:
        """The expression as a piecewise affine one."""
        try:
            return isl.PwAff.from_aff(self.aff(e))
        except _Piecewise:
            pass
        match e:
            case Poly(terms):
                total = isl.PwAff.from_aff(self._zero)
                for monomial, coefficient in terms:
                    atom = self.piecewise(polynomial({monomial: 1}))
                    total = total.add(atom.scale_val(_val(coefficient)))
                return total
            case IndexOp("min", a, b):
                return self.piecewise(a).min(self.piecewise(b))
            case IndexOp("max", a, b):
                return self.piecewise(a).max(self.piecewise(b))
            case IndexOp("floordiv", a, Const(literal)):
                return self.piecewise(a).scale_down_val(_val(literal)).floor()
            case IndexOp("mod", a, Const(literal)):
                return self.piecewise(a).mod_val(_val(literal))
        raise KeyError(f"'{e}' is neither a dim nor a parameter of '{self.name}'.")

    def map(self, items: Sequence[Expr], name: str) -> Any:
        """The map from these dims to the tuple ``name`` of the values of ``items``, on the whole
        space.
        """
        target = self.frame.space.add_dims(_DIM, len(items))
        target = target.set_tuple_name(_DIM, name) if name else target
        space = self.space.map_from_domain_and_range(target)
        try:
            affs = isl.AffList.alloc(self.frame.context, len(items))
            for e in items:
                affs = affs.add(self.aff(e))
            return isl.Map.from_multi_aff(isl.MultiAff.from_aff_list(space, affs))
        except _Piecewise:
            pieces = isl.PwAffList.alloc(self.frame.context, len(items))
            for e in items:
                pieces = pieces.add(self.piecewise(e))
            return isl.Map.from_multi_pw_aff(isl.MultiPwAff.from_pw_aff_list(space, pieces))

    # --- sets ---

    def nonnegative(self, subject: Any, e: Expr) -> Any:
        """The part of a set where ``e >= 0``."""
        try:
            return subject.add_constraint(isl.Constraint.inequality_from_aff(self.aff(e)))
        except _Piecewise:
            pass
        match e:
            case IndexOp("min", a, b):
                return self.nonnegative(self.nonnegative(subject, a), b)
        return subject.intersect(self.piecewise(e).nonneg_set())

    def _ranges(self, ranged: Sequence[Expr]) -> Any:
        subject = isl.Set.universe(self.space)
        for e in ranged:
            if isinstance(e, Var):
                subject = self.within(subject, e, e.extent)
                continue
            if reads(e):
                beyond = [sub(e, limit) for limit in limits(e, "max", "min")]
                beyond += [sub(limit, e) for limit in limits(e, "min", "max")]
                for difference in beyond:
                    subject = self._limited(subject, difference)
            least, greatest = bounds(e)
            if least != -INFINITY:
                subject = self.nonnegative(subject, sub(e, int(least)))
            if greatest != INFINITY and greatest < UNBOUNDED:
                subject = self.nonnegative(subject, sub(int(greatest), e))
            if isinstance(e, Symbol) and e.multiple > 1:
                remainder = self.aff(e).mod_val(_val(e.multiple))
                subject = subject.add_constraint(isl.Constraint.equality_from_aff(remainder))
        for size in self.frame.sizes:
            symbols = free_variables(size)
            if symbols <= self._at.keys() and not symbols.isdisjoint(ranged):
                subject = self.nonnegative(subject, size)
        return subject

    def _limited(self, subject: Any, difference: Expr) -> Any:
        """The part of a set where a difference is not negative; all if it cannot be expressed."""
        try:
            return self.nonnegative(subject, difference)
        except KeyError:
            return subject

    def within(self, subject: Any, e: Expr, extent: Expr) -> Any:
        """The part of a set where ``0 <= e < extent``."""
        subject = self.nonnegative(subject, e)
        if isinstance(extent, IndexOp) and extent.op == "min":
            subject = self.nonnegative(subject, sub(sub(extent.a, 1), e))
            return self.nonnegative(subject, sub(sub(extent.b, 1), e))
        return self.nonnegative(subject, sub(sub(extent, 1), e))

    def where(self, subject: Any, condition: Expr, holds: bool = True) -> Any:
        """The part of a set where a condition holds (or does not). An inexpressible part of it is
        dropped, so that the result is too large, and ``exact`` becomes False.
        """
        match condition:
            case Compare(op, x, y) if x.dtype is INDEX:
                return self._compared(subject, op, sub(x, y), holds)
            case Binary("and" | "or" as op, x, y, dtype) if dtype is BOOL:
                if (op == "and") == holds:
                    return self.where(self.where(subject, x, holds), y, holds)
                return self.where(subject, x, holds).union(self.where(subject, y, holds))
            case Unary("not", x, _):
                return self.where(subject, x, not holds)
        if condition in (TRUE, FALSE):
            return subject if (condition is TRUE) == holds else isl.Set.empty(self.space)
        self.exact = False
        return subject

    def _compared(self, subject: Any, op: str, difference: Expr, holds: bool) -> Any:
        if not holds:
            op = {"lt": "ge", "ge": "lt", "le": "gt", "gt": "le", "eq": "ne", "ne": "eq"}[op]
        match op:
            case "ge":
                return self.nonnegative(subject, difference)
            case "gt":
                return self.nonnegative(subject, sub(difference, 1))
            case "le":
                return self.nonnegative(subject, sub(0, difference))
            case "lt":
                return self.nonnegative(subject, sub(-1, difference))
            case "eq":
                below = self.nonnegative(subject, difference)
                return self.nonnegative(below, sub(0, difference))
        above = self.nonnegative(subject, sub(difference, 1))
        return above.union(self.nonnegative(subject, sub(-1, difference)))
