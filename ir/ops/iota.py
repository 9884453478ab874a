# SPDX-License-Identifier: Apache-2.0
"""Counting: a tensor whose elements are their own index along one axis."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.ir.buffer import Buffer
from tilewright.ir.dtypes import BF16, F32, I64, U8, DType
from tilewright.ir.expr import Expr, Symbol, index
from tilewright.ir.op import Array, Op, Sample
from tilewright.ir.ops.domain import NUMERIC, axes
from tilewright.ir.ops.shapes import check_axis, check_dims, expect_dtype, static_dims
from tilewright.ir.stage import Stage, map_stage
from tilewright.ir.types import TensorType, tensor
from tilewright.ir.value_expr import cast

_N = Symbol("N", 0, 64, 1, 4)


@dataclass(frozen=True)
class Iota(Op):
    """0, 1, 2, ... along ``axis`` (not negative) of a tensor of ``shape``, the same along all
    others.
    """

    name = "iota"
    shape: tuple[Expr, ...]
    axis: int
    dtype: DType = I64

    def infer(self, operands: Sequence[TensorType]) -> tuple[TensorType, ...]:
        self.expect_operands(operands, 0)
        expect_dtype(self, [self.dtype], NUMERIC)
        rank = len(self.shape)
        check_axis(self, self.axis, rank)
        check_dims(self, self.shape)
        return (tensor(self.dtype, self.shape),)

    def reference(self, *operands: Array) -> tuple[Array, ...]:
        shape = static_dims(self, self.shape)
        column = [-1 if a == self.axis else 1 for a in range(len(shape))]
        count = np.arange(shape[self.axis]).astype(self.dtype.numpy).reshape(column)
        return (np.broadcast_to(count, shape),)

    def stages(self, operands: Sequence[Buffer], results: Sequence[Buffer]) -> tuple[Stage, ...]:
        (result,) = results
        point = axes("i", result.shape)
        return (map_stage(self.name, point, result, cast(point[self.axis], self.dtype)),)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        for dtype in (I64, F32, BF16, U8):
            yield Sample(cls((index(3), index(2)), 0, dtype), ())
        yield Sample(cls((index(2), _N), 1), ())
