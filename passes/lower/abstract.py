# SPDX-License-Identifier: Apache-2.0
"""Give a kernel symbols of its own in place of the model's dims.

Every dim that is not affine with constant divisors (``batch*seq``, ``a // b``, broadcasts) becomes
one fresh symbol, with the bounds, divisibility and hint that are known of it; the rest keep their
structure over renamed symbols, so that ``2*h + 1`` and ``h`` stay related. The host program
evaluates the replaced expressions at each run. The names ``n0``, ``n1``, ... follow the order of
first use: kernels of equal form become equal, and everything in them is affine.

What a kernel does not know any more is that ``batch*seq`` has to do with ``seq``. Where the bounds
of a read may have followed from that, the read gets a guard that the kernel itself can check.
"""

from collections.abc import Mapping

from tilewright.ir.bounds import bounds, multiple_of
from tilewright.ir.buffer import Buffer
from tilewright.ir.dtypes import INDEX
from tilewright.ir.errors import SymbolicDimError
from tilewright.ir.expr import (
    UNBOUNDED,
    ZERO,
    Const,
    Expr,
    IndexOp,
    Poly,
    Read,
    Scalar,
    Symbol,
    Var,
    children,
    free_variables,
    index,
    mul,
    walk,
)
from tilewright.ir.interning import memoised
from tilewright.ir.ops.domain import zero
from tilewright.ir.rewrite import CONSTRUCTORS, hinted, rewrite
from tilewright.ir.simplify import compare
from tilewright.ir.stage import Stage
from tilewright.ir.value_expr import guard
from tilewright.passes.lower.collect import Computation, map_stage_expressions

_LEAST = -(1 << 62)
"""Below any size that makes sense, and well within 64 bits."""


class _Abstraction:
    def __init__(self, c: Computation) -> None:
        buffers = {b for s in c.stages for b in (*s.outputs, *(r.buffer for r in s.reads()))}
        axes = [v.extent for s in c.stages for v in (*s.axes, *s.reduce_axes)]
        self._sizes = {*axes, *(d for b in (*buffers, *c.inputs, *c.outputs) for d in b.shape)}
        self.symbols: dict[Expr, Symbol] = {}
        self._variables: dict[Var, Var] = {}
        self._buffers: dict[Buffer, Buffer] = {}

    def dim(self, e: Expr) -> Expr:
        """An index expression over the kernel's symbols."""
        match e:
            case Const():
                return e
            case Var():
                return self.variable(e)
            case Poly(terms):
                total: Expr = index(0)
                for monomial, coefficient in terms:
                    fixed = [a for a in monomial if not _varies(a)]
                    factor = self.dim(fixed[0]) if len(fixed) == 1 else self._product(fixed)
                    product = mul(factor, coefficient)
                    for a in monomial:
                        product = mul(product, self.dim(a)) if _varies(a) else product
                    total = total + product
                return total
            case IndexOp("floordiv" | "mod" as op, a, b) if isinstance(b, Const) or _varies(a):
                return CONSTRUCTORS[op](self.dim(a), self.dim(b))
            case IndexOp("min" | "max" as op, a, b):
                return CONSTRUCTORS[op](self.dim(a), self.dim(b))
        return self._symbol(e)

    def _product(self, atoms: list[Expr]) -> Expr:
        product: Expr = index(1)
        for a in atoms:
            product = mul(product, a)
        return product if isinstance(product, Const) else self._symbol(product)

    def _symbol(self, e: Expr) -> Expr:
        if _varies(e):
            dims = sorted({x.name for x in walk(e) if isinstance(x, Symbol)})
            raise SymbolicDimError(
                f"An index multiplies or divides a loop variable by {', '.join(map(repr, dims))}.",
                dims,
            )
        if e not in self.symbols:
            lo, hi = bounds(e)
            hint = hinted(e)
            # A dim is no less than 0, as the host program sees to; other sizes may be.
            least = 0 if e in self._sizes else _LEAST
            low = int(max(lo, least))
            high = min(int(hi), UNBOUNDED) if hi != float("inf") else UNBOUNDED
            name = f"n{len(self.symbols)}"
            self.symbols[e] = Symbol(name, low, high, max(1, multiple_of(e)), hint)
        return self.symbols[e]

    def variable(self, v: Var) -> Var:
        if v not in self._variables:
            self._variables[v] = Var(v.name, self.dim(v.extent))
        return self._variables[v]

    def buffer(self, b: Buffer) -> Buffer:
        if b not in self._buffers:
            self._buffers[b] = Buffer(
                b.name, b.dtype, tuple(map(self.dim, b.shape)), b.layout, b.scope
            )
        return self._buffers[b]

    def value(self, e: Expr) -> Expr:
        def leaf(node: Expr) -> Expr | None:
            if isinstance(node, Read):
                return Read(self.buffer(node.buffer), tuple(rewrite(i, leaf) for i in node.indices))
            if isinstance(node, Var):
                return self.variable(node)
            if _is_index(node) and _follows_from_dims(node):
                return self.dim(node)
            return None

        return rewrite(e, leaf)

    def stage(self, s: Stage) -> Stage:
        return s.replace(
            axes=tuple(map(self.variable, s.axes)),
            reduce_axes=tuple(map(self.variable, s.reduce_axes)),
            outputs=tuple(map(self.buffer, s.outputs)),
            targets=tuple(map(self.value, s.targets)),
            init=tuple(map(self.value, s.init)),
            values=tuple(map(self.value, s.values)),
        )


