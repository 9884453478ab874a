# SPDX-License-Identifier: Apache-2.0
"""Operands and attributes that no op accepts: each is refused with one sentence that says why."""

import re

import pytest

from tilewright.ir.dtypes import BOOL, C64, F8E4M3FN, F16, F32, I32, I64, STRING, DType
from tilewright.ir.errors import TypeInferenceError
from tilewright.ir.expr import Expr, Symbol, index
from tilewright.ir.layout import Layout
from tilewright.ir.op import Op
from tilewright.ir.ops.arg_reduce import Argmax
from tilewright.ir.ops.binary import Add, And
from tilewright.ir.ops.broadcast_to import BroadcastTo
from tilewright.ir.ops.cast import Cast
from tilewright.ir.ops.channel_norm import GroupNorm, InstanceNorm
from tilewright.ir.ops.concat import Concat
from tilewright.ir.ops.conv import Conv
from tilewright.ir.ops.conv_transpose import ConvTranspose
from tilewright.ir.ops.einsum import Einsum
from tilewright.ir.ops.gather import Gather, GatherElements
from tilewright.ir.ops.gather_nd import GatherNd
from tilewright.ir.ops.iota import Iota
from tilewright.ir.ops.layer_norm import LayerNorm
from tilewright.ir.ops.matmul import Matmul
from tilewright.ir.ops.pad import Pad
from tilewright.ir.ops.pool import AvgPool, MaxPool
from tilewright.ir.ops.reduce import ReduceMax, ReduceSum
from tilewright.ir.ops.relayout import Relayout
from tilewright.ir.ops.reshape import Reshape
from tilewright.ir.ops.resize import Resize
from tilewright.ir.ops.scatter import ScatterElements, ScatterNd
from tilewright.ir.ops.slice import Slice
from tilewright.ir.ops.softmax import Softmax
from tilewright.ir.ops.transpose import Transpose
from tilewright.ir.ops.unary import Exp
from tilewright.ir.ops.where import Where
from tilewright.ir.types import TensorType, tensor

N = Symbol("n", 1, 64)


def f32(*dims: Expr | int) -> TensorType:
    return tensor(F32, dims)


def i64(*dims: Expr | int) -> TensorType:
    return tensor(I64, dims)


def dims(*given: Expr | int) -> tuple[Expr, ...]:
    return tuple(map(index, given))


def conv(
    strides: tuple[int, ...] = (1, 1),
    pads: tuple[int, ...] = (0, 0, 0, 0),
    dilations: tuple[int, ...] = (1, 1),
    groups: int = 1,
) -> Conv:
    return Conv(strides, pads, dilations, groups)


def pool(kernel: tuple[int, ...], strides: tuple[int, ...], pads: tuple[int, ...]) -> MaxPool:
    return MaxPool(kernel, strides, pads, (1,) * len(strides))


X = f32(1, 4, 8, 8)
W = f32(6, 4, 3, 3)

