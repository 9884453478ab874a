# SPDX-License-Identifier: Apache-2.0
"""Building blocks of the stages of ops: axes, broadcast and clamped reads, accumulators.

Every index that these functions make is in bounds by its form: either the bounds of its terms prove
it, or it is clamped. So the stages of an op are memory-safe for all values of symbols and data that
``requirements`` admits.
"""

from collections.abc import Iterable, Sequence

from tilewright.ir.bounds import known_equal, known_le
from tilewright.ir.buffer import Buffer, buffer
from tilewright.ir.dtypes import (
    BF16,
    BOOL,
    F16,
    F32,
    F64,
    I8,
    I16,
    I32,
    I64,
    INDEX,
    STRING,
    U8,
    U16,
    U32,
    U64,
    DType,
)
from tilewright.ir.expr import (
    ONE,
    ZERO,
    Const,
    Expr,
    Operand,
    Read,
    Scalar,
    Var,
    binary,
    const,
    index,
)
from tilewright.ir.layout import Layout, row_major
from tilewright.ir.simplify import compare, maximum, minimum
from tilewright.ir.stage import Stage, map_stage, reduce_stage
from tilewright.ir.types import tensor
from tilewright.ir.value_expr import cast, guard, select

FLOATS = frozenset((F64, F32, F16, BF16))
SIGNED = frozenset((I64, I32, I16, I8))
UNSIGNED = frozenset((U64, U32, U16, U8))
INTEGERS = SIGNED | UNSIGNED
NUMERIC = FLOATS | INTEGERS
NUMERIC_OR_BOOL = NUMERIC | {BOOL}


def axes(prefix: str, shape: Iterable[Expr]) -> tuple[Var, ...]:
    """One axis variable for each dim: ``prefix0``, ``prefix1``, ..."""
    return tuple(Var(f"{prefix}{position}", dim) for position, dim in enumerate(shape))


def scratch(name: str, dtype: DType, shape: Iterable[Operand], like: Buffer) -> Buffer:
    """An intermediate buffer, in the layout of ``like`` where the ranks agree."""
    dims = tuple(index(d) for d in shape)
    layout: Layout = like.layout if like.rank == len(dims) else row_major(len(dims))
    return buffer(name, tensor(dtype, dims, layout))


def zero(dtype: DType) -> Expr:
    """The zero of an element type; false for bool. A string has the empty one, which only the host
    knows.
    """
    return Const("", STRING) if dtype is STRING else const(0, dtype)


def broadcast_index(dim: Expr, result: Expr, axis: Expr) -> Expr:
    """Where to read along a dim that is broadcast to ``result``: 0, the axis, or the axis held
    below the dim.
    """
    if known_equal(dim, ONE):
        return ZERO
    if dim is result or known_le(result, dim):
        return axis
    return minimum(axis, dim - 1)


def read_broadcast(x: Buffer, shape: Sequence[Expr], point: Sequence[Expr]) -> Expr:
    """Read ``x``, broadcast by numpy's rule to ``shape``, at ``point``."""
    lead = len(shape) - x.rank
    return read_held(
        x,
        tuple(
            broadcast_index(dim, shape[lead + a], point[lead + a]) for a, dim in enumerate(x.shape)
        ),
        point[lead:],
    )


def clamped(i: Expr, dim: Expr) -> Expr:
    """``i`` held within ``[0, dim - 1]``; the bounds that are proven drop out."""
    return maximum(ZERO, minimum(i, dim - 1))


def from_end(value: Expr, dim: Expr) -> Expr:
    """An index read from memory: a negative one counts from the end of ``dim``. Not clamped."""
    i = cast(value, INDEX)
    return select(compare("lt", i, ZERO), i + dim, i) if value.dtype.is_signed else i


def read_clamped(x: Buffer, indices: Sequence[Expr]) -> Expr:
    """Read ``x`` with every index clamped; 0 where ``x`` turns out to be empty."""
    return read_held(x, [clamped(i, d) for i, d in zip(indices, x.shape, strict=True)], indices)


def read_held(x: Buffer, places: Sequence[Expr], wanted: Sequence[Expr]) -> Expr:
    """Read ``x`` at ``places``, which are the ``wanted`` indices or ones held within the dims.

    An empty dim holds none, whatever the index: the value is 0 there, and nothing is read.
    """
    triples = zip(places, wanted, x.shape, strict=True)
    return read_unless_empty(x, places, [d for p, i, d in triples if p is not i or p is ZERO])


def read_unless_empty(x: Buffer, places: Sequence[Expr], dims: Iterable[Expr]) -> Expr:
    """Read ``x`` at ``places``; 0 where one of ``dims`` is."""
    value: Expr = Read(x, tuple(places))
    for dim in dims:
        value = guard(compare("gt", dim, ZERO), value, zero(x.dtype))
    return value


def accumulator_dtype(dtype: DType) -> DType:
    """The type that sums of ``dtype`` are kept in: f32 for the 16-bit floats."""
    return F32 if dtype in (F16, BF16) else dtype


def reduce_into(
    name: str,
    result: Buffer,
    domain: tuple[Var, ...],
    over: tuple[Var, ...],
    init: Expr,
    term: Expr,
    op: str = "add",
) -> tuple[Stage, ...]:
    """``result[domain] = op over 'over' of term`` from ``init``; in the type of ``term``, rounded
    at the end.

    >>> from tilewright.ir.dtypes import F16
    >>> i, k = Var("i", index(2)), Var("k", index(3))
    >>> x, y = (buffer(n, tensor(F16, s)) for n, s in (("x", (2, 3)), ("y", (2,))))
    >>> for stage in reduce_into("sum", y, (i,), (k,), const(0, F32), cast(Read(x, (i, k)), F32)):
    ...     print(stage)
    reduce sum(i in 2; k in 3) -> sum[i] : acc = f32(0.0) then (acc + cast(x[i, k], f32))
    map rounded(o0 in 2) -> y[o0] = cast(sum[o0], f16)
    """
    acc = Scalar("acc", term.dtype)
    narrow = result.dtype is not term.dtype
    target = scratch(name, term.dtype, result.shape, result) if narrow else result
    combined = combine(op, acc, term)
    first = reduce_stage(name, domain, over, (target,), (acc,), (init,), (combined,))
    if not narrow:
        return (first,)
    point = axes("o", result.shape)
    return first, map_stage("rounded", point, result, cast(Read(target, point), result.dtype))


def combine(op: str, x: Expr, y: Expr) -> Expr:
    """One step of a reduction with a binary op; on bool, minimum and maximum are ``and`` and
    ``or``.
    """
    if x.dtype is BOOL:
        op = {"min": "and", "max": "or"}.get(op, op)
    return binary(op, x, y)
