# SPDX-License-Identifier: Apache-2.0
"""Reductions, softmax, norms and searches along axes, drawn at random."""

import numpy as np

from tests.random_graphs.drawing import Drawing, draws
from tests.random_graphs.spec import INTS, Dim, Tensor, is_float

_SUMS = ("ReduceSum", "ReduceMean", "ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceLogSumExp")


def reduced(d: Drawing, x: Tensor, axes: list[int], keep: bool) -> list[Dim]:
    chosen = {a % x.rank for a in axes}
    return [1 if i in chosen else dim for i, dim in enumerate(x.dims) if keep or i not in chosen]


def some_axes(d: Drawing, x: Tensor) -> list[int]:
    axes = d.rng.sample(range(x.rank), d.rng.randint(1, x.rank))
    return [a - x.rank if d.chance(0.3) else a for a in axes]


def full(d: Drawing, x: Tensor) -> bool:
    """True if no dim can be 0: a maximum of nothing is not defined."""
    return x.rank > 0 and not any(map(d.may_be_empty, x.dims))


@draws(8)
def reduce(d: Drawing) -> None:
    x = d.pick(lambda t: t.rank > 0 and (is_float(t.dtype) or t.dtype in (np.int32, np.int64)))
    choices = ("ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd")
    op = d.rng.choice((*_SUMS, *choices[1:]) if is_float(x.dtype) else choices[:3])
    d.need(full(d, x) or op == "ReduceSum")
    axes, keep = some_axes(d, x), d.chance(0.5)
    count = d.elements([x.dims[a] for a in axes])
    d.need(op != "ReduceProd" or count <= 9)
    bound = None
    if x.bound is not None and op in ("ReduceSum", "ReduceL1", "ReduceMax", "ReduceMin"):
        bound = x.bound * (count if op in ("ReduceSum", "ReduceL1") else 1)
    operands = [x, d.ints(axes)]
    if d.chance(0.1):
        operands, axes = [x], list(range(x.rank))
        bound = None
    exact = op in ("ReduceMax", "ReduceMin") and x.exact
    dims = reduced(d, x, axes, keep)
    d.emit(op, operands, dims, exact=exact, bound=bound, keepdims=int(keep))


@draws(3)
def search(d: Drawing) -> None:
    x = d.pick(lambda t: t.exact and full(d, t) and (is_float(t.dtype) or t.dtype in INTS[:2]))
    axis, keep = d.rng.randrange(x.rank), d.chance(0.5)
    dims = reduced(d, x, [axis], keep)
    op = d.rng.choice(("ArgMax", "ArgMin"))
    last = int(d.chance(0.3))
    d.emit(
        op, [x], dims, np.dtype(np.int64), True, 1000, axis=axis, keepdims=int(keep),
        select_last_index=last,
    )  # fmt: skip


@draws(6)
def softmax(d: Drawing) -> None:
    x = d.float_value(lambda t: full(d, t))
    op = d.rng.choice(("Softmax", "Softmax", "LogSoftmax"))
    d.emit(op, [x], x.dims, axis=d.rng.randrange(-x.rank, x.rank))


@draws(1)
def hardmax(d: Drawing) -> None:
    x = d.float_value(lambda t: t.exact and full(d, t))
    d.emit("Hardmax", [x], x.dims, exact=True, bound=1, axis=d.rng.randrange(x.rank))


@draws(4)
def layer_norm(d: Drawing) -> None:
    x = d.float_value(lambda t: full(d, t) and t.rank > 1)
    axis = d.rng.choice((-1, -1, 1))
    dims = x.dims[axis:]
    d.need(all(isinstance(dim, int) for dim in dims))
    operands = [x, d.fresh(x.dtype, dims)]
    if d.chance(0.7):
        operands.append(d.fresh(x.dtype, dims))
    d.emit("LayerNormalization", operands, x.dims, axis=axis, epsilon=0.01)


@draws(2)
def instance_norm(d: Drawing) -> None:
    x = d.float_value(lambda t: full(d, t) and t.rank > 2 and isinstance(t.dims[1], int))
    channels = int(x.dims[1])
    scale, shift = (d.fresh(x.dtype, (channels,)) for _ in range(2))
    groups = [g for g in (1, 2, 4, channels) if channels % g == 0]
    if d.chance(0.5):
        d.emit("InstanceNormalization", [x, scale, shift], x.dims, epsilon=0.01)
        return
    d.emit(
        "GroupNormalization", [x, scale, shift], x.dims, epsilon=0.01,
        num_groups=d.rng.choice(groups),
    )  # fmt: skip


@draws(3)
def batch_norm(d: Drawing) -> None:
    x = d.float_value(lambda t: t.rank > 1 and isinstance(t.dims[1], int))
    operands = [d.fresh(x.dtype, (int(x.dims[1]),)) for _ in range(3)]
    variance = d.constant(
        np.random.default_rng(d.rng.randrange(99)).uniform(0.5, 2, x.dims[1]).astype(x.dtype)
    )
    d.emit("BatchNormalization", [x, *operands, variance], x.dims, epsilon=0.01)


@draws(1)
def lp_norm(d: Drawing) -> None:
    x = d.float_value(lambda t: full(d, t))
    wide = d.emit("Add", [x, d.constant(np.array(8).astype(x.dtype))], x.dims)
    d.emit("LpNormalization", [wide], x.dims, axis=d.rng.randrange(x.rank), p=d.rng.choice((1, 2)))


@draws(1)
def lrn(d: Drawing) -> None:
    x = d.float_value(lambda t: t.rank == 4 and isinstance(t.dims[1], int))
    d.emit("LRN", [x], x.dims, size=d.rng.choice((1, 3, 5)), alpha=0.5, bias=1.5)


@draws(3)
def cumulated(d: Drawing) -> None:
    x = d.pick(lambda t: t.rank > 0 and (is_float(t.dtype) or t.dtype in INTS[:2]))
    axis = d.rng.randrange(x.rank)
    bound = None if x.bound is None else x.bound * d.size(x.dims[axis])
    d.emit(
        "CumSum", [x, d.constant(np.array(axis, np.int64))], x.dims, bound=bound,
        exclusive=int(d.chance(0.3)), reverse=int(d.chance(0.3)),
    )  # fmt: skip
