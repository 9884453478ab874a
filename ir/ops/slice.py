# SPDX-License-Identifier: Apache-2.0
"""Slices: along every axis, ``sizes`` elements from ``starts`` on, ``steps`` apart."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tilewright.ir.bounds import known_le, known_lt
from tilewright.ir.buffer import Buffer
from tilewright.ir.dtypes import F32, I64
from tilewright.ir.expr import ZERO, Expr, Symbol, index
from tilewright.ir.op import Array, Op, Requirement, Sample
from tilewright.ir.ops.domain import axes, read_clamped
from tilewright.ir.ops.shapes import check_dims, static_dims
from tilewright.ir.simplify import compare, maximum, minimum
from tilewright.ir.stage import Stage, map_stage
from tilewright.ir.types import TensorType, tensor

_N = Symbol("N", 1, 64, 1, 6)
_K = Symbol("K", 0, 64, 1, 2)


@dataclass(frozen=True)
class Slice(Op):
    """Element ``i`` along an axis is element ``start + i * step`` of the operand; a step may be
    negative, not 0.
    """

    name = "slice"
    starts: tuple[Expr, ...]
    sizes: tuple[Expr, ...]
    steps: tuple[int, ...]

    def infer(self, operands: Sequence[TensorType]) -> tuple[TensorType, ...]:
        self.expect_operands(operands, 1)
        (x,) = operands
        for name, given in self.attributes().items():
            self.require(
                len(given) == x.rank, f"'{name}' has {len(given)} values, {x} needs {x.rank}."
            )
        check_dims(self, self.sizes)
        for dim, start, size, step in zip(
            x.shape, self.starts, self.sizes, self.steps, strict=True
        ):
            self.require(step != 0, "A step of 0 is given; it must be positive or negative.")
            last = start + (size - 1) * step
            outside = known_lt(ZERO, size) and (
                known_lt(start, ZERO)
                or known_le(dim, start)
                or known_lt(last, ZERO)
                or known_le(dim, last)
            )
            self.require(
                not outside,
                f"A slice of {size} elements from {start} in steps of {step} leave a dim of {dim}.",
            )
        return (tensor(x.dtype, self.sizes),)

    def requirements(self, operands: Sequence[TensorType]) -> tuple[Requirement, ...]:
        found: list[Requirement] = []
        (x,) = operands
        for dim, start, size, step in zip(
            x.shape, self.starts, self.sizes, self.steps, strict=True
        ):
            last = start + (size - 1) * step
            low, high = (start, last) if step > 0 else (last, start)
            if (known_le(ZERO, low) and known_lt(high, dim)) or known_le(size, ZERO):
                continue
            # An empty slice may start anywhere: size 0 makes the tests below trivial.
            some = minimum(size, 1)
            for condition in (
                compare("ge", low * some, ZERO),
                compare("le", (high + 1) * some, maximum(dim, ZERO)),
            ):
                if str(condition) != "true":
                    message = "A slice from {0} to {1} leaves a dim of {2}."
                    found.append((condition, message, (low, high, dim)))
        return tuple(found)

    def reference(self, *operands: Array) -> tuple[Array, ...]:
        (x,) = operands
        starts, sizes = static_dims(self, self.starts), static_dims(self, self.sizes)
        for axis, (start, size, step) in enumerate(zip(starts, sizes, self.steps, strict=True)):
            x = x.take(range(start, start + size * step, step), axis=axis)
        return (x,)

    def stages(self, operands: Sequence[Buffer], results: Sequence[Buffer]) -> tuple[Stage, ...]:
        (x,), (result,) = operands, results
        point = axes("i", result.shape)
        source = [
            start + v * step for v, start, step in zip(point, self.starts, self.steps, strict=True)
        ]
        return (map_stage(self.name, point, result, read_clamped(x, source)),)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        def sample(
            x: TensorType, starts: Sequence[Expr | int], sizes: Sequence[Expr | int], *steps: int
        ) -> Sample:
            return Sample(cls(tuple(map(index, starts)), tuple(map(index, sizes)), steps), (x,))

        yield sample(tensor(F32, (6, 5)), (1, 0), (3, 5), 1, 1)
        yield sample(tensor(F32, (6, 5)), (5, 1), (3, 2), -2, 3)
        yield sample(tensor(I64, (4,)), (0,), (0,), 1)
        yield sample(tensor(F32, (_N, 5)), (0, 4), (_N, 5), 1, -1)
        yield sample(tensor(F32, (_N, 5)), (minimum(_K, _N), 0), (_N - minimum(_K, _N), 2), 1, 2)
        yield sample(tensor(F32, (_N,)), (_N - 1,), (_N,), -1)
        rows = minimum(_K, 1)
        yield sample(tensor(F32, (_K, 5)), (_K - rows, 0), (rows, 5), 1, 1)
        yield sample(tensor(F32, (_K, 5)), (_K - 1, 4), (_K, 5), -1, -1)
