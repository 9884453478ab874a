# SPDX-License-Identifier: Apache-2.0
"""What type inference of ops checks and computes about shapes and element types.

Equality of dims is three-valued: a known clash is an error here, what is unknown becomes a
requirement at run time.
"""

from collections.abc import Sequence

from tilewright.ir.bounds import known_equal, multiple_of, upper
from tilewright.ir.dtypes import BOOL, DType
from tilewright.ir.expr import FALSE, ONE, Binary, Const, Expr, mul
from tilewright.ir.op import Op, Requirement
from tilewright.ir.simplify import bcast, compare, floordiv

# More elements than any memory holds; products of dims must stay far from 2^63.
MOST_ELEMENTS = 1 << 47


def expect_dtype(op: Op, dtypes: Sequence[DType], accepts: frozenset[DType]) -> None:
    """Check that all operands have one element type, and that it is one of ``accepts``."""
    first = dtypes[0]
    for dtype in dtypes:
        op.require(
            dtype is first,
            f"Operands of types {first} and {dtype} differ in type; cast one of them.",
        )
    names = ", ".join(sorted(d.name for d in accepts))
    op.require(
        first in accepts,
        f"Type {first} is not supported; cast to one of {names}.",
    )


def broadcast_shapes(op: Op, shapes: Sequence[tuple[Expr, ...]]) -> tuple[Expr, ...]:
    """The shape of operands broadcast together by numpy's rule; TypeInferenceError where dims are
    known to clash.
    """
    rank = max((len(s) for s in shapes), default=0)
    result: list[Expr] = [ONE] * rank
    for shape in shapes:
        lead = rank - len(shape)
        for a, dim in enumerate(shape):
            other = result[lead + a]
            clash = (
                known_equal(other, dim) is False
                and known_equal(other, ONE) is False
                and known_equal(dim, ONE) is False
            )
            op.require(
                not clash,
                f"Dims {other} and {dim} do not broadcast; one must be 1 or they must be equal.",
            )
            result[lead + a] = bcast(other, dim)
    return tuple(result)


def broadcast_requirements(shapes: Sequence[tuple[Expr, ...]]) -> tuple[Requirement, ...]:
    """What must hold at run time for shapes to broadcast: in every column a dim is 1 or equal to
    the result's.
    """
    found: dict[Expr, Requirement] = {}
    rank = max((len(s) for s in shapes), default=0)
    for a in range(1, rank + 1):
        column = [s[-a] for s in shapes if len(s) >= a]
        for position, x in enumerate(column):
            for y in column[:position]:
                if x is y or known_equal(x, ONE) or known_equal(y, ONE) or known_equal(x, y):
                    continue
                tests = [compare("eq", x, y), compare("eq", x, ONE), compare("eq", y, ONE)]
                condition = disjunction(tests)
                found[condition] = (condition, "Dims {0} and {1} do not broadcast.", (x, y))
    return tuple(found.values())


def disjunction(conditions: Sequence[Expr]) -> Expr:
    """The or of conditions; those known to be false drop out."""
    result: Expr = FALSE
    for c in conditions:
        if c is not FALSE:
            result = c if result is FALSE else Binary("or", result, c, BOOL)
    return result


def equal_requirement(x: Expr, y: Expr, message: str) -> tuple[Requirement, ...]:
    """That two dims are equal, unless it is known."""
    if known_equal(x, y):
        return ()
    return ((compare("eq", x, y), message, (x, y)),)


def multiple_requirement(x: Expr, factor: int, message: str) -> tuple[Requirement, ...]:
    """That a dim is a multiple of ``factor``, unless it is known."""
    if multiple_of(x) % factor == 0:
        return ()
    return equal_requirement(x, floordiv(x, factor) * factor, message)


def check_axis(op: Op, axis: int, rank: int) -> None:
    """Check that an axis is one of ``rank`` dims; ops hold axes that are not negative."""
    op.require(0 <= axis < rank, f"Axis {axis} is out of range for rank {rank}.")


def check_dims(op: Op, shape: Sequence[Expr]) -> None:
    """Check that no dim is known to be negative, nor the number of elements to be absurd."""
    for d in shape:
        op.require(upper(d) >= 0, f"The dim {d} is negative; dims must be 0 or more.")
    known = product([d for d in shape if isinstance(d, Const) and d.value > 0])
    op.require(
        upper(known) <= MOST_ELEMENTS,
        f"A shape of ({', '.join(map(str, shape))}) has more than {MOST_ELEMENTS} elements.",
    )


def product(dims: Sequence[Expr]) -> Expr:
    """The number of elements of a shape."""
    total: Expr = ONE
    for d in dims:
        total = mul(total, d)
    return total


def static_dims(op: Op, dims: Sequence[Expr]) -> tuple[int, ...]:
    """Dims as ints; ValueError if one is symbolic, since a reference computes with numbers only."""
    try:
        return tuple(int(str(d)) for d in dims)
    except ValueError:
        raise ValueError(
            f"'{op.name}' has symbolic dims ({', '.join(map(str, dims))}); bind the symbols first."
        ) from None
