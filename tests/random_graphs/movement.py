# SPDX-License-Identifier: Apache-2.0
"""Operators that only move elements, drawn at random."""

import math

import numpy as np
from onnx import helper

from tests.random_graphs.drawing import Drawing, draws
from tests.random_graphs.reductions import full
from tests.random_graphs.spec import Dim, Tensor, is_float


def move(
    d: Drawing, op: str, inputs: list[Tensor | None], dims: list[Dim], **options: object
) -> Tensor:
    """A node whose elements are all among those of its first operand."""
    x = inputs[0]
    assert x is not None
    return d.emit(op, inputs, dims, x.dtype, x.exact, x.bound, **options)


def any_value(d: Drawing, rank: int = 1) -> Tensor:
    return d.pick(lambda t: t.rank >= rank)


@draws(7)
def transpose(d: Drawing) -> None:
    x = any_value(d, 2)
    order = d.rng.sample(range(x.rank), x.rank)
    move(d, "Transpose", [x], [x.dims[i] for i in order], perm=order)


def factors(d: Drawing, count: int) -> list[int]:
    """Dims of that many elements."""
    dims: list[int] = []
    while count > 1 and len(dims) < 3:
        divisors = [i for i in range(1, min(count, 300) + 1) if count % i == 0]
        dims.append(d.rng.choice(divisors))
        count //= dims[-1]
    dims.append(count)
    return dims


@draws(8)
def reshape(d: Drawing) -> None:
    x = any_value(d)
    if x.static:
        count = d.elements(x.dims)
        dims = factors(d, count) if count else [0, *factors(d, 6)][: d.rng.randint(1, 3)]
        shape = list(dims)
        if d.chance(0.3) and count:
            shape[d.rng.randrange(len(shape))] = -1
        move(d, "Reshape", [x, d.ints(shape)], list(dims), allowzero=int(not count))
        return
    d.need(full(d, x))
    kept = d.rng.randrange(x.rank)
    merged = d.derived(lambda *sizes: math.prod(sizes), *x.dims[kept:])
    move(d, "Reshape", [x, d.ints([0] * kept + [-1])], [*x.dims[:kept], merged])


@draws(3)
def split_dim(d: Drawing) -> None:
    """A reshape that keeps symbolic dims and splits the last one."""
    x = d.pick(lambda t: t.rank > 0 and isinstance(t.dims[-1], int) and full(d, t))
    parts = factors(d, int(x.dims[-1]))
    move(d, "Reshape", [x, d.ints([0] * (x.rank - 1) + parts)], [*x.dims[:-1], *parts])


@draws(2)
def flatten(d: Drawing) -> None:
    x = any_value(d, 2)
    d.need(full(d, x))
    axis = d.rng.randint(0, x.rank)
    parts = (x.dims[:axis], x.dims[axis:])
    dims = [d.derived(lambda *s: math.prod(s), *p) if p else 1 for p in parts]
    move(d, "Flatten", [x], dims, axis=axis)


@draws(4)
def unsqueeze(d: Drawing) -> None:
    x = d.pick(lambda t: t.rank < 5)
    ones = [i for i, dim in enumerate(x.dims) if dim == 1]
    if ones and d.chance(0.5):
        axis = d.rng.choice(ones)
        move(d, "Squeeze", [x, d.ints([axis])], [v for i, v in enumerate(x.dims) if i != axis])
        return
    axis = d.rng.randint(0, x.rank)
    move(d, "Unsqueeze", [x, d.ints([axis])], [*x.dims[:axis], 1, *x.dims[axis:]])


@draws(3)
def expand(d: Drawing) -> None:
    x = d.pick(lambda t: 1 in t.dims or t.rank < 3)
    dims = [d.static_dim() if dim == 1 and d.chance(0.7) else dim for dim in x.dims]
    shape = [dim if isinstance(dim, int) else 1 for dim in dims]
    if d.chance(0.3):
        lead = d.rng.choice((1, 2, 3))
        dims, shape = [lead, *dims], [lead, *shape]
    move(d, "Expand", [x, d.ints(shape)], dims)


@draws(6)
def concat(d: Drawing) -> None:
    x = any_value(d)
    axis = d.rng.randrange(x.rank)
    parts = [x]
    for _ in range(d.rng.choice((1, 1, 2))):

        def fits(t: Tensor) -> bool:
            same = t.dtype == x.dtype and t.rank == x.rank
            return same and all(t.dims[i] == x.dims[i] for i in range(x.rank) if i != axis)

        if d.chance(0.5):
            parts.append(d.pick(fits))
        else:
            dims = tuple(d.dim() if i == axis else dim for i, dim in enumerate(x.dims))
            parts.append(d.fresh(x.dtype, dims))
    d.rng.shuffle(parts)
    total = d.derived(lambda *sizes: sum(sizes), *(t.dims[axis] for t in parts))
    bounds = [t.bound for t in parts]
    bound = None if None in bounds else max(b for b in bounds if b is not None)
    dims = [total if i == axis else dim for i, dim in enumerate(x.dims)]
    exact = all(t.exact for t in parts)
    d.emit("Concat", parts, dims, x.dtype, exact, bound, axis=axis - d.rng.choice((0, x.rank)))


