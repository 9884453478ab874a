# SPDX-License-Identifier: Apache-2.0
"""What a host program must establish before it runs kernels: the values of symbols, and all that
was assumed of them.

Type inference goes on where two dims *may* fit (three-valued equality), and symbols carry bounds
that simplification relies on. This module collects the conditions under which compiled code is
right, as ``require`` statements: first those on the input shapes, then those of single nodes (dims
that must agree, slices in range). What is proven already asks for nothing, so a model of static
shapes has one check for each input dim and none else. Indices that are read from data are required
to be in range where a kernel has looked through them.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tilewright.ir.bounds import is_nonnegative
from tilewright.ir.buffer import Buffer
from tilewright.ir.dtypes import INDEX
from tilewright.ir.errors import PassError
from tilewright.ir.expr import (
    TRUE,
    ZERO,
    Const,
    Expr,
    Read,
    Symbol,
    free_variables,
    index,
    polynomial,
    sub,
    terms_of,
)
from tilewright.ir.graph import Module, Node
from tilewright.ir.loop import Require, shape_buffer
from tilewright.ir.op import Requirement
from tilewright.ir.ops.index_fault import MESSAGE, IndexFault
from tilewright.ir.simplify import compare, floordiv, mod
from tilewright.ir.sizes import value_range
from tilewright.ir.value_expr import cast
from tilewright.passes.sizes import makes_sense

_LONGEST_NAME = 80


class Binding(NamedTuple):
    """A symbol, the expression over input shapes that is its value, and what shows its range."""

    symbol: Symbol
    value: Expr
    checks: tuple[Require, ...]


@dataclass(frozen=True)
class _Dim:
    """One dim of one input: what the graph says of it, and where its value is read."""

    label: str
    axis: int
    expected: Expr
    actual: Expr

    @property
    def subject(self) -> str:
        return f"Input '{self.label}'"

    def require(self, condition: Expr, problem: str, *values: Expr) -> Require:
        message = f"{self.subject} has size {{0}} in dimension {self.axis}, {problem}."
        return Require(condition, message, (self.actual, *values))


def bind_symbols(
    module: Module, inputs: Sequence[Buffer], used: Iterable[Symbol]
) -> tuple[list[Binding], list[tuple[str, Require]]]:
    """The value of each symbol in terms of input shapes, and the other checks on those shapes, each
    with the input that it is of.

    A symbol is taken from a dim where it stands alone, else from one that is linear in it.
    PassError if a symbol in ``used`` is given by no input dim.
    """
    labels = module.input_names or [b.name for b in inputs]
    dims = [
        _Dim(plain(label), axis, expected, cast(Read(shape_buffer(source), (index(axis),)), INDEX))
        for label, source in zip(labels, inputs, strict=True)
        for axis, expected in enumerate(source.shape)
    ]
    bindings = _solve(dims)
    missing = [s.name for s in used if s not in bindings]
    if missing:
        raise PassError(
            f"Symbol '{missing[0]}' has no value: no input has a dim from which it follows."
        )
    bound = [
        Binding(symbol, value, tuple(_range_checks(dim, symbol, value)))
        for symbol, (value, dim) in bindings.items()
    ]
    checks = [(dim.subject, check) for dim in dims for check in _dim_checks(dim, bindings)]
    return bound, checks


def _solve(dims: Sequence[_Dim]) -> dict[Symbol, tuple[Expr, _Dim]]:
    """For each symbol its value and the dim that it is from."""
    found: dict[Symbol, tuple[Expr, _Dim]] = {}
    for dim in dims:
        if isinstance(dim.expected, Symbol):
            found.setdefault(dim.expected, (dim.actual, dim))
    progress = True
    while progress:
        progress = False
        for dim in dims:
            unknown = [v for v in free_variables(dim.expected) if v not in found]
            symbol = unknown[0] if len(unknown) == 1 else None
            if not isinstance(symbol, Symbol):
                continue
            value = _linear_solution(dim, symbol)
            if value is not None:
                found[symbol] = (value, dim)
                progress = True
    return found


def _linear_solution(dim: _Dim, symbol: Symbol) -> Expr | None:
    """``(actual - rest) // c`` where the dim is ``c * symbol + rest`` with a positive integer c."""
    terms = dict(terms_of(dim.expected))
    coefficient = terms.pop((symbol,), 0)
    rest = polynomial(terms)
    if coefficient <= 0 or symbol in free_variables(rest):
        return None
    return floordiv(sub(dim.actual, rest), coefficient)


