# SPDX-License-Identifier: Apache-2.0
"""Scattering: a copy of a tensor with elements or slices replaced, or combined with, updates.

Updates are applied in row-major order, so where several hit one cell the last one stays. Negative
indices count from the end; those out of range are clamped, and nothing is written where a dim that
is indexed is empty.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from tilewright.ir.bounds import known_equal, known_le
from tilewright.ir.buffer import Buffer
from tilewright.ir.dtypes import BOOL, F16, F32, I32, I64
from tilewright.ir.expr import ONE, Expr, Read, Scalar, Symbol, Var, index
from tilewright.ir.op import Array, Op, Requirement, Sample
from tilewright.ir.ops.domain import NUMERIC, axes, clamped, combine, from_end
from tilewright.ir.ops.elementwise import widened
from tilewright.ir.ops.gather import check_element_indices, clamped_array, element_requirements
from tilewright.ir.ops.gather_nd import tuple_length
from tilewright.ir.ops.shapes import equal_requirement
from tilewright.ir.simplify import minimum
from tilewright.ir.stage import Stage
from tilewright.ir.types import TensorType, tensor

Reduction = Literal["none", "add", "mul", "min", "max"]

_N = Symbol("N", 1, 64, 1, 5)
_M = Symbol("M", 0, 64, 1, 4)
_COMBINE = {"add": np.add, "mul": np.multiply, "min": np.minimum, "max": np.maximum}


@dataclass(frozen=True)
class _Scatter(Op):
    """Base of the scattering ops on (x, indices, updates)."""

    def reduction_name(self) -> str:
        """How an update meets the old value."""
        return str(self.attributes()["reduction"])

    def check_updates(self, operands: Sequence[TensorType], shape: Sequence[Expr]) -> None:
        """Check the updates' type and shape, and that the reduction applies to it."""
        x, _, updates = operands
        reduction = self.reduction_name()
        self.require(
            reduction == "none" or reduction in _COMBINE,
            f"Reduction '{reduction}' is unknown; it is one of none, {', '.join(_COMBINE)}.",
        )
        self.require(
            reduction == "none" or x.dtype in NUMERIC,
            f"Reduction '{reduction}' does not apply to {x.dtype}.",
        )
        self.require(
            updates.dtype is x.dtype,
            f"The updates are {updates.dtype}, the data {x.dtype}; cast one.",
        )
        fits = updates.rank == len(shape) and all(
            known_equal(a, b) is not False for a, b in zip(updates.shape, shape, strict=True)
        )
        wanted = ", ".join(map(str, shape))
        self.require(fits, f"The updates are {updates}, their shape must be ({wanted}).")

    def scattered(self, x: Array, updates: Array, where: tuple[Array, ...]) -> Array:
        """``x`` with ``updates`` at the places ``where``; as it is if it has none."""
        if not x.size:
            return x
        result = widened(x).copy()
        if self.reduction_name() == "none":
            result[where] = widened(updates)
        else:
            with np.errstate(all="ignore"):
                _COMBINE[self.reduction_name()].at(result, where, widened(updates))
        return result.astype(x.dtype)

    def scatter_stage(
        self,
        x: Buffer,
        updates: Buffer,
        result: Buffer,
        point: Sequence[Expr],
        over: Sequence[Var],
    ) -> Stage:
        """The stage that writes ``updates`` at ``over`` into cell ``point``; none of them where a
        dim that is indexed is empty, since no index is inside then.
        """
        cells, old = axes("i", result.shape), Scalar("old", x.dtype)
        new: Expr = Read(updates, tuple(over))
        if self.reduction_name() != "none":
            new = combine(self.reduction_name(), old, new)
        target = tuple(
            p if p in over else clamped(p, d) for p, d in zip(point, result.shape, strict=True)
        )
        some = ONE
        for p, d in zip(point, result.shape, strict=True):
            if p not in over:
                some = minimum(some, d)
        once = () if some is ONE else (Var("once", some),)
        return Stage(
            "scatter",
            self.name,
            cells,
            (*once, *over),
            (result,),
            target,
            (old,),
            (Read(x, cells),),
            (new,),
        )


