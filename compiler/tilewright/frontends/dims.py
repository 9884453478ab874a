# SPDX-License-Identifier: Apache-2.0
"""Arithmetic on the dims of tensors while a model is imported: exact quotients, sizes, reshapes.

Sizes of expressions are bounded, since a model may square a dim a thousand times.
"""

from tilewright.ir import simplify
from tilewright.ir.expr import (
    Const,
    Expr,
    Monomial,
    Poly,
    children,
    index,
    mul,
    polynomial,
    sub,
    terms_of,
)
from tilewright.ir.interning import memoised

MOST_TERMS = 256
MOST_FACTORS = 64
MOST_DEPTH = 64
MOST_WEIGHT = 2048
MOST_BITS = 128


class Unknown(Exception):
    """An element cannot be told at import."""


@memoised
def depth(e: Expr) -> int:
    """How deep operations nest in an expression, sums and products of dims not counted."""
    inner = max(map(depth, children(e)), default=0)
    return inner if isinstance(e, Poly) or not children(e) else 1 + inner


@memoised
def weight(e: Expr) -> int:
    """The number of parts of an expression written out; shared ones count each time."""
    if isinstance(e, Poly):
        return sum(1 + sum(weight(a) for a in m) for m, _ in e.terms)
    return 1 + sum(map(weight, children(e)))


def is_reasonable(e: Expr) -> bool:
    """False for an expression so large that it only slows the compiler down."""
    terms = terms_of(e)
    return (
        len(terms) <= MOST_TERMS
        and all(len(m) <= MOST_FACTORS and abs(c).bit_length() <= MOST_BITS for m, c in terms)
        and depth(e) <= MOST_DEPTH
        and weight(e) <= MOST_WEIGHT
    )


def bounded(e: Expr) -> Expr:
    """An expression as it is; Unknown if it is not reasonable."""
    if not is_reasonable(e):
        raise Unknown
    return e


def product(a: Expr, b: Expr) -> Expr:
    """``a * b``, refused before it grows out of bounds."""
    if len(terms_of(a)) * len(terms_of(b)) > 4 * MOST_TERMS:
        raise Unknown
    return bounded(mul(a, b))


def exact_quotient(a: Expr, b: Expr) -> Expr | None:
    """``a / b`` if the polynomial ``b`` divides ``a`` without remainder; None otherwise.

    Long division by the leading term, with atoms as variables.
    """
    divisor = terms_of(b)
    if not divisor:
        return None
    lead, factor = max(divisor, key=_order)
    quotient: dict[Monomial, int] = {}
    rest = a
    for _ in range(MOST_TERMS):
        terms = terms_of(rest)
        if not terms:
            return polynomial(quotient)
        monomial, coefficient = max(terms, key=_order)
        left = _divided(monomial, lead)
        if left is None or coefficient % factor or len(terms) > MOST_TERMS:
            return None
        step = coefficient // factor
        quotient[left] = quotient.get(left, 0) + step
        rest = sub(rest, mul(polynomial({left: step}), b))
    return None


def _order(term: tuple[Monomial, int]) -> tuple[int, tuple[str, ...]]:
    """Graded order of monomials; ties by the names of the atoms."""
    monomial, _ = term
    return len(monomial), tuple(str(a) for a in monomial)


def _divided(monomial: Monomial, by: Monomial) -> Monomial | None:
    rest = list(monomial)
    for atom in by:
        if atom not in rest:
            return None
        rest.remove(atom)
    return tuple(rest)


def size_of(shape: "tuple[Expr, ...] | list[Expr]") -> Expr:
    """The number of elements of a shape."""
    total: Expr = index(1)
    for dim in shape:
        total = mul(total, dim)
    return total


def reshaped_dims(
    shape: tuple[Expr, ...], wanted: list[int | Expr], allow_zero: bool
) -> list[Expr]:
    """The dims of a Reshape: 0 copies a dim (unless allowed as such), -1 is what remains.

    ValueError with the reason if they do not fit together.
    """
    dims: list[Expr | None] = []
    for position, dim in enumerate(wanted):
        if isinstance(dim, int) and dim == 0 and not allow_zero:
            if position >= len(shape):
                raise ValueError(f"dim {position} is 0 but the input has rank {len(shape)}")
            dims.append(shape[position])
        elif isinstance(dim, int) and dim < 0:
            if dim != -1 or None in dims:
                raise ValueError(f"the shape {wanted} holds {dim} where one -1 is allowed")
            dims.append(None)
        else:
            dims.append(index(dim))
    if None not in dims:
        return [d for d in dims if d is not None]
    known = size_of([d for d in dims if d is not None])
    if isinstance(known, Const) and known.value == 0:
        raise ValueError(f"the shape {wanted} has a -1 beside a 0")
    total = size_of(shape)
    rest = exact_quotient(total, known)
    if rest is None:
        if isinstance(total, Const) and isinstance(known, Const):
            raise ValueError(f"{total} elements cannot be shaped as {wanted}")
        rest = simplify.floordiv(total, known)
    return [rest if d is None else d for d in dims]
