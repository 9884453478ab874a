# SPDX-License-Identifier: Apache-2.0
"""Fold batch normalisation, and constants by channel, into the weights of convolutions.

Before ``%1 = conv(x, w, b); %2 = batch_norm(%1, scale, bias, mean, var)``, after ``%2 = conv(x, w',
b')`` with ``w' = w * s``, ``b' = (b - mean) * s + bias``, ``s = scale / sqrt(var + epsilon)``,
computed in float64 and rounded once. A product or sum with one constant for each channel after a
convolution folds likewise. A batch normalisation of anything else becomes ``x * s + t``: two
constants and one pass.

A convolution of 16-bit floats is seen through the cast to f32 in which what follows is computed:
before ``batch_norm(cast(conv(x, w)), ...)``, after ``cast(conv(x, w', b'))``, unless the new
weights leave the range of the type.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tilewright.ir.dtypes import DType
from tilewright.ir.graph import Builder, Module, Node, Value, constant_array
from tilewright.ir.op import Array
from tilewright.ir.ops.binary import Add, Div, Mul, Sub
from tilewright.ir.ops.cast import Cast
from tilewright.ir.rounding import HALVES, computed_wide
from tilewright.passes.manager import Pass, PassContext
from tilewright.passes.rewriter import rewrite_module
from tilewright.passes.rules.matching import only_use

_DIGITS = 2.0**-8
"""What rounding to a 16-bit type may change of a number that the type holds with all its digits."""


@dataclass(frozen=True)
class FoldBatchNorm(Pass):
    """Folding of affine maps by channel."""

    name: ClassVar[str] = "fold-batch-norm"

    def run(self, module: Module, context: PassContext) -> bool:
        return rewrite_module(
            module,
            {
                "batch_norm": [_batch_norm],
                "mul": [_scale_after_convolution],
                "div": [_scale_after_convolution],
                "add": [_shift_after_convolution],
                "sub": [_shift_after_convolution],
            },
        )


def _batch_norm(node: Node, builder: Builder) -> Value | None:
    x, *parameters = node.operands
    arrays = [constant_array(v, builder.constants) for v in parameters]
    known = [a.astype(np.float64) for a in arrays if a is not None]
    if len(known) != 4:
        return None
    scale, bias, mean, variance = known
    factor = scale / np.sqrt(variance + float(node.op.attributes()["epsilon"]))
    shift = bias - mean * factor
    folded = _affine_convolution(x, factor, shift, builder)
    if folded is not None:
        return folded
    column = (-1, *[1] * (x.type.rank - 2))

    def scaled(operands: Sequence[Value]) -> Sequence[Value]:
        (v,) = operands
        dtype = v.type.dtype
        product = builder(Mul(), v, builder.constant(factor.reshape(column), dtype))
        return (builder(Add(), product, builder.constant(shift.reshape(column), dtype)),)

    return computed_wide(builder, (x,), [node.result.type], scaled)[0]


def _scale_after_convolution(node: Node, builder: Builder) -> Value | None:
    x, y = node.operands
    values = _by_channel(y, x, builder)
    if values is None or not isinstance(node.op, Mul | Div):
        return None
    if isinstance(node.op, Div):
        if np.any(values == 0):
            return None
        values = 1.0 / values
    return _affine_convolution(x, values, np.zeros_like(values), builder)


def _shift_after_convolution(node: Node, builder: Builder) -> Value | None:
    x, y = node.operands
    values = _by_channel(y, x, builder)
    if values is None or not isinstance(node.op, Add | Sub):
        return None
    shift = values if isinstance(node.op, Add) else -values
    return _affine_convolution(x, np.ones_like(values), shift, builder)


def _by_channel(value: Value, x: Value, builder: Builder) -> Array | None:
    """A constant as one number for each channel of ``x`` (axis 1), if it is no more than that."""
    array = constant_array(value, builder.constants)
    if array is None or not x.type.dtype.is_float or x.type.rank < 3 or array.ndim > x.type.rank:
        return None
    channels = x.type.shape[1]
    if not str(channels).isdigit():
        return None
    wide = array.astype(np.float64).reshape([1] * (x.type.rank - array.ndim) + list(array.shape))
    if any(d != 1 for i, d in enumerate(wide.shape) if i != 1):
        return None
    count = int(str(channels))
    flat = wide.reshape(-1)
    return np.full(count, flat[0]) if flat.size == 1 else flat if flat.size == count else None


def _affine_convolution(x: Value, factor: Array, shift: Array, builder: Builder) -> Value | None:
    """``conv(...) * factor + shift`` as a convolution, if ``x`` is one with constant weights used
    once.
    """
    outer = x
    if isinstance(x.op, Cast) and x.producer is not None and only_use(x):
        (x,) = x.producer.operands
        if x.type.dtype not in HALVES:
            return None
    node = x.producer
    if node is None or node.op.name not in ("conv", "conv_transpose") or not only_use(x):
        return None
    arrays = [constant_array(v, builder.constants) for v in node.operands[1:]]
    known = [a.astype(np.float64) for a in arrays if a is not None]
    if len(known) != len(arrays) or not x.type.dtype.is_float:
        return None
    weight, *biases = known
    bias = biases[0] if biases else np.zeros_like(shift)
    groups = int(node.op.attributes()["groups"])
    scaled = _scaled_weight(node.op.name, weight, factor, groups)
    new_bias = bias * factor + shift
    dtype = x.type.dtype
    if dtype in HALVES and not (_fits(scaled, dtype) and _fits(new_bias, dtype)):
        return None
    weight_operand = node.operands[1]
    if not np.all(factor == 1.0):
        weight_operand = builder.constant(scaled, dtype, name=weight_operand.name)
    builder.origin = _both(node.origin, builder.origin)
    bias_operand = builder.constant(new_bias, dtype)
    folded = builder(node.op, node.operands[0], weight_operand, bias_operand)
    return folded if outer is x else builder(Cast(outer.type.dtype), folded)


def _fits(array: Array, dtype: DType) -> bool:
    """True if a 16-bit type holds numbers as well as their largest: none is infinite in it, and the
    largest is not so small that it loses digits.
    """
    with np.errstate(over="ignore"):
        narrow = array.astype(dtype.numpy).astype(np.float64)
    largest, held = (float(np.abs(a).max(initial=0.0)) for a in (array, narrow))
    return bool(np.isfinite(narrow).all()) and abs(held - largest) <= _DIGITS * largest


def _scaled_weight(op: str, weight: Array, factor: Array, groups: int) -> Array:
    ones = [1] * (weight.ndim - 2)
    if op == "conv":
        return np.asarray(weight * factor.reshape(-1, 1, *ones))
    grouped = weight.reshape(groups, -1, *weight.shape[1:])
    return np.asarray(grouped * factor.reshape(groups, 1, -1, *ones)).reshape(weight.shape)


def _both(first: str, second: str) -> str:
    return f"{first}+{second}" if first and second and second != first else first or second
