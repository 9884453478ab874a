# SPDX-License-Identifier: Apache-2.0
"""Questions about single iterations: can this place be reached, are these two indices always equal
there?
"""

from collections.abc import Iterable, Sequence

import islpy as isl

from tilewright.ir.expr import Expr
from tilewright.ir.rewrite import substitute
from tilewright.passes.schedule.proof.accesses import Place
from tilewright.passes.schedule.proof.isl_expr import (
    Domain,
    Frame,
    Names,
    closure,
    index_parts,
    opaque_atoms,
)
from tilewright.passes.schedule.proof.report import values_of


class Facts:
    """Answers over the iterations of a place, with loops, symbols and opaque values all as dims."""

    def __init__(self, context: isl.Context, sizes: Iterable[Expr] = ()) -> None:
        self.names = Names(context, sizes)

    def domain(self, place: Place, conditions: Sequence[Expr], items: Sequence[Expr]) -> Domain:
        """A domain that can express ``items``; its set is where ``place`` and ``conditions``
        hold.
        """
        asked = [*items, *(p for c in (*place.conditions, *conditions) for p in index_parts(c))]
        atoms = closure([*asked, *place.variables])
        opaque = dict.fromkeys(
            o for e in [*asked, *(getattr(v, "extent", v) for v in atoms)] for o in opaque_atoms(e)
        )
        dims = [*atoms, *(o for o in opaque if o not in atoms)]
        domain = Domain(Frame(self.names, ()), "", dims, dims)
        for condition in (*place.conditions, *conditions):
            domain.set = domain.where(domain.set, condition)
        return domain

    def example(self, place: Place, conditions: Sequence[Expr] = ()) -> dict[Expr, int] | None:
        """Values at which the place is reached and the conditions hold, or None if there are
        none.
        """
        return sample(self.domain(place, conditions, ()))

    def difference(
        self, place: Place, conditions: Sequence[Expr], a: Sequence[Expr], b: Sequence[Expr]
    ) -> dict[Expr, int] | None:
        """Values at which two index tuples differ, or None if they never do."""
        unequal = [(x, y) for x, y in zip(a, b, strict=True) if x is not y]
        if not unequal:
            return None
        domain = self.domain(place, conditions, [e for pair in unequal for e in pair])
        same = domain.map([x - y for x, y in unequal], "")
        zero = isl.Set.universe(same.range().get_space())
        for number in range(len(unequal)):
            zero = zero.fix_val(isl.dim_type.set, number, 0)
        domain.set = domain.set.subtract(same.intersect_range(zero).domain())
        return sample(domain)

    def outside(
        self, place: Place, conditions: Sequence[Expr], e: Expr, extent: Expr
    ) -> dict[Expr, int] | None:
        """Values at which ``e`` is not in ``[0, extent)``, or None if it always is."""
        domain = self.domain(place, conditions, (e, extent))
        domain.set = domain.set.subtract(domain.within(domain.set, e, extent))
        return sample(domain)


def sample(domain: Domain) -> dict[Expr, int] | None:
    """A point of the domain's set, or None if it is empty."""
    if domain.set.is_empty():
        return None
    return values_of(domain.set.sample_point(), domain)


def replaced(
    items: Sequence[Expr], before: Sequence[Expr], after: Sequence[Expr]
) -> tuple[Expr, ...]:
    """``items`` with the expressions ``before`` replaced by ``after``."""
    known = dict(zip(before, after, strict=True))
    return tuple(substitute(e, known) for e in items)
