# SPDX-License-Identifier: Apache-2.0
"""Movement of data: Reshape, Transpose, Slice, Concat, Split, Pad, Tile, Expand and relatives, with
symbolic dims.
"""

from collections.abc import Sequence
from typing import Literal

from tilewright.frontends.dims import exact_quotient, reshaped_dims
from tilewright.frontends.onnx import compose
from tilewright.frontends.onnx.context import NodeContext
from tilewright.frontends.onnx.registry import handler
from tilewright.ir import bounds, simplify
from tilewright.ir.expr import ONE, ZERO, Const, Expr, index, mul, sub
from tilewright.ir.graph import Value
from tilewright.ir.ops.concat import Concat
from tilewright.ir.ops.pad import Pad
from tilewright.ir.ops.slice import Slice

Element = int | Expr
PadMode = Literal["constant", "edge", "reflect", "wrap"]
_PAD_MODES: tuple[PadMode, ...] = ("constant", "edge", "reflect", "wrap")
# Exporters write "to the end" as 2^63 - 1, 2^31 - 1 or 10^9, "to the beginning" as their negatives;
# no symbolic dim is that large.
_FAR = 1_000_000_000
# It leads out of every tensor, and its sum with a dim stays in 64 bits.
_LONGEST_STEP = 1 << 62
_LARGEST_BLOCK = (1 << 16) - 1


@handler("Reshape", since=5)
def _reshape(ctx: NodeContext) -> Value:
    return reshaped(ctx, ctx.integers(1, "shape"))


def reshaped(ctx: NodeContext, wanted: list[Element]) -> Value:
    """The first input under the wanted dims."""
    x = ctx.value(0)
    allow_zero = bool(ctx.attributes.integer("allowzero", 0))
    try:
        dims = reshaped_dims(x.type.shape, wanted, allow_zero)
    except ValueError as error:
        ctx.fail(f"The shape cannot be taken: {error}.")
    return compose.reshape(ctx, x, dims)


@handler("Flatten")
def _flatten(ctx: NodeContext) -> Value:
    x = ctx.value(0)
    axis = ctx.attributes.integer("axis", 1)
    rank = x.type.rank
    ctx.require(
        -rank <= axis <= rank,
        f"Axis {axis} is out of range for rank {rank}: it must be from {-rank} to {rank}.",
    )
    return compose.as_matrix(ctx, x, axis + rank if axis < 0 else axis)


@handler("Transpose")
def _transpose(ctx: NodeContext) -> Value:
    x = ctx.value(0)
    rank = x.type.rank
    perm = ctx.attributes.integers("perm")
    perm = list(range(rank))[::-1] if perm is None else perm
    ctx.require(
        sorted(p + rank if p < 0 else p for p in perm) == list(range(rank)),
        f"Its perm {perm} is not an order of {rank} axes.",
    )
    return compose.transpose(ctx, x, [p % rank for p in perm])


def _axes_of(ctx: NodeContext) -> list[int] | None:
    """Axes from the attribute, or from input 1 since version 13."""
    if ctx.version < 13:
        return ctx.attributes.integers("axes")
    return ctx.static_integers(1, "axes") if ctx.has(1) else None


@handler("Squeeze")
def _squeeze(ctx: NodeContext) -> Value:
    x = ctx.value(0)
    given = _axes_of(ctx)
    if given is None:
        axes = tuple(a for a, d in enumerate(x.type.shape) if d is ONE)
    else:
        axes = ctx.axes(given, x.type.rank)
    for a in axes:
        dim = x.type.shape[a]
        ctx.require(
            bounds.known_equal(dim, ONE) is not False,
            f"Axis {a} has {dim} elements and cannot be dropped.",
        )
    return compose.squeeze(ctx, x, axes)


@handler("Unsqueeze")
def _unsqueeze(ctx: NodeContext) -> Value:
    x = ctx.value(0)
    given = _axes_of(ctx)
    ctx.require(given is not None, "It has no axes.")
    axes = given or []
    return compose.unsqueeze(ctx, x, ctx.axes(axes, x.type.rank + len(axes)))


@handler("Concat", since=4)
def _concat(ctx: NodeContext) -> Value:
    return concatenated(ctx, ctx.attributes.integer("axis"))


def concatenated(ctx: NodeContext, axis: int) -> Value:
    """All inputs, one after another along an axis."""
    values = ctx.values()
    ctx.require(bool(values), "It has no inputs.")
    axis = ctx.axis(axis, values[0].type.rank)
    return values[0] if len(values) == 1 else ctx.emit(Concat(axis), *values)


