# SPDX-License-Identifier: Apache-2.0
"""Change of layout: the same logical values, stored in another order, blocked or padded."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tilewright.ir.buffer import Buffer
from tilewright.ir.dtypes import F32
from tilewright.ir.expr import Read, Symbol
from tilewright.ir.layout import Layout
from tilewright.ir.op import Array, Op, Sample
from tilewright.ir.ops.domain import axes
from tilewright.ir.ops.windows import LIMIT
from tilewright.ir.stage import Stage, map_stage
from tilewright.ir.types import TensorType, tensor

_N = Symbol("N", 0, 64, 1, 2)


@dataclass(frozen=True)
class Relayout(Op):
    """The only op that changes a layout; the result has ``layout``."""

    name = "relayout"
    layout: Layout

    def infer(self, operands: Sequence[TensorType]) -> tuple[TensorType, ...]:
        self.expect_operands(operands, 1)
        (x,) = operands
        self.require(
            sorted(self.layout.order) == list(range(x.rank)),
            f"Layout {self.layout} does not order the {x.rank} dims of {x}.",
        )
        for axis, factor in self.layout.blocks:
            self.require(
                0 <= axis < x.rank and 1 <= factor < LIMIT,
                f"Layout {self.layout} has a block of {factor} on axis {axis}, not fit for {x}.",
            )
        return (x.with_layout(self.layout),)

    def reference(self, *operands: Array) -> tuple[Array, ...]:
        return (operands[0],)

    def stages(self, operands: Sequence[Buffer], results: Sequence[Buffer]) -> tuple[Stage, ...]:
        (x,), (result,) = operands, results
        point = axes("i", result.shape)
        return (map_stage(self.name, point, result, Read(x, point)),)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        yield Sample(cls(Layout((0, 2, 3, 1))), (tensor(F32, (_N, 3, 4, 5)),))
        yield Sample(cls(Layout((0, 2, 3, 1), ((0, 4),))), (tensor(F32, (6, 3, 2, 2)),))
        yield Sample(cls(Layout((0, 1))), (tensor(F32, (3, 4), Layout((1, 0), ((1, 8),))),))
