# SPDX-License-Identifier: Apache-2.0
"""Broadcast to a given shape by numpy's rule; of a scalar, a tensor filled with one value."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.ir.bounds import known_equal
from tilewright.ir.buffer import Buffer
from tilewright.ir.dtypes import F32, I64
from tilewright.ir.expr import ONE, Expr, Symbol, index
from tilewright.ir.op import Array, Op, Requirement, Sample
from tilewright.ir.ops.domain import axes, read_broadcast
from tilewright.ir.ops.shapes import check_dims, disjunction, static_dims
from tilewright.ir.simplify import compare
from tilewright.ir.stage import Stage, map_stage
from tilewright.ir.types import TensorType, tensor

_N = Symbol("N", 1, 64, 1, 4)
_M = Symbol("M", 1, 64, 1, 4)


@dataclass(frozen=True)
class BroadcastTo(Op):
    """The operand repeated to ``shape``: each of its dims is 1 or equal to the one there."""

    name = "broadcast_to"
    shape: tuple[Expr, ...]

    def infer(self, operands: Sequence[TensorType]) -> tuple[TensorType, ...]:
        self.expect_operands(operands, 1)
        (x,) = operands
        check_dims(self, self.shape)
        self.require(
            x.rank <= len(self.shape),
            f"Operand {x} has more dims than the shape of {len(self.shape)} to broadcast to.",
        )
        for dim, wanted in self._pairs(x):
            self.require(
                known_equal(dim, ONE) is not False or known_equal(dim, wanted) is not False,
                f"Dim {dim} of {x} does not broadcast to {wanted}.",
            )
        return (tensor(x.dtype, self.shape),)

    def _pairs(self, x: TensorType) -> list[tuple[Expr, Expr]]:
        return list(zip(x.shape, self.shape[len(self.shape) - x.rank :], strict=True))

    def requirements(self, operands: Sequence[TensorType]) -> tuple[Requirement, ...]:
        found: list[Requirement] = []
        for dim, wanted in self._pairs(operands[0]):
            if not known_equal(dim, ONE) and not known_equal(dim, wanted):
                condition = disjunction([compare("eq", dim, ONE), compare("eq", dim, wanted)])
                found.append((condition, "Dim {0} does not broadcast to {1}.", (dim, wanted)))
        return tuple(found)

    def reference(self, *operands: Array) -> tuple[Array, ...]:
        return (np.broadcast_to(operands[0], static_dims(self, self.shape)),)

    def stages(self, operands: Sequence[Buffer], results: Sequence[Buffer]) -> tuple[Stage, ...]:
        (x,), (result,) = operands, results
        point = axes("i", result.shape)
        return (map_stage(self.name, point, result, read_broadcast(x, result.shape, point)),)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        yield Sample(cls((index(2), index(3))), (tensor(F32, (3,)),))
        yield Sample(cls((index(2), index(3))), (tensor(F32, (2, 1)),))
        yield Sample(cls((index(0), index(3))), (tensor(F32, (1, 3)),))
        yield Sample(cls((_N, index(3))), (tensor(I64, ()),))
        yield Sample(cls((_N, index(3), _M)), (tensor(F32, (3, 1)),))
        yield Sample(cls((_N, _M)), (tensor(F32, (_N, _M)),))
