# SPDX-License-Identifier: Apache-2.0
"""Narrow the range of symbols to what the model can run with.

A position table of 512 rows, sliced to ``seq`` rows and added to ``seq`` embeddings, makes dims
such as ``bcast(min(512, seq), seq)``. But the sum is defined for no ``seq`` above 512: there the
model fails however it is run. So the symbol may be taken to be at most 512, which turns the dim
into ``seq`` and every later dim with it; the host program then refuses longer inputs, naming the
limit. Likewise a symbol that a requirement equates with a number is that number.

At the other end, a symbol may be 0: a batch of no images, a cache that holds nothing yet, of which
the last row, ``x[-1:]``, has the dim ``min(1, n)``. It is taken to be at least 1 only where a dim
makes no sense else (``n - 1``, ``m // n``), or is another one altogether: ``x[-n:]`` are the last n
rows, but all of them for n = 0, which is hardly meant.

Before ``symbol seq in [1, 4096]`` and ``add(x: f32[seq,8], y: f32[min(512, seq),8])``, after
``symbol seq in [1, 512]`` and ``add(x: f32[seq,8], y: f32[seq,8])``.
"""

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar

from tilewright.ir.bounds import is_nonnegative
from tilewright.ir.dtypes import INDEX
from tilewright.ir.expr import (
    ONE,
    Compare,
    Const,
    Expr,
    IndexOp,
    Select,
    Symbol,
    free_variables,
    index,
    sub,
    terms_of,
    walk,
)
from tilewright.ir.graph import Module, Node
from tilewright.ir.op import Op
from tilewright.ir.rewrite import substitute
from tilewright.ir.types import TensorType, tensor
from tilewright.passes.manager import Pass, PassContext
from tilewright.passes.rewriter import graphs_of
from tilewright.passes.sizes import always_evaluated

# Each round may uncover facts by simplifying dims; models need one or two.
_MOST_ROUNDS = 8


@dataclass(frozen=True)
class NarrowSymbols(Pass):
    """Bounds of symbols from the requirements of ops."""

    name: ClassVar[str] = "narrow-symbols"

    def run(self, module: Module, context: PassContext) -> bool:
        changed = False
        for _ in range(_MOST_ROUNDS):
            known = _facts(module)
            if not known:
                break
            substitute_module(module, known)
            changed = True
        return changed


def _facts(module: Module) -> dict[Expr, Expr]:
    """What symbols can be replaced by: a number, or the same symbol with narrower bounds."""
    numbers: dict[Symbol, int] = {}
    bounds: dict[Symbol, int] = {}
    # Nodes of sub-graphs may not run, so nothing follows from what they require.
    for node in module.graph.nodes:
        for condition, _, _ in node.op.requirements([v.type for v in node.operands]):
            equal = _solved(condition)
            if equal is not None:
                numbers.setdefault(*equal)
            for symbol, most in _capped(condition):
                bounds[symbol] = min(most, bounds.get(symbol, symbol.hi))
    dims, positive = _dims(module), _meant_positive(module)
    found: dict[Expr, Expr] = {}
    for symbol in module.symbols.values():
        least = max(symbol.lo, int(_must_be_positive(symbol, dims, positive)))
        most = bounds.get(symbol, symbol.hi)
        if symbol in numbers:
            found[symbol] = index(numbers[symbol])
        elif (least, most) != (symbol.lo, symbol.hi):
            found[symbol] = _within(symbol, least, most)
    return found


def _dims(module: Module) -> list[Expr]:
    """The distinct expressions among the dims of all values."""
    values = [v for graph in graphs_of(module) for v in graph.inputs]
    values += [v for graph in graphs_of(module) for node in graph.nodes for v in node.results]
    found = dict.fromkeys(d for v in values for d in v.type.shape)
    return [e for e in found if not isinstance(e, Const | Symbol)]


def _meant_positive(module: Module) -> set[Expr]:
    """The variables of what dims and attributes divide by, or are multiplied by 0 or 1 for."""
    nodes = [node for graph in graphs_of(module) for node in graph.nodes]
    found = dict.fromkeys(_dims(module))
    found.update((e, None) for n in nodes for e in _expressions(list(n.op.attributes().values())))
    parts = [p for e in found for p in (*_divisors_in(e), *_switches_in(e))]
    return {v for p in parts for v in free_variables(p)}


def _expressions(attribute: Any) -> Iterator[Expr]:
    if isinstance(attribute, Expr):
        yield attribute
    elif isinstance(attribute, tuple | list):
        for part in attribute:
            yield from _expressions(part)


def _divisors_in(e: Expr) -> Iterator[Expr]:
    atoms = (x for x in always_evaluated(e) if isinstance(x, IndexOp))
    return (x.b for x in atoms if x.op in ("floordiv", "mod"))


