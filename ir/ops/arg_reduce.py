# SPDX-License-Identifier: Apache-2.0
"""The index of the greatest or the least element along one axis: a reduction of two accumulators.

The first of equal elements is chosen, or the last with ``select_last``. A NaN counts as both
greatest and least.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tilewright.ir.bounds import known_le, upper
from tilewright.ir.buffer import Buffer
from tilewright.ir.dtypes import BOOL, F16, F32, I8, I64, U8, from_numpy
from tilewright.ir.expr import ONE, Binary, Expr, Read, Scalar, Symbol, Unary, Var, const
from tilewright.ir.op import Array, Op, Requirement, Sample
from tilewright.ir.ops.domain import NUMERIC, axes, scratch
from tilewright.ir.ops.shapes import check_axis, expect_dtype
from tilewright.ir.simplify import compare
from tilewright.ir.stage import Stage, reduce_stage
from tilewright.ir.types import TensorType, tensor
from tilewright.ir.value_expr import cast, select

_N = Symbol("N", 1, 64, 1, 4)
_M = Symbol("M", 1, 64, 1, 5)


@dataclass(frozen=True)
class _ArgReduction(Op):
    """Base of argmax and argmin; ``axis`` is not negative, and stays as 1 if ``keepdims``."""

    greatest: ClassVar[bool] = True
    axis: int
    keepdims: bool = False
    select_last: bool = False

    def infer(self, operands: Sequence[TensorType]) -> tuple[TensorType, ...]:
        self.expect_operands(operands, 1)
        (x,) = operands
        expect_dtype(self, [x.dtype], NUMERIC)
        check_axis(self, self.axis, x.rank)
        self.require(
            upper(x.shape[self.axis]) >= 1,
            f"Axis {self.axis} of {x} is empty; nothing can be chosen.",
        )
        kept = (ONE,) if self.keepdims else ()
        return (tensor(I64, (*x.shape[: self.axis], *kept, *x.shape[self.axis + 1 :])),)

    def requirements(self, operands: Sequence[TensorType]) -> tuple[Requirement, ...]:
        dim = operands[0].shape[self.axis]
        if known_le(ONE, dim):
            return ()
        return ((compare("ge", dim, ONE), "An axis of {0} elements is empty.", (dim,)),)

    def reference(self, *operands: Array) -> tuple[Array, ...]:
        (x,) = operands
        if from_numpy(x.dtype).is_float:
            x = x.astype(np.float64)
        choose = np.argmax if self.greatest else np.argmin
        if self.select_last:
            flipped = choose(np.flip(x, self.axis), axis=self.axis)
            result = x.shape[self.axis] - 1 - flipped
        else:
            result = choose(x, axis=self.axis)
        result = np.asarray(result).astype(np.int64)
        return (np.expand_dims(result, self.axis) if self.keepdims else result,)

    def stages(self, operands: Sequence[Buffer], results: Sequence[Buffer]) -> tuple[Stage, ...]:
        (x,), (result,) = operands, results
        domain, along = axes("i", result.shape), Var("r", x.shape[self.axis])
        outer = [v for a, v in enumerate(domain) if not (self.keepdims and a == self.axis)]
        value = Read(x, (*outer[: self.axis], along, *outer[self.axis :]))
        best, where = Scalar("best", x.dtype), Scalar("where", I64)
        better = self._better(value, best)
        end = x.dtype.min if self.greatest else x.dtype.max
        stage = reduce_stage(
            self.name,
            domain,
            (along,),
            (result, scratch("values", x.dtype, result.shape, result)),
            (where, best),
            (const(0, I64), const(end, x.dtype)),
            (select(better, cast(along, I64), where), select(better, value, best)),
        )
        return (stage,)

    def _better(self, value: Expr, best: Expr) -> Expr:
        """Whether ``value`` takes the place of ``best``."""
        relation = ("g" if self.greatest else "l") + ("e" if self.select_last else "t")
        better = compare(relation, value, best)
        if not value.dtype.is_float:
            return better
        nan: Expr = Unary("isnan", value, BOOL)
        if not self.select_last:
            first = Unary("not", Unary("isnan", best, BOOL), BOOL)
            nan = Binary("and", nan, first, BOOL)
        return Binary("or", better, nan, BOOL)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        for dtype in (F32, F16, I8, U8):
            for last in (False, True):
                fill = "special" if dtype.is_float else "indices:3"
                yield Sample(cls(1, False, last), (tensor(dtype, (6, 9)),), fill)
        yield Sample(cls(0, True), (tensor(F32, (4, 3, 2)),))
        yield Sample(cls(0, False), (tensor(F32, (5,)),))
        yield Sample(cls(1, True, True), (tensor(F32, (_N, _M, 2)),), "integers")


class Argmax(_ArgReduction):
    """The index of the greatest element."""

    name = "argmax"


class Argmin(_ArgReduction):
    """The index of the least element."""

    name = "argmin"
    greatest = False
