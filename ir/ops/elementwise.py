# SPDX-License-Identifier: Apache-2.0
"""The base of elementwise ops: numpy broadcasting around one scalar expression.

A subclass gives ``scalar`` (the expression of one element) and ``compute`` (the same on numpy
arrays); inference, reference and stages follow. ``compute`` gets floats widened to float64, so that
what it returns, rounded once, is the best result of the op in the narrow type.
"""

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from tilewright.ir.buffer import Buffer
from tilewright.ir.dtypes import BF16, F16, F32, DType, from_numpy
from tilewright.ir.expr import Call, Expr
from tilewright.ir.op import Array, Op, Requirement
from tilewright.ir.ops.domain import NUMERIC, axes, read_broadcast
from tilewright.ir.ops.shapes import broadcast_requirements, broadcast_shapes, expect_dtype
from tilewright.ir.stage import Stage, map_stage
from tilewright.ir.types import TensorType, tensor
from tilewright.ir.value_expr import cast


class Elementwise(Op):
    """Base of ops that compute each element of the result from one element of each operand.

    ``arity`` is the number of operands, ``accepts`` their element types.
    """

    arity: ClassVar[int] = 1
    accepts: ClassVar[frozenset[DType]] = NUMERIC

    def scalar(self, *x: Expr) -> Expr:
        """One element of the result."""
        raise NotImplementedError(self.name)

    def compute(self, *x: Array) -> Array:
        """The op in numpy on broadcastable arrays; floats come in as float64."""
        raise NotImplementedError(self.name)

    def result_dtype(self, dtypes: Sequence[DType]) -> DType:
        """The element type of the result; checks the operands'."""
        expect_dtype(self, dtypes, self.accepts)
        return dtypes[0]

    def infer(self, operands: Sequence[TensorType]) -> tuple[TensorType, ...]:
        self.expect_operands(operands, self.arity)
        dtype = self.result_dtype([t.dtype for t in operands])
        return (tensor(dtype, broadcast_shapes(self, [t.shape for t in operands])),)

    def requirements(self, operands: Sequence[TensorType]) -> tuple[Requirement, ...]:
        return broadcast_requirements([t.shape for t in operands])

    def reference(self, *operands: Array) -> tuple[Array, ...]:
        dtype = self.result_dtype([from_numpy(x.dtype) for x in operands])
        with np.errstate(all="ignore"):
            result = np.asarray(self.compute(*(widened(x) for x in operands)))
            return (result.astype(dtype.numpy, copy=False),)

    def stages(self, operands: Sequence[Buffer], results: Sequence[Buffer]) -> tuple[Stage, ...]:
        (result,) = results
        point = axes("i", result.shape)
        values = [read_broadcast(x, result.shape, point) for x in operands]
        return (map_stage(self.name, point, result, self.scalar(*values)),)


def widened(x: Array) -> Array:
    """A float array as float64, any other unchanged."""
    dtype = from_numpy(x.dtype)
    return x.astype(np.float64) if dtype.is_float else x


def math_call(function: str, *x: Expr) -> Expr:
    """A call of a math function; 16-bit floats are computed in f32 and rounded."""
    dtype = x[0].dtype
    if dtype in (F16, BF16):
        return cast(Call(function, tuple(cast(a, F32) for a in x), F32), dtype)
    return Call(function, x, dtype)
