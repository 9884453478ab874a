# SPDX-License-Identifier: Apache-2.0
"""How operators act on contents known at import: one evaluator for each operator that models
compute shapes with.

An evaluator sees the contents of all inputs (None for a missing one) and returns those of the
result. It raises :class:`Unknown` where an element cannot be told; the node is then emitted like
any other.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright.frontends.onnx import shapes
from tilewright.frontends.onnx.context import NodeContext
from tilewright.frontends.onnx.operand import Operand
from tilewright.frontends.onnx.registry import Contents, evaluator
from tilewright.frontends.onnx.shapes import Element, Unknown
from tilewright.frontends.onnx.tensors import dtype_named, dtype_of
from tilewright.ir.dtypes import BOOL, DType
from tilewright.ir.op import MAX_ARRAY_RANK

Inputs = list[Any]
_Binary = Callable[[Element, Element, DType], Element]


def _elementwise(function: Callable[..., Element], *arrays: Any) -> Contents:
    """Apply a function to broadcast object arrays."""
    if any(a is None for a in arrays):
        raise Unknown
    try:
        together = np.broadcast_arrays(*arrays)
    except ValueError as error:
        raise Unknown from error
    result: Contents = np.empty(together[0].shape, object)
    for position in np.ndindex(result.shape):
        result[position] = function(*(a[position] for a in together))
    return result


def _static(contents: Contents | None) -> list[int]:
    """The elements as plain integers."""
    if contents is None or not all(isinstance(x, int) for x in contents.reshape(-1)):
        raise Unknown
    return [int(x) for x in contents.reshape(-1)]


def _axes(ctx: NodeContext, inputs: Inputs, since: int) -> list[int] | None:
    """Axes from the attribute, or from input 1 since that version."""
    if ctx.version < since:
        return ctx.attributes.integers("axes")
    return _static(inputs[1]) if len(inputs) > 1 and inputs[1] is not None else None


def _together(ctx: NodeContext, inputs: Inputs) -> Inputs:
    """Two operands as they broadcast: before version 7 the second at an axis of the first."""
    if ctx.version >= 7 or "axis" not in ctx.attributes or any(i is None for i in inputs):
        return inputs
    first, second = inputs
    rest = first.ndim - second.ndim - ctx.axis(ctx.attributes.integer("axis"), max(first.ndim, 1))
    if rest < 0:
        raise Unknown
    return [first, second.reshape((*second.shape, *(1,) * rest))]


# --- arithmetic -----------------------------------------------------------------------------------


def _register_binary(name: str, function: _Binary) -> None:
    @evaluator(name)
    def evaluate(ctx: NodeContext, inputs: Inputs) -> Contents:
        dtype = ctx.operand(0).dtype
        if any(o is not None and o.dtype is not dtype for o in ctx.operands):
            raise Unknown  # and refused where the types are inferred
        together = _together(ctx, inputs)
        result: Contents = together[0]
        for other in together[1:]:
            result = _elementwise(lambda x, y: function(x, y, dtype), result, other)
        return result


for _name, _function in (
    ("Add", shapes.plus),
    ("Sub", shapes.minus),
    ("Mul", shapes.times),
    ("Div", shapes.divide),
    ("Min", shapes.smallest),
    ("Max", shapes.largest),
    ("Sum", shapes.plus),
):
    _register_binary(_name, _function)


@evaluator("Mod")
def _mod(ctx: NodeContext, inputs: Inputs) -> Contents:
    if ctx.attributes.integer("fmod", 0):
        raise Unknown
    dtype = ctx.operand(0).dtype
    return _elementwise(lambda x, y: shapes.remainder(x, y, dtype), *inputs)


@evaluator("Neg")
def _neg(ctx: NodeContext, inputs: Inputs) -> Contents:
    return _elementwise(lambda x: shapes.negative(x, ctx.operand(0).dtype), inputs[0])


@evaluator("Abs")
def _abs(ctx: NodeContext, inputs: Inputs) -> Contents:
    dtype = ctx.operand(0).dtype

    def absolute(x: Element) -> Element:
        return x if shapes.decide("ge", x, 0) else shapes.negative(x, dtype)

    return _elementwise(absolute, inputs[0])


@evaluator("Floor")
def _floor(ctx: NodeContext, inputs: Inputs) -> Contents:
    return _elementwise(shapes.floor, inputs[0])


@evaluator("Ceil")
def _ceil(ctx: NodeContext, inputs: Inputs) -> Contents:
    return _elementwise(shapes.ceil, inputs[0])


@evaluator("Cast")
def _cast(ctx: NodeContext, inputs: Inputs) -> Operand:
    what = f"The target of node {ctx.where}"
    if ctx.version < 6:
        target = dtype_named(ctx.attributes.text("to"), what)
    else:
        target = dtype_of(ctx.attributes.integer("to"), what)
    return _converted(ctx, inputs[0], target)


@evaluator("CastLike")
def _cast_like(ctx: NodeContext, inputs: Inputs) -> Operand:
    return _converted(ctx, inputs[0], ctx.operand(1).dtype)


def _converted(ctx: NodeContext, contents: Contents, target: DType) -> Operand:
    source = ctx.operand(0).dtype
    if target.kind not in ("int", "uint", "bool") and target.name not in ("f16", "f32", "f64"):
        raise Unknown
    result = _elementwise(lambda x: shapes.convert(x, source, target), contents)
    return ctx.known_result(result, target)


# --- logic ----------------------------------------------------------------------------------------


def _register_comparison(name: str, comparison: str) -> None:
    @evaluator(name)
    def evaluate(ctx: NodeContext, inputs: Inputs) -> Operand:
        both = _together(ctx, inputs)
        result = _elementwise(lambda x, y: shapes.decide(comparison, x, y), *both)
        return ctx.known_result(result, BOOL)


for _name, _comparison in (
    ("Equal", "eq"),
    ("Less", "lt"),
    ("LessOrEqual", "le"),
    ("Greater", "gt"),
    ("GreaterOrEqual", "ge"),
):
    _register_comparison(_name, _comparison)


@evaluator("Not")
def _not(ctx: NodeContext, inputs: Inputs) -> Contents:
    return _elementwise(lambda x: not x, inputs[0])


@evaluator("And")
def _and(ctx: NodeContext, inputs: Inputs) -> Contents:
    return _elementwise(lambda x, y: bool(x and y), *_together(ctx, inputs))


@evaluator("Or")
def _or(ctx: NodeContext, inputs: Inputs) -> Contents:
    return _elementwise(lambda x, y: bool(x or y), *_together(ctx, inputs))


@evaluator("Xor")
def _xor(ctx: NodeContext, inputs: Inputs) -> Contents:
    return _elementwise(lambda x, y: bool(x) != bool(y), *_together(ctx, inputs))


@evaluator("Where")
def _where(ctx: NodeContext, inputs: Inputs) -> Operand:
    result = _elementwise(lambda c, x, y: x if c else y, *inputs)
    return ctx.known_result(result, ctx.operand(1).dtype)


# --- movement -------------------------------------------------------------------------------------


@evaluator("Identity")
def _identity(ctx: NodeContext, inputs: Inputs) -> Contents:
    return np.array(inputs[0], object)


@evaluator("Gather")
def _gather(ctx: NodeContext, inputs: Inputs) -> Contents:
    axis = ctx.axis(ctx.attributes.integer("axis", 0), inputs[0].ndim)
    positions = _static(inputs[1])
    extent = inputs[0].shape[axis] if inputs[0].ndim else 0
    if any(not -extent <= p < extent for p in positions):
        raise Unknown
    return np.asarray(
        np.take(inputs[0], np.array(positions, int).reshape(inputs[1].shape), axis), object
    )


@evaluator("Concat")
def _concat(ctx: NodeContext, inputs: Inputs) -> Contents:
    default = 1 if ctx.version < 4 else None
    axis = ctx.axis(ctx.attributes.integer("axis", default), inputs[0].ndim)
    if any(i is None for i in inputs):
        raise Unknown
    try:
        return np.asarray(np.concatenate(inputs, axis), object)
    except ValueError as error:
        raise Unknown from error


@evaluator("Unsqueeze")
def _unsqueeze(ctx: NodeContext, inputs: Inputs) -> Contents:
    axes = _axes(ctx, inputs, 13) or []
    rank = inputs[0].ndim + len(axes)
    if rank > MAX_ARRAY_RANK:
        raise Unknown
    return np.expand_dims(inputs[0], ctx.axes(axes, rank))


@evaluator("Squeeze")
def _squeeze(ctx: NodeContext, inputs: Inputs) -> Contents:
    axes = _axes(ctx, inputs, 13)
    chosen = (
        ctx.axes(axes, inputs[0].ndim)
        if axes is not None
        else tuple(a for a, d in enumerate(inputs[0].shape) if d == 1)
    )
    if any(inputs[0].shape[a] != 1 for a in chosen):
        raise Unknown
    return np.asarray(np.squeeze(inputs[0], chosen), object)


@evaluator("Reshape")
def _reshape(ctx: NodeContext, inputs: Inputs) -> Contents:
    wanted = (
        _static(inputs[1]) if ctx.version >= 5 else list(ctx.attributes.integers("shape") or [])
    )
    if not ctx.attributes.integer("allowzero", 0):
        if any(d == 0 and a >= inputs[0].ndim for a, d in enumerate(wanted)):
            raise Unknown
        wanted = [inputs[0].shape[a] if d == 0 else d for a, d in enumerate(wanted)]
    try:
        return np.asarray(inputs[0].reshape(wanted), object)
    except ValueError as error:
        raise Unknown from error


@evaluator("Flatten")
def _flatten(ctx: NodeContext, inputs: Inputs) -> Contents:
    axis = ctx.attributes.integer("axis", 1)
    if not -inputs[0].ndim <= axis <= inputs[0].ndim or inputs[0].size == 0:
        raise Unknown
    rows = int(np.prod(inputs[0].shape[:axis], dtype=int))
    return np.asarray(inputs[0].reshape(rows, inputs[0].size // rows), object)


@evaluator("Transpose")
def _transpose(ctx: NodeContext, inputs: Inputs) -> Contents:
    perm = ctx.attributes.integers("perm")
    if perm is not None and sorted(perm) != list(range(inputs[0].ndim)):
        raise Unknown
    return np.transpose(inputs[0], perm)


@evaluator("Slice")
def _slice(ctx: NodeContext, inputs: Inputs) -> Contents:
    rank = inputs[0].ndim
    if ctx.version < 10:
        starts = ctx.attributes.integers("starts") or []
        ends = ctx.attributes.integers("ends") or []
        axes = ctx.attributes.integers("axes")
        steps = None
    else:
        starts, ends = _static(inputs[1]), _static(inputs[2])
        axes, steps = (
            _static(inputs[i]) if len(inputs) > i and inputs[i] is not None else None
            for i in (3, 4)
        )
    axes = list(range(len(starts))) if axes is None else axes
    steps = [1] * len(starts) if steps is None else steps
    if not len(starts) == len(ends) == len(axes) == len(steps) or 0 in steps:
        raise Unknown
    window = [slice(None)] * rank
    # Python's slices clamp negative and far ends exactly as ONNX's do.
    for start, end, axis, step in zip(starts, ends, axes, steps):
        window[ctx.axis(axis, rank)] = slice(start, end, step)
    return np.array(inputs[0][tuple(window)], object)


@evaluator("Tile")
def _tile(ctx: NodeContext, inputs: Inputs) -> Contents:
    if ctx.version < 6:
        raise Unknown  # one axis, by its handler
    repeats = _static(inputs[1])
    _check_size(ctx, [inputs[0].size, *repeats])
    return np.tile(inputs[0], repeats)


@evaluator("Expand")
def _expand(ctx: NodeContext, inputs: Inputs) -> Contents:
    wanted = _static(inputs[1])
    _check_size(ctx, wanted)
    try:
        shape = np.broadcast_shapes(inputs[0].shape, tuple(wanted))
    except ValueError as error:
        raise Unknown from error
    return np.array(np.broadcast_to(inputs[0], shape), object)


def _check_size(ctx: NodeContext, factors: list[int]) -> None:
    """Unknown if the product of the factors is more than is followed."""
    total = 1
    for factor in factors:
        total *= factor
        if factor < 0 or total > ctx.importer.limits.contents:
            raise Unknown


# --- ranges and reductions ------------------------------------------------------------------------


@evaluator("Range")
def _range(ctx: NodeContext, inputs: Inputs) -> Contents:
    if not ctx.operand(0).dtype.is_integer:
        raise Unknown
    bounds = [x for i in inputs for x in _static(i)]
    if len(bounds) != 3:
        raise Unknown
    start, limit, step = bounds
    if step == 0 or abs(limit - start) // abs(step) > ctx.importer.limits.contents:
        raise Unknown
    return np.array(list(range(start, limit, step)), object)


def _register_reduction(name: str, since: int, function: _Binary, start: int | None) -> None:
    @evaluator(name)
    def evaluate(ctx: NodeContext, inputs: Inputs) -> Contents:
        data: Contents = inputs[0]
        dtype = ctx.operand(0).dtype
        axes = _axes(ctx, inputs, since)
        if not axes:
            if ctx.attributes.integer("noop_with_empty_axes", 0):
                return data
            axes = list(range(data.ndim))
        chosen = ctx.axes(axes, data.ndim)
        kept = [a for a in range(data.ndim) if a not in chosen]
        if data.size == 0:
            raise Unknown
        rows = np.transpose(data, (*kept, *chosen)).reshape([data.shape[a] for a in kept] + [-1])
        result = np.empty(rows.shape[:-1], object)
        for position in np.ndindex(result.shape):
            total, *rest = rows[position]
            for element in rest:
                total = function(total, element, dtype)
            result[position] = total
        return np.expand_dims(result, chosen) if ctx.attributes.integer("keepdims", 1) else result


_register_reduction("ReduceProd", 18, shapes.times, 1)
_register_reduction("ReduceSum", 13, shapes.plus, 0)
_register_reduction("ReduceMax", 18, shapes.largest, None)
_register_reduction("ReduceMin", 18, shapes.smallest, None)


@evaluator("NonZero")
def _nonzero(ctx: NodeContext, inputs: Inputs) -> Operand:
    truth = np.array([shapes.decide("ne", x, 0) for x in inputs[0].reshape(-1)], bool)
    positions = np.array(np.nonzero(truth.reshape(inputs[0].shape)), np.int64)
    return ctx.known_result(positions.astype(object), dtype_of(7, "NonZero"))


@evaluator("CumSum")
def _cumsum(ctx: NodeContext, inputs: Inputs) -> Contents:
    if (
        inputs[0].ndim != 1
        or ctx.attributes.integer("exclusive", 0)
        or ctx.attributes.integer("reverse", 0)
    ):
        raise Unknown
    result = np.empty(inputs[0].shape, object)
    total: Element = 0
    for position, element in enumerate(inputs[0]):
        total = shapes.plus(total, element, ctx.operand(0).dtype)
        result[position] = total
    return result
