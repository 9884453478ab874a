# SPDX-License-Identifier: Apache-2.0
"""Cumulative sums along one axis: a scan."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.ir.buffer import Buffer
from tilewright.ir.dtypes import F16, F32, I8, I64
from tilewright.ir.expr import Expr, Read, Scalar, Symbol, Var, const
from tilewright.ir.op import Array, Op, Sample
from tilewright.ir.ops.domain import NUMERIC, accumulator_dtype, axes, scratch
from tilewright.ir.ops.elementwise import widened
from tilewright.ir.ops.shapes import check_axis, expect_dtype
from tilewright.ir.stage import Stage, map_stage
from tilewright.ir.types import TensorType, tensor
from tilewright.ir.value_expr import cast

_N = Symbol("N", 0, 64, 1, 4)


@dataclass(frozen=True)
class Cumsum(Op):
    """Sums from the start along ``axis`` (not negative), or from the end if ``reverse``.

    An ``exclusive`` sum leaves out the element itself. Integers wrap; 16-bit floats are accumulated
    in f32.
    """

    name = "cumsum"
    axis: int
    exclusive: bool = False
    reverse: bool = False

    def infer(self, operands: Sequence[TensorType]) -> tuple[TensorType, ...]:
        self.expect_operands(operands, 1)
        (x,) = operands
        expect_dtype(self, [x.dtype], NUMERIC)
        check_axis(self, self.axis, x.rank)
        return (tensor(x.dtype, x.shape),)

    def reference(self, *operands: Array) -> tuple[Array, ...]:
        x = widened(operands[0])
        x = np.flip(x, self.axis) if self.reverse else x
        with np.errstate(all="ignore"):
            total = np.cumsum(x, axis=self.axis, dtype=x.dtype)
            if self.exclusive and x.size:
                total = np.roll(total, 1, self.axis)
                first: list[slice | int] = [slice(None)] * x.ndim
                first[self.axis] = 0
                total[tuple(first)] = 0
            total = np.flip(total, self.axis) if self.reverse else total
            return (total.astype(operands[0].dtype),)

    def stages(self, operands: Sequence[Buffer], results: Sequence[Buffer]) -> tuple[Stage, ...]:
        (x,), (result,) = operands, results
        dtype = accumulator_dtype(x.dtype)
        narrow = dtype is not x.dtype
        target = scratch("sums", dtype, result.shape, result) if narrow else result
        step = Var("s", x.shape[self.axis])
        others = [v for a, v in enumerate(axes("i", x.shape)) if a != self.axis]
        along: Expr = step.extent - 1 - step if self.reverse else step
        cell = (*others[: self.axis], along, *others[self.axis :])
        acc = Scalar("acc", dtype)
        scan = Stage(
            "scan",
            self.name,
            (*others, step),
            (),
            (target,),
            cell,
            (acc,),
            (const(0, dtype),),
            (acc + cast(Read(x, cell), dtype),),
            self.exclusive,
        )
        if not narrow:
            return (scan,)
        point = axes("o", result.shape)
        return scan, map_stage("rounded", point, result, cast(Read(target, point), x.dtype))

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        for exclusive in (False, True):
            for reverse in (False, True):
                op = cls(1, exclusive, reverse)
                for dtype in (F32, F16, I8):
                    yield Sample(op, (tensor(dtype, (3, 5, 2)),), "integers")
                yield Sample(op, (tensor(F32, (2, _N)),))
                yield Sample(op, (tensor(F32, (6, 1)),))
        yield Sample(cls(0), (tensor(I64, (4,)),))