@draws(4)
def split(d: Drawing) -> None:
    x = d.pick(lambda t: any(isinstance(v, int) and v > 1 for v in t.dims))
    axis = d.rng.choice([i for i, v in enumerate(x.dims) if isinstance(v, int) and v > 1])
    size = int(x.dims[axis])
    first = d.rng.randint(0 if d.empty else 1, size)
    sizes = [first, size - first] if first < size or d.empty else [size]
    results = [[*x.dims[:axis], v, *x.dims[axis + 1 :]] for v in sizes]
    d.emit_many("Split", [x, d.ints(sizes)], results, x.dtype, x.exact, x.bound, axis=axis)


@draws(6)
def slices(d: Drawing) -> None:
    x = d.pick(lambda t: any(isinstance(v, int) and v > 0 for v in t.dims))
    axes = [i for i, v in enumerate(x.dims) if isinstance(v, int) and v > 0]
    chosen = d.rng.sample(axes, d.rng.randint(1, len(axes)))
    dims, starts, ends, steps = list(x.dims), [], [], []
    for axis in chosen:
        size = int(x.dims[axis])
        step = d.rng.choice((1, 1, 1, 2, 3, -1, -2))
        start, end = sorted((d.rng.randint(0, size), d.rng.randint(0, size + 2)))
        if step < 0:
            start, end = end, start
            end = end - size - 1 if d.chance(0.3) else end
        elif d.chance(0.3):
            start -= size
        dims[axis] = len(range(size)[start:end:step])
        d.need(dims[axis] > 0 or d.empty)
        starts, ends, steps = [*starts, start], [*ends, end], [*steps, step]
    given = [x, *(d.ints(v) for v in (starts, ends, chosen, steps))]
    move(d, "Slice", given, dims)


@draws(4)
def pad(d: Drawing) -> None:
    x = d.pick(lambda t: t.rank > 0 and (is_float(t.dtype) or t.dtype in (np.int32, np.int64)))
    mode = d.rng.choice(("constant", "constant", "edge", "reflect", "wrap"))
    before, after = [], []
    for dim in x.dims:
        fine = mode == "constant" or (isinstance(dim, int) and dim > 2)
        for sides in (before, after):
            sides.append(d.rng.choice((0, 0, 1, 2)) if fine else 0)
    dims = [d.derived(lambda s, b=b, a=a: s + a + b, v) for v, b, a in zip(x.dims, before, after)]
    given: list[Tensor | None] = [x, d.ints([*before, *after])]
    if mode == "constant" and d.chance(0.5):
        given.append(d.constant(np.array(2, x.dtype)))
    bound = None if x.bound is None else max(2, x.bound)
    d.emit("Pad", given, dims, x.dtype, x.exact, bound, mode=mode)


@draws(2)
def tile(d: Drawing) -> None:
    x = any_value(d)
    repeats = [d.rng.choice((1, 1, 2, 3)) for _ in x.dims]
    dims = [d.derived(lambda s, r=r: s * r, v) for v, r in zip(x.dims, repeats)]
    move(d, "Tile", [x, d.ints(repeats)], dims)


def indices(d: Drawing, size: int, shape: tuple[int, ...]) -> Tensor:
    """Indices into a dim, some counted from its end; as an input where they are not known."""
    rng = np.random.default_rng(d.rng.randrange(2**32))
    kind = np.dtype(d.rng.choice((np.int64, np.int32)))
    return d.constant(rng.integers(-size, size, shape).astype(kind))


@draws(5)
def gather(d: Drawing) -> None:
    x = d.pick(lambda t: any(isinstance(v, int) and v > 0 for v in t.dims))
    axis = d.rng.choice([i for i, v in enumerate(x.dims) if isinstance(v, int) and v > 0])
    shape = tuple(d.rng.choice((1, 2, 3, 8)) for _ in range(d.rng.choice((0, 1, 1, 2))))
    index = indices(d, int(x.dims[axis]), shape)
    move(d, "Gather", [x, index], [*x.dims[:axis], *shape, *x.dims[axis + 1 :]], axis=axis)


@draws(2)
def gather_elements(d: Drawing) -> None:
    x = d.pick(lambda t: t.rank > 0 and t.static and 0 not in t.dims)
    axis = d.rng.randrange(x.rank)
    shape = tuple(3 if i == axis else int(v) for i, v in enumerate(x.dims))
    index = indices(d, int(x.dims[axis]), shape)
    move(d, "GatherElements", [x, index], list(shape), axis=axis)