CASES: list[tuple[Op, tuple[TensorType, ...], str]] = [
    (Add(), (f32(2),), "Expected 2 operands, got 1."),
    (Add(), (f32(2), tensor(F16, (2,))), "Operands of types f32 and f16 differ in type; cast"),
    (Add(), (f32(2), f32(3)), "Dims 2 and 3 do not broadcast; one must be 1"),
    (Add(), (f32(N + 2), f32(2)), "Dims n + 2 and 2 do not broadcast"),
    (Exp(), (i64(2),), "Type i64 is not supported; cast to one of bf16, f16, f32, f64."),
    (Add(), (tensor(F8E4M3FN, (2,)),) * 2, "Type f8e4m3fn is not supported; cast to one of"),
    (And(), (f32(2), f32(2)), "Type f32 is not supported; cast to one of bool."),
    (Where(), (f32(2), f32(2), f32(2)), "The condition must be bool, not f32; cast it."),
    (Cast(F32), (tensor(STRING, (2,)),), "No conversion from string to f32"),
    (Cast(C64), (f32(2),), "No conversion from f32 to c64"),
    (ReduceSum((2,)), (f32(2, 3),), "Axis 2 is out of range for rank 2."),
    (ReduceSum((-1,)), (f32(2, 3),), "Axis -1 is out of range for rank 2."),
    (ReduceMax((0, 0)), (f32(2, 3),), "Axes (0, 0) repeat; name each once."),
    (Argmax(0), (f32(0, 3),), "Axis 0 of f32[0,3] is empty; nothing can be chosen."),
    (Argmax(0), (f32(),), "Axis 0 is out of range for rank 0."),
    (Matmul(), (f32(3), f32(3, 2)), "Operands of ranks 1 and 2 do not multiply; reshape"),
    (Matmul(), (f32(2, 3), f32(4, 2)), "f32[2,3] has 3 columns, f32[4,2] has 4 rows"),
    (Matmul(), (f32(2, 2, 3), f32(3, 3, 2)), "Dims 2 and 3 do not broadcast"),
    (conv(strides=(1,)), (X, W), "'strides' has 1 values, 2 dims need 2."),
    (conv(pads=(0, 0)), (X, W), "'pads' has 2 values, 2 dims need 4."),
    (conv(dilations=(1, 1, 1)), (X, W), "'dilations' has 3 values, 2 dims need 2."),
    (conv(strides=(0, 1)), (X, W), "'strides' holds 0, it must be at least 1 and below"),
    (conv(dilations=(1, 0)), (X, W), "'dilations' holds 0, it must be at least 1"),
    (conv(pads=(0, 0, 0, 1 << 40)), (X, W), "'pads' holds 1099511627776, it must be at least 0"),
    (conv(pads=(-1, 0, 0, 0)), (X, W), "'pads' holds -1, it must be at least 0"),
    (conv(groups=0), (X, W), "'groups' is 0, it must be at least 1"),
    (
        conv(groups=3),
        (f32(1, 12, 8, 8), f32(4, 4, 3, 3)),
        "The 4 output channels do not divide into 3",
    ),
    (conv(groups=2), (X, W), "The operand has 4 channels, the weight takes 4 in each of 2 groups."),
    (conv(), (X, f32(6, 4, 9, 3)), "A window of 9 elements does not fit spatial dim 0 of 8"),
    (conv(dilations=(4, 1)), (X, W), "A window of 9 elements does not fit spatial dim 0 of 8"),
    (conv(), (X, f32(6, 4, 0, 3)), "has no elements in its kernel."),
    (conv(), (X, f32(6, 4, 3)), "The operand has rank 4, the weight rank 3; they must be equal."),
    (conv(), (f32(4, 8), f32(6, 4)), "needs a batch dim, a channel dim and at least one more."),
    (conv(), (X, W, f32(5)), "The bias is f32[5], it must have one dim of 6."),
    (
        ConvTranspose((1, 1), (9, 9, 9, 9), (1, 1)),
        (X, f32(4, 2, 3, 3)),
        "Pads 9 and 9 exceed spatial dim 0 of 10.",
    ),
    (
        ConvTranspose((1, 1), (0,) * 4, (1, 1), 1, (1,)),
        (X, f32(4, 2, 3, 3)),
        "'output_padding' has 1 values, 2 dims need 2.",
    ),
    (
        ConvTranspose((1, 1), (0,) * 4, (1, 1), 3),
        (X, f32(4, 2, 3, 3)),
        "The 4 channels do not divide into 3 groups.",
    ),
    (pool((2,), (1, 1), (0,) * 4), (X,), "'kernel' has 1 values, 2 spatial dims need as many."),
    (pool((0, 2), (1, 1), (0,) * 4), (X,), "'kernel' holds 0, it must be at least 1"),
    (pool((2, 2), (1, 1), (2, 0, 0, 0)), (X,), "Pads 2 and 0 must be smaller than the window of 2"),
    (pool((10, 9), (1, 1), (0,) * 4), (X,), "A window of 10 elements does not fit spatial dim 0"),
    (Softmax(2), (f32(2, 3),), "Axis 2 is out of range for rank 2."),
    (LayerNorm(1), (f32(2, 3), f32(4)), "Dims 3 and 4 do not broadcast"),
    (LayerNorm(1), (f32(1, 3), f32(2, 3)), "f32[2,3] does not broadcast to f32[1,3]."),
    (
        GroupNorm(4),
        (f32(2, 6, 3), f32(6), f32(6)),
        "The 6 channels do not divide into 4 groups.",
    ),
    (
        GroupNorm(0),
        (f32(2, 6, 3), f32(6), f32(6)),
        "'groups' is 0, it must be at least 1 and below",
    ),
    (InstanceNorm(), (f32(2, 6, 3), f32(5), f32(6)), "f32[5] must have one dim of 6"),
    (Reshape(dims(5)), (f32(2, 3),), "f32[2,3] has 6 elements, f32[5] has 5"),
    (Reshape(dims(-2, -3)), (f32(2, 3),), "The dim -2 is negative; dims must be 0 or more."),
    (Reshape(dims(N * 2 + 1)), (f32(N, 2),), "has 2*n elements, f32[2*n + 1] has 2*n + 1"),
    (BroadcastTo(dims(1 << 30, 1 << 30)), (f32(1),), "has more than 140737488355328 elements"),
    (BroadcastTo(dims(3)), (f32(2, 3),), "f32[2,3] has more dims than the shape of 1"),
    (BroadcastTo(dims(4)), (f32(3),), "Dim 3 of f32[3] does not broadcast to 4."),
    (
        Transpose((0, 0)),
        (f32(2, 3),),
        "Order (0, 0) is not a permutation of the 2 dims of f32[2,3].",
    ),
    (Concat(1), (f32(2), f32(3)), "Axis 1 is out of range for rank 1."),
    (Concat(0), (f32(2, 3), f32(2, 4)), "differ in dim 1; only axis 0 may."),
    (Concat(0), (f32(2), i64(2)), "Operands f32[2] and i64[2] differ in type or rank"),
    (Concat(0), (), "Expected at least one operand, got none."),
    (
        Slice(dims(1), dims(3), (1,)),
        (f32(3),),
        "A slice of 3 elements from 1 in steps of 1 leave",
    ),
    (
        Slice(dims(1), dims(3), (-1,)),
        (f32(3),),
        "A slice of 3 elements from 1 in steps of -1 leave",
    ),
    (Slice(dims(0), dims(1), (0,)), (f32(3),), "A step of 0 is given"),
    (Slice(dims(0), dims(1), (1,)), (f32(3, 3),), "'starts' has 1 values, f32[3,3] needs 2."),
    (Slice(dims(0), dims(-1), (1,)), (f32(3),), "The dim -1 is negative"),
    (Pad(dims(1), dims(1, 1)), (f32(3),), "'ends' has 2 values, f32[3] needs 1."),
    (Pad(dims(-2), dims(-2)), (f32(3),), "Pads of -2 and -2 crop a dim of 3."),
    (Pad(dims(-1), dims(0), "edge"), (f32(3),), "A pad of -1 crops; mode 'edge' cannot."),
    (Pad(dims(1 << 40), dims(0)), (f32(3),), "A pad of 1099511627776 is too large."),
    (Pad(dims(1), dims(0)), (f32(3), i64()), "The value is i64[], it must be a scalar of type"),
    (Gather(0), (f32(3), f32(2)), "Indices are f32, they must be integers; cast them."),
    (Gather(1), (f32(3), i64(2)), "Axis 1 is out of range for rank 1."),
    (GatherElements(0), (f32(3, 2), i64(3)), "differ in rank; they must be equal."),
    (GatherElements(0), (f32(3, 2), i64(3, 4)), "Dim 1 of the indices i64[3,4] is larger than"),
    (
        GatherNd(),
        (f32(3), i64(2, N)),
        "their last dim, the length of a tuple, must be a number",
    ),
    (GatherNd(), (f32(3), i64(2, 2)), "Tuples of 2 indices after 0 batch dims do not fit"),
    (GatherNd(1), (f32(3, 2), i64(1)), "'batch_dims' is 1, the indices have rank 1."),
    (ScatterNd(), (f32(3, 2), i64(4, 1), f32(4, 3)), "their shape must be (4, 2)."),
    (
        ScatterElements(0),
        (f32(3), i64(2), i64(2)),
        "The updates are i64, the data f32; cast one",
    ),
    (
        ScatterElements(0, "max"),
        (tensor(BOOL, (3,)), i64(2), tensor(BOOL, (2,))),
        "Reduction 'max' does not apply to bool.",
    ),
    (Einsum("ij,jk"), (f32(2, 3),), "'ij,jk' has 2 terms for 1 operands."),
    (Einsum("ij->ik"), (f32(2, 3),), "Label 'k' of the result of 'ij->ik' is in no operand."),
    (Einsum("ij->ii"), (f32(2, 3),), "Label 'i' repeats in the result of 'ij->ii'."),
    (Einsum("ijk->i"), (f32(2, 3),), "'ijk' in 'ijk->i' does not fit an operand of rank 2."),
    (Einsum("i?->i"), (f32(2, 3),), "'i?' in 'i?->i' is not a term of letters"),
    (Einsum("ij,jk->ik"), (f32(2, 3), f32(4, 2)), "Dims 3 and 4 do not broadcast"),
    (Iota(dims(3), 1), (), "Axis 1 is out of range for rank 1."),
    (Relayout(Layout((0,))), (f32(2, 3),), "Layout {0} does not order the 2 dims of f32[2,3]."),
    (Relayout(Layout((0, 1), ((0, 0),))), (f32(2, 3),), "has a block of 0 on axis 0"),
    (Resize(dims(4), "sinc"), (f32(2),), "Mode 'sinc' is unknown; it is one of nearest"),
    (Resize(dims(4, 4)), (f32(2),), "'shape' has 2 values, f32[2] needs 1."),
    (Resize(dims(4), scales=(0.0,)), (f32(2),), "A scale of 0.0 is not between"),
    (Resize(dims(4), scales=(float("nan"),)), (f32(2),), "A scale of nan is not between"),
    (Resize(dims(4), "linear"), (tensor(BOOL, (2,)),), "Mode 'linear' cannot mix bools."),
]


