# SPDX-License-Identifier: Apache-2.0
"""Normalisation of channels (axis 1): by group, by single channel and sample, or by statistics that
are given.

Mean and variance are computed in two passes; 16-bit floats are computed in f32.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.ir.bounds import known_equal
from tilewright.ir.buffer import Buffer
from tilewright.ir.dtypes import BF16, F16, F32, F64
from tilewright.ir.expr import ONE, Expr, Read, Scalar, Symbol, Var, binary, const, index, mul
from tilewright.ir.graph import Builder, Value
from tilewright.ir.layout import channels_last
from tilewright.ir.op import Array, Op, Requirement, Sample
from tilewright.ir.ops.binary import Add, Mul, Sub
from tilewright.ir.ops.domain import (
    FLOATS,
    accumulator_dtype,
    axes,
    clamped,
    read_clamped,
    read_held,
    scratch,
)
from tilewright.ir.ops.elementwise import widened
from tilewright.ir.ops.layer_norm import inverse_root
from tilewright.ir.ops.reshape import Reshape
from tilewright.ir.ops.shapes import equal_requirement, expect_dtype, multiple_requirement, product
from tilewright.ir.ops.unary import Rsqrt
from tilewright.ir.ops.windows import LIMIT
from tilewright.ir.simplify import floordiv, maximum
from tilewright.ir.stage import Stage, map_stage, reduce_stage
from tilewright.ir.types import TensorType, tensor
from tilewright.ir.value_expr import cast

_N = Symbol("N", 1, 64, 1, 2)
_H = Symbol("H", 1, 64, 1, 5)


def check_channels(op: Op, operands: Sequence[TensorType]) -> TensorType:
    """Check an operand with channels and one vector of that length for each other operand."""
    x = operands[0]
    expect_dtype(op, [t.dtype for t in operands], FLOATS)
    op.require(x.rank >= 2, f"Operand {x} has no channel dim; rank 2 or more is needed.")
    for t in operands[1:]:
        op.require(
            t.rank == 1 and known_equal(t.shape[0], x.shape[1]) is not False,
            f"Operand {t} must have one dim of {x.shape[1]}, the channels of {x}.",
        )
    return tensor(x.dtype, x.shape)


def channel_requirements(operands: Sequence[TensorType]) -> tuple[Requirement, ...]:
    """What :func:`check_channels` could not tell."""
    channels, message = operands[0].shape[1], "There are {0} channels, but {1} values for them."
    return tuple(r for t in operands[1:] for r in equal_requirement(channels, t.shape[0], message))


@dataclass(frozen=True)
class _GroupedNorm(Op):
    """Base of norms whose statistics are of a sample and a group of channels."""

    def per_group(self, channels: Expr) -> Expr:
        """Channels in one group."""
        raise NotImplementedError(self.name)

    def epsilon_value(self) -> float:
        """What is added to the variance."""
        return float(self.attributes()["epsilon"])

    def infer(self, operands: Sequence[TensorType]) -> tuple[TensorType, ...]:
        self.expect_operands(operands, 3)
        return (check_channels(self, operands),)

    def requirements(self, operands: Sequence[TensorType]) -> tuple[Requirement, ...]:
        return channel_requirements(operands)

    def reference(self, *operands: Array) -> tuple[Array, ...]:
        x, scale, bias = (widened(o) for o in operands)
        channels = int(str(self.per_group(index(x.shape[1]))))
        count = x.shape[1] // channels if channels else 0
        size = channels * math.prod(x.shape[2:])
        groups = x.reshape(x.shape[0], count, size)
        with np.errstate(all="ignore"):  # and of no elements, the mean is NaN
            centred = groups - groups.sum(axis=2, keepdims=True) / size
            variance = np.square(centred).sum(axis=2, keepdims=True) / size
            y = (centred / np.sqrt(variance + self.epsilon_value())).reshape(x.shape)
            column = (-1, *[1] * (x.ndim - 2))
            y = y * scale.reshape(column) + bias.reshape(column)
            return (y.astype(operands[0].dtype),)

    def stages(self, operands: Sequence[Buffer], results: Sequence[Buffer]) -> tuple[Stage, ...]:
        (x, scale, bias), (result,) = operands, results
        dtype = accumulator_dtype(x.dtype)
        per_group = self.per_group(x.shape[1])
        groups = floordiv(x.shape[1], maximum(per_group, ONE))

        def mean_of(name: str, center: Buffer | None) -> tuple[Buffer, tuple[Stage, ...]]:
            n, g = Var(f"{name}_n", x.shape[0]), Var(f"{name}_g", groups)
            r, spatial = Var(f"{name}_r", per_group), axes(f"{name}_s", x.shape[2:])
            single = known_equal(per_group, ONE) is True
            channel = g if single else g * per_group + r
            held = g if single else clamped(channel, x.shape[1])
            element = read_held(x, (n, held, *spatial), (n, channel, *spatial))
            term: Expr = cast(element, dtype)
            if center is not None:
                difference = term - Read(center, (n, g))
                term = difference * difference
            over = spatial if single and spatial else (r, *spatial)
            total, mean = (
                scratch(f"{name}_{part}", dtype, (x.shape[0], groups), scale)
                for part in ("sum", "mean")
            )
            acc = Scalar("acc", dtype)
            init, value = (const(0, dtype),), (acc + term,)
            reduction = reduce_stage(f"{name}_sum", (n, g), over, (total,), (acc,), init, value)
            point = axes(f"{name}_m", total.shape)
            count = cast(mul(per_group, product(x.shape[2:])), dtype)
            quotient = binary("div", Read(total, point), count)
            return mean, (reduction, map_stage(f"{name}_mean", point, mean, quotient))

        mean, first = mean_of("x", None)
        variance, second = mean_of("square", mean)
        inverse, third = inverse_root(variance, self.epsilon_value())
        point = axes("o", x.shape)
        group = floordiv(point[1], maximum(per_group, ONE))
        value = cast(Read(x, point), dtype) - read_clamped(mean, (point[0], group))
        value = value * read_clamped(inverse, (point[0], group))
        value = value * cast(read_clamped(scale, (point[1],)), dtype)
        value = value + cast(read_clamped(bias, (point[1],)), dtype)
        final = map_stage("normalize", point, result, cast(value, result.dtype))
        return (*first, *second, third, final)


@dataclass(frozen=True)
class InstanceNorm(_GroupedNorm):
    """``(x - mean) / sqrt(var + epsilon) * scale + bias`` with the statistics of one channel of one
    sample.
    """

    name = "instance_norm"
    epsilon: float = 1e-5

    def per_group(self, channels: Expr) -> Expr:
        return ONE

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        for dtype in (F32, F64, F16, BF16):
            yield Sample(cls(), tuple(tensor(dtype, s) for s in ((2, 3, 4, 5), (3,), (3,))))
        last = tensor(F32, (2, 3, 4, 5), channels_last(4))
        yield Sample(cls(1e-3), (last, tensor(F32, (3,)), tensor(F32, (3,))))
        free = tensor(F32, (_N, 3, _H, 4)), tensor(F32, (3,)), tensor(F32, (3,))
        yield Sample(cls(), free)


@dataclass(frozen=True)
class GroupNorm(_GroupedNorm):
    """``(x - mean) / sqrt(var + epsilon) * scale + bias`` with the statistics of ``groups`` groups
    of channels.
    """

    name = "group_norm"
    groups: int
    epsilon: float = 1e-5

    def per_group(self, channels: Expr) -> Expr:
        return floordiv(channels, self.groups)

    def infer(self, operands: Sequence[TensorType]) -> tuple[TensorType, ...]:
        result = super().infer(operands)
        channels = operands[0].shape[1]
        self.require(
            1 <= self.groups < LIMIT,
            f"'groups' is {self.groups}, it must be at least 1 and below {LIMIT}.",
        )
        whole = floordiv(channels, self.groups) * self.groups
        self.require(
            known_equal(channels, whole) is not False,
            f"The {channels} channels do not divide into {self.groups} groups.",
        )
        return result

    def requirements(self, operands: Sequence[TensorType]) -> tuple[Requirement, ...]:
        channels = operands[0].shape[1]
        message = f"The {{0}} channels do not divide into {self.groups} groups."
        return channel_requirements(operands) + multiple_requirement(channels, self.groups, message)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        for dtype in (F32, F64, F16, BF16):
            yield Sample(cls(2), tuple(tensor(dtype, s) for s in ((2, 6, 4, 3), (6,), (6,))))
        yield Sample(cls(6), tuple(tensor(F32, s) for s in ((2, 6, 4), (6,), (6,))))
        yield Sample(cls(3), tuple(tensor(F32, s) for s in ((4, 6), (6,), (6,))))
        yield Sample(cls(2), (tensor(F32, (_N, 6, _H)), tensor(F32, (6,)), tensor(F32, (6,))))


@dataclass(frozen=True)
class BatchNorm(Op):
    """``(x - mean) / sqrt(var + epsilon) * scale + bias`` with given mean and variance of every
    channel.

    It decomposes into ``x * factor + shift`` with a factor and a shift of every channel, which fold
    where the statistics are constants.
    """

    name = "batch_norm"
    epsilon: float = 1e-5

    def infer(self, operands: Sequence[TensorType]) -> tuple[TensorType, ...]:
        self.expect_operands(operands, 5)
        return (check_channels(self, operands),)

    def requirements(self, operands: Sequence[TensorType]) -> tuple[Requirement, ...]:
        return channel_requirements(operands)

    def reference(self, *operands: Array) -> tuple[Array, ...]:
        x, *vectors = (widened(o) for o in operands)
        column = (-1, *[1] * (x.ndim - 2))
        scale, bias, mean, variance = (v.reshape(column) for v in vectors)
        with np.errstate(all="ignore"):
            y = (x - mean) / np.sqrt(variance + self.epsilon) * scale + bias
            return (y.astype(operands[0].dtype),)

    def decompose(self, builder: Builder, operands: Sequence[Value]) -> tuple[Value, ...] | None:
        x, scale, bias, mean, variance = operands
        epsilon = builder.constant(self.epsilon, x.type.dtype)
        factor = builder(Mul(), scale, builder(Rsqrt(), builder(Add(), variance, epsilon)))
        shift = builder(Sub(), bias, builder(Mul(), mean, factor))

        def column(v: Value) -> Value:
            return builder(Reshape((v.type.shape[0], *[ONE] * (x.type.rank - 2))), v)

        return (builder(Add(), builder(Mul(), x, column(factor)), column(shift)),)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        fill = ("normal", "normal", "normal", "normal", "positive")
        for dtype in (F32, F64):
            shapes = ((2, 3, 4, 5), (3,), (3,), (3,), (3,))
            yield Sample(cls(), tuple(tensor(dtype, s) for s in shapes), fill)
        vectors = tuple(tensor(F32, (3,)) for _ in range(4))
        yield Sample(cls(1e-3), (tensor(F32, (_N, 3, _H)), *vectors), fill)
        yield Sample(cls(1e-3), (tensor(F32, (_N, 3)), *vectors), fill)