# --- Split ----------------------------------------------------------------------------------------


@handler("Split", since=2)
def _split(ctx: NodeContext) -> list[Value]:
    """Sizes from the attribute (up to 12) or input 1."""
    if ctx.version < 13:
        return split(ctx, ctx.attributes.integers("split"))
    return split(ctx, ctx.integers(1, "sizes") if ctx.has(1) else None)


def split(ctx: NodeContext, given: Sequence[Element] | None) -> list[Value]:
    """The parts of the first input, of the given sizes if there are some."""
    x = ctx.value(0)
    axis = ctx.axis(ctx.attributes.integer("axis", 0), x.type.rank)
    extent = x.type.shape[axis]
    results: list[Value] = []
    start: Expr = ZERO
    for size in _split_sizes(ctx, extent, given):
        results.append(compose.slice_axis(ctx, x, axis, start, size))
        start = start + size
    ctx.require(
        bounds.known_equal(start, extent) is not False,
        f"Its parts sum to {start}, but axis {axis} has {extent} elements.",
    )
    return results


def _split_sizes(ctx: NodeContext, extent: Expr, given: Sequence[Element] | None) -> list[Expr]:
    """The given sizes; else equal parts, since 18 with a smaller last one."""
    parts = len(ctx.node.output)
    if given is not None:
        ctx.require(len(given) == parts, f"It has {len(given)} sizes for {parts} results.")
        return [index(g) for g in given]
    wanted = ctx.attributes.integer("num_outputs", parts)
    ctx.require(wanted == parts and parts > 0, f"Its num_outputs is {wanted} for {parts} results.")
    equal = exact_quotient(extent, index(parts))
    if equal is not None:
        return [equal] * parts
    ctx.require(
        ctx.version >= 18, f"Axis of {extent} elements does not split into {parts} equal parts."
    )
    chunk = simplify.ceildiv(extent, parts)
    return [chunk] * (parts - 1) + [sub(extent, mul(chunk, index(parts - 1)))]


# --- Slice ----------------------------------------------------------------------------------------


@handler("Slice")
def _slice_attributes(ctx: NodeContext) -> Value:
    """Up to version 9: everything is an attribute and steps are 1."""
    starts = ctx.attributes.integers("starts")
    ends = ctx.attributes.integers("ends")
    ctx.require(starts is not None and ends is not None, "It has no starts or no ends.")
    return _sliced(ctx, starts or [], ends or [], ctx.attributes.integers("axes"), None)


@handler("Slice", since=10)
def _slice(ctx: NodeContext) -> Value:
    starts, ends = ctx.integers(1, "starts"), ctx.integers(2, "ends")
    axes = ctx.static_integers(3, "axes") if ctx.has(3) else None
    steps = ctx.static_integers(4, "steps") if ctx.has(4) else None
    return _sliced(ctx, starts, ends, axes, steps)


def _sliced(
    ctx: NodeContext,
    starts: Sequence[Element],
    ends: Sequence[Element],
    axes: list[int] | None,
    steps: list[int] | None,
) -> Value:
    x = ctx.value(0)
    rank = x.type.rank
    chosen = [ctx.axis(a, rank) for a in axes] if axes is not None else list(range(len(starts)))
    strides = steps if steps is not None else [1] * len(starts)
    ctx.require(
        len(starts) == len(ends) == len(chosen) == len(strides) and len(starts) <= rank,
        f"Its {len(starts)} starts, {len(ends)} ends, {len(chosen)} axes and {len(strides)} "
        f"steps do not fit rank {rank}.",
    )
    ctx.require(len(set(chosen)) == len(chosen), f"Its axes {chosen} name one axis twice.")
    all_starts: list[Expr] = [ZERO] * rank
    sizes = list(x.type.shape)
    all_steps = [1] * rank
    for start, end, axis, step in zip(starts, ends, chosen, strides):
        ctx.require(step != 0, "One of its steps is 0.")
        step = max(-_LONGEST_STEP, min(step, _LONGEST_STEP))
        all_starts[axis], sizes[axis] = window(x.type.shape[axis], start, end, step)
        all_steps[axis] = step
    if tuple(sizes) == x.type.shape and all(s == 1 for s in all_steps):
        return x
    return ctx.emit(Slice(tuple(all_starts), tuple(sizes), tuple(all_steps)), x)


