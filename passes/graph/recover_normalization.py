# SPDX-License-Identifier: Apache-2.0
"""Find layer and RMS normalisation in the primitives that exporters write for them.

Before ``%1 = reduce_mean(mul(x, x)); %2 = sqrt(add(%1, e)); %3 = div(1, %2); %4 = mul(w, mul(x,
%3))``, after ``%4 = rms_norm(x, w)``; where ``x`` is ``sub(z, reduce_mean(z))`` it is
``layer_norm(z, w, b)``. The factors ``div(x, sqrt(...))``, ``mul(x, rsqrt(...))`` and ``mul(x,
div(1, sqrt(...)))`` are all known. The results differ from the primitives' by rounding only.
"""

from dataclasses import dataclass
from typing import ClassVar

from tilewright.ir.expr import ONE
from tilewright.ir.graph import Builder, Constant, ConstantStore, Module, Node, Value
from tilewright.ir.ops.layer_norm import LayerNorm, RmsNorm
from tilewright.ir.ops.reduce import ReduceMean
from tilewright.ir.ops.reshape import Reshape
from tilewright.passes.manager import Pass, PassContext
from tilewright.passes.rewriter import rewrite_module
from tilewright.passes.rules.matching import is_number, only_use, producer_of, splat


@dataclass(frozen=True)
class RecoverNormalization(Pass):
    """Layer and RMS normalisation from primitives."""

    name: ClassVar[str] = "recover-normalization"

    def run(self, module: Module, context: PassContext) -> bool:
        rules = {
            "div": [_normalize_by_division],
            "mul": [_normalize_by_product, _take_scale],
            "add": [_take_bias],
        }
        return rewrite_module(module, rules)


@dataclass(frozen=True)
class _Root:
    """The square root of the mean of squares of ``x`` over the axes from ``axis`` on, plus
    ``epsilon``.
    """

    x: Value
    axis: int
    epsilon: float


def _normalize_by_division(node: Node, builder: Builder) -> Value | None:
    x, root = node.operands
    found = _root_of(producer_of(root, "sqrt"), builder.constants)
    return _normalized(x, found, builder)


def _normalize_by_product(node: Node, builder: Builder) -> Value | None:
    for x, factor in (node.operands, reversed(node.operands)):
        normalized = _normalized(x, _reciprocal_root(factor, builder.constants), builder)
        if normalized is not None:
            return normalized
    return None


def _reciprocal_root(value: Value, constants: ConstantStore) -> _Root | None:
    quotient = producer_of(value, "div")
    if quotient is not None:
        if not is_number(splat(quotient.operands[0], constants), 1):
            return None
        return _root_of(producer_of(quotient.operands[1], "sqrt"), constants)
    return _root_of(producer_of(value, "rsqrt"), constants)


def _root_of(root: Node | None, constants: ConstantStore) -> _Root | None:
    total = producer_of(root.operands[0], "add") if root is not None else None
    mean = _mean_over_last_axes(total.operands[0]) if total is not None else None
    if total is None or mean is None:
        return None
    epsilon = splat(total.operands[1], constants)
    squares = mean[0].producer
    if epsilon is None or not epsilon >= 0 or squares is None:
        return None
    x = squares.operands[0] if squares.operands else mean[0]
    doubled = squares.op.name == "mul" and squares.operands[1] is x
    squared = squares.op.name == "pow" and is_number(splat(squares.operands[1], constants), 2)
    return _Root(x, mean[1], float(epsilon)) if doubled or squared else None


def _mean_over_last_axes(value: Value) -> tuple[Value, int] | None:
    """The operand of a mean with dims kept over the axes from the returned one to the last."""
    node = value.producer
    if node is None or not isinstance(node.op, ReduceMean) or not node.op.keepdims:
        return None
    axes = sorted(node.op.axes)
    x = node.operands[0]
    last = axes == list(range(x.type.rank - len(axes), x.type.rank))
    return (x, axes[0]) if axes and last else None


def _normalized(x: Value, root: _Root | None, builder: Builder) -> Value | None:
    """``x`` over its root as a normalisation with scale 1 (and bias 0)."""
    if root is None or root.x is not x or not x.type.dtype.is_float:
        return None
    dtype = x.type.dtype
    one = builder.constant(1.0, dtype)
    centred = producer_of(x, "sub")
    mean = _mean_over_last_axes(centred.operands[1]) if centred is not None else None
    if centred is not None and mean == (centred.operands[0], root.axis):
        zero = builder.constant(0.0, dtype)
        return builder(LayerNorm(root.axis, root.epsilon), centred.operands[0], one, zero)
    return builder(RmsNorm(root.axis, root.epsilon), x, one)


def _take_scale(node: Node, builder: Builder) -> Value | None:
    """``mul(norm(x, 1), w)`` becomes ``norm(x, w)``."""
    for value, scale in (node.operands, reversed(node.operands)):
        norm = value.producer
        if norm is None or not isinstance(norm.op, LayerNorm | RmsNorm) or not only_use(value):
            continue
        rest = norm.operands[2:]
        plain = is_number(splat(norm.operands[1], builder.constants), 1) and all(
            is_number(splat(v, builder.constants), 0.0) for v in rest
        )
        along = _along_axes(scale, value, norm.op.axis, builder) if plain else None
        if along is not None:
            return builder(norm.op, norm.operands[0], along, *rest)
    return None


def _take_bias(node: Node, builder: Builder) -> Value | None:
    """``add(layer_norm(x, w, 0), b)`` and ``add(layer_norm(x, w), b)`` become
    ``layer_norm(x, w, b)``.
    """
    for value, bias in (node.operands, reversed(node.operands)):
        norm = value.producer
        if norm is None or not isinstance(norm.op, LayerNorm) or not only_use(value):
            continue
        plain = all(is_number(splat(v, builder.constants), 0.0) for v in norm.operands[2:])
        along = _along_axes(bias, value, norm.op.axis, builder) if plain else None
        if along is not None:
            return builder(norm.op, *norm.operands[:2], along)
    return None


def _along_axes(parameter: Value, like: Value, axis: int, builder: Builder) -> Value | None:
    """A constant that has a number for each place along the normalised axes, in their shape."""
    shape = like.type.shape[axis:]
    given = parameter.type.shape
    lead = len(given) - len(shape)
    if not isinstance(parameter.op, Constant) or lead < 0 or given[lead:] != shape:
        return None
    if any(d is not ONE for d in given[:lead]):
        return None
    return parameter if lead == 0 else builder(Reshape(shape), parameter)
