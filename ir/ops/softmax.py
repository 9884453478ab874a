# SPDX-License-Identifier: Apache-2.0
"""Softmax and its logarithm along one axis, computed stably: the maximum is subtracted first.

16-bit floats are computed in f32. The exponentials are a stage of their own, so that a schedule may
keep them or compute them twice.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.ir.buffer import Buffer
from tilewright.ir.dtypes import BF16, F16, F32, F64
from tilewright.ir.expr import ONE, ZERO, Call, Expr, Read, Scalar, Symbol, Var, binary, const
from tilewright.ir.op import Array, Op, Sample
from tilewright.ir.ops.domain import FLOATS, accumulator_dtype, axes, scratch
from tilewright.ir.ops.elementwise import widened
from tilewright.ir.ops.shapes import check_axis, expect_dtype
from tilewright.ir.stage import Stage, map_stage, reduce_stage
from tilewright.ir.types import TensorType, tensor
from tilewright.ir.value_expr import cast

_N = Symbol("N", 1, 64, 1, 4)
_M = Symbol("M", 1, 64, 1, 7)


@dataclass(frozen=True)
class _Softmax(Op):
    """Base of softmax and log-softmax; ``axis`` is not negative."""

    axis: int

    def infer(self, operands: Sequence[TensorType]) -> tuple[TensorType, ...]:
        self.expect_operands(operands, 1)
        (x,) = operands
        expect_dtype(self, [x.dtype], FLOATS)
        check_axis(self, self.axis, x.rank)
        return (tensor(x.dtype, x.shape),)

    def shifted(self, x: Array) -> Array:
        """``x`` in float64 without its maximum along the axis."""
        wide = widened(x)
        greatest = wide.max(axis=self.axis, keepdims=True, initial=-np.inf)
        return np.asarray(wide - greatest)

    def reduced(self, name: str, x: Buffer, op: str, init: float) -> tuple[Buffer, Stage]:
        """``x`` reduced along the axis, which stays as a dim of 1, in the accumulator's type."""
        dtype = accumulator_dtype(x.dtype)
        shape = tuple(ONE if a == self.axis else d for a, d in enumerate(x.shape))
        target = scratch(name, dtype, shape, x)
        point, along = axes(f"{name}_", shape), Var(f"{name}_r", x.shape[self.axis])
        acc = Scalar("acc", dtype)
        source = tuple(along if a == self.axis else v for a, v in enumerate(point))
        value = binary(op, acc, cast(Read(x, source), dtype))
        init_value = const(init, dtype)
        stage = reduce_stage(name, point, (along,), (target,), (acc,), (init_value,), (value,))
        return target, stage

    def row(self, point: Sequence[Expr]) -> tuple[Expr, ...]:
        """``point`` with index 0 along the axis."""
        return tuple(ZERO if a == self.axis else v for a, v in enumerate(point))

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        for dtype in (F32, F64, F16, BF16):
            yield Sample(cls(1), (tensor(dtype, (3, 7)),))
        yield Sample(cls(0), (tensor(F32, (4, 3, 2)),))
        yield Sample(cls(1), (tensor(F32, (4, 3, 2)),))
        yield Sample(cls(1), (tensor(F32, (6, 9)),), "special")
        yield Sample(cls(2), (tensor(F32, (_N, 2, _M)),))


class Softmax(_Softmax):
    """``exp(x - max) / sum(exp(x - max))``."""

    name = "softmax"

    def reference(self, *operands: Array) -> tuple[Array, ...]:
        with np.errstate(all="ignore"):
            e = np.exp(self.shifted(operands[0]))
            return ((e / e.sum(axis=self.axis, keepdims=True)).astype(operands[0].dtype),)

    def stages(self, operands: Sequence[Buffer], results: Sequence[Buffer]) -> tuple[Stage, ...]:
        (x,), (result,) = operands, results
        dtype = accumulator_dtype(x.dtype)
        greatest, maximum = self.reduced("max", x, "max", float("-inf"))
        e, at = scratch("e", dtype, x.shape, x), axes("e", x.shape)
        shifted = cast(Read(x, at), dtype) - Read(greatest, self.row(at))
        exponentials = map_stage("exp", at, e, Call("exp", (shifted,), dtype))
        total, summed = self.reduced("sum", e, "add", 0.0)
        point = axes("o", x.shape)
        quotient = binary("div", Read(e, point), Read(total, self.row(point)))
        final = map_stage("normalize", point, result, cast(quotient, result.dtype))
        return maximum, exponentials, summed, final


class LogSoftmax(_Softmax):
    """``x - max - log(sum(exp(x - max)))``."""

    name = "log_softmax"

    def reference(self, *operands: Array) -> tuple[Array, ...]:
        with np.errstate(all="ignore"):
            shifted = self.shifted(operands[0])
            total = np.exp(shifted).sum(axis=self.axis, keepdims=True)
            return ((shifted - np.log(total)).astype(operands[0].dtype),)

    def stages(self, operands: Sequence[Buffer], results: Sequence[Buffer]) -> tuple[Stage, ...]:
        (x,), (result,) = operands, results
        dtype = accumulator_dtype(x.dtype)
        greatest, maximum = self.reduced("max", x, "max", float("-inf"))

        def shifted(at: tuple[Var, ...]) -> Expr:
            return cast(Read(x, at), dtype) - Read(greatest, self.row(at))

        e, at = scratch("e", dtype, x.shape, x), axes("e", x.shape)
        exponentials = map_stage("exp", at, e, Call("exp", (shifted(at),), dtype))
        total, summed = self.reduced("sum", e, "add", 0.0)
        logs, rows = scratch("log_sum", dtype, total.shape, x), axes("l", total.shape)
        logarithm = map_stage("log", rows, logs, Call("log", (Read(total, rows),), dtype))
        point = axes("o", x.shape)
        value = shifted(point) - Read(logs, self.row(point))
        final = map_stage("normalize", point, result, cast(value, result.dtype))
        return maximum, exponentials, summed, logarithm, final