def window(extent: Expr, start: Element, end: Element, step: int) -> tuple[Expr, Expr]:
    """First position and size of ``start:end:step`` in a dim, both ends clamped as ONNX says."""
    first = _from_end(start, extent, ZERO)
    last = _from_end(end, extent, ZERO if step > 0 else index(-1))
    if step > 0:
        first = simplify.maximum(simplify.minimum(first, extent), 0)
        last = simplify.maximum(simplify.minimum(last, extent), 0)
        return first, simplify.maximum(simplify.ceildiv(sub(last, first), step), 0)
    first = simplify.minimum(simplify.maximum(first, 0), sub(extent, 1))
    last = simplify.maximum(simplify.minimum(last, sub(extent, 1)), -1)
    return first, simplify.maximum(simplify.ceildiv(sub(first, last), -step), 0)


def _from_end(position: Element, extent: Expr, beginning: Expr) -> Expr:
    """A position with negative ones counted from the end, also where the sign is not known; far
    ones are the end and the beginning.
    """
    if isinstance(position, int) and abs(position) >= _FAR and not isinstance(extent, Const):
        return extent if position > 0 else beginning
    where = index(position)
    if bounds.is_nonnegative(where):
        return where
    if bounds.upper(where) < 0:
        # What is counted from the end, and not below the beginning: the last n - min(n, k) rows.
        back = simplify.minimum(mul(where, index(-1)), sub(extent, beginning))
        return sub(extent, back)
    is_negative = simplify.minimum(simplify.maximum(mul(where, index(-1)), 0), 1)
    return where + mul(extent, is_negative)


# --- Pad ------------------------------------------------------------------------------------------


@handler("Pad", since=2)
def _pad_attributes(ctx: NodeContext) -> Value:
    """Up to version 10: pads and value are attributes."""
    pads = ctx.attributes.integers("pads")
    ctx.require(pads is not None, "It has no pads.")
    x = ctx.value(0)
    return padded(ctx, x, pads or [], compose.like(ctx, ctx.attributes.number("value", 0.0), x))


@handler("Pad", since=11)
def _pad(ctx: NodeContext) -> Value:
    x = ctx.value(0)
    rank = x.type.rank
    given = ctx.integers(1, "pads")
    value = compose.reshape(ctx, ctx.value(2), ()) if ctx.has(2) else compose.like(ctx, 0, x)
    if not ctx.has(3):
        return padded(ctx, x, given, value)
    axes = [ctx.axis(a, rank) for a in ctx.static_integers(3, "axes")]
    ctx.require(len(given) == 2 * len(axes), f"It has {len(given)} pads for {len(axes)} axes.")
    pads: list[Element] = [0] * (2 * rank)
    for position, axis in enumerate(axes):
        pads[axis], pads[rank + axis] = given[position], given[len(axes) + position]
    return padded(ctx, x, pads, value)


def padded(ctx: NodeContext, x: Value, pads: Sequence[Element], value: Value) -> Value:
    """``x`` with pads, all begins then all ends, in the node's mode."""
    rank = x.type.rank
    ctx.require(len(pads) == 2 * rank, f"It has {len(pads)} pads for rank {rank}.")
    mode = ctx.attributes.choice("mode", _PAD_MODES, "constant")
    begins, ends = [index(p) for p in pads[:rank]], [index(p) for p in pads[rank:]]
    if mode == "constant":
        return ctx.emit(Pad(tuple(begins), tuple(ends), "constant"), x, value)
    x, begins, ends = _cropped(ctx, x, begins, ends)
    if all(p is ZERO for p in begins + ends):
        return x
    return ctx.emit(Pad(tuple(begins), tuple(ends), mode), x)


def _cropped(
    ctx: NodeContext, x: Value, begins: list[Expr], ends: list[Expr]
) -> tuple[Value, list[Expr], list[Expr]]:
    """Negative pads cut first; the modes that repeat elements then see what is left."""
    for axis in range(x.type.rank):
        before, after = (
            -int(p.literal) if isinstance(p, Const) and int(p.literal) < 0 else 0
            for p in (begins[axis], ends[axis])
        )
        if before or after:
            size = sub(x.type.shape[axis], index(before + after))
            x = compose.slice_axis(ctx, x, axis, before, size)
            begins[axis] = ZERO if before else begins[axis]
            ends[axis] = ZERO if after else ends[axis]
    return x, begins, ends


