# SPDX-License-Identifier: Apache-2.0
"""What the statements of a host program compute, and the proof that none of it overflows.

:func:`computed` is the one list of the sizes behind a statement, those that it does not spell
out included: the bytes of a buffer that is placed, and twice each scalar of a launch, so that a
kernel may add to one, as it does to round up to a tile.

What kernels compute themselves needs no check, because of what is checked here. Their symbols are
the scalars of the launch. The loops run over dims of buffers and reduced axes, whose product is in
the launch's work. Positions in a buffer are below its size, which fits in bytes; an empty buffer is
not accessed, and a product of strides that has no meaning then is not used.
"""

from collections.abc import Iterable, Iterator

from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import Compare, Const, Expr, Symbol, free_variables, index, mul
from tilewright.ir.loop import (
    Fits,
    For,
    HostProgram,
    If,
    Launch,
    Let,
    Output,
    Place,
    Require,
    Stmt,
    While,
    children,
    expressions,
)
from tilewright.ir.sizes import Fitted, bounds_each_term, value_range


def buffer_bytes(b: Buffer) -> Expr:
    """The bytes of a buffer in memory, layout padding included."""
    return mul(b.layout.size(b.shape), b.dtype.bytes)


def greatest_buffers(buffers: Iterable[Buffer]) -> list[tuple[Buffer, Expr]]:
    """Buffers, with their bytes, of which one is the greatest of all, whatever the symbols are."""
    found: list[tuple[Buffer, Expr]] = []
    for b in buffers:
        size = buffer_bytes(b)
        if not any(bounds_each_term(greater, size) for _, greater in found):
            found = [(o, least) for o, least in found if not bounds_each_term(size, least)]
            found.append((b, size))
    return found


def computed(s: Stmt) -> tuple[Expr, ...]:
    """The expressions that running ``s`` computes; for a ``fits`` those besides its sizes."""
    match s:
        case Place(buffer, offset):
            return (offset, buffer_bytes(buffer))
        case Output(buffer, _):
            return (*buffer.shape, buffer_bytes(buffer))
        case Launch(_, _, scalars, tasks, work, workspace, _):
            return (*scalars, *launch_counts(scalars, tasks, work), workspace)
        case Fits(_, _, _, values):
            return values
    return expressions(s)


def launch_counts(scalars: tuple[Expr, ...], tasks: Expr, work: Expr) -> tuple[Expr, ...]:
    """What a launch computes that counts something, other than bytes."""
    doubled = tuple(mul(e, 2) for e in scalars if not isinstance(e, Const))
    return (*scalars, *doubled, tasks, work)


def size_fault(host: HostProgram) -> tuple[str, str, Stmt] | None:
    """The first statement of a host program that computes what is not known to fit 64 bits, with
    the rule it breaks and a sentence; None if there is none.
    """
    fitted, ranges = Fitted(), _Ranges()
    has_arena = False
    for s, always in _in_order(host.body):
        needed = computed(s)
        if isinstance(s, Place) and not has_arena:
            needed, has_arena = (host.arena, *needed), True
        sizes = s.sizes if isinstance(s, Fits) and always else ()
        symbol = ranges.first_unknown((*needed, *sizes))
        if symbol is not None:
            return "L16", f"Nothing has required that '{symbol}' is in its range.", s
        fitted.add(sizes)
        missing = fitted.missing(needed)
        if missing:
            return "L17", f"'{missing[0]}' is not known to fit 64 bits.", s
        if isinstance(s, Let) and isinstance(s.var, Symbol):
            ranges.bind(s.var, s.value)
        elif isinstance(s, Require) and always:
            ranges.note(s.condition)
    return None


def _in_order(s: Stmt, always: bool = True) -> Iterator[tuple[Stmt, bool]]:
    """Every statement in program order, and whether it always runs."""
    yield s, always
    for child in children(s):
        yield from _in_order(child, always and not isinstance(s, If | While | For))


class _Ranges:
    """The symbols that are bound, but not known to lie in their ranges yet."""

    def __init__(self) -> None:
        self._bounds: dict[Expr, tuple[Symbol, str]] = {}
        self._open: dict[Symbol, set[str]] = {}

    def bind(self, symbol: Symbol, value: Expr) -> None:
        least, greatest = value_range(value)
        ends = {"ge"} if least < symbol.lo else set()
        ends |= {"le"} if greatest > symbol.hi else set()
        self._open[symbol] = ends
        for end, bound in (("ge", symbol.lo), ("le", symbol.hi)):
            for e in (symbol, value):
                self._bounds[Compare(end, e, index(bound))] = (symbol, end)

    def note(self, condition: Expr) -> None:
        """That the condition of a ``require`` holds."""
        if condition in self._bounds:
            symbol, end = self._bounds[condition]
            self._open[symbol].discard(end)

    def first_unknown(self, needed: tuple[Expr, ...]) -> Expr | None:
        """A symbol that is used for more than to compare it with a constant."""
        used = (e for e in needed if e not in self._bounds and not isinstance(e, Symbol))
        return next((v for e in used for v in free_variables(e) if self._open.get(v)), None)  # type: ignore[call-overload]