@pytest.mark.parametrize(
    ("op", "operands", "message"), CASES, ids=[f"{c[0].name}-{n}" for n, c in enumerate(CASES)]
)
def test_misfits_are_refused_with_the_reason(
    op: Op, operands: tuple[TensorType, ...], message: str
) -> None:
    with pytest.raises(TypeInferenceError, match=re.escape(message)) as caught:
        op.infer(operands)
    assert re.fullmatch(rf"'{op.name}': [A-Z'].*\.", str(caught.value))


@pytest.mark.parametrize("dtype", [I32, F16])
def test_unknown_equality_is_no_error_but_a_requirement(dtype: DType) -> None:
    m = Symbol("m", 1, 64)
    a, b = tensor(dtype, (2, N)), tensor(dtype, (m, 3))
    assert Matmul().infer((a, b))[0].static_shape == (2, 3)
    ((condition, message, values),) = Matmul().requirements((a, b))
    assert str(condition) == "(n == m)" and values == (N, m) and "not equal" in message
    assert Matmul().requirements((a, tensor(dtype, (N, 3)))) == ()
    (requirement,) = Add().requirements((tensor(dtype, (N,)), tensor(dtype, (m,))))
    assert str(requirement[0]) == "or(or((m == n), (m == 1)), (n == 1))"


def test_windows_must_fit_symbolic_dims() -> None:
    h = Symbol("h", 1, 64)
    x = tensor(F32, (1, 2, h, 9))
    for op, operands, condition in (
        (Conv((2, 2), (1, 0, 1, 0), (2, 1)), (x, tensor(F32, (3, 2, 4, 3))), "(h + 2 >= 7)"),
        (MaxPool((4, 3), (2, 2), (1, 0, 1, 0), (2, 1), True), (x,), "(h + 3 >= 5)"),
        (AvgPool((4, 3), (1, 1), (0, 0, 0, 0), (1, 1)), (x,), "(h >= 3)"),
    ):
        (requirement,) = op.requirements(operands)
        assert str(requirement[0]) == condition
        assert requirement[1].startswith("A window of {0} elements does not fit")
    fits = tensor(F32, (1, 2, Symbol("k", 4, 64), 9))
    assert AvgPool((4, 3), (1, 1), (0, 0, 0, 0), (1, 1)).requirements((fits,)) == ()
