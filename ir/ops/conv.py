# SPDX-License-Identifier: Apache-2.0
"""Convolution of any spatial rank, with strides, padding, dilations and groups.

One general contraction: ``y[n, o, q...] = sum over c, k... of x[n, g*C + c, q*stride + k*dilation]
* w[o, c, k...]`` where ``g`` is the group of ``o``. Padding is a stage before it, the bias one
after.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.ir.bounds import known_equal, multiple_of
from tilewright.ir.buffer import Buffer
from tilewright.ir.dtypes import BF16, F16, F32, I32
from tilewright.ir.expr import ONE, ZERO, Const, Expr, Read, Scalar, Symbol, Var, const, index, mul
from tilewright.ir.layout import channels_last
from tilewright.ir.op import Array, Op, Requirement, Sample
from tilewright.ir.ops.domain import (
    NUMERIC,
    accumulator_dtype,
    axes,
    clamped,
    read_clamped,
    read_held,
    scratch,
    zero,
)
from tilewright.ir.ops.elementwise import widened
from tilewright.ir.ops.shapes import equal_requirement, expect_dtype, multiple_requirement
from tilewright.ir.ops.windows import (
    LIMIT,
    Window,
    check_fit,
    check_windows,
    fit_requirements,
    make_windows,
    pad_stage,
)
from tilewright.ir.simplify import floordiv
from tilewright.ir.stage import Stage, map_stage, reduce_stage
from tilewright.ir.types import TensorType, tensor
from tilewright.ir.value_expr import cast

_N = Symbol("N", 1, 64, 1, 2)
_H = Symbol("H", 3, 64, 1, 9)


@dataclass(frozen=True)
class Conv(Op):
    """``x[N, C, ...]`` with ``w[O, C / groups, ...]`` and an optional ``bias[O]``.

    ``pads`` are all begins, then all ends.
    """

    name = "conv"
    strides: tuple[int, ...]
    pads: tuple[int, ...]
    dilations: tuple[int, ...]
    groups: int = 1

    def windows(self, kernel: Sequence[Expr]) -> tuple[Window, ...]:
        """The window along each spatial dim."""
        return make_windows(kernel, self.strides, self.pads, self.dilations)

    def infer(self, operands: Sequence[TensorType]) -> tuple[TensorType, ...]:
        self.expect_operands(operands, 2, 3)
        x, w = operands[0], operands[1]
        expect_dtype(self, [t.dtype for t in operands], NUMERIC)
        check_windows(self, x.rank - 2, self.strides, self.pads, self.dilations)
        check_weight(self, x, w)
        outputs = w.shape[0]
        self.require(
            known_equal(x.shape[1], mul(w.shape[1], index(self.groups))) is not False,
            f"The operand has {x.shape[1]} channels, the weight takes {w.shape[1]} in each of "
            f"{self.groups} groups.",
        )
        self.require(
            not isinstance(outputs, Const) or multiple_of(outputs) % self.groups == 0,
            f"The {outputs} output channels do not divide into {self.groups} groups.",
        )
        check_bias(self, operands, outputs)
        windows = self.windows(w.shape[2:])
        check_fit(self, windows, x.shape[2:])
        spatial = (v.count(d) for v, d in zip(windows, x.shape[2:], strict=True))
        return (tensor(x.dtype, (x.shape[0], outputs, *spatial)),)

    def requirements(self, operands: Sequence[TensorType]) -> tuple[Requirement, ...]:
        x, w = operands[0], operands[1]
        found = equal_requirement(
            x.shape[1],
            mul(w.shape[1], index(self.groups)),
            "The operand has {0} channels, the weight takes {1}.",
        )
        if len(operands) == 3:
            message = "The weight has {0} output channels, the bias {1} values."
            found += equal_requirement(w.shape[0], operands[2].shape[0], message)
        message = f"The output channels {{0}} do not divide into {self.groups} groups."
        found += multiple_requirement(w.shape[0], self.groups, message)
        return found + fit_requirements(self.windows(w.shape[2:]), x.shape[2:])

    def reference(self, *operands: Array) -> tuple[Array, ...]:
        x, w = widened(operands[0]), widened(operands[1])
        rank = x.ndim - 2
        pads = [(0, 0), (0, 0), *zip(self.pads[:rank], self.pads[rank:], strict=True)]
        x = np.pad(x, pads)
        windows = self.windows([index(k) for k in w.shape[2:]])
        spatial = tuple(
            max(0, (d - (k - 1) * v.dilation - 1) // v.stride + 1)
            for v, d, k in zip(windows, x.shape[2:], w.shape[2:], strict=True)
        )
        x = x.reshape(x.shape[0], self.groups, x.shape[1] // self.groups, *x.shape[2:])
        weight = w.reshape(self.groups, w.shape[0] // self.groups, *w.shape[1:])
        dtype = x.dtype
        result = np.zeros((x.shape[0], self.groups, weight.shape[1], *spatial), dtype)
        with np.errstate(all="ignore"):
            for tap in np.ndindex(*w.shape[2:]):
                view = tuple(
                    slice(t * v.dilation, t * v.dilation + (q - 1) * v.stride + 1, v.stride)
                    if q
                    else slice(0, 0)
                    for t, v, q in zip(tap, windows, spatial, strict=True)
                )
                part = x[(slice(None), slice(None), slice(None), *view)]
                kernel = weight[(slice(None), slice(None), slice(None), *tap)]
                result += np.einsum("ngc...,goc->ngo...", part, kernel, dtype=dtype)
            result = result.reshape(x.shape[0], w.shape[0], *spatial)
            if len(operands) == 3:
                result = result + widened(operands[2]).reshape(-1, *[1] * rank)
            return (result.astype(operands[0].dtype),)

    def stages(self, operands: Sequence[Buffer], results: Sequence[Buffer]) -> tuple[Stage, ...]:
        (x, w), (result,) = operands[:2], results
        windows = self.windows(w.shape[2:])
        padded, stages = pad_stage(x, windows, zero(x.dtype))
        n, o = Var("n", result.shape[0]), Var("o", result.shape[1])
        q = axes("q", result.shape[2:])
        c, k = contraction_axes(w.shape[1], w.shape[2:])
        channel = c[0] if c else ZERO
        group = floordiv(o, floordiv(w.shape[0], self.groups)) if self.groups > 1 else ZERO
        source = group * w.shape[1] + channel
        positions = [
            i * v.stride + tap * v.dilation for i, tap, v in zip(q, k, windows, strict=True)
        ]
        dtype = accumulator_dtype(result.dtype)
        held = (n, clamped(source, x.shape[1]), *positions)
        x_value = cast(read_held(padded, held, (n, source, *positions)), dtype)
        w_value = cast(Read(w, (o, channel, *k)), dtype)
        over = (*c, *(tap for tap in k if isinstance(tap, Var)))
        bias = operands[2] if len(operands) == 3 else None
        return (*stages, *contract(result, (n, o, *q), over, x_value * w_value, bias))

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        for dtype in (F32, F16, BF16, I32):
            operands = (
                tensor(dtype, (2, 3, 6, 5)),
                tensor(dtype, (4, 3, 3, 3)),
                tensor(dtype, (4,)),
            )
            yield Sample(cls((1, 1), (1, 1, 1, 1), (1, 1)), operands, "integers")
        x = tensor(F32, (1, 4, 7, 8))
        yield Sample(cls((2, 1), (0, 1, 2, 0), (1, 2)), (x, tensor(F32, (2, 4, 3, 2))))
        yield Sample(cls((2, 2), (1, 1, 1, 1), (1, 1), 2), (x, tensor(F32, (6, 2, 3, 3))))
        yield Sample(cls((1, 1), (1, 1, 1, 1), (1, 1), 4), (x, tensor(F32, (4, 1, 3, 3))))
        yield Sample(cls((1, 1), (0, 0, 0, 0), (1, 1), 4), (x, tensor(F32, (8, 1, 1, 1))))
        yield Sample(cls((2, 2), (0, 0, 0, 0), (1, 1)), (x, tensor(F32, (3, 4, 1, 1))))
        last = x.with_layout(channels_last(4))
        yield Sample(cls((1, 2), (1, 1, 1, 1), (1, 1)), (last, tensor(F32, (3, 4, 3, 3))))
        yield Sample(cls((2,), (1, 1), (1,)), (tensor(F32, (2, 3, 9)), tensor(F32, (2, 3, 3))))
        cube = tensor(F32, (1, 2, 4, 5, 4)), tensor(F32, (3, 2, 2, 3, 2)), tensor(F32, (3,))
        yield Sample(cls((1, 2, 1), (1, 0, 0, 0, 1, 1), (1, 1, 2)), cube)
        free = tensor(F32, (_N, 3, _H, _H)), tensor(F32, (4, 3, 3, 3)), tensor(F32, (4,))
        yield Sample(cls((1, 1), (1, 1, 1, 1), (1, 1)), free)
        yield Sample(cls((2, 2), (0, 0, 0, 0), (1, 1)), free)
        yield Sample(cls((2, 2), (1, 1, 1, 1), (1, 1)), free)


def check_weight(op: Op, x: TensorType, w: TensorType) -> None:
    """Check the weight of a convolution: its rank, its kernel dims, and the number of groups."""
    op.require(
        w.rank == x.rank,
        f"The operand has rank {x.rank}, the weight rank {w.rank}; they must be equal.",
    )
    groups = op.attributes()["groups"]
    op.require(
        1 <= groups < LIMIT, f"'groups' is {groups}, it must be at least 1 and below {LIMIT}."
    )
    for k in w.shape[2:]:
        op.require(
            known_equal(k, ZERO) is not True, f"The weight {w} has no elements in its kernel."
        )


def check_bias(op: Op, operands: Sequence[TensorType], outputs: Expr) -> None:
    """Check the optional bias of a convolution: one value for each output channel."""
    if len(operands) == 3:
        bias = operands[2]
        op.require(
            bias.rank == 1 and known_equal(bias.shape[0], outputs) is not False,
            f"The bias is {bias}, it must have one dim of {outputs}.",
        )


def contraction_axes(
    channels: Expr, kernel: Sequence[Expr]
) -> tuple[tuple[Var, ...], tuple[Expr, ...]]:
    """The reduced channel axis and the index of each kernel dim; extents of 1 need no axis, but one
    axis remains.
    """
    taps: tuple[Expr, ...] = tuple(
        ZERO if known_equal(d, ONE) else Var(f"k{i}", d) for i, d in enumerate(kernel)
    )
    only = known_equal(channels, ONE) is True
    if only and any(isinstance(t, Var) for t in taps):
        return (), taps
    return (Var("c", channels),), taps


def contract(
    result: Buffer,
    domain: tuple[Var, ...],
    over: tuple[Var, ...],
    term: Expr,
    bias: Buffer | None,
) -> tuple[Stage, ...]:
    """Sum ``term`` into ``result``, in the type of ``term``; a bias per channel (axis 1) is added
    before rounding.
    """
    acc, dtype = Scalar("acc", term.dtype), term.dtype
    direct = bias is None and dtype is result.dtype
    total = result if direct else scratch("total", dtype, result.shape, result)
    reduction = reduce_stage(
        "contract", domain, over, (total,), (acc,), (const(0, dtype),), (acc + term,)
    )
    if direct:
        return (reduction,)
    point = axes("i", result.shape)
    value: Expr = Read(total, point)
    if bias is not None:
        value = value + cast(read_clamped(bias, (point[1],)), dtype)
    return reduction, map_stage("finish", point, result, cast(value, result.dtype))
