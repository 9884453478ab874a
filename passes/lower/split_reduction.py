# SPDX-License-Identifier: Apache-2.0
"""Split a reduction so that it runs on vectors: a rewrite of one stage into two.

Before::

    reduce s(i; k in K) -> s[i] : acc = 0 then acc + f(i, k)

After, with 8 lanes::

    reduce s_p8(i, l in 8; k in ceil(K/8)) -> p[i, l] :
        acc = 0 then acc + guard(8*k + l < K, f(i, 8*k + l), 0)
    reduce s(i; l in 8) -> s[i] : acc = 0 then acc + p[i, l]

This reassociates, which the numeric policy allows for the sums, products, maxima and minima that it
applies to: the accumulator must start at the identity of the operation. The tree is fixed by the
shape, so results do not depend on the number of threads.
"""

from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import Binary, Const, Expr, Read, Scalar, Var, add, index, mul
from tilewright.ir.rewrite import substitute
from tilewright.ir.simplify import ceildiv, compare
from tilewright.ir.stage import Stage
from tilewright.ir.value_expr import guard
from tilewright.passes.lower.block_reduction import inner_axes, with_lanes

_IDENTITY = {"add": 0, "mul": 1}


def is_splittable(stage: Stage) -> bool:
    """True for a reduction with one accumulator that starts at the identity of its operation."""
    if stage.kind != "reduce" or len(stage.accumulators) != 1 or not stage.reduce_axes:
        return False
    combine, init = stage.values[0], stage.init[0]
    if not (isinstance(combine, Binary) and combine.x is stage.accumulators[0]):
        return False
    if not isinstance(init, Const):
        return False
    if combine.op in _IDENTITY:
        return init.value == _IDENTITY[combine.op]
    return (combine.op == "max" and init.value == init.dtype.min) or (
        combine.op == "min" and init.value == init.dtype.max
    )


def split_reduction(stage: Stage, axis: Var, lanes: int) -> tuple[Stage, Stage]:
    """The two stages that reduce ``axis`` over ``lanes`` partial accumulators, then those.

    Other reduce axes stay in the first stage. ``axis`` must be one of the stage's reduce axes.
    """
    combine = stage.values[0]
    assert isinstance(combine, Binary) and axis in stage.reduce_axes
    out = stage.output
    lane = Var(f"{axis.name}_l{lanes}", index(lanes))
    step = Var(axis.name, ceildiv(axis.extent, lanes))
    position = add(mul(step, lanes), lane)
    value = substitute(combine.y, {axis: position})
    value = guard(compare("lt", position, axis.extent), value, stage.init[0])
    inner = inner_axes(stage, axis)
    layout = with_lanes(out, [d for d, v in enumerate(stage.axes) if v in inner], out.rank + 1)
    partial = Buffer(
        f"{out.name}_p{lanes}",
        out.dtype,
        (*out.shape, index(lanes)),
        layout,
        "workspace",
    )
    name = f"{stage.name}_p{lanes}"
    acc = Scalar(f"{stage.accumulators[0].name}_p{lanes}", out.dtype)
    renamed = {v: Var(f"{v.name}_p{lanes}", v.extent) for v in stage.axes}
    sub: dict[Expr, Expr] = dict(renamed.items())
    first = Stage(
        "reduce",
        name,
        (*renamed.values(), lane),
        tuple(step if v is axis else v for v in stage.reduce_axes),
        (partial,),
        (*renamed.values(), lane),
        (acc,),
        stage.init,
        (Binary(combine.op, acc, substitute(value, sub), out.dtype),),
    )
    last_lane = Var(f"{stage.name}_l{lanes}", index(lanes))
    second = Stage(
        "reduce",
        stage.name,
        stage.axes,
        (last_lane,),
        stage.outputs,
        stage.targets,
        stage.accumulators,
        stage.init,
        (
            Binary(
                combine.op,
                stage.accumulators[0],
                Read(partial, (*stage.axes, last_lane)),
                out.dtype,
            ),
        ),
    )
    return first, second
