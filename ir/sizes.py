# SPDX-License-Identifier: Apache-2.0
"""Sizes that fit 64 bits: what a host program may compute.

Index expressions are integers of unbounded size, machine code has 64 bits. A host program computes
an expression in one order (:func:`steps`): each product factor by factor with its coefficient last,
the sum term by term. None of these partial results may leave the range of a signed 64-bit integer.
That is so for one of three reasons:

* the ranges of the symbols show it (:func:`is_proven`): ``24576*batch`` with ``batch <= 2^31``;
* a ``fits`` statement has computed that very expression with overflow told, and came through;
* it has come through for a sum that bounds this one term by term, as the size of the arena,
  ``64*n*m + 64*n``, does for the offset ``64*n`` and the size ``4*n*m`` of a buffer in it.

:class:`Fitted` holds what a program has shown so far. The builder of host programs asks it what is
missing, the verifier refuses what is missing, and code generation does so once more.
"""

from collections.abc import Iterable, Iterator

from tilewright.ir.dtypes import INDEX
from tilewright.ir.expr import (
    Cast,
    Const,
    Expr,
    IndexOp,
    Monomial,
    Poly,
    Read,
    Select,
    Symbol,
    Var,
    children,
    polynomial,
    terms_of,
)
from tilewright.ir.interning import memoised
from tilewright.ir.value_bounds import interval

LEAST = -(1 << 63)
GREATEST = (1 << 63) - 1
Range = tuple[int, int]


def steps(e: Expr) -> Iterator[Expr]:
    """The results on the way to the value of a sum, in the order in which they are computed; the
    last one is ``e``.
    """
    so_far: dict[Monomial, int] = {}
    for monomial, coefficient in terms_of(e):
        for length in range(1, len(monomial) + 1):
            yield polynomial({monomial[:length]: 1})
        yield polynomial({monomial: coefficient})
        so_far[monomial] = coefficient
        yield polynomial(so_far)


@memoised
def value_range(e: Expr) -> Range:
    """An interval that holds every value of ``e``. Other than in :mod:`tilewright.ir.bounds`, the
    bounds of symbols are taken at their word, also the greatest dim that is supported: host
    programs check them.
    """
    match e:
        case Const():
            return int(e.literal), int(e.literal)
        case Symbol(_, lo, hi):
            return lo, hi
        case Var(_, extent):
            return 0, max(0, value_range(extent)[1] - 1)
        case Poly(terms):
            low = high = 0
            for monomial, coefficient in terms:
                least, greatest = coefficient, coefficient
                for atom in monomial:
                    ends = [x * y for x in (least, greatest) for y in value_range(atom)]
                    least, greatest = min(ends), max(ends)
                low, high = low + least, high + greatest
            return low, high
        case Cast(Read(buffer, _), _) if buffer.name.endswith(".shape"):
            return 0, GREATEST  # of an input: the runtime takes no negative extents
        case Cast(x, _) if x.dtype is not INDEX:
            known = interval(x, value_range) or (LEAST, GREATEST)
            return _saturated(known[0]), _saturated(known[1])
        case Select(_, a, b):
            (x_least, x_greatest), (y_least, y_greatest) = value_range(a), value_range(b)
            return min(x_least, y_least), max(x_greatest, y_greatest)
        case IndexOp(op, a, b):
            return _operation_range(op, value_range(a), value_range(b))
    return LEAST, GREATEST


def _saturated(end: int | float) -> int:
    return LEAST if end <= LEAST else GREATEST if end >= GREATEST else int(end)


def _operation_range(op: str, a: Range, b: Range) -> Range:
    if op == "min":
        return min(a[0], b[0]), min(a[1], b[1])
    if op == "max":
        return max(a[0], b[0]), max(a[1], b[1])
    if op == "bcast":
        return min(a[0], b[0]), max(a[1], b[1])
    divisors = max(1, b[0]), max(1, b[1])
    if op == "mod":
        return 0, min(divisors[1] - 1, a[1]) if a[0] >= 0 else divisors[1] - 1
    quotients = [x // d for x in a for d in divisors]
    return min(quotients), max(quotients)


@memoised
def is_proven(e: Expr) -> bool:
    """True if the ranges of symbols show that no step of this sum (or constant) leaves 64 bits."""
    return all(
        least >= LEAST and greatest <= GREATEST for least, greatest in map(value_range, steps(e))
    )


@memoised
def can_fit(e: Expr) -> bool:
    """False for a sum with a number that needs more than 64 bits by itself."""
    return all(LEAST <= coefficient <= GREATEST for _, coefficient in terms_of(e))


def sums(e: Expr) -> list[Expr]:
    """The sums and constants in ``e``, of which computed numbers are made; inner ones first."""
    found: list[Expr] = []
    seen: set[Expr] = set()
    stack = [(e, False)]
    while stack:
        node, done = stack.pop()
        if done:
            found.append(node)
        elif node not in seen:
            seen.add(node)
            if isinstance(node, Poly) or (isinstance(node, Const) and node.dtype is INDEX):
                stack.append((node, True))
            stack.extend((c, False) for c in children(node))
    return found


class Fitted:
    """The sums of which a program has shown that they fit."""

    def __init__(self) -> None:
        self._shown: dict[Expr, None] = {}
        self._found: set[Expr] = set()

    def add(self, sizes: Iterable[Expr]) -> None:
        """Note that a ``fits`` of these expressions came through."""
        self._shown.update((s, None) for size in sizes for s in sums(size))

    def holds(self, s: Expr) -> bool:
        """True if a sum (or constant) is known to fit."""
        if is_proven(s) or s in self._shown or s in self._found:
            return True
        if any(bounds_each_term(shown, s) for shown in self._shown):
            self._found.add(s)
            return True
        return False

    def missing(self, expressions: Iterable[Expr]) -> list[Expr]:
        """The sums in these expressions that are not known to fit; inner ones first."""
        found = dict.fromkeys(s for e in expressions for s in sums(e))
        return [s for s in found if not self.holds(s)]


def bounds_each_term(greater: Expr, e: Expr) -> bool:
    """True if each term of ``e`` is at most that of ``greater``, and all are never negative."""
    terms = dict(terms_of(greater))
    return all(
        0 <= coefficient <= terms.get(monomial, 0)
        and all(value_range(atom)[0] >= 0 for atom in monomial)
        for monomial, coefficient in terms_of(e)
    ) and all(
        coefficient >= 0 and all(value_range(atom)[0] >= 0 for atom in monomial)
        for monomial, coefficient in terms.items()
    )