@dataclass(frozen=True)
class ScatterElements(_Scatter):
    """Every element of ``updates`` goes to its own place in ``x`` with ``axis`` replaced by the
    index.
    """

    name = "scatter_elements"
    axis: int
    reduction: Reduction = "none"

    def infer(self, operands: Sequence[TensorType]) -> tuple[TensorType, ...]:
        self.expect_operands(operands, 3)
        x, indices, _ = operands
        check_element_indices(self, x, indices)
        self.check_updates(operands, indices.shape)
        return (tensor(x.dtype, x.shape),)

    def requirements(self, operands: Sequence[TensorType]) -> tuple[Requirement, ...]:
        x, indices, updates = operands
        return element_requirements(self.axis, x, indices) + _same_dims(indices.shape, updates)

    def indexed_axes(self, operands: Sequence[TensorType]) -> tuple[int, ...]:
        return (self.axis,)

    def reference(self, *operands: Array) -> tuple[Array, ...]:
        x, indices, updates = operands
        where: list[Array] = list(np.indices(indices.shape))
        where[self.axis] = clamped_array(indices, x.shape[self.axis])
        return (self.scattered(x, updates, tuple(where)),)

    def stages(self, operands: Sequence[Buffer], results: Sequence[Buffer]) -> tuple[Stage, ...]:
        (x, indices, updates), (result,) = operands, results
        extents = list(map(_shared, updates.shape, indices.shape))
        for a, d in enumerate(x.shape):
            if a != self.axis:
                extents[a] = _shared(extents[a], d)
        over = axes("u", extents)
        point: list[Expr] = list(over)
        point[self.axis] = from_end(Read(indices, over), x.shape[self.axis])
        return (self.scatter_stage(x, updates, result, point, over),)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        fill = ("normal", "indices:4", "normal")
        for reduction in ("none", *_COMBINE):
            op = cls(0, reduction)  # type: ignore[arg-type]
            for dtype in (F32, I32, F16):
                types = tensor(dtype, (4, 3)), tensor(I64, (5, 2)), tensor(dtype, (5, 2))
                yield Sample(op, types, ("integers", "indices:4", "integers"))
        types = tensor(F32, (2, 4, 3)), tensor(I32, (2, 3, 3)), tensor(F32, (2, 3, 3))
        yield Sample(cls(1), types, fill)
        types = tensor(BOOL, (4,)), tensor(I64, (2,)), tensor(BOOL, (2,))
        yield Sample(cls(0), types, ("bool", "indices:9", "bool"))
        types = tensor(F32, (_N, 3)), tensor(I64, (_M, 3)), tensor(F32, (_M, 3))
        yield Sample(cls(0, "add"), types, fill)


@dataclass(frozen=True)
class ScatterNd(_Scatter):
    """Every slice of ``updates`` goes to the place in ``x`` that a tuple in the last dim of
    ``indices`` names.
    """

    name = "scatter_nd"
    reduction: Reduction = "none"

    def infer(self, operands: Sequence[TensorType]) -> tuple[TensorType, ...]:
        self.expect_operands(operands, 3)
        x, indices, _ = operands
        count = tuple_length(self, indices)
        self.require(count <= x.rank, f"Tuples of {count} indices do not fit {x} of rank {x.rank}.")
        self.check_updates(operands, (*indices.shape[:-1], *x.shape[count:]))
        return (tensor(x.dtype, x.shape),)

    def requirements(self, operands: Sequence[TensorType]) -> tuple[Requirement, ...]:
        x, indices, updates = operands
        count = tuple_length(self, indices)
        return _same_dims((*indices.shape[:-1], *x.shape[count:]), updates)

    def indexed_axes(self, operands: Sequence[TensorType]) -> tuple[int, ...]:
        return tuple(range(tuple_length(self, operands[1])))

    def reference(self, *operands: Array) -> tuple[Array, ...]:
        x, indices, updates = operands
        where = tuple(clamped_array(indices[..., q], x.shape[q]) for q in range(indices.shape[-1]))
        return (self.scattered(x, updates, where),)

    def stages(self, operands: Sequence[Buffer], results: Sequence[Buffer]) -> tuple[Stage, ...]:
        (x, indices, updates), (result,) = operands, results
        count = tuple_length(self, indices.type)
        known = (*indices.shape[:-1], *x.shape[count:])
        over = axes("u", map(_shared, updates.shape, known))
        lead = over[: indices.rank - 1]
        point: list[Expr] = [
            from_end(Read(indices, (*lead, index(q))), x.shape[q]) for q in range(count)
        ]
        point += over[indices.rank - 1 :]
        return (self.scatter_stage(x, updates, result, point, over),)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        fill = ("integers", "indices:4", "integers")
        for reduction in ("none", *_COMBINE):
            op = cls(reduction)  # type: ignore[arg-type]
            for dtype in (F32, I32, F16):
                types = tensor(dtype, (4, 3)), tensor(I64, (5, 1)), tensor(dtype, (5, 3))
                yield Sample(op, types, fill)
        for rank in (2, 4):
            types = tensor(F32, (4,) * rank), tensor(I64, (3, rank)), tensor(F32, (3,))
            yield Sample(cls(), types, fill)
        types = tensor(F32, (_N, 3)), tensor(I64, (2, _M, 1)), tensor(F32, (2, _M, 3))
        yield Sample(cls("add"), types, fill)


def _shared(dim: Expr, other: Expr) -> Expr:
    """What lies within both dims; they are equal, or the other is larger, which need not be known
    here.
    """
    return dim if known_le(dim, other) else minimum(dim, other)


def _same_dims(shape: Sequence[Expr], updates: TensorType) -> tuple[Requirement, ...]:
    message = "The updates have a dim of {1} where {0} is needed."
    return tuple(
        r
        for d, u in zip(shape, updates.shape, strict=True)
        for r in equal_requirement(d, u, message)
    )
