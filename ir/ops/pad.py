# SPDX-License-Identifier: Apache-2.0
"""Padding: by a constant (then also cropping), by the edge, by reflection, or by wrapping."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from tilewright.ir.bounds import known_le, lower, upper
from tilewright.ir.buffer import Buffer
from tilewright.ir.dtypes import BOOL, F16, F32, I64
from tilewright.ir.expr import ONE, ZERO, Expr, Read, Symbol, Var, index
from tilewright.ir.op import Array, Op, Requirement, Sample
from tilewright.ir.ops.domain import axes, clamped, read_clamped, zero
from tilewright.ir.ops.shapes import check_dims, disjunction, static_dims
from tilewright.ir.ops.windows import LIMIT, read_inside
from tilewright.ir.simplify import compare, maximum, minimum, mod
from tilewright.ir.stage import Stage, map_stage
from tilewright.ir.types import TensorType, tensor

_N = Symbol("N", 1, 64, 1, 6)
_K = Symbol("K", 0, 64, 1, 2)


@dataclass(frozen=True)
class Pad(Op):
    """``begins`` and ``ends`` elements are added around ``x``; in mode ``constant`` they have the
    value of a second, scalar operand (0 if it is missing), and negative ones crop. ``reflect`` does
    not repeat the edge; pads that are larger than the dim reflect again, as numpy's and ONNX's do.
    """

    name = "pad"
    begins: tuple[Expr, ...]
    ends: tuple[Expr, ...]
    mode: Literal["constant", "edge", "reflect", "wrap"] = "constant"

    def infer(self, operands: Sequence[TensorType]) -> tuple[TensorType, ...]:
        self.expect_operands(operands, 1, 2)
        x = operands[0]
        self.require(
            self.mode in ("constant", "edge", "reflect", "wrap"),
            f"Mode '{self.mode}' is unknown; it is one of constant, edge, reflect, wrap.",
        )
        for name, given in (("begins", self.begins), ("ends", self.ends)):
            self.require(
                len(given) == x.rank, f"'{name}' has {len(given)} values, {x} needs {x.rank}."
            )
            for pad in given:
                self.require(
                    lower(pad) < LIMIT and upper(pad) > -LIMIT, f"A pad of {pad} is too large."
                )
                self.require(
                    self.mode == "constant" or upper(pad) >= 0,
                    f"A pad of {pad} crops; mode '{self.mode}' cannot.",
                )
        if len(operands) == 2:
            value = operands[1]
            self.require(self.mode == "constant", f"Mode '{self.mode}' takes no value.")
            self.require(
                value.dtype is x.dtype and value.rank == 0,
                f"The value is {value}, it must be a scalar of type {x.dtype}.",
            )
        shape = [self._extent(a, d) for a, d in enumerate(x.shape)]
        check_dims(self, shape)
        return (tensor(x.dtype, shape),)

    def _extent(self, axis: int, dim: Expr) -> Expr:
        total = dim + self.begins[axis] + self.ends[axis]
        self.require(
            upper(total) >= 0,
            f"Pads of {self.begins[axis]} and {self.ends[axis]} crop a dim of {dim}.",
        )
        return total

    def requirements(self, operands: Sequence[TensorType]) -> tuple[Requirement, ...]:
        found: list[Requirement] = []
        for begin, end, dim in zip(self.begins, self.ends, operands[0].shape, strict=True):
            total = dim + begin + end
            if not known_le(ZERO, total):
                message = "Pads of {0} and {1} crop more than a dim of {2}."
                found.append((compare("ge", total, ZERO), message, (begin, end, dim)))
            if self.mode == "constant":
                continue
            for pad in (begin, end):
                if not known_le(ZERO, pad):
                    message = f"A pad of {{0}} is negative; mode '{self.mode}' cannot crop."
                    found.append((compare("ge", pad, ZERO), message, (pad,)))
            if not known_le(ONE, dim):
                condition = disjunction([compare("ge", dim, ONE), compare("eq", total, ZERO)])
                message = f"An empty dim of {{0}} cannot be padded in mode '{self.mode}'."
                found.append((condition, message, (dim,)))
        return tuple(found)

    def reference(self, *operands: Array) -> tuple[Array, ...]:
        x = operands[0]
        begins, ends = static_dims(self, self.begins), static_dims(self, self.ends)
        widths = [(max(b, 0), max(e, 0)) for b, e in zip(begins, ends, strict=True)]
        if self.mode == "constant":
            fill = operands[1] if len(operands) == 2 else np.zeros((), x.dtype)
            shape = [d + b + e for d, (b, e) in zip(x.shape, widths, strict=True)]
            padded = np.full(shape, fill, x.dtype)
            padded[tuple(slice(b, b + d) for d, (b, _) in zip(x.shape, widths, strict=True))] = x
        else:
            padded = np.pad(x, widths, self.mode)
        crop = (
            slice(max(-b, 0), n - max(-e, 0))
            for b, e, n in zip(begins, ends, padded.shape, strict=True)
        )
        return (padded[tuple(crop)],)

    def stages(self, operands: Sequence[Buffer], results: Sequence[Buffer]) -> tuple[Stage, ...]:
        x, (result,) = operands[0], results
        point = axes("i", result.shape)
        if self.mode == "constant":
            fill: Expr = Read(operands[1], ()) if len(operands) == 2 else zero(x.dtype)
            value = read_inside(x, point, self.begins, fill)
        else:
            source = [self._source(a, v, x.shape[a]) for a, v in enumerate(point)]
            value = read_clamped(x, source)
        return (map_stage(self.name, point, result, value),)

    def _source(self, axis: int, v: Var, dim: Expr) -> Expr:
        """Where the modes other than constant read along one axis."""
        i = v - self.begins[axis]
        if self.mode == "edge":
            return clamped(i, dim)
        if self.mode == "wrap":
            return mod(i, maximum(dim, ONE))
        last = dim - 1
        if known_le(self.begins[axis], last) and known_le(self.ends[axis], last):
            i = maximum(i, -i)
        else:
            i = mod(i, maximum(last * 2, ONE))
        return minimum(i, last * 2 - i)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        def pads(*given: Expr | int) -> tuple[Expr, ...]:
            return tuple(map(index, given))

        x = tensor(F32, (4, 3))
        yield Sample(cls(pads(1, 0), pads(2, 3)), (x, tensor(F32)))
        yield Sample(cls(pads(1, 0), pads(2, 3)), (tensor(F16, (4, 3)),))
        yield Sample(cls(pads(-1, 2), pads(3, -2)), (x, tensor(F32)))
        yield Sample(cls(pads(0, 0), pads(0, 0)), (tensor(I64, (4, 3)), tensor(I64)))
        yield Sample(
            cls(
                pads(
                    1,
                ),
                pads(
                    1,
                ),
            ),
            (tensor(BOOL, (4,)), tensor(BOOL)),
            "bool",
        )
        yield Sample(cls(pads(1, 1), pads(_K, 0)), (tensor(F32, (_N, 3)), tensor(F32)))
        yield Sample(cls(pads(-_K, 1), pads(_K * 2, 0)), (tensor(F32, (_N, 3)), tensor(F32)))
        for mode in ("edge", "reflect", "wrap"):
            yield Sample(cls(pads(2, 1), pads(1, 2), mode), (x,))
            yield Sample(cls(pads(9, 7), pads(8, 3), mode), (x,))
            yield Sample(cls(pads(2, 0), pads(3, 1), mode), (tensor(F32, (1, 2)),))
            yield Sample(cls(pads(2, 1), pads(_K, 2), mode), (tensor(F32, (_N, 3)),))