def _range_checks(dim: _Dim, symbol: Symbol, value: Expr) -> Iterator[Require]:
    """That the value of a symbol, which is from this dim, is one that it may have."""
    if value_range(value)[0] < symbol.lo:
        problem = "but at least {1} is needed" + _named(dim, symbol)
        yield dim.require(compare("ge", value, symbol.lo), problem, index(symbol.lo))
    problem = "but at most {1} is supported" + _named(dim, symbol)
    yield dim.require(compare("le", value, symbol.hi), problem, index(symbol.hi))
    if symbol.multiple > 1:
        problem = "but a multiple of {1} is needed" + _named(dim, symbol)
        condition = compare("eq", mod(value, symbol.multiple), 0)
        yield dim.require(condition, problem, index(symbol.multiple))


def _dim_checks(dim: _Dim, bindings: dict[Symbol, tuple[Expr, _Dim]]) -> Iterator[Require]:
    known = bindings.get(dim.expected) if isinstance(dim.expected, Symbol) else None
    if known is None or known[1] is not dim:
        note = "" if isinstance(dim.expected, Const) else f" ('{dim.expected}')"
        condition = compare("eq", dim.actual, dim.expected)
        yield dim.require(condition, "expected {1}" + note, dim.expected)


def _named(dim: _Dim, symbol: Symbol) -> str:
    return "" if dim.expected is symbol else f" for '{symbol.name}'"


# --- conditions of nodes --------------------------------------------------------------------------


def graph_checks(module: Module) -> list[tuple[str, Require]]:
    """The conditions under which the nodes of the graph, those in groups too, fit a call's shapes,
    each with the node that it is of.

    They are the requirements of each op, which tell best what is wrong, then that no dim of a
    result is negative.
    """
    nodes = list(module.graph.walk())
    needed = [(n, r) for n in nodes if not n.regions for r in _requirements(n)]
    needed += [(n, r) for n in nodes for r in _dims_are_sizes(n)]
    found: dict[Expr, tuple[str, Require]] = {}
    for node, (condition, problem, values) in needed:
        if condition is not TRUE:
            where = f"Node '{plain(node.origin or node.op.name)}'"
            text = f"{where}: {_named_values(problem, values)}"
            found.setdefault(condition, (where, Require(condition, text, values)))
    return list(found.values())


def _requirements(node: Node) -> tuple[Requirement, ...]:
    return node.op.requirements([v.type for v in node.operands])


def _dims_are_sizes(node: Node) -> Iterator[Requirement]:
    for value in node.results:
        for dim in value.type.shape:
            yield from makes_sense(dim)
            if not is_nonnegative(dim):
                yield compare("ge", dim, 0), "A result would have size {0}.", (dim,)


def index_checks(group: Node, found: Buffer) -> Iterator[tuple[str, Require]]:
    """That a group which looks for an index out of range has found none, with its node; ``found``
    is its result. Where the graph itself reads that, it is a value like any other, and no check.
    """
    for node in (n for region in group.regions for n in region.nodes):
        if isinstance(node.op, IndexFault) and not group.results[0].use_count:
            position, value, dim = (cast(Read(found, (index(i),)), INDEX) for i in range(3))
            where = f"Node '{plain(node.origin)}'"
            values = (value, position, dim, sub(ZERO, dim))
            yield where, Require(compare("lt", position, 0), f"{where}: {MESSAGE}", values, True)


def _named_values(problem: str, values: Sequence[Expr]) -> str:
    """The sentence of a requirement with the dims behind its numbers: ``Dims {0} and {1} ... (n,
    m).``
    """
    names = dict.fromkeys(str(v) for v in values if not isinstance(v, Const))
    names = {name: None for name in names if len(name) <= _LONGEST_NAME}
    return f"{problem.removesuffix('.')} ({', '.join(names)})." if names else problem


def plain(label: str) -> str:
    """A model's name as it may stand in a message: no braces, no control characters, not too
    long.
    """
    clean = "".join(c if c.isprintable() and c not in "{}" else "?" for c in label)
    return clean if len(clean) <= 100 else clean[:97] + "..."