def _switches_in(e: Expr) -> Iterator[Expr]:
    """The factors ``min(1, n)`` of products: terms that are there or not."""
    for part in always_evaluated(e):
        for monomial, _ in terms_of(part) if part.dtype is INDEX else ():
            factors = (x for x in monomial if isinstance(x, IndexOp) and x.op == "min")
            if len(monomial) > 1:
                yield from (x for x in factors if ONE in (x.a, x.b))


def _must_be_positive(symbol: Symbol, dims: Sequence[Expr], known: Set[Expr]) -> bool:
    """True for a symbol that may be 0 if it is known to be meant as positive, or if without that
    value a dim is known to be a size; not where a condition of the model's own says what the dim is
    then.
    """
    if symbol.lo > 0 or symbol.hi < 1:
        return False
    if symbol in known:
        return True
    positive: dict[Expr, Expr] = {symbol: _within(symbol, 1, symbol.hi)}
    unsure = [d for d in dims if symbol in free_variables(d) and not is_nonnegative(d)]
    unsure = [d for d in unsure if not _is_chosen_by(symbol, d)]
    return any(is_nonnegative(substitute(d, positive)) for d in unsure)


def _is_chosen_by(symbol: Symbol, e: Expr) -> bool:
    """True if a condition on the symbol chooses a part of a size."""
    choices = (x for x in walk(e) if isinstance(x, Select))
    return any(symbol in free_variables(x.condition) for x in choices)


def _solved(condition: Expr) -> tuple[Symbol, int] | None:
    """The only value of the only symbol with which an equation holds, if it is linear and the value
    allowed.
    """
    if not isinstance(condition, Compare) or condition.op != "eq":
        return None
    terms = dict(terms_of(sub(condition.x, condition.y)))
    constant = terms.pop((), 0)
    if len(terms) != 1:
        return None
    ((monomial, coefficient),) = terms.items()
    symbol = monomial[0]
    if len(monomial) != 1 or not isinstance(symbol, Symbol) or constant % coefficient:
        return None
    value = -constant // coefficient
    allowed = symbol.lo <= value <= symbol.hi and value % symbol.multiple == 0
    return (symbol, value) if allowed else None


def _capped(condition: Expr) -> Iterator[tuple[Symbol, int]]:
    """The bounds that ``min(c, s) == s or min(c, s) == 1 or s == 1`` puts on symbols ``s``, for ``c
    > 1``.

    Each alternative implies ``s <= c``.
    """
    alternatives = [e for e in walk(condition) if isinstance(e, Compare)]
    equations = [e for e in alternatives if e.op == "eq"]
    for equation in equations:
        for capped, symbol in ((equation.x, equation.y), (equation.y, equation.x)):
            if not (isinstance(capped, IndexOp) and capped.op == "min"):
                continue
            parts = (capped.a, capped.b)
            limit = next((p for p in parts if isinstance(p, Const)), None)
            if limit is None or symbol not in parts or not isinstance(symbol, Symbol):
                continue
            others = {e for e in equations if e is not equation}
            trivial = all({e.x, e.y} in ({capped, index(1)}, {symbol, index(1)}) for e in others)
            if trivial and len(alternatives) == len(equations) and int(limit.value) > 1:
                yield symbol, int(limit.value)


def _within(s: Symbol, least: int, most: int) -> Symbol:
    hint = min(s.hint, most) if s.hint else 0
    return Symbol(s.name, least, most, s.multiple, hint)


# --- substitution ---


def substitute_module(module: Module, known: dict[Expr, Expr]) -> None:
    """Replace symbols in all types and attributes, and those of the module."""
    for graph in graphs_of(module):
        for value in graph.inputs:
            value.type = _substitute_type(value.type, known)
        for node in graph.nodes:
            _substitute_node(node, known)
    replaced = {name: known.get(s, s) for name, s in module.symbols.items()}
    module.symbols = {name: s for name, s in replaced.items() if isinstance(s, Symbol)}


def _substitute_node(node: Node, known: dict[Expr, Expr]) -> None:
    """Rewrite attributes, then infer the types anew: dims that were opaque may now be plain."""
    node.op = substitute_attributes(node.op, known)
    if node.regions:
        types = tuple(_substitute_type(v.type, known) for v in node.results)
    else:
        types = node.op.infer([v.type for v in node.operands])
    for value, renewed in zip(node.results, types, strict=True):
        value.type = tensor(renewed.dtype, renewed.shape, value.type.layout)


def _substitute_type(t: TensorType, known: dict[Expr, Expr]) -> TensorType:
    return TensorType(t.dtype, tuple(substitute(d, known) for d in t.shape), t.layout)


def substitute_attributes(op: Op, known: dict[Expr, Expr]) -> Op:
    """The op with symbols in its attributes replaced."""

    def mapped(attribute: Any) -> Any:
        if isinstance(attribute, tuple):
            return tuple(mapped(a) for a in attribute)
        return substitute(attribute, known) if isinstance(attribute, Expr) else attribute

    changes = {}
    for f in fields(op):
        old = getattr(op, f.name)
        new = mapped(old)
        if new != old:
            changes[f.name] = new
    return replace(op, **changes) if changes else op