@draws(2)
def gather_nd(d: Drawing) -> None:
    x = d.pick(lambda t: t.rank > 0 and t.static and 0 not in t.dims)
    depth = d.rng.randint(1, x.rank)
    rng = np.random.default_rng(d.rng.randrange(2**32))
    index = np.stack([rng.integers(-int(v), int(v), 4) for v in x.dims[:depth]], axis=-1)
    move(d, "GatherND", [x, d.constant(index)], [4, *x.dims[depth:]])


@draws(2)
def scatter_elements(d: Drawing) -> None:
    x = d.pick(lambda t: t.rank > 0 and t.static and 0 not in t.dims and t.dtype.itemsize > 1)
    axis = d.rng.randrange(x.rank)
    size = int(x.dims[axis])
    rng = np.random.default_rng(d.rng.randrange(2**32))
    shape = [d.rng.randint(1, int(v)) for v in x.dims]
    order = rng.permuted(
        np.broadcast_to(np.arange(size), [*shape[:axis], *shape[axis + 1 :], size]), axis=-1
    )
    index = np.moveaxis(order, -1, axis).take(range(shape[axis]), axis)
    updates = d.fresh(x.dtype, tuple(shape))
    exact = x.exact and updates.exact
    bound = None if None in (x.bound, updates.bound) else max(x.bound or 0, updates.bound or 0)
    given = [x, d.constant(index.astype(np.int64)), updates]
    d.emit("ScatterElements", given, x.dims, x.dtype, exact, bound, axis=axis)


@draws(2)
def scatter_nd(d: Drawing) -> None:
    x = d.pick(lambda t: t.rank > 0 and t.static and 0 not in t.dims and t.dtype.itemsize > 1)
    count = d.rng.randint(1, int(x.dims[0]))
    index = np.array(d.rng.sample(range(int(x.dims[0])), count), np.int64)[:, None]
    updates = d.fresh(x.dtype, (count, *x.dims[1:]))
    exact = x.exact and updates.exact
    bound = None if None in (x.bound, updates.bound) else max(x.bound or 0, updates.bound or 0)
    d.emit("ScatterND", [x, d.constant(index), updates], x.dims, x.dtype, exact, bound)


@draws(1)
def depth_and_space(d: Drawing) -> None:
    x = d.pick(lambda t: t.rank == 4 and t.static and is_float(t.dtype))
    n, c, h, w = (int(v) for v in x.dims)
    b = d.rng.choice((2, 3))
    if c % (b * b) == 0 and c:
        mode = d.rng.choice(("DCR", "CRD"))
        move(d, "DepthToSpace", [x], [n, c // (b * b), h * b, w * b], blocksize=b, mode=mode)
        return
    d.need(h % b == 0 and w % b == 0 and h and w)
    move(d, "SpaceToDepth", [x], [n, c * b * b, h // b, w // b], blocksize=b)


@draws(2)
def trilu(d: Drawing) -> None:
    x = any_value(d, 2)
    d.need(full(d, x) and x.dtype.itemsize > 1)
    k = d.constant(np.array(d.rng.choice((-1, 0, 1, 3)), np.int64))
    move(d, "Trilu", [x, k], list(x.dims), upper=int(d.chance(0.5)))


@draws(2)
def shape_of(d: Drawing) -> None:
    """A tensor of the shape of another, through ``Shape``."""
    x = any_value(d)
    shape = d.emit("Shape", [x], [x.rank], np.dtype(np.int64))
    value = helper.make_tensor("value", 1, [1], [1.5])
    kind = np.dtype(np.float32)
    d.emit("ConstantOfShape", [shape], x.dims, kind, True, None, value=value)


@draws(1)
def one_hot(d: Drawing) -> None:
    x = d.pick(lambda t: t.dtype in (np.int64, np.int32) and t.rank < 3)
    depth = d.rng.choice((3, 8))
    values = d.constant(np.array([0, 1], np.float32))
    given = [x, d.constant(np.array(depth, np.int64)), values]
    d.emit("OneHot", given, [*x.dims, depth], values.dtype, True, 1, axis=-1)


@draws(2)
def resize(d: Drawing) -> None:
    x = d.float_value(
        lambda t: t.rank == 4 and full(d, t) and all(isinstance(v, int) for v in t.dims[2:])
    )
    scales = [d.rng.choice((1, 2, 3)) for _ in range(2)]
    mode = d.rng.choice(("nearest", "linear"))
    dims = [*x.dims[:2], *(int(v) * s for v, s in zip(x.dims[2:], scales))]
    given = [x, None, d.constant(np.array([1, 1, *scales], np.float32))]
    options = {"mode": mode, "coordinate_transformation_mode": "asymmetric"}
    if mode == "nearest":
        move(d, "Resize", given, dims, nearest_mode="floor", **options)
    else:
        d.emit("Resize", given, dims, **options)