# --- repetition -----------------------------------------------------------------------------------


@handler("Tile", since=6)
def _tile(ctx: NodeContext) -> Value:
    return tiled(ctx, ctx.value(0), ctx.integers(1, "repeats"))


def tiled(ctx: NodeContext, x: Value, given: Sequence[Element]) -> Value:
    """A dim of 1 in front of each repeated axis, broadcast, and merged again."""
    repeats = [index(r) for r in given]
    ctx.require(
        len(repeats) == x.type.rank, f"It has {len(repeats)} repeats for rank {x.type.rank}."
    )
    ctx.require(all(bounds.upper(r) >= 0 for r in repeats), "One of its repeats is negative.")
    split: list[Expr] = []
    repeated: list[Expr] = []
    merged: list[Expr] = []
    for dim, repeat in zip(x.type.shape, repeats):
        if repeat is not ONE:
            split.append(ONE)
            repeated.append(repeat)
        split.append(dim)
        repeated.append(dim)
        merged.append(mul(dim, repeat))
    spread = compose.broadcast(ctx, compose.reshape(ctx, x, split), repeated)
    return compose.reshape(ctx, spread, merged)


@handler("Expand", since=8)
def _expand(ctx: NodeContext) -> Value:
    """Broadcast both ways: a dim of 1 in the wanted shape keeps the input's."""
    x = ctx.value(0)
    wanted = [index(d) for d in ctx.integers(1, "shape")]
    ctx.require(
        all(bounds.upper(d) >= 0 for d in wanted), f"The shape {wanted} has a negative dim."
    )
    rank = max(x.type.rank, len(wanted))
    own = [ONE] * (rank - x.type.rank) + list(x.type.shape)
    wanted = [ONE] * (rank - len(wanted)) + wanted
    dims: list[Expr] = []
    for a, b in zip(own, wanted):
        ctx.require(
            a is ONE or b is ONE or bounds.known_equal(a, b) is not False,
            f"A dim of {a} cannot be expanded to {b}.",
        )
        dims.append(simplify.bcast(a, b))
    return compose.broadcast(ctx, x, dims)


# --- blocks ---------------------------------------------------------------------------------------


def _blocks(ctx: NodeContext) -> tuple[Value, int]:
    x = ctx.value(0)
    ctx.require(x.type.rank == 4, f"Its input has rank {x.type.rank}, not 4.")
    size = ctx.attributes.integer("blocksize")
    ctx.require(
        0 < size <= _LARGEST_BLOCK,
        f"Its blocksize is {size}, but must be from 1 to {_LARGEST_BLOCK}.",
    )
    return x, size


def _part(ctx: NodeContext, dim: Expr, size: int) -> Expr:
    quotient = exact_quotient(dim, index(size))
    if quotient is None:
        ctx.require(
            not isinstance(dim, Const), f"A dim of {dim} does not split into blocks of {size}."
        )
        quotient = simplify.floordiv(dim, size)
    return quotient


@handler("DepthToSpace")
def _depth_to_space(ctx: NodeContext) -> Value:
    x, b = _blocks(ctx)
    n, c, h, w = x.type.shape
    depth = _part(ctx, c, b * b)
    if ctx.attributes.choice("mode", ("DCR", "CRD"), "DCR") == "DCR":
        split = compose.transpose(
            ctx, compose.reshape(ctx, x, (n, b, b, depth, h, w)), (0, 3, 4, 1, 5, 2)
        )
    else:
        split = compose.transpose(
            ctx, compose.reshape(ctx, x, (n, depth, b, b, h, w)), (0, 1, 4, 2, 5, 3)
        )
    return compose.reshape(ctx, split, (n, depth, h * b, w * b))


@handler("SpaceToDepth")
def _space_to_depth(ctx: NodeContext) -> Value:
    x, b = _blocks(ctx)
    n, c, h, w = x.type.shape
    rows, columns = _part(ctx, h, b), _part(ctx, w, b)
    split = compose.reshape(ctx, x, (n, c, rows, b, columns, b))
    mode = ctx.attributes.choice("mode", ("DCR", "CRD"), "DCR")
    perm = (0, 3, 5, 1, 2, 4) if mode == "DCR" else (0, 1, 3, 5, 2, 4)
    moved = compose.transpose(ctx, split, perm)
    return compose.reshape(ctx, moved, (n, c * (b * b), rows, columns))
