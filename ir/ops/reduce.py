# SPDX-License-Identifier: Apache-2.0
"""Reductions over axes: sum, mean, product, maximum, minimum.

16-bit floats are accumulated in f32. An empty reduction gives the identity (a mean: 0 / 0). Maximum
and minimum give NaN where an element is NaN; on bool they are ``or`` and ``and``.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tilewright.ir.buffer import Buffer
from tilewright.ir.dtypes import BF16, BOOL, F16, F32, F64, I8, I32, I64, U8, DType, from_numpy
from tilewright.ir.expr import ONE, Expr, Read, Symbol, binary, const, mul
from tilewright.ir.op import Array, Op, Sample
from tilewright.ir.ops.binary import truncating_division
from tilewright.ir.ops.domain import (
    NUMERIC,
    NUMERIC_OR_BOOL,
    accumulator_dtype,
    axes,
    reduce_into,
    scratch,
)
from tilewright.ir.ops.elementwise import widened
from tilewright.ir.ops.shapes import check_axis, expect_dtype
from tilewright.ir.stage import Stage, map_stage
from tilewright.ir.types import TensorType, tensor
from tilewright.ir.value_expr import cast

_N = Symbol("N", 1, 64, 1, 4)
_M = Symbol("M", 0, 64, 1, 3)


@dataclass(frozen=True)
class _Reduction(Op):
    """Base of the reductions; ``axes`` are not negative, and stay as dims of 1 if ``keepdims``."""

    accepts: ClassVar[frozenset[DType]] = NUMERIC
    combine: ClassVar[str] = "add"
    axes: tuple[int, ...] = ()
    keepdims: bool = False

    def init(self, dtype: DType) -> Expr:
        """The value of an empty reduction."""
        return const(0, dtype)

    def compute(self, x: Array) -> Array:
        """The reduction in numpy, dims kept; floats come in as float64."""
        raise NotImplementedError(self.name)

    def infer(self, operands: Sequence[TensorType]) -> tuple[TensorType, ...]:
        self.expect_operands(operands, 1)
        (x,) = operands
        expect_dtype(self, [x.dtype], self.accepts)
        for axis in self.axes:
            check_axis(self, axis, x.rank)
        self.require(
            len(set(self.axes)) == len(self.axes), f"Axes {self.axes} repeat; name each once."
        )
        return (tensor(x.dtype, self._shape(x.shape, self.keepdims)),)

    def _shape(self, shape: Sequence[Expr], keep: bool) -> tuple[Expr, ...]:
        return tuple(
            ONE if a in self.axes else d for a, d in enumerate(shape) if keep or a not in self.axes
        )

    def reference(self, *operands: Array) -> tuple[Array, ...]:
        (x,) = operands
        with np.errstate(all="ignore"):
            result = self.compute(widened(x)).astype(x.dtype)
        return (result if self.keepdims else result.squeeze(self.axes),)

    def stages(self, operands: Sequence[Buffer], results: Sequence[Buffer]) -> tuple[Stage, ...]:
        (x,), (result,) = operands, results
        return self.reduction(x, result)

    def reduction(self, x: Buffer, result: Buffer) -> tuple[Stage, ...]:
        """The stages that reduce ``x`` into ``result``, which may be of the accumulator's type."""
        dtype = accumulator_dtype(x.dtype) if self.combine in ("add", "mul") else x.dtype
        domain = axes("i", result.shape)
        over = axes("r", [x.shape[a] for a in self.axes])
        kept = iter([v for a, v in enumerate(domain) if not self.keepdims or a not in self.axes])
        inner = dict(zip(self.axes, over, strict=True))
        point = tuple(inner[a] if a in inner else next(kept) for a in range(x.rank))
        term = cast(Read(x, point), dtype)
        return reduce_into(self.name, result, domain, over, self.init(dtype), term, self.combine)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        for dtype in (F32, F64, F16, BF16, I32, I8, U8, BOOL):
            if dtype in cls.accepts:
                fill = "bool" if dtype is BOOL else "normal"
                yield Sample(cls((1,), False), (tensor(dtype, (3, 5, 2)),), fill)
        yield Sample(cls((0, 2), True), (tensor(F32, (3, 5, 2)),))
        yield Sample(cls((2, 0), False), (tensor(F32, (3, 5, 2)),))
        yield Sample(cls((0, 1), False), (tensor(I64, (3, 5)),))
        yield Sample(cls((), True), (tensor(F32, (3, 5)),))
        yield Sample(cls((1,), False), (tensor(F32, (6, 9)),), "special")
        yield Sample(cls((1,), True), (tensor(F32, (_N, _M, 3)),))
        yield Sample(cls((1,), False), (tensor(F32, (2, 0, 3)),))


class ReduceSum(_Reduction):
    """The sum; integers wrap."""

    name = "reduce_sum"

    def compute(self, x: Array) -> Array:
        return np.asarray(np.sum(x, axis=self.axes, keepdims=True, dtype=x.dtype))


class ReduceProd(_Reduction):
    """The product; integers wrap."""

    name = "reduce_prod"
    combine = "mul"

    def init(self, dtype: DType) -> Expr:
        return const(1, dtype)

    def compute(self, x: Array) -> Array:
        return np.asarray(np.prod(x, axis=self.axes, keepdims=True, dtype=x.dtype))


class ReduceMax(_Reduction):
    """The greatest element."""

    name = "reduce_max"
    combine = "max"
    accepts = NUMERIC_OR_BOOL

    def init(self, dtype: DType) -> Expr:
        return const(dtype.min, dtype)

    def compute(self, x: Array) -> Array:
        least = from_numpy(x.dtype).min
        return np.asarray(np.max(x, axis=self.axes, keepdims=True, initial=least))


class ReduceMin(_Reduction):
    """The least element."""

    name = "reduce_min"
    combine = "min"
    accepts = NUMERIC_OR_BOOL

    def init(self, dtype: DType) -> Expr:
        return const(dtype.max, dtype)

    def compute(self, x: Array) -> Array:
        greatest = from_numpy(x.dtype).max
        return np.asarray(np.min(x, axis=self.axes, keepdims=True, initial=greatest))


class ReduceMean(_Reduction):
    """The sum divided by the count; integers truncate."""

    name = "reduce_mean"

    def compute(self, x: Array) -> Array:
        total = np.sum(x, axis=self.axes, keepdims=True, dtype=x.dtype)
        count = int(np.prod([x.shape[a] for a in self.axes], dtype=np.int64))
        if x.dtype.kind == "f":
            return np.asarray(total / count)
        return truncating_division(total, np.asarray(count).astype(x.dtype))

    def stages(self, operands: Sequence[Buffer], results: Sequence[Buffer]) -> tuple[Stage, ...]:
        (x,), (result,) = operands, results
        count: Expr = ONE
        for a in self.axes:
            count = mul(count, x.shape[a])
        return mean_into(self, x, result, count)


def mean_into(op: _Reduction, x: Buffer, result: Buffer, count: Expr) -> tuple[Stage, ...]:
    """The sum of ``op`` over ``x`` in the accumulator's type, then its quotient by ``count``."""
    dtype = accumulator_dtype(x.dtype)
    total = scratch("total", dtype, result.shape, result)
    point = axes("o", result.shape)
    quotient = binary("div", Read(total, point), cast(count, dtype))
    mean = map_stage("mean", point, result, cast(quotient, result.dtype))
    return (*op.reduction(x, total), mean)
