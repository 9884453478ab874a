# SPDX-License-Identifier: Apache-2.0
"""Pooling: the maximum, the mean or the sum over sliding windows of the spatial dims.

The operand is padded by the identity first. The mean divides by the number of elements in the
window: those inside the operand, or with ``count_include_pad`` those inside the padded operand; an
overhang from ``ceil_mode`` never counts.
"""

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.ir.buffer import Buffer
from tilewright.ir.dtypes import BF16, F16, F32, I8, U8, DType
from tilewright.ir.expr import (
    ONE,
    ZERO,
    Const,
    Expr,
    Read,
    Scalar,
    Symbol,
    Var,
    binary,
    const,
    index,
    mul,
)
from tilewright.ir.layout import channels_last
from tilewright.ir.op import Array, Op, Requirement, Sample
from tilewright.ir.ops.domain import FLOATS, NUMERIC, accumulator_dtype, axes, scratch, zero
from tilewright.ir.ops.elementwise import widened
from tilewright.ir.ops.shapes import expect_dtype, product
from tilewright.ir.ops.windows import (
    LIMIT,
    Window,
    check_fit,
    check_windows,
    fit_requirements,
    make_windows,
    pad_stage,
    positions_inside,
)
from tilewright.ir.rewrite import evaluate
from tilewright.ir.stage import Stage, map_stage, reduce_stage
from tilewright.ir.types import TensorType, tensor
from tilewright.ir.value_expr import cast

_N = Symbol("N", 1, 64, 1, 2)
_W = Symbol("W", 0, 64, 1, 2)
_H = Symbol("H", 3, 64, 1, 9)


