# SPDX-License-Identifier: Apache-2.0
"""The ops: one class each, registered under its name by being imported here."""

from tilewright.ir.ops.arg_reduce import Argmax, Argmin
from tilewright.ir.ops.binary import (
    Add,
    And,
    BitwiseAnd,
    BitwiseOr,
    BitwiseXor,
    Div,
    Fmod,
    Maximum,
    Minimum,
    Mod,
    Mul,
    Or,
    Pow,
    ShiftLeft,
    ShiftRight,
    Sub,
    Xor,
)
from tilewright.ir.ops.broadcast_to import BroadcastTo
from tilewright.ir.ops.cast import Cast
from tilewright.ir.ops.channel_norm import BatchNorm, GroupNorm, InstanceNorm
from tilewright.ir.ops.comparison import Equal, Greater, GreaterEqual, Less, LessEqual, NotEqual
from tilewright.ir.ops.concat import Concat
from tilewright.ir.ops.conv import Conv
from tilewright.ir.ops.conv_transpose import ConvTranspose
from tilewright.ir.ops.cumsum import Cumsum
from tilewright.ir.ops.dim_values import DimValues
from tilewright.ir.ops.einsum import Einsum
from tilewright.ir.ops.gather import Gather, GatherElements
from tilewright.ir.ops.gather_nd import GatherNd
from tilewright.ir.ops.group import Group
from tilewright.ir.ops.iota import Iota
from tilewright.ir.ops.layer_norm import LayerNorm, RmsNorm
from tilewright.ir.ops.matmul import Matmul
from tilewright.ir.ops.pad import Pad
from tilewright.ir.ops.pool import AvgPool, MaxPool
from tilewright.ir.ops.reduce import ReduceMax, ReduceMean, ReduceMin, ReduceProd, ReduceSum
from tilewright.ir.ops.relayout import Relayout
from tilewright.ir.ops.reshape import Reshape
from tilewright.ir.ops.resize import Resize
from tilewright.ir.ops.scatter import ScatterElements, ScatterNd
from tilewright.ir.ops.slice import Slice
from tilewright.ir.ops.softmax import LogSoftmax, Softmax
from tilewright.ir.ops.transpose import Transpose
from tilewright.ir.ops.unary import (
    Abs,
    Acos,
    Acosh,
    Asin,
    Asinh,
    Atan,
    Atanh,
    BitwiseNot,
    Ceil,
    Cos,
    Cosh,
    Erf,
    Exp,
    Exp2,
    Expm1,
    Floor,
    Isinf,
    Isnan,
    Log,
    Log1p,
    Log2,
    Neg,
    Not,
    Round,
    Rsqrt,
    Sigmoid,
    Sign,
    Sin,
    Sinh,
    Sqrt,
    Tan,
    Tanh,
    Trunc,
)
from tilewright.ir.ops.where import Where

__all__ = [
    "Abs",
    "Acos",
    "Acosh",
    "Add",
    "And",
    "Argmax",
    "Argmin",
    "Asin",
    "Asinh",
    "Atan",
    "Atanh",
    "AvgPool",
    "BatchNorm",
    "BitwiseAnd",
    "BitwiseNot",
    "BitwiseOr",
    "BitwiseXor",
    "BroadcastTo",
    "Cast",
    "Ceil",
    "Concat",
    "Conv",
    "ConvTranspose",
    "Cos",
    "Cosh",
    "Cumsum",
    "DimValues",
    "Div",
    "Einsum",
    "Equal",
    "Erf",
    "Exp",
    "Exp2",
    "Expm1",
    "Floor",
    "Fmod",
    "Gather",
    "GatherElements",
    "GatherNd",
    "Greater",
    "GreaterEqual",
    "Group",
    "GroupNorm",
    "InstanceNorm",
    "Iota",
    "Isinf",
    "Isnan",
    "LayerNorm",
    "Less",
    "LessEqual",
    "Log",
    "Log1p",
    "Log2",
    "LogSoftmax",
    "Matmul",
    "MaxPool",
    "Maximum",
    "Minimum",
    "Mod",
    "Mul",
    "Neg",
    "Not",
    "NotEqual",
    "Or",
    "Pad",
    "Pow",
    "ReduceMax",
    "ReduceMean",
    "ReduceMin",
    "ReduceProd",
    "ReduceSum",
    "Relayout",
    "Reshape",
    "Resize",
    "RmsNorm",
    "Round",
    "Rsqrt",
    "ScatterElements",
    "ScatterNd",
    "ShiftLeft",
    "ShiftRight",
    "Sigmoid",
    "Sign",
    "Sin",
    "Sinh",
    "Slice",
    "Softmax",
    "Sqrt",
    "Sub",
    "Tan",
    "Tanh",
    "Transpose",
    "Trunc",
    "Where",
    "Xor",
]
