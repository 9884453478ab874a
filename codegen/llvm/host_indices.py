# SPDX-License-Identifier: Apache-2.0
"""Index arithmetic of host programs: in the order that the IR fixes, overflow told where asked.

A ``fits`` statement computes its sizes between :meth:`HostIndices.begin` and
:meth:`HostIndices.end`; every product and sum in them then notes whether it overflowed. All other
statements compute what is known to fit, with plain instructions, and mostly find the values there
already.
"""

from collections.abc import Callable, Iterable

from tilewright.codegen.llvm.builder import Builder, Value
from tilewright.codegen.llvm.environment import Environment
from tilewright.codegen.llvm.indices import IndexEmitter, Terms
from tilewright.ir.errors import CodegenError
from tilewright.ir.expr import Expr, polynomial
from tilewright.ir.sizes import Fitted


class HostIndices(IndexEmitter):
    """Emits the index expressions of one host program."""

    def __init__(
        self, builder: Builder, environment: Environment, value: Callable[[Expr], Value]
    ) -> None:
        super().__init__(builder, environment, value)
        self.fitted = Fitted()
        self._overflows: list[Value] | None = None

    def begin(self) -> None:
        """From here on, note overflows."""
        self._overflows = []

    def end(self, sizes: Iterable[Expr]) -> Value | None:
        """Whether something overflowed since ``begin``; None where nothing can have. The sizes that
        were computed count as fitting from here on.
        """
        noted, self._overflows = self._overflows, None
        self.fitted.add(sizes)
        overflow: Value | None = None
        for each in noted or ():
            overflow = each if overflow is None else self.builder.op("or", overflow, each)
        return overflow

    def _sum(self, terms: Terms) -> Value:
        if self._overflows is None and not self.fitted.holds(polynomial(dict(terms))):
            raise CodegenError(
                f"The size '{polynomial(dict(terms))}' is computed before it is known to fit."
            )
        first, *others = (self._product(*term) for term in terms)
        for product in others:
            first = self._plus(first, product)
        return first

    def _plus(self, x: Value, y: Value) -> Value:
        return super()._plus(x, y) if self._overflows is None else self._checked("sadd", x, y)

    def _times(self, x: Value, y: Value) -> Value:
        return super()._times(x, y) if self._overflows is None else self._checked("smul", x, y)

    def _checked(self, operation: str, x: Value, y: Value) -> Value:
        """The low 64 bits of a result; what it overflows is noted."""
        assert self._overflows is not None
        b, pair = self.builder, "{ i64, i1 }"
        name = f"llvm.{operation}.with.overflow.i64"
        b.module.declare(name, pair, ["i64", "i64"])
        both = b.emit(f"call {pair} @{name}({x}, {y})", pair)
        self._overflows.append(b.emit(f"extractvalue {both}, 1", "i1"))
        return b.emit(f"extractvalue {both}, 0", "i64")
