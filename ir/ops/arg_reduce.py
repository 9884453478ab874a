# SPDX-License-Identifier: Apache-2.0
"""The index of the greatest or the least element along one axis.

That element is found first, then the least index at which it stands: two plain reductions, which
run on vectors, where one that keeps an element and its index would not. The first of equal elements
is chosen, or the last with ``select_last``. A NaN counts as both greatest and least.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tilewright.ir.bounds import known_le, upper
from tilewright.ir.buffer import Buffer
from tilewright.ir.dtypes import BOOL, F16, F32, I8, I32, I64, U8, from_numpy
from tilewright.ir.expr import (
    ONE,
    Binary,
    Expr,
    Read,
    Scalar,
    Symbol,
    Unary,
    Var,
    binary,
    const,
)
from tilewright.ir.op import Array, Op, Requirement, Sample
from tilewright.ir.ops.domain import NUMERIC, axes, scratch
from tilewright.ir.ops.shapes import check_axis, expect_dtype
from tilewright.ir.simplify import compare
from tilewright.ir.stage import Stage, map_stage, reduce_stage
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
        number = I32 if upper(x.shape[self.axis]) <= I32.max else I64
        best = scratch(f"{self.name}_best", x.dtype, result.shape, result)
        where = scratch(f"{self.name}_where", number, result.shape, result)
        worst = x.dtype.min if self.greatest else x.dtype.max

        value, point, along = self._elements("b", x, result)
        acc = Scalar("best", x.dtype)
        first = reduce_stage(
            f"{self.name}_best", point, (along,), (best,), (acc,),
            (const(worst, x.dtype),), (binary("max" if self.greatest else "min", acc, value),),
        )  # fmt: skip
        value, point, along = self._elements("w", x, result)
        none = const(number.min if self.select_last else number.max, number)
        here = self._is_best(value, Read(best, point))
        acc = Scalar("where", number)
        place = select(here, cast(along, number), none)
        second = reduce_stage(
            f"{self.name}_where", point, (along,), (where,), (acc,),
            (none,), (binary("max" if self.select_last else "min", acc, place),),
        )  # fmt: skip
        at = axes("i", result.shape)
        return first, second, map_stage(self.name, at, result, cast(Read(where, at), I64))

    def _elements(self, name: str, x: Buffer, result: Buffer) -> tuple[Read, tuple[Var, ...], Var]:
        """The read of an element, the axes of the result and the one along which it is chosen."""
        point, along = axes(name, result.shape), Var(f"{name}_r", x.shape[self.axis])
        outer = [v for a, v in enumerate(point) if not (self.keepdims and a == self.axis)]
        return Read(x, (*outer[: self.axis], along, *outer[self.axis :])), point, along

    @staticmethod
    def _is_best(value: Expr, best: Expr) -> Expr:
        """Whether an element is the best one: if there is a NaN, that is the best."""
        same = compare("eq", value, best)
        if not value.dtype.is_float:
            return same
        return Binary("or", same, Unary("isnan", value, BOOL), BOOL)

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