def _varies(e: Expr) -> bool:
    return any(isinstance(x, Var) for x in walk(e))


def _is_index(e: Expr) -> bool:
    """True for what may stand for a dim: all but a number, and a variable, which is renamed."""
    return e.dtype is INDEX and not isinstance(e, Const | Var | Scalar)


@memoised
def _follows_from_dims(e: Expr) -> bool:
    """True for index arithmetic on dims and loop variables, and for anything on dims alone; not
    for what is computed from a loop variable in another type, or read from memory.
    """
    match e:
        case Const() | Symbol() | Var():
            return True
        case Poly() | IndexOp():
            return all(map(_follows_from_dims, children(e)))
    return not any(isinstance(x, Var | Scalar | Read) for x in walk(e))


def abstract_dims(c: Computation) -> tuple[Computation, dict[Symbol, Expr]]:
    """The computation over its own symbols, and the expression over the model's dims that each
    stands for.
    """
    a = _Abstraction(c)
    inputs = tuple(map(a.buffer, c.inputs))
    outputs = tuple(map(a.buffer, c.outputs))
    stages = tuple(map(a.stage, c.stages))
    meaning = {s: e for e, s in a.symbols.items()}
    parted = _parted(meaning)
    if parted:
        stages = tuple(map_stage_expressions(s, lambda e: _guarded(e, parted)) for s in stages)
    return Computation(stages, inputs, outputs, c.arguments), meaning


def _parted(meaning: Mapping[Symbol, Expr]) -> frozenset[Expr]:
    """The symbols whose meanings share a dim of the model with another's."""
    users: dict[Expr, set[Expr]] = {}
    for symbol, e in meaning.items():
        for dim in free_variables(e):
            users.setdefault(dim, set()).add(symbol)
    return frozenset(s for sharing in users.values() if len(sharing) > 1 for s in sharing)


def _guarded(e: Expr, parted: frozenset[Expr]) -> Expr:
    """``e`` with guards around the reads whose indices or dims have a symbol of ``parted`` and are
    not in bounds by what is known of the symbols alone.
    """

    def leaf(node: Expr) -> Expr | None:
        if not isinstance(node, Read):
            return None
        value: Expr = Read(node.buffer, tuple(rewrite(i, leaf) for i in node.indices))
        for i, dim in zip(node.indices, node.buffer.shape, strict=True):
            if (free_variables(i) | free_variables(dim)) & parted:
                for condition in (compare("ge", i, ZERO), compare("lt", i, dim)):
                    value = guard(condition, value, zero(node.dtype))
        return value

    return rewrite(e, leaf)
