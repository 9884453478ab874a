# SPDX-License-Identifier: Apache-2.0
"""Permutation of the dims."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.ir.buffer import Buffer
from tilewright.ir.dtypes import BOOL, F32
from tilewright.ir.expr import Expr, Read, Symbol
from tilewright.ir.op import Array, Op, Sample
from tilewright.ir.ops.domain import axes
from tilewright.ir.stage import Stage, map_stage
from tilewright.ir.types import TensorType, tensor

_N = Symbol("N", 0, 64, 1, 4)


@dataclass(frozen=True)
class Transpose(Op):
    """Dim ``i`` of the result is dim ``perm[i]`` of the operand."""

    name = "transpose"
    perm: tuple[int, ...]

    def infer(self, operands: Sequence[TensorType]) -> tuple[TensorType, ...]:
        self.expect_operands(operands, 1)
        (x,) = operands
        self.require(
            sorted(self.perm) == list(range(x.rank)),
            f"Order {self.perm} is not a permutation of the {x.rank} dims of {x}.",
        )
        return (tensor(x.dtype, [x.shape[a] for a in self.perm]),)

    def reference(self, *operands: Array) -> tuple[Array, ...]:
        return (np.transpose(operands[0], self.perm),)

    def stages(self, operands: Sequence[Buffer], results: Sequence[Buffer]) -> tuple[Stage, ...]:
        (x,), (result,) = operands, results
        point = axes("i", result.shape)
        source: list[Expr] = list(point)
        for target, axis in enumerate(self.perm):
            source[axis] = point[target]
        return (map_stage(self.name, point, result, Read(x, tuple(source))),)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        yield Sample(cls((1, 0)), (tensor(F32, (2, 5)),))
        yield Sample(cls((2, 0, 1)), (tensor(F32, (2, 3, 4)),))
        yield Sample(cls((0, 2, 3, 1)), (tensor(F32, (_N, 2, 3, _N)),))
        yield Sample(cls((1, 0)), (tensor(BOOL, (2, 0)),), "bool")
        yield Sample(cls(()), (tensor(F32, ()),))
