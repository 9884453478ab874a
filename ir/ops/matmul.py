# SPDX-License-Identifier: Apache-2.0
"""Matrix product with numpy's rules: batch dims before the last two broadcast.

16-bit floats are accumulated in f32; integers wrap. A product of 16-bit floats may be asked for in
f32, as it was accumulated: for what is computed with it before it is rounded.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.ir.bounds import known_equal
from tilewright.ir.buffer import Buffer
from tilewright.ir.dtypes import BF16, F16, F32, F64, I32, I64, U8, DType
from tilewright.ir.expr import Expr, Symbol, Var, const
from tilewright.ir.op import Array, Op, Requirement, Sample
from tilewright.ir.ops.domain import (
    NUMERIC,
    accumulator_dtype,
    axes,
    broadcast_index,
    read_held,
    reduce_into,
)
from tilewright.ir.ops.elementwise import widened
from tilewright.ir.ops.shapes import (
    broadcast_requirements,
    broadcast_shapes,
    equal_requirement,
    expect_dtype,
)
from tilewright.ir.stage import Stage
from tilewright.ir.types import TensorType, tensor
from tilewright.ir.value_expr import cast

_B = Symbol("B", 1, 64, 1, 2)
_M = Symbol("M", 0, 64, 1, 5)
_K = Symbol("K", 0, 64, 1, 3)


@dataclass(frozen=True)
class Matmul(Op):
    """``a[..., m, k] @ b[..., k, n]``; both operands have rank 2 or more. The result is of their
    dtype, or of ``dtype``, that of the accumulator.
    """

    name = "matmul"
    dtype: DType | None = None

    def attributes(self) -> dict[str, Any]:
        """The result's type where it is not that of the operands."""
        return {} if self.dtype is None else {"dtype": self.dtype}

    def infer(self, operands: Sequence[TensorType]) -> tuple[TensorType, ...]:
        self.expect_operands(operands, 2)
        a, b = operands
        expect_dtype(self, [a.dtype, b.dtype], NUMERIC)
        self.require(
            a.rank >= 2 and b.rank >= 2,
            f"Operands of ranks {a.rank} and {b.rank} do not multiply; reshape vectors to rank 2.",
        )
        self.require(
            known_equal(a.shape[-1], b.shape[-2]) is not False,
            f"Operand {a} has {a.shape[-1]} columns, {b} has {b.shape[-2]} rows; make them equal.",
        )
        dtype = self.dtype or a.dtype
        self.require(
            dtype in (a.dtype, accumulator_dtype(a.dtype)),
            f"A product of {a.dtype} is not accumulated in {dtype}.",
        )
        batch = broadcast_shapes(self, (a.shape[:-2], b.shape[:-2]))
        return (tensor(dtype, (*batch, a.shape[-2], b.shape[-1])),)

    def requirements(self, operands: Sequence[TensorType]) -> tuple[Requirement, ...]:
        a, b = operands
        return (
            *broadcast_requirements((a.shape[:-2], b.shape[:-2])),
            *equal_requirement(a.shape[-1], b.shape[-2], "Inner dims {0} and {1} are not equal."),
        )

    def reference(self, *operands: Array) -> tuple[Array, ...]:
        a, b = operands
        with np.errstate(all="ignore"):
            product = np.asarray(np.matmul(widened(a), widened(b)))
            return (product.astype(a.dtype if self.dtype is None else self.dtype.numpy),)

    def stages(self, operands: Sequence[Buffer], results: Sequence[Buffer]) -> tuple[Stage, ...]:
        (a, b), (result,) = operands, results
        batch = axes("b", result.shape[:-2])
        m, n = Var("m", result.shape[-2]), Var("n", result.shape[-1])
        k = Var("k", a.shape[-1])
        dtype = accumulator_dtype(result.dtype)

        def read(x: Buffer, row: Var, column: Var) -> Expr:
            lead = len(batch) - (x.rank - 2)
            outer = batch[lead:]
            places = [
                broadcast_index(d, i.extent, i) for i, d in zip(outer, x.shape[:-2], strict=True)
            ]
            # With unknown equality of the inner dims, reads of b stay below its own extent.
            same = known_equal(row.extent, x.shape[-2])
            places += [row if same else broadcast_index(x.shape[-2], row.extent, row), column]
            wanted = (*outer, row, column)
            return cast(read_held(x, places, wanted), dtype)

        term = read(a, m, k) * read(b, k, n)
        return reduce_into(self.name, result, (*batch, m, n), (k,), const(0, dtype), term)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        for dtype in (F32, F64, F16, BF16, I32, I64, U8):
            yield Sample(cls(), (tensor(dtype, (4, 6)), tensor(dtype, (6, 5))), "integers")
        for dtype in (F16, BF16):
            yield Sample(cls(F32), (tensor(dtype, (4, 6)), tensor(dtype, (6, 5))))
        yield Sample(cls(), (tensor(F32, (2, 1, 4, 6)), tensor(F32, (3, 6, 5))))
        yield Sample(cls(), (tensor(F32, (_B, _M, _K)), tensor(F32, (_K, 4))))
        yield Sample(cls(), (tensor(F32, (_B, 2, _K)), tensor(F32, (_B, _K, _M))))
        yield Sample(cls(), (tensor(F32, (3, 0)), tensor(F32, (0, 4))))
        yield Sample(cls(), (tensor(F32, (1, 5)), tensor(F32, (5, 4))), "special")
