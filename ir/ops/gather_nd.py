# SPDX-License-Identifier: Apache-2.0
"""Gathering by index tuples: the last dim of the indices holds the index of a slice.

Negative indices count from the end; those out of range are clamped, and an empty dim gives zeros.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.ir.bounds import known_equal
from tilewright.ir.buffer import Buffer
from tilewright.ir.dtypes import F32, I32, I64
from tilewright.ir.expr import Const, Expr, Read, Symbol, index
from tilewright.ir.op import Array, Op, Requirement, Sample
from tilewright.ir.ops.domain import axes, from_end, read_clamped
from tilewright.ir.ops.gather import check_indices, clamped_array, not_empty
from tilewright.ir.ops.shapes import equal_requirement
from tilewright.ir.stage import Stage, map_stage
from tilewright.ir.types import TensorType, tensor

_N = Symbol("N", 1, 64, 1, 5)
_M = Symbol("M", 0, 64, 1, 3)


@dataclass(frozen=True)
class GatherNd(Op):
    """The first ``batch_dims`` dims of both operands are shared; the index tuples name a place in
    the dims after.
    """

    name = "gather_nd"
    batch_dims: int = 0

    def infer(self, operands: Sequence[TensorType]) -> tuple[TensorType, ...]:
        self.expect_operands(operands, 2)
        x, indices = operands
        count = tuple_length(self, indices)
        batch = self.batch_dims
        self.require(
            0 <= batch < indices.rank,
            f"'batch_dims' is {batch}, the indices have rank {indices.rank}.",
        )
        self.require(
            batch + count <= x.rank,
            f"Tuples of {count} indices after {batch} batch dims do not fit {x} of rank {x.rank}.",
        )
        for a in range(batch):
            self.require(
                known_equal(x.shape[a], indices.shape[a]) is not False,
                f"Batch dim {a} is {x.shape[a]} in {x} and {indices.shape[a]} in the indices.",
            )
        return (tensor(x.dtype, (*indices.shape[:-1], *x.shape[batch + count :])),)

    def requirements(self, operands: Sequence[TensorType]) -> tuple[Requirement, ...]:
        x, indices = operands
        found: tuple[Requirement, ...] = ()
        for a in range(self.batch_dims):
            message = "Batch dims {0} and {1} are not equal."
            found += equal_requirement(x.shape[a], indices.shape[a], message)
        return found

    def indexed_axes(self, operands: Sequence[TensorType]) -> tuple[int, ...]:
        end = self.batch_dims + tuple_length(self, operands[1])
        return tuple(range(self.batch_dims, end))

    def reference(self, *operands: Array) -> tuple[Array, ...]:
        x, indices = operands
        batch = self.batch_dims
        x = not_empty(x, range(batch, batch + indices.shape[-1]))
        outer = np.indices(indices.shape[:-1])[:batch]
        inner = (
            clamped_array(indices[..., q], x.shape[batch + q]) for q in range(indices.shape[-1])
        )
        return (x[(*outer, *inner)],)

    def stages(self, operands: Sequence[Buffer], results: Sequence[Buffer]) -> tuple[Stage, ...]:
        (x, indices), (result,) = operands, results
        count = tuple_length(self, indices.type)
        point = axes("i", result.shape)
        lead = point[: indices.rank - 1]
        source: list[Expr] = list(lead[: self.batch_dims])
        for q in range(count):
            value = Read(indices, (*lead, index(q)))
            source.append(from_end(value, x.shape[self.batch_dims + q]))
        source += point[indices.rank - 1 :]
        return (map_stage(self.name, point, result, read_clamped(x, source)),)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        fill = ("normal", "indices:3")
        yield Sample(cls(), (tensor(F32, (3, 4)), tensor(I64, (5, 2))), fill)
        yield Sample(cls(), (tensor(F32, (3, 4)), tensor(I64, (2, 5, 1))), fill)
        yield Sample(cls(), (tensor(F32, (3, 3)), tensor(I64, (5, 2))), fill)
        yield Sample(cls(1), (tensor(F32, (2, 3, 4)), tensor(I32, (2, 5, 1))), fill)
        yield Sample(cls(2), (tensor(F32, (2, 3, 4)), tensor(I64, (2, 3, 1))), fill)
        yield Sample(cls(), (tensor(F32, (3, 4)), tensor(I64, (1,))), ("normal", "indices:9"))
        yield Sample(cls(), (tensor(F32, (_N, 3)), tensor(I64, (_M, 2))), fill)


def tuple_length(op: Op, indices: TensorType) -> int:
    """How many indices a tuple holds: the last dim, which must be known."""
    check_indices(op, indices)
    op.require(
        indices.rank >= 1 and isinstance(indices.shape[-1], Const),
        f"The indices are {indices}; their last dim, the length of a tuple, must be a number.",
    )
    return int(str(indices.shape[-1]))