@dataclass(frozen=True)
class _Pool(Op):
    """Base of the pooling ops over ``x[N, C, ...]``; ``pads`` are all begins, then all ends."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    pads: tuple[int, ...]
    dilations: tuple[int, ...]
    ceil_mode: bool = False

    def windows(self) -> tuple[Window, ...]:
        """The window along each spatial dim."""
        return make_windows(self.kernel, self.strides, self.pads, self.dilations, self.ceil_mode)

    def infer_pool(self, operands: Sequence[TensorType], accepts: frozenset[DType]) -> TensorType:
        """The type of the pooled operand."""
        self.expect_operands(operands, 1)
        (x,) = operands
        expect_dtype(self, [x.dtype], accepts)
        rank = x.rank - 2
        check_windows(self, rank, self.strides, self.pads, self.dilations)
        self.require(
            len(self.kernel) == rank,
            f"'kernel' has {len(self.kernel)} values, {rank} spatial dims need as many.",
        )
        for k in self.kernel:
            self.require(
                1 <= k < LIMIT, f"'kernel' holds {k}, it must be at least 1 and below {LIMIT}."
            )
        windows = self.windows()
        for w in windows:
            self.require(
                max(w.begin, w.end) < evaluate(w.reach, {}),
                f"Pads {w.begin} and {w.end} must be smaller than the window of {w.reach}.",
            )
        check_fit(self, windows, x.shape[2:], 0)
        spatial = (w.count(d) for w, d in zip(windows, x.shape[2:], strict=True))
        return tensor(x.dtype, (*x.shape[:2], *spatial))

    def requirements(self, operands: Sequence[TensorType]) -> tuple[Requirement, ...]:
        return fit_requirements(self.windows(), operands[0].shape[2:], 0)

    def gathered(self, x: Array, fill: float) -> Array:
        """All windows of ``x``, padded by ``fill``, along new trailing axes, one for each spatial
        dim.
        """
        windows = self.windows()
        extents = [index(d) for d in x.shape[2:]]
        counts = [evaluate(w.count(d), {}) for w, d in zip(windows, extents, strict=True)]
        needed = [evaluate(w.padded(d), {}) for w, d in zip(windows, extents, strict=True)]
        ends = [p - w.begin - d for p, w, d in zip(needed, windows, x.shape[2:], strict=True)]
        pads = [(0, 0), (0, 0), *((w.begin, e) for w, e in zip(windows, ends, strict=True))]
        x = np.pad(x, pads, constant_values=fill)
        for d, (w, count, k) in enumerate(zip(windows, counts, self.kernel, strict=True)):
            positions = np.arange(count)[:, None] * w.stride + np.arange(k) * w.dilation
            x = np.moveaxis(np.take(x, positions, axis=2 + d), 3 + d, -1)
        return x

    def pool_stages(
        self, x: Buffer, result: Buffer, op: str, dtype: DType, init: Expr, fill: Expr
    ) -> tuple[Stage, ...]:
        """Pad ``x`` by ``fill``, then reduce windows by ``op`` from ``init`` into ``result``."""
        windows = self.windows()
        padded, stages = pad_stage(x, windows, fill)
        outer = axes("i", result.shape[:2])
        q = axes("q", result.shape[2:])
        k = tuple(Var(f"k{d}", index(extent)) for d, extent in enumerate(self.kernel))
        positions = (
            i * w.stride + tap * w.dilation for i, tap, w in zip(q, k, windows, strict=True)
        )
        acc = Scalar("acc", dtype)
        value = binary(op, acc, cast(Read(padded, (*outer, *positions)), dtype))
        pool = reduce_stage(self.name, (*outer, *q), k, (result,), (acc,), (init,), (value,))
        return (*stages, pool)

    @classmethod
    def pool_samples(cls) -> Iterator[tuple[tuple[object, ...], TensorType]]:
        """Attributes and operand types for the samples."""
        x = tensor(F32, (2, 3, 7, 6))
        yield ((2, 2), (2, 2), (0, 0, 0, 0), (1, 1), False), x
        yield ((3, 3), (2, 2), (1, 1, 1, 1), (1, 1), False), x
        yield ((3, 2), (2, 3), (1, 0, 0, 1), (1, 2), False), x.with_layout(channels_last(4))
        yield ((3, 3), (2, 2), (0, 0, 0, 0), (1, 1), True), x
        yield ((3, 3), (2, 2), (1, 1, 1, 1), (1, 1), True), x
        yield ((2,), (3,), (1, 1), (1,), True), tensor(F32, (1, 2, 5))
        yield ((2, 2, 2), (1, 2, 1), (0,) * 6, (1, 1, 1), False), tensor(F32, (1, 2, 3, 4, 3))
        free = tensor(F32, (_N, 2, _H, _H))
        yield ((3, 3), (2, 2), (1, 1, 1, 1), (1, 1), False), free
        yield ((2, 2), (2, 2), (0, 0, 0, 0), (1, 1), True), free
        yield ((3, 2), (3, 2), (0, 0, 0, 0), (1, 1), True), tensor(F32, (1, 2, 1, 1))
        small = tensor(F32, (_N, 2, _W, _W))
        yield ((3, 2), (2, 3), (0, 1, 0, 0), (1, 2), True), small
        yield ((2, 2), (2, 1), (0, 0, 0, 0), (1, 1), False), small


@dataclass(frozen=True)
class MaxPool(_Pool):
    """The maximum of every window; NaN where the window holds one."""

    name = "max_pool"

    def infer(self, operands: Sequence[TensorType]) -> tuple[TensorType, ...]:
        return (self.infer_pool(operands, NUMERIC),)

    def reference(self, *operands: Array) -> tuple[Array, ...]:
        (x,) = operands
        least = -np.inf if widened(x).dtype.kind == "f" else np.iinfo(x.dtype).min
        spatial = tuple(range(-len(self.kernel), 0))
        return (self.gathered(widened(x), least).max(axis=spatial).astype(x.dtype),)

    def stages(self, operands: Sequence[Buffer], results: Sequence[Buffer]) -> tuple[Stage, ...]:
        (x,), (result,) = operands, results
        least = const(x.dtype.min, x.dtype)
        return self.pool_stages(x, result, "max", x.dtype, least, least)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        for attributes, x in cls.pool_samples():
            yield Sample(cls(*attributes), (x,))  # type: ignore[arg-type]
        plain = cls((3, 3), (2, 2), (1, 1, 1, 1), (1, 1))
        for dtype in (F32, F16, BF16, I8, U8):
            yield Sample(plain, (tensor(dtype, (1, 2, 7, 6)),), "special")


@dataclass(frozen=True)
class AvgPool(_Pool):
    """The mean of every window."""

    name = "avg_pool"
    count_include_pad: bool = False

    def infer(self, operands: Sequence[TensorType]) -> tuple[TensorType, ...]:
        return (self.infer_pool(operands, FLOATS),)

    def reference(self, *operands: Array) -> tuple[Array, ...]:
        (x,) = operands
        spatial = tuple(range(-len(self.kernel), 0))
        total = self.gathered(widened(x), 0.0).sum(axis=spatial)
        inside = np.ones(x.shape, np.float64)
        if self.count_include_pad:
            rank = len(self.kernel)
            inside = np.pad(
                inside,
                [(0, 0), (0, 0), *zip(self.pads[:rank], self.pads[rank:], strict=True)],
                constant_values=1,
            )
            counted = AvgPool(
                self.kernel, self.strides, (0,) * 2 * rank, self.dilations, self.ceil_mode
            )
            trim = tuple(slice(0, n) for n in total.shape)
            count = counted.gathered(inside, 0.0).sum(axis=spatial)[trim]
        else:
            count = self.gathered(inside, 0.0).sum(axis=spatial)
        with np.errstate(all="ignore"):
            return ((total / count).astype(x.dtype),)

    def stages(self, operands: Sequence[Buffer], results: Sequence[Buffer]) -> tuple[Stage, ...]:
        (x,), (result,) = operands, results
        dtype = accumulator_dtype(x.dtype)
        total = scratch("total", dtype, result.shape, result)
        pooled = self.pool_stages(x, total, "add", dtype, const(0, dtype), zero(x.dtype))
        point = axes("o", result.shape)
        counts = [
            self._count(w, i, extent)
            for w, i, extent in zip(self.windows(), point[2:], x.shape[2:], strict=True)
        ]
        varying = [c for c in counts if not isinstance(c, Const)]
        constant = product([c for c in counts if isinstance(c, Const)])
        factors = [cast(c, dtype) for c in varying] or [cast(constant, dtype)]
        if varying and constant is not ONE:
            factors.append(cast(constant, dtype))
        divisor = functools.reduce(mul, factors)
        mean = binary("div", Read(total, point), divisor)
        return (*pooled, map_stage("mean", point, result, cast(mean, result.dtype)))

    def _count(self, window: Window, i: Expr, extent: Expr) -> Expr:
        """How many elements of window ``i`` along one dim are counted."""
        least, end = ZERO, extent
        if self.count_include_pad:
            least, end = index(-window.begin), extent + window.end
        padding = window.begin + window.end
        if not self.ceil_mode and (self.count_include_pad or not padding):
            return window.kernel
        return positions_inside(window, i * window.stride - window.begin, least, end)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        for attributes, x in cls.pool_samples():
            yield Sample(cls(*attributes), (x,))  # type: ignore[arg-type]
            yield Sample(cls(*attributes, True), (x,))  # type: ignore[arg-type, call-arg]
        plain = cls((3, 3), (2, 2), (1, 1, 1, 1), (1, 1))
        for dtype in (F16, BF16):
            yield Sample(plain, (tensor(dtype, (1, 2, 7, 6)),))


@dataclass(frozen=True)
class SumPool(_Pool):
    """The sum of every window; what lies outside the operand adds nothing."""

    name = "sum_pool"

    def infer(self, operands: Sequence[TensorType]) -> tuple[TensorType, ...]:
        return (self.infer_pool(operands, FLOATS),)

    def reference(self, *operands: Array) -> tuple[Array, ...]:
        (x,) = operands
        spatial = tuple(range(-len(self.kernel), 0))
        with np.errstate(all="ignore"):
            return (self.gathered(widened(x), 0.0).sum(axis=spatial).astype(x.dtype),)

    def stages(self, operands: Sequence[Buffer], results: Sequence[Buffer]) -> tuple[Stage, ...]:
        (x,), (result,) = operands, results
        dtype = accumulator_dtype(x.dtype)
        narrow = dtype is not x.dtype
        total = scratch("total", dtype, result.shape, result) if narrow else result
        pooled = self.pool_stages(x, total, "add", dtype, const(0, dtype), zero(x.dtype))
        if not narrow:
            return pooled
        point = axes("o", result.shape)
        return *pooled, map_stage("rounded", point, result, cast(Read(total, point), x.dtype))

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        for attributes, x in cls.pool_samples():
            yield Sample(cls(*attributes), (x,))  # type: ignore[arg-type]
        plain = cls((3, 3), (2, 2), (1, 1, 1, 1), (1, 1))
        for dtype in (F16, BF16):
            yield Sample(plain, (tensor(dtype, (1, 2, 7, 6)),))
