# SPDX-License-Identifier: Apache-2.0
"""Normalisation over the last axes: layer norm, and root-mean-square norm.

The variance is the mean of centred squares (two passes), which is accurate however large the mean
is. 16-bit floats are computed in f32.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.ir.bounds import known_equal
from tilewright.ir.buffer import Buffer
from tilewright.ir.dtypes import BF16, F16, F32, F64, DType
from tilewright.ir.expr import ONE, ZERO, Call, Expr, Read, Scalar, Symbol, Var, binary, const, mul
from tilewright.ir.op import Array, Op, Requirement, Sample
from tilewright.ir.ops.domain import FLOATS, accumulator_dtype, axes, read_broadcast, scratch
from tilewright.ir.ops.elementwise import widened
from tilewright.ir.ops.shapes import (
    broadcast_requirements,
    broadcast_shapes,
    check_axis,
    expect_dtype,
)
from tilewright.ir.stage import Stage, map_stage, reduce_stage
from tilewright.ir.types import TensorType, tensor
from tilewright.ir.value_expr import cast

_N = Symbol("N", 1, 64, 1, 4)
_M = Symbol("M", 1, 64, 1, 7)


@dataclass(frozen=True)
class _LastAxesNorm(Op):
    """Base of norms over the axes from ``axis`` on, which is not negative; operands after x
    broadcast to those.
    """

    axis: int
    epsilon: float = 1e-5

    def infer(self, operands: Sequence[TensorType]) -> tuple[TensorType, ...]:
        x = operands[0]
        expect_dtype(self, [t.dtype for t in operands], FLOATS)
        check_axis(self, self.axis, x.rank)
        for t in operands[1:]:
            broadcast = broadcast_shapes(self, (x.shape, t.shape))
            fits = t.rank <= x.rank and all(
                known_equal(a, b) is not False for a, b in zip(broadcast, x.shape, strict=True)
            )
            self.require(fits, f"Operand {t} does not broadcast to {x}.")
        return (tensor(x.dtype, x.shape),)

    def requirements(self, operands: Sequence[TensorType]) -> tuple[Requirement, ...]:
        x = operands[0].shape
        return tuple(r for t in operands[1:] for r in broadcast_requirements((x, t.shape)))

    def mean(self, name: str, x: Buffer, term: Expr, point: Sequence[Var]) -> "Mean":
        """The stages of the mean of ``term``, an expression at ``point`` of ``x``, over the last
        axes.
        """
        dtype = accumulator_dtype(x.dtype)
        kept = tuple(ONE if a >= self.axis else d for a, d in enumerate(x.shape))
        total, mean = (scratch(f"{name}_{n}", dtype, kept, x) for n in ("sum", "mean"))
        outer = tuple(Var(f"{name}{a}", ONE) if a >= self.axis else v for a, v in enumerate(point))
        acc = Scalar("acc", dtype)
        reduction = reduce_stage(
            f"{name}_sum",
            outer,
            tuple(point[self.axis :]),
            (total,),
            (acc,),
            (const(0, dtype),),
            (acc + term,),
        )
        count: Expr = ONE
        for d in x.shape[self.axis :]:
            count = mul(count, d)
        at = axes(f"{name}_m", kept)
        quotient = binary("div", Read(total, at), cast(count, dtype))
        return Mean(mean, (reduction, map_stage(f"{name}_mean", at, mean, quotient)))

    def row(self, point: Sequence[Expr]) -> tuple[Expr, ...]:
        """``point`` with index 0 along the normalised axes."""
        return tuple(ZERO if a >= self.axis else v for a, v in enumerate(point))


@dataclass(frozen=True)
class Mean:
    """A buffer of means and the stages that compute it."""

    buffer: Buffer
    stages: tuple[Stage, ...]


@dataclass(frozen=True)
class LayerNorm(_LastAxesNorm):
    """``(x - mean) / sqrt(var + epsilon) * scale + bias``; the bias may be left out."""

    name = "layer_norm"

    def infer(self, operands: Sequence[TensorType]) -> tuple[TensorType, ...]:
        self.expect_operands(operands, 2, 3)
        return super().infer(operands)

    def reference(self, *operands: Array) -> tuple[Array, ...]:
        x, scale, *bias = (widened(o) for o in operands)
        over = tuple(range(self.axis, x.ndim))
        with np.errstate(all="ignore"):
            centred = x - x.mean(axis=over, keepdims=True)
            variance = np.square(centred).mean(axis=over, keepdims=True)
            y = centred / np.sqrt(variance + self.epsilon) * scale
            return ((y + bias[0] if bias else y).astype(operands[0].dtype),)

    def stages(self, operands: Sequence[Buffer], results: Sequence[Buffer]) -> tuple[Stage, ...]:
        x, (result,) = operands[0], results
        dtype = accumulator_dtype(x.dtype)
        point = axes("a", x.shape)
        mean = self.mean("x", x, cast(Read(x, point), dtype), point)
        point = axes("b", x.shape)
        centred = cast(Read(x, point), dtype) - Read(mean.buffer, self.row(point))
        square = self.mean("square", x, centred * centred, point)
        inverse, stage = inverse_root(square.buffer, self.epsilon)
        point = axes("c", x.shape)
        centred = cast(Read(x, point), dtype) - Read(mean.buffer, self.row(point))
        value = centred * Read(inverse, self.row(point))
        final = map_stage(
            "normalize", point, result, scale_and_shift(value, operands[1:], result, point)
        )
        return (*mean.stages, *square.stages, stage, final)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        for dtype in (F32, F64, F16, BF16):
            shapes = ((3, 8), (8,), (8,))
            yield Sample(cls(1), tuple(tensor(dtype, s) for s in shapes))
        types = tensor(F32, (2, 3, 4, 2)), tensor(F32, (3, 4, 2)), tensor(F32, (4, 1))
        yield Sample(cls(1, 1e-3), types)
        yield Sample(cls(2), (tensor(F32, (_N, 3, _M)), tensor(F32, (_M,)), tensor(F32, (_M,))))
        yield Sample(cls(2), (tensor(F32, (_N, _M, 6)), tensor(F32, (6,))))


@dataclass(frozen=True)
class RmsNorm(_LastAxesNorm):
    """``x / sqrt(mean(x * x) + epsilon) * scale``."""

    name = "rms_norm"

    def infer(self, operands: Sequence[TensorType]) -> tuple[TensorType, ...]:
        self.expect_operands(operands, 2)
        return super().infer(operands)

    def reference(self, *operands: Array) -> tuple[Array, ...]:
        x, scale = (widened(o) for o in operands)
        over = tuple(range(self.axis, x.ndim))
        with np.errstate(all="ignore"):
            square = np.square(x).mean(axis=over, keepdims=True)
            return ((x / np.sqrt(square + self.epsilon) * scale).astype(operands[0].dtype),)

    def stages(self, operands: Sequence[Buffer], results: Sequence[Buffer]) -> tuple[Stage, ...]:
        x, (result,) = operands[0], results
        dtype = accumulator_dtype(x.dtype)
        point = axes("a", x.shape)
        value = cast(Read(x, point), dtype)
        square = self.mean("square", x, value * value, point)
        inverse, stage = inverse_root(square.buffer, self.epsilon)
        point = axes("c", x.shape)
        value = cast(Read(x, point), dtype) * Read(inverse, self.row(point))
        final = map_stage(
            "normalize", point, result, scale_and_shift(value, operands[1:], result, point)
        )
        return (*square.stages, stage, final)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        for dtype in (F32, F64, F16, BF16):
            yield Sample(cls(1), (tensor(dtype, (3, 8)), tensor(dtype, (8,))))
        yield Sample(cls(1, 1e-3), (tensor(F32, (2, 3, 4)), tensor(F32, (3, 4))))
        yield Sample(cls(2), (tensor(F32, (_N, 3, _M)), tensor(F32, (_M,))))


def inverse_root(variance: Buffer, epsilon: float) -> tuple[Buffer, Stage]:
    """``1 / sqrt(variance + epsilon)`` as a buffer like ``variance``, and its stage."""
    dtype: DType = variance.dtype
    inverse, at = scratch("inverse", dtype, variance.shape, variance), axes("v", variance.shape)
    root = Call("sqrt", (Read(variance, at) + const(epsilon, dtype),), dtype)
    return inverse, map_stage("inverse", at, inverse, binary("div", const(1, dtype), root))


def scale_and_shift(
    value: Expr, operands: Sequence[Buffer], result: Buffer, point: Sequence[Expr]
) -> Expr:
    """``value * scale + bias`` in the type of ``value``, cast to that of the result; the bias may
    be missing.
    """
    value = value * cast(read_broadcast(operands[0], result.shape, point), value.dtype)
    if len(operands) == 2:
        value = value + cast(read_broadcast(operands[1], result.shape, point), value.dtype)
    return cast(value, result.dtype)
