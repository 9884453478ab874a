# SPDX-License-Identifier: Apache-2.0
"""Elementwise operators that map one to one, or nearly, onto ours."""

from collections.abc import Callable

from tilewright.frontends.onnx import compose
from tilewright.frontends.onnx.context import NodeContext
from tilewright.frontends.onnx.registry import handler, register_handler
from tilewright.frontends.onnx.tensors import dtype_of
from tilewright.ir.dtypes import BOOL, F32, F64, STRING, DType
from tilewright.ir.graph import Value
from tilewright.ir.op import Op
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
from tilewright.ir.ops.cast import Cast
from tilewright.ir.ops.comparison import Equal, Greater, GreaterEqual, Less, LessEqual
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
    Floor,
    Isinf,
    Isnan,
    Log,
    Neg,
    Not,
    Round,
    Sigmoid,
    Sign,
    Sin,
    Sinh,
    Sqrt,
    Tan,
    Tanh,
)
from tilewright.ir.ops.where import Where

_UNARY: dict[str, Op] = {
    "Neg": Neg(),
    "Abs": Abs(),
    "Sign": Sign(),
    "Ceil": Ceil(),
    "Floor": Floor(),
    "Round": Round(),
    "Not": Not(),
    "BitwiseNot": BitwiseNot(),
    "Exp": Exp(),
    "Log": Log(),
    "Sqrt": Sqrt(),
    "Sin": Sin(),
    "Cos": Cos(),
    "Tan": Tan(),
    "Asin": Asin(),
    "Acos": Acos(),
    "Atan": Atan(),
    "Sinh": Sinh(),
    "Cosh": Cosh(),
    "Tanh": Tanh(),
    "Asinh": Asinh(),
    "Acosh": Acosh(),
    "Atanh": Atanh(),
    "Erf": Erf(),
    "Sigmoid": Sigmoid(),
    "IsNaN": Isnan(),
}
BINARY: dict[str, Op] = {
    "Add": Add(),
    "Sub": Sub(),
    "Mul": Mul(),
    "Div": Div(),
    "And": And(),
    "Or": Or(),
    "Xor": Xor(),
    "BitwiseAnd": BitwiseAnd(),
    "BitwiseOr": BitwiseOr(),
    "BitwiseXor": BitwiseXor(),
    "Equal": Equal(),
    "Less": Less(),
    "LessOrEqual": LessEqual(),
    "Greater": Greater(),
    "GreaterOrEqual": GreaterEqual(),
    "Where": Where(),
}
LIMITED = ("Add", "Sub", "Mul", "Div", "And", "Or", "Xor", "Equal", "Less", "Greater")
"""Those that broadcast like numpy only since version 7."""
_VARIADIC: dict[str, Op] = {"Min": Minimum(), "Max": Maximum(), "Sum": Add()}


def _direct(op: Op) -> Callable[[NodeContext], Value]:
    return lambda ctx: ctx.emit(op, *ctx.values())


def _folded(op: Op) -> Callable[[NodeContext], Value]:
    def fold(ctx: NodeContext) -> Value:
        ctx.require(ctx.count >= 1, "It has no inputs.")
        result, *others = ctx.values()
        for other in others:
            result = ctx.emit(op, result, other)
        return result

    return fold


for _name, _op in (_UNARY | BINARY).items():
    register_handler(_name, _direct(_op), 7 if _name in LIMITED else 1)
for _name, _op in _VARIADIC.items():
    register_handler(_name, _folded(_op))


@handler("Mean")
def _mean(ctx: NodeContext) -> Value:
    total = _folded(Add())(ctx)
    return ctx.emit(Div(), total, compose.like(ctx, ctx.count, total))


@handler("Reciprocal")
def _reciprocal(ctx: NodeContext) -> Value:
    x = ctx.value(0)
    return ctx.emit(Div(), compose.like(ctx, 1, x), x)


@handler("IsInf")
def _isinf(ctx: NodeContext) -> Value:
    positive = bool(ctx.attributes.integer("detect_positive", 1))
    negative = bool(ctx.attributes.integer("detect_negative", 1))
    return ctx.emit(Isinf(positive, negative), ctx.value(0))


@handler("Mod")
def _mod(ctx: NodeContext) -> Value:
    op: Op = Fmod() if ctx.attributes.integer("fmod", 0) else Mod()
    return ctx.emit(op, ctx.value(0), ctx.value(1))


@handler("BitShift")
def _bit_shift(ctx: NodeContext) -> Value:
    direction = ctx.attributes.choice("direction", ("LEFT", "RIGHT"))
    op: Op = ShiftLeft() if direction == "LEFT" else ShiftRight()
    return ctx.emit(op, ctx.value(0), ctx.value(1))


@handler("Pow", since=7)
def _pow(ctx: NodeContext) -> Value:
    return power(ctx, ctx.value(0), ctx.value(1))


def power(ctx: NodeContext, base: Value, exponent: Value) -> Value:
    """The result has the base's type; a floating exponent of an integer base is computed in
    floating point.
    """
    dtype = base.type.dtype
    if not dtype.is_float and exponent.type.dtype.is_float:
        wide = exponent.type.dtype if exponent.type.dtype.bits >= 32 else F32
        if dtype.bits > 16:
            wide = F64
        power = ctx.emit(Pow(), compose.cast(ctx, base, wide), compose.cast(ctx, exponent, wide))
        return compose.cast(ctx, power, dtype)
    return ctx.emit(Pow(), base, compose.cast(ctx, exponent, dtype))


@handler("Cast", since=6)
def _cast(ctx: NodeContext) -> Value:
    return converted(ctx, dtype_of(ctx.attributes.integer("to"), f"The target of node {ctx.where}"))


@handler("CastLike")
def _cast_like(ctx: NodeContext) -> Value:
    return converted(ctx, ctx.operand(1).dtype)


def converted(ctx: NodeContext, target: DType) -> Value:
    """The first input in another type."""
    if STRING in (target, ctx.operand(0).dtype):
        ctx.unsupported("strings are not supported")
    if ctx.attributes.text("round_mode", "up") != "up":
        ctx.unsupported("its round_mode is not 'up'")
    x = ctx.value(0)
    saturate = bool(ctx.attributes.integer("saturate", 1))
    return x if x.type.dtype is target else ctx.emit(Cast(target, saturate), x)


@handler("Identity")
def _identity(ctx: NodeContext) -> object:
    return ctx.operand(0)


@handler("Dropout", since=7)
def dropped(ctx: NodeContext) -> object:
    """The identity outside training; the mask, where asked for, is all true."""
    if ctx.has(2) and ctx.scalar_number(2, "training_mode"):
        ratio = ctx.scalar_number(1, "ratio") if ctx.has(1) else 0.5
        if ratio != 0:
            ctx.unsupported("it is in training mode")
    if ctx.outputs < 2:
        return ctx.operand(0)
    x = ctx.value(0)
    dtype = x.type.dtype if ctx.version < 10 else BOOL
    return [x, compose.full(ctx, True, x.type.with_dtype(dtype))]
