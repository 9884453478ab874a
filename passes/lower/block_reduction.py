# SPDX-License-Identifier: Apache-2.0
"""Block a reduced axis: short chains of steps, whose results are combined by an outer reduction.

Before::

    reduce s(i; k in K) -> s[i] : acc = 0 then acc + f(i, k)

After, in blocks of 8 steps, and of 8 steps of 16 lanes::

    reduce s_b(i, b in ceil(K/8); k in min(8, K - 8*b)) -> p[i, b] :
        acc = 0 then acc + f(i, 8*b + k)
    reduce s(i; b in ceil(K/8)) -> s[i] : acc = 0 then acc + p[i, b]

    reduce s_b(i, b in ceil(K/128), l in 16; k in 8) -> p[i, b, l] :
        acc = 0 then acc + guard(128*b + 16*k + l < K, f(i, 128*b + 16*k + l), 0)
    reduce s(i; b in ceil(K/128), l in 16) -> s[i] : acc = 0 then acc + p[i, b, l]

Other reduce axes are stepped through outside, or go into the block whole if they are ``inside``.

A chain of n additions is off by up to n roundings of its result; a chain of 8 whose results are
summed in a wider type by 9 at most, however long the axis is. So ``dtype`` may be wider than the
stage's own: its readers then see the sum rounded once. This reassociates, which the numeric policy
allows for the operations of :func:`.split_reduction.is_splittable`; the tree is fixed by the shape.
"""

from collections.abc import Iterable, Sequence

from tilewright.ir.buffer import Buffer
from tilewright.ir.dtypes import DType
from tilewright.ir.expr import (
    ONE,
    Binary,
    Expr,
    Read,
    Scalar,
    Var,
    add,
    const,
    index,
    mul,
    reads,
    sub,
)
from tilewright.ir.layout import Layout, row_major
from tilewright.ir.rewrite import substitute
from tilewright.ir.simplify import ceildiv, compare, minimum
from tilewright.ir.stage import Stage
from tilewright.ir.value_expr import cast, guard


def block_reduction(
    stage: Stage, axis: Var, steps: int, lanes: int, dtype: DType, inside: Sequence[Var] = ()
) -> tuple[Stage, Stage]:
    """The stage of the blocks, each of ``steps`` x ``lanes`` points of ``axis`` and all of the axes
    ``inside``, and the stage that combines them, in ``dtype``.
    """
    combine = stage.values[0]
    assert isinstance(combine, Binary) and axis in stage.reduce_axes
    before = [v for v in stage.reduce_axes if v is not axis and v not in inside]
    after = [v for v in stage.reduce_axes if v in inside]
    blocks = ceildiv(axis.extent, steps * lanes)

    def outer_axes(mark: str, lane_mark: str) -> tuple[Var, ...]:
        lane = (Var(f"{axis.name}{lane_mark}", index(lanes)),) if lanes > 1 else ()
        named = (Var(f"{v.name}{mark}", v.extent) for v in before)
        return (*named, Var(f"{axis.name}{mark}", blocks), *lane)

    # The blocks: every outer point is an axis of theirs.
    own = outer_axes("_b", "_bl")
    kept = {v: Var(f"{v.name}_b", v.extent) for v in stage.axes}
    block = own[len(before)]
    # Steps that do not exist are left out; lanes are masked.
    left = sub(axis.extent, mul(block, steps)) if lanes == 1 else index(steps)
    step = Var(f"{axis.name}_k", minimum(index(steps), left))
    position = add(mul(block, steps), step)
    if lanes > 1:
        position = add(mul(position, lanes), own[-1])
    values: dict[Expr, Expr] = dict(kept.items())
    values.update(zip(before, own))
    values[axis] = position
    term = substitute(combine.y, values)
    if lanes > 1:
        term = guard(compare("lt", position, axis.extent), term, stage.init[0])
    out, part = stage.output, stage.init[0].dtype
    shape = (*out.shape, *(v.extent for v in own))
    partial = Buffer(
        f"{out.name}_b", part, shape, _lanes_outside(stage, axis, shape, lanes), "workspace"
    )
    accumulator = Scalar(f"{stage.accumulators[0].name}_b", part)
    cell = (*kept.values(), *own)
    first = Stage(
        "reduce", f"{stage.name}_b", cell, (step, *after), (partial,), cell,
        (accumulator,), stage.init, (Binary(combine.op, accumulator, term, part),),
    )  # fmt: skip

    # What combines them.
    over = outer_axes("", "_l")
    total = Scalar(stage.accumulators[0].name, dtype)
    init = cast(stage.init[0], dtype) if dtype is part else const(0, dtype)
    read = cast(Read(partial, (*stage.axes, *over)), dtype)
    second = stage.replace(
        reduce_axes=over,
        outputs=(Buffer(out.name, dtype, out.shape, out.layout, out.scope),),
        accumulators=(total,),
        init=(init,),
        values=(Binary(combine.op, total, read, dtype),),
    )
    return first, second


def inner_axes(stage: Stage, axis: Var) -> set[Expr]:
    """The axes of a stage that lie inside a reduced one where an operand is read along that."""
    for value in stage.values:
        for read in reads(value):
            dims = [d for d in read.buffer.layout.order if read.buffer.shape[d] is not ONE]
            along = [n for n, d in enumerate(dims) if axis is read.indices[d]]
            if along:
                return {read.indices[d] for d in dims[along[0] + 1 :]} & set(stage.axes)
    return set()


def with_lanes(out: Buffer, inner: Iterable[int], rank: int) -> Layout:
    """The layout of partial results: the dims of ``out`` in its order, new dims inside them but for
    the dims ``inner``, which stay innermost.
    """
    if out.layout.blocks:
        return row_major(rank)
    innermost = set(inner)
    order = [d for d in out.layout.order if d not in innermost]
    last = [d for d in out.layout.order if d in innermost]
    return Layout((*order, *range(out.rank, rank), *last))


def _lanes_outside(stage: Stage, axis: Var, shape: Sequence[Expr], lanes: int) -> Layout:
    found = inner_axes(stage, axis) if lanes > 1 else set()
    inside = [d for d, v in enumerate(stage.axes) if v in found]
    return with_lanes(stage.output, inside, len(shape))
