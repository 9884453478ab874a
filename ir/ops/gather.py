# SPDX-License-Identifier: Apache-2.0
"""Gathering along one axis by a tensor of indices: whole slices, or single elements.

A negative index counts from the end; one that is out of range is clamped, so that no value can read
outside memory, and an empty dim gives zeros.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.ir.bounds import known_le, known_lt
from tilewright.ir.buffer import Buffer
from tilewright.ir.dtypes import F32, I32, I64, U8
from tilewright.ir.expr import Expr, Read, Symbol
from tilewright.ir.op import Array, Op, Requirement, Sample
from tilewright.ir.ops.domain import INTEGERS, axes, from_end, read_clamped
from tilewright.ir.ops.shapes import check_axis
from tilewright.ir.simplify import compare
from tilewright.ir.stage import Stage, map_stage
from tilewright.ir.types import TensorType, tensor

_N = Symbol("N", 1, 64, 1, 6)
_M = Symbol("M", 0, 64, 1, 3)


@dataclass(frozen=True)
class Gather(Op):
    """The slices of ``x`` along ``axis`` (not negative) at ``indices``, whose dims take the place
    of that axis.
    """

    name = "gather"
    axis: int

    def infer(self, operands: Sequence[TensorType]) -> tuple[TensorType, ...]:
        self.expect_operands(operands, 2)
        x, indices = operands
        check_indices(self, indices)
        check_axis(self, self.axis, x.rank)
        return (
            tensor(x.dtype, (*x.shape[: self.axis], *indices.shape, *x.shape[self.axis + 1 :])),
        )

    def indexed_axes(self, operands: Sequence[TensorType]) -> tuple[int, ...]:
        return (self.axis,)

    def reference(self, *operands: Array) -> tuple[Array, ...]:
        x, indices = operands
        x = not_empty(x, (self.axis,))
        return (np.take(x, clamped_array(indices, x.shape[self.axis]), axis=self.axis),)

    def stages(self, operands: Sequence[Buffer], results: Sequence[Buffer]) -> tuple[Stage, ...]:
        (x, indices), (result,) = operands, results
        point = axes("i", result.shape)
        end = self.axis + indices.rank
        value = Read(indices, point[self.axis : end])
        along = from_end(value, x.shape[self.axis])
        source = (*point[: self.axis], along, *point[end:])
        return (map_stage(self.name, point, result, read_clamped(x, source)),)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        fill = ("normal", "indices:5")
        yield Sample(cls(0), (tensor(F32, (5, 3)), tensor(I64, (4,))), fill)
        yield Sample(cls(1), (tensor(F32, (2, 5, 3)), tensor(I32, (2, 3))), fill)
        yield Sample(cls(1), (tensor(F32, (2, 5)), tensor(I64, ())), fill)
        yield Sample(cls(0), (tensor(F32, (5, 2)), tensor(I64, (9,))), ("normal", "indices:9"))
        yield Sample(cls(0), (tensor(F32, (5, 2)), tensor(U8, (9,))), fill)
        yield Sample(cls(0), (tensor(F32, (_N, 2)), tensor(I64, (_M,))), fill)
        yield Sample(cls(1), (tensor(F32, (_M, 5, _N)), tensor(I64, (2, _M))), fill)


@dataclass(frozen=True)
class GatherElements(Op):
    """For every element of ``indices``, the element of ``x`` at the same place with ``axis``
    replaced by the index.
    """

    name = "gather_elements"
    axis: int

    def infer(self, operands: Sequence[TensorType]) -> tuple[TensorType, ...]:
        self.expect_operands(operands, 2)
        x, indices = operands
        check_element_indices(self, x, indices)
        return (tensor(x.dtype, indices.shape),)

    def requirements(self, operands: Sequence[TensorType]) -> tuple[Requirement, ...]:
        return element_requirements(self.axis, *operands)

    def indexed_axes(self, operands: Sequence[TensorType]) -> tuple[int, ...]:
        return (self.axis,)

    def reference(self, *operands: Array) -> tuple[Array, ...]:
        x, indices = operands
        x = not_empty(x, (self.axis,))
        where: list[Array] = list(np.indices(indices.shape))
        where[self.axis] = clamped_array(indices, x.shape[self.axis])
        return (x[tuple(where)],)

    def stages(self, operands: Sequence[Buffer], results: Sequence[Buffer]) -> tuple[Stage, ...]:
        (x, indices), (result,) = operands, results
        point = axes("i", result.shape)
        source: list[Expr] = list(point)
        source[self.axis] = from_end(Read(indices, point), x.shape[self.axis])
        return (map_stage(self.name, point, result, read_clamped(x, source)),)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        fill = ("normal", "indices:5")
        yield Sample(cls(0), (tensor(F32, (5, 3)), tensor(I64, (4, 3))), fill)
        yield Sample(cls(1), (tensor(F32, (2, 5, 3)), tensor(I32, (2, 7, 2))), fill)
        yield Sample(cls(0), (tensor(F32, (_N, 3)), tensor(I64, (_M, 3))), fill)


def check_indices(op: Op, indices: TensorType) -> None:
    """Check that indices are integers."""
    op.require(
        indices.dtype in INTEGERS, f"Indices are {indices.dtype}, they must be integers; cast them."
    )


def check_element_indices(op: Op, x: TensorType, indices: TensorType) -> None:
    """Check indices of single elements: as many dims as ``x``, none larger but that of the axis."""
    axis = op.attributes()["axis"]
    check_indices(op, indices)
    op.require(
        x.rank == indices.rank,
        f"Operand {x} and the indices {indices} differ in rank; they must be equal.",
    )
    check_axis(op, axis, x.rank)
    for a, (d, i) in enumerate(zip(x.shape, indices.shape, strict=True)):
        op.require(
            a == axis or not known_lt(d, i),
            f"Dim {a} of the indices {indices} is larger than in {x}.",
        )


def element_requirements(axis: int, x: TensorType, indices: TensorType) -> tuple[Requirement, ...]:
    """What :func:`check_element_indices` could not tell."""
    found: tuple[Requirement, ...] = ()
    for a, (d, i) in enumerate(zip(x.shape, indices.shape, strict=True)):
        if a != axis and not known_le(i, d):
            message = "A dim of {0} of the indices is larger than {1} in the data."
            found += ((compare("le", i, d), message, (i, d)),)
    return found


def not_empty(x: Array, indexed: Sequence[int]) -> Array:
    """``x`` with a zero in each of the ``indexed`` axes that is empty: what a clamped index reads
    there.
    """
    grown = [(0, int(a in indexed and n == 0)) for a, n in enumerate(x.shape)]
    return np.pad(x, grown) if any(more for _, more in grown) else x


def clamped_array(indices: Array, dim: int) -> Array:
    """Indices with negative ones counted from the end, held within ``[0, dim - 1]``."""
    i = indices.astype(np.int64) if indices.dtype.kind != "u" else np.minimum(indices, dim)
    i = i.astype(np.int64)
    return np.clip(np.where(i < 0, i + dim, i), 0, max(dim - 1, 0))
