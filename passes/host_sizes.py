# SPDX-License-Identifier: Apache-2.0
"""The checks that no size of a host program overflows, with what to say of each.

Sizes come first: a run that cannot be ends before it places or computes anything. Each value that
needs memory is asked on its own before all of them are together, so that the error names it. What
the ranges of symbols prove costs nothing: a model with one symbol has no checks at all.

    fits bytes (4*n*m) "Value 't' of 'Add_0' of type float32[n,m] takes more than ..."(n, m)
    fits bytes (64*n*m) "The memory of all intermediate values together takes more than ..."(n, m)
    fits count (2*n*m) "A size of node 'Add_0' is more than ..."(n, m)
"""

from collections.abc import Iterable, Iterator, Sequence

from tilewright.ir.buffer import Buffer
from tilewright.ir.errors import PassError
from tilewright.ir.expr import Expr, Symbol, free_variables
from tilewright.ir.graph import Constant, Module, Value
from tilewright.ir.host_sizes import buffer_bytes, launch_counts
from tilewright.ir.loop import Fits, Launch, Stmt
from tilewright.ir.sizes import GREATEST, Fitted, can_fit
from tilewright.ir.types import TensorType
from tilewright.passes.host_checks import plain

_MOST_VALUES = 10
_BYTES = f"takes more than {GREATEST} bytes of memory"
_COUNT = f"is more than {GREATEST}"


class SizeChecks:
    """Makes the ``fits`` statements of one program, for what none before it has shown."""

    def __init__(self) -> None:
        self._fitted = Fitted()

    def count(self, subject: str, sizes: Iterable[Expr]) -> Iterator[Stmt]:
        """That numbers that ``subject`` computes with fit; a subject is such as ``Node 'a'``."""
        subject = f"A size of {subject[0].lower()}{subject[1:]}"
        yield from self._check(subject, "count", _COUNT, sizes)

    def placed(self, b: Buffer, value: Value, origin: str) -> Iterator[Stmt]:
        """That an intermediate value can be."""
        yield from self._check(_of_value(value, origin), "bytes", _BYTES, [buffer_bytes(b)])

    def arena(self, sizes: Sequence[Expr]) -> Iterator[Stmt]:
        """That all intermediate values can be at once: the size of the arena, and the places in
        it.
        """
        subject = "The memory of all intermediate values together"
        yield from self._check(subject, "bytes", _BYTES, sizes)

    def output(self, b: Buffer, name: str) -> Iterator[Stmt]:
        """That an output can be."""
        subject = f"Output '{plain(name)}' of type {_type_text(b.type)}"
        yield from self._check(subject, "bytes", _BYTES, [buffer_bytes(b), *b.shape])

    def launch(self, s: Launch, condition: Expr) -> Iterator[Stmt]:
        """That a launch, the condition for it and its kernel can count."""
        node = f"Node '{plain(s.origin)}'"
        problem = f"needs more than {GREATEST} bytes of workspace"
        yield from self._check(node, "bytes", problem, [s.workspace])
        yield from self.count(node, [*launch_counts(s.scalars, s.tasks, s.work), condition])

    def _check(
        self, subject: str, kind: str, problem: str, sizes: Iterable[Expr]
    ) -> Iterator[Stmt]:
        missing = self._fitted.missing(sizes)
        if not missing:
            return
        _refuse_constants(subject, problem, missing)
        self._fitted.add(missing)
        found = {v for e in missing for v in free_variables(e) if isinstance(v, Symbol)}
        symbols = sorted(found, key=lambda s: s.name)[:_MOST_VALUES]
        yield Fits(tuple(missing), kind, f"{subject} {problem}{_where(symbols)}.", tuple(symbols))


def check_constant_sizes(module: Module) -> None:
    """PassError for a value of the graph that is too large for all sizes of symbols, before kernels
    are made for it.
    """
    for node in module.graph.nodes:
        for value in node.results:
            if not isinstance(node.op, Constant):
                of = _of_value(value, node.origin)
                b = Buffer("", value.type.dtype, value.type.shape, value.type.layout, "global")
                _refuse_constants(of, _BYTES, Fitted().missing([buffer_bytes(b)]))


def _refuse_constants(subject: str, problem: str, missing: Sequence[Expr]) -> None:
    if not all(map(can_fit, missing)):
        raise PassError(f"{subject} {problem}. Give the model smaller shapes.")


def _of_value(value: Value, origin: str) -> str:
    name = f"Value '{plain(value.name)}'" if value.name else "A value"
    return f"{name} of '{plain(origin)}' of type {_type_text(value.type)}"


def _type_text(t: TensorType) -> str:
    return plain(f"{t.dtype.full_name}[{','.join(map(str, t.shape))}]")


def _where(symbols: Sequence[Symbol]) -> str:
    """``, where n is {0} and m is {1}``."""
    told = [f"'{s.name}' is {{{i}}}" for i, s in enumerate(symbols)]
    return f", where {', '.join(told[:-1])}{' and ' if told[1:] else ''}{told[-1]}" if told else ""
