# SPDX-License-Identifier: Apache-2.0
"""Dims as data: where a model computes with the size of a tensor and not only on shapes."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.ir.buffer import Buffer
from tilewright.ir.dtypes import I64
from tilewright.ir.expr import Expr, Symbol, Var, index
from tilewright.ir.op import Array, Op, Sample
from tilewright.ir.ops.shapes import static_dims
from tilewright.ir.simplify import compare, floordiv
from tilewright.ir.stage import Stage, map_stage
from tilewright.ir.types import TensorType, tensor
from tilewright.ir.value_expr import cast, select

_N = Symbol("N", 0, 64, 1, 4)
_M = Symbol("M", 1, 64, 1, 3)


@dataclass(frozen=True)
class DimValues(Op):
    """A vector of i64 that holds the values of ``dims``; these may be negative, as differences of
    dims are.
    """

    name = "dim_values"
    dims: tuple[Expr, ...]

    def infer(self, operands: Sequence[TensorType]) -> tuple[TensorType, ...]:
        self.expect_operands(operands, 0)
        return (tensor(I64, (len(self.dims),)),)

    def reference(self, *operands: Array) -> tuple[Array, ...]:
        return (np.array(static_dims(self, self.dims), dtype=np.int64),)

    def stages(self, operands: Sequence[Buffer], results: Sequence[Buffer]) -> tuple[Stage, ...]:
        (result,) = results
        i = Var("i", index(len(self.dims)))
        value: Expr = cast(self.dims[-1] if self.dims else index(0), I64)
        for position in reversed(range(len(self.dims) - 1)):
            here = compare("eq", i, index(position))
            value = select(here, cast(self.dims[position], I64), value)
        return (map_stage(self.name, (i,), result, value),)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        yield Sample(cls((_N, index(7), floordiv(_M * _N, 2), _N - 5)), ())
        yield Sample(cls((_N,)), ())
        yield Sample(cls(()), ())
