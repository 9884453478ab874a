# SPDX-License-Identifier: Apache-2.0
"""Fold batch normalisation, and constants by channel, into the weights of convolutions.

Before ``%1 = conv(x, w, b); %2 = batch_norm(%1, scale, bias, mean, var)``, after ``%2 = conv(x, w',
b')`` with ``w' = w * s``, ``b' = (b - mean) * s + bias``, ``s = scale / sqrt(var + epsilon)``,
computed in float64 and rounded once. A product or sum with one constant for each channel after a
convolution folds likewise. A batch normalisation of anything else becomes ``x * s + t``: two
constants and one pass.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tilewright.ir.graph import Builder, Module, Node, Value, constant_array
from tilewright.ir.op import Array
from tilewright.ir.ops.binary import Add, Div, Mul, Sub
from tilewright.passes.manager import Pass, PassContext
from tilewright.passes.rewriter import rewrite_module
from tilewright.passes.rules.matching import only_use


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
    dtype = x.type.dtype
    product = builder(Mul(), x, builder.constant(factor.reshape(column), dtype))
    return builder(Add(), product, builder.constant(shift.reshape(column), dtype))


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
    weight_operand = node.operands[1]
    if not np.all(factor == 1.0):
        weight_operand = builder.constant(scaled, dtype, name=weight_operand.name)
    builder.origin = _both(node.origin, builder.origin)
    bias_operand = builder.constant(new_bias, dtype)
    return builder(node.op, node.operands[0], weight_operand, bias_operand)


def _scaled_weight(op: str, weight: Array, factor: Array, groups: int) -> Array:
    ones = [1] * (weight.ndim - 2)
    if op == "conv":
        return np.asarray(weight * factor.reshape(-1, 1, *ones))
    grouped = weight.reshape(groups, -1, *weight.shape[1:])
    return np.asarray(grouped * factor.reshape(groups, 1, -1, *ones)).reshape(weight.shape)


def _both(first: str, second: str) -> str:
    return f"{first}+{second}" if first and second and second != first else first or second
