# SPDX-License-Identifier: Apache-2.0
"""Concatenation along one axis."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tilewright.ir.bounds import known_equal
from tilewright.ir.buffer import Buffer
from tilewright.ir.dtypes import F32, I64
from tilewright.ir.expr import ZERO, Expr, Symbol
from tilewright.ir.op import Array, Op, Requirement, Sample
from tilewright.ir.ops.domain import axes, clamped, read_held, zero
from tilewright.ir.ops.shapes import check_axis, equal_requirement
from tilewright.ir.simplify import compare
from tilewright.ir.stage import Stage, map_stage
from tilewright.ir.types import TensorType, tensor
from tilewright.ir.value_expr import guard, logical_and

if TYPE_CHECKING:
    from tilewright.ir.graph import Builder, Value

MOST = 32
"""Operands of one kernel: more are joined in groups first, and then the groups."""

_N = Symbol("N", 0, 64, 1, 4)
_M = Symbol("M", 0, 64, 1, 3)


@dataclass(frozen=True)
class Concat(Op):
    """The operands one after another along ``axis``, which is not negative."""

    name = "concat"
    axis: int

    def infer(self, operands: Sequence[TensorType]) -> tuple[TensorType, ...]:
        self.require(len(operands) >= 1, "Expected at least one operand, got none.")
        first = operands[0]
        check_axis(self, self.axis, first.rank)
        total: Expr = ZERO
        for t in operands:
            self.require(
                t.dtype is first.dtype and t.rank == first.rank,
                f"Operands {first} and {t} differ in type or rank; cast or reshape.",
            )
            for a, (d, e) in enumerate(zip(first.shape, t.shape, strict=True)):
                self.require(
                    a == self.axis or known_equal(d, e) is not False,
                    f"Operands {first} and {t} differ in dim {a}; only axis {self.axis} may.",
                )
            total = total + t.shape[self.axis]
        shape = [total if a == self.axis else self._joined(operands, a) for a in range(first.rank)]
        return (tensor(first.dtype, shape),)

    def _joined(self, operands: Sequence[TensorType], axis: int) -> Expr:
        """A dim that all operands share: one that is a number, if there is one."""
        dims = [t.shape[axis] for t in operands]
        return min(dims, key=lambda d: not str(d).isdigit())

    def requirements(self, operands: Sequence[TensorType]) -> tuple[Requirement, ...]:
        found: dict[Requirement, None] = {}
        for a in range(operands[0].rank):
            joined = self._joined(operands, a)
            for t in operands:
                if a != self.axis:
                    message = "Dims {0} and {1} of joined tensors are not equal."
                    found.update(dict.fromkeys(equal_requirement(joined, t.shape[a], message)))
        return tuple(found)

    def decompose(
        self, builder: "Builder", operands: "Sequence[Value]"
    ) -> "tuple[Value, ...] | None":
        if len(operands) <= MOST:
            return None
        groups = [builder(self, *operands[i : i + MOST]) for i in range(0, len(operands), MOST)]
        return (builder(self, *groups),)

    def reference(self, *operands: Array) -> tuple[Array, ...]:
        return (np.concatenate(operands, axis=self.axis),)

    def stages(self, operands: Sequence[Buffer], results: Sequence[Buffer]) -> tuple[Stage, ...]:
        (result,) = results
        point = axes("i", result.shape)
        along = point[self.axis]
        end, parts = ZERO, []
        for x in operands:
            start, end = end, end + x.shape[self.axis]
            inside = logical_and(compare("ge", along, start), compare("lt", along, end))
            wanted = [along - start if a == self.axis else v for a, v in enumerate(point)]
            source = [i if a == self.axis else clamped(i, x.shape[a]) for a, i in enumerate(wanted)]
            parts.append((inside, read_held(x, source, wanted)))
        value: Expr = zero(result.dtype)
        for inside, part in reversed(parts):
            value = guard(inside, part, value)
        return (map_stage(self.name, point, result, value),)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        yield Sample(cls(0), (tensor(F32, (2, 3)), tensor(F32, (4, 3))))
        yield Sample(cls(1), tuple(tensor(F32, (2, n, 2)) for n in (1, 0, 3)))
        yield Sample(cls(0), (tensor(I64, (2,)),))
        yield Sample(cls(1), (tensor(F32, (2, _N)), tensor(F32, (2, 5)), tensor(F32, (2, _M))))
        yield Sample(cls(0), (tensor(F32, (1, _M)), tensor(F32, (_N, _M))))
