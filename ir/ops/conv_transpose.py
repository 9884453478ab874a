# SPDX-License-Identifier: Apache-2.0
"""Transposed convolution, written as a gather: what each element of the result sums.

Along a spatial dim, position ``t = q + pad`` of the full result gets ``x[i] * w[k]`` for all ``i *
stride + k * dilation == t``. Without dilation the taps that reach ``t`` are ``k = stride * j + t %
stride`` and meet ``i = t // stride - j``: a loop over ``ceil(kernel / stride)`` taps without a
condition on divisibility. Without strides, ``i = t - k * dilation``. Only with both is divisibility
tested for each tap.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.ir.bounds import known_equal, known_le, upper
from tilewright.ir.buffer import Buffer
from tilewright.ir.dtypes import BF16, F16, F32, I32
from tilewright.ir.expr import ONE, ZERO, Expr, Symbol, Var, index, mul
from tilewright.ir.op import Array, Op, Requirement, Sample
from tilewright.ir.ops.conv import check_bias, check_weight, contract
from tilewright.ir.ops.domain import NUMERIC, accumulator_dtype, axes, clamped, read_held, zero
from tilewright.ir.ops.elementwise import widened
from tilewright.ir.ops.shapes import equal_requirement, expect_dtype, multiple_requirement
from tilewright.ir.ops.windows import LIMIT, Window, check_windows, make_windows, pad_to
from tilewright.ir.simplify import ceildiv, compare, floordiv, maximum, mod
from tilewright.ir.stage import Stage
from tilewright.ir.types import TensorType, tensor
from tilewright.ir.value_expr import cast, guard, logical_and

_N = Symbol("N", 1, 64, 1, 2)
_H = Symbol("H", 1, 64, 1, 4)


@dataclass(frozen=True)
class _Taps:
    """How one spatial dim is gathered: at ``source + shift`` of the padded operand and ``tap`` of
    the weight, where ``conditions`` hold.
    """

    axis: Var | None
    tap: Expr
    source: Expr
    shift: Expr
    padded: Expr
    conditions: tuple[Expr, ...]


@dataclass(frozen=True)
class ConvTranspose(Op):
    """``x[N, C, ...]`` with ``w[C, O / groups, ...]`` and an optional ``bias[O]``.

    ``pads`` (all begins, then all ends) crop the result, or where they are negative extend it, as
    ``output_padding`` does at its ends.
    """

    name = "conv_transpose"
    strides: tuple[int, ...]
    pads: tuple[int, ...]
    dilations: tuple[int, ...]
    groups: int = 1
    output_padding: tuple[int, ...] = ()

    def windows(self, kernel: Sequence[Expr]) -> tuple[Window, ...]:
        """The window along each spatial dim."""
        return make_windows(kernel, self.strides, self.pads, self.dilations)

    def extra(self, rank: int) -> tuple[int, ...]:
        """The output padding of every spatial dim."""
        return self.output_padding or (0,) * rank

    def infer(self, operands: Sequence[TensorType]) -> tuple[TensorType, ...]:
        self.expect_operands(operands, 2, 3)
        x, w = operands[0], operands[1]
        expect_dtype(self, [t.dtype for t in operands], NUMERIC)
        check_windows(self, x.rank - 2, self.strides, self.pads, self.dilations, -LIMIT)
        check_weight(self, x, w)
        self._check_output_padding(x.rank - 2)
        self.require(
            known_equal(x.shape[1], w.shape[0]) is not False,
            f"The operand has {x.shape[1]} channels, the weight takes {w.shape[0]}.",
        )
        self.require(
            known_equal(x.shape[1], floordiv(x.shape[1], self.groups) * self.groups) is not False,
            f"The {x.shape[1]} channels do not divide into {self.groups} groups.",
        )
        outputs = mul(w.shape[1], index(self.groups))
        check_bias(self, operands, outputs)
        spatial: list[Expr] = []
        pairs = zip(self.windows(w.shape[2:]), x.shape[2:], self.extra(x.rank - 2), strict=True)
        for position, (window, extent, extra) in enumerate(pairs):
            full = (extent - 1) * window.stride + window.reach + extra
            result = full - (window.begin + window.end)
            self.require(
                upper(result) >= 0,
                f"Pads {window.begin} and {window.end} exceed spatial dim {position} of {full}.",
            )
            spatial.append(result)
        return (tensor(x.dtype, (x.shape[0], outputs, *spatial)),)

    def _check_output_padding(self, rank: int) -> None:
        self.require(
            len(self.extra(rank)) == rank,
            f"'output_padding' has {len(self.output_padding)} values, {rank} dims need {rank}.",
        )
        for p in self.extra(rank):
            self.require(
                0 <= p < LIMIT,
                f"'output_padding' holds {p}, it must be 0 or more and below {LIMIT}.",
            )

    def requirements(self, operands: Sequence[TensorType]) -> tuple[Requirement, ...]:
        x, w = operands[0], operands[1]
        message = "The operand has {0} channels, the weight takes {1}."
        found = equal_requirement(x.shape[1], w.shape[0], message)
        if len(operands) == 3:
            outputs = mul(w.shape[1], index(self.groups))
            message = "There are {0} output channels, but {1} values of the bias."
            found += equal_requirement(outputs, operands[2].shape[0], message)
        message = f"The {{0}} channels do not divide into {self.groups} groups."
        return found + multiple_requirement(x.shape[1], self.groups, message)

    def reference(self, *operands: Array) -> tuple[Array, ...]:
        x, w = widened(operands[0]), widened(operands[1])
        rank = x.ndim - 2
        windows = self.windows([index(k) for k in w.shape[2:]])
        spans = [
            max(0, (d - 1) * v.stride + (k - 1) * v.dilation + 1 + e)
            for d, v, k, e in zip(x.shape[2:], windows, w.shape[2:], self.extra(rank), strict=True)
        ]
        per_group = w.shape[1]
        grouped = x.reshape(x.shape[0], self.groups, x.shape[1] // self.groups, *x.shape[2:])
        weight = w.reshape(self.groups, x.shape[1] // self.groups, *w.shape[1:])
        full = np.zeros((x.shape[0], self.groups, per_group, *spans), x.dtype)
        with np.errstate(all="ignore"):
            for tap in np.ndindex(*w.shape[2:]) if x.size else ():
                view = tuple(
                    slice(t * v.dilation, t * v.dilation + (d - 1) * v.stride + 1, v.stride)
                    for t, v, d in zip(tap, windows, x.shape[2:], strict=True)
                )
                kernel = weight[(slice(None), slice(None), slice(None), *tap)]
                part = np.einsum("ngc...,gco->ngo...", grouped, kernel, dtype=x.dtype)
                full[(slice(None), slice(None), slice(None), *view)] += part
            full = full.reshape(x.shape[0], self.groups * per_group, *spans)
            grown = [(max(-v.begin, 0), max(-v.end, 0)) for v in windows]
            full = np.pad(full, [(0, 0), (0, 0), *grown])
            crop = (
                slice(max(v.begin, 0), n - max(v.end, 0))
                for v, n in zip(windows, full.shape[2:], strict=True)
            )
            result = full[(slice(None), slice(None), *crop)]
            if len(operands) == 3:
                result = result + widened(operands[2]).reshape(-1, *[1] * rank)
            return (result.astype(operands[0].dtype),)

    def stages(self, operands: Sequence[Buffer], results: Sequence[Buffer]) -> tuple[Stage, ...]:
        (x, w), (result,) = operands[:2], results
        n, o = Var("n", result.shape[0]), Var("o", result.shape[1])
        q = axes("q", result.shape[2:])
        taps = [_taps(d, v, q[d], x.shape[2 + d]) for d, v in enumerate(self.windows(w.shape[2:]))]
        padded, stages = _padded(x, taps)
        per_group, inputs = w.shape[1], floordiv(x.shape[1], self.groups)
        group = floordiv(o, per_group) if self.groups > 1 else ZERO
        over = tuple(t.axis for t in taps if t.axis is not None)
        single = known_equal(inputs, ONE) is True and bool(over)
        c = Var("c", inputs)
        channel = group * inputs + (ZERO if single else c)
        source = tuple(t.source + t.shift for t in taps)
        dtype = accumulator_dtype(result.dtype)
        held = (n, clamped(channel, x.shape[1]), *source)
        x_value = cast(read_held(padded, held, (n, channel, *source)), dtype)
        output = mod(o, per_group) if self.groups > 1 else o
        place = (output, *(t.tap for t in taps))
        w_value = read_held(w, (clamped(channel, w.shape[0]), *place), (channel, *place))
        term = x_value * cast(w_value, dtype)
        conditions = [condition for t in taps for condition in t.conditions]
        term = guard(logical_and(*conditions), term, zero(dtype))
        bias = operands[2] if len(operands) == 3 else None
        return (*stages, *contract(result, (n, o, *q), over if single else (c, *over), term, bias))

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        def conv(stride: int, pad: int, dilation: int, groups: int = 1, extra: int = 0) -> Op:
            return cls((stride,) * 2, (pad,) * 4, (dilation,) * 2, groups, (extra,) * 2)

        for dtype in (F32, F16, BF16, I32):
            shapes = ((2, 3, 4, 5), (3, 2, 3, 3), (2,))
            yield Sample(conv(2, 1, 1, 1, 1), tuple(tensor(dtype, s) for s in shapes), "integers")
        x = tensor(F32, (1, 4, 3, 4))
        yield Sample(conv(1, 0, 1), (x, tensor(F32, (4, 2, 3, 3))))
        yield Sample(conv(1, 1, 2), (x, tensor(F32, (4, 2, 3, 2))))
        yield Sample(conv(2, 0, 1), (x, tensor(F32, (4, 3, 2, 2))))
        yield Sample(conv(3, 0, 1), (x, tensor(F32, (4, 3, 2, 1))))
        yield Sample(conv(2, 1, 2), (x, tensor(F32, (4, 3, 3, 2))))
        yield Sample(conv(2, 1, 1, 2), (x, tensor(F32, (4, 3, 4, 4))))
        yield Sample(conv(2, 1, 1, 4), (x, tensor(F32, (4, 1, 3, 3)), tensor(F32, (4,))))
        yield Sample(conv(2, 3, 1), (x, tensor(F32, (4, 1, 3, 3))))
        yield Sample(cls((3, 2), (-2, 1, 1, -3), (1, 1)), (x, tensor(F32, (4, 2, 2, 3))))
        yield Sample(cls((3, 2), (-5, -1, 2, -3), (2, 3)), (x, tensor(F32, (4, 2, 2, 3))))
        line = tensor(F32, (1, 2, 5)), tensor(F32, (2, 3, 4))
        yield Sample(cls((3,), (1, 2), (1,), 1, (2,)), line)
        free = tensor(F32, (_N, 3, _H, _H)), tensor(F32, (3, 2, 4, 4)), tensor(F32, (2,))
        yield Sample(conv(2, 1, 1), free)
        yield Sample(conv(1, 1, 1), free)


def _taps(position: int, window: Window, q: Var, extent: Expr) -> _Taps:
    """The taps of one spatial dim of ``extent`` for position ``q`` of the result."""
    t, stride = q + window.begin, window.stride
    if stride > 1 and window.dilation > 1:
        k = Var(f"k{position}", window.kernel)
        distance = t - k * window.dilation
        source = floordiv(distance, stride)
        conditions = (
            compare("eq", mod(distance, stride), ZERO),
            compare("ge", source, ZERO),
            compare("lt", source, extent),
        )
        return _Taps(k, k, source, ZERO, extent, conditions)
    count = ceildiv(window.kernel, stride)
    j: Expr = ZERO if known_equal(count, ONE) else Var(f"k{position}", count)
    tap = j * stride + mod(t, stride)
    within = compare("lt", tap, window.kernel)
    source = floordiv(t, stride) - j * window.dilation
    # Zeros in front for the taps behind the first, and for what precedes the full result.
    shift = (count - 1) * window.dilation + max(0, -(window.begin // stride))
    # The greatest t is that of the last position of the result.
    last = floordiv(q.extent - 1 + window.begin, stride)
    padded = maximum(extent, last + 1) + shift
    axis = j if isinstance(j, Var) else None
    return _Taps(axis, tap, source, shift, padded, (within,))


def _padded(x: Buffer, taps: Sequence[_Taps]) -> tuple[Buffer, tuple[Stage, ...]]:
    """The operand with the zeros around it that the taps reach."""
    if all(known_le(t.padded, d) for t, d in zip(taps, x.shape[2:], strict=True)):
        return x, ()
    shape = (*x.shape[:2], *(t.padded for t in taps))
    return pad_to(x, shape, [ZERO, ZERO, *(t.shift for t in taps)], zero(x.dtype))
