# SPDX-License-Identifier: Apache-2.0
"""Activation functions, written in elementwise ops; fusion makes one expression of each again.

The forms are chosen for accuracy and for special values: NaN goes through, large arguments do not
overflow.
"""

import math

from tilewright.frontends.onnx import compose
from tilewright.frontends.onnx.context import NodeContext
from tilewright.frontends.onnx.registry import handler
from tilewright.ir.graph import Value
from tilewright.ir.op import Op
from tilewright.ir.ops.binary import Add, Div, Maximum, Minimum, Mul, Sub
from tilewright.ir.ops.comparison import Greater, Less
from tilewright.ir.ops.unary import Abs, Erf, Exp, Expm1, Log1p, Neg, Sigmoid, Tanh
from tilewright.ir.ops.where import Where


class _Terms:
    """Arithmetic on values and numbers of the dtype of ``x``, so that formulas below read like
    formulas.
    """

    def __init__(self, ctx: NodeContext, x: Value | None = None) -> None:
        self.ctx = ctx
        self.x = ctx.value(0) if x is None else x

    def _value(self, term: Value | float) -> Value:
        return term if isinstance(term, Value) else compose.like(self.ctx, term, self.x)

    def __call__(self, op: Op, *terms: Value | float) -> Value:
        return self.ctx.emit(op, *(self._value(t) for t in terms))

    def add(self, x: Value | float, y: Value | float) -> Value:
        return self(Add(), x, y)

    def sub(self, x: Value | float, y: Value | float) -> Value:
        return self(Sub(), x, y)

    def mul(self, x: Value | float, y: Value | float) -> Value:
        return self(Mul(), x, y)

    def div(self, x: Value | float, y: Value | float) -> Value:
        return self(Div(), x, y)

    def max(self, x: Value | float, y: Value | float) -> Value:
        return self(Maximum(), x, y)

    def min(self, x: Value | float, y: Value | float) -> Value:
        return self(Minimum(), x, y)

    def where_negative(self, x: Value | float, y: Value | float) -> Value:
        """``x`` where the input is below zero, else ``y``."""
        return self(Where(), self(Less(), self.x, 0.0), x, y)

    def expm1_of_negative(self, scale: float = 1.0) -> Value:
        """``exp(min(x, 0) / scale) - 1``."""
        bounded = self.min(self.x, 0.0)
        return self(Expm1(), bounded if scale == 1.0 else self.div(bounded, scale))

    def softplus(self) -> Value:
        """``log(1 + exp(x))`` as ``max(x, 0) + log1p(exp(-|x|))``."""
        decay = self(Exp(), self(Neg(), self(Abs(), self.x)))
        return self.add(self.max(self.x, 0.0), self(Log1p(), decay))


@handler("Relu")
def _relu(ctx: NodeContext) -> Value:
    x = ctx.value(0)
    return ctx.emit(Maximum(), x, compose.like(ctx, 0, x))


@handler("LeakyRelu")
def _leaky_relu(ctx: NodeContext) -> Value:
    t = _Terms(ctx)
    return t.where_negative(t.mul(t.x, ctx.attributes.number("alpha", 0.01)), t.x)


@handler("PRelu", since=7)
def _prelu(ctx: NodeContext) -> Value:
    return prelu(ctx, ctx.value(1))


def prelu(ctx: NodeContext, slope: Value) -> Value:
    """Negative elements times a slope."""
    t = _Terms(ctx)
    return t.where_negative(t.mul(t.x, slope), t.x)


@handler("Elu")
def _elu(ctx: NodeContext) -> Value:
    t = _Terms(ctx)
    low = t.mul(t.expm1_of_negative(), ctx.attributes.number("alpha", 1.0))
    return t.where_negative(low, t.x)


@handler("Selu", since=6)
def _selu(ctx: NodeContext) -> Value:
    return selu(ctx, 1.67326319217681884765625, 1.05070102214813232421875)


def selu(ctx: NodeContext, alpha: float, gamma: float) -> Value:
    """Selu with these numbers where the node has none."""
    t = _Terms(ctx)
    alpha = ctx.attributes.number("alpha", alpha)
    gamma = ctx.attributes.number("gamma", gamma)
    return t.where_negative(t.mul(t.expm1_of_negative(), alpha * gamma), t.mul(t.x, gamma))


@handler("Celu")
def _celu(ctx: NodeContext) -> Value:
    t = _Terms(ctx)
    alpha = ctx.attributes.number("alpha", 1.0)
    return t.where_negative(t.mul(t.expm1_of_negative(alpha), alpha), t.x)


@handler("HardSigmoid")
def _hard_sigmoid(ctx: NodeContext) -> Value:
    t = _Terms(ctx)
    line = t.add(
        t.mul(t.x, ctx.attributes.number("alpha", 0.2)), ctx.attributes.number("beta", 0.5)
    )
    return t.max(0.0, t.min(1.0, line))


@handler("HardSwish")
def _hard_swish(ctx: NodeContext) -> Value:
    t = _Terms(ctx)
    gate = t.max(0.0, t.min(1.0, t.add(t.mul(t.x, 1.0 / 6.0), 0.5)))
    return t.mul(t.x, gate)


@handler("Swish", since=24)
def _swish(ctx: NodeContext) -> Value:
    t = _Terms(ctx)
    return t.mul(t.x, t(Sigmoid(), t.mul(t.x, ctx.attributes.number("alpha", 1.0))))


@handler("Gelu", since=20)
def _gelu(ctx: NodeContext) -> Value:
    t = _Terms(ctx)
    if ctx.attributes.choice("approximate", ("none", "tanh"), "none") == "none":
        gate = t(Erf(), t.mul(t.x, math.sqrt(0.5)))
    else:
        cubic = t.add(t.x, t.mul(t.mul(t.mul(t.x, t.x), t.x), 0.044715))
        gate = t(Tanh(), t.mul(cubic, math.sqrt(2.0 / math.pi)))
    return t.mul(t.mul(t.x, 0.5), t.add(gate, 1.0))


@handler("Softplus")
def _softplus(ctx: NodeContext) -> Value:
    return softplus(ctx, ctx.value(0))


def softplus(ctx: NodeContext, x: Value) -> Value:
    """``log(1 + exp(x))``."""
    return _Terms(ctx, x).softplus()


@handler("Softsign")
def _softsign(ctx: NodeContext) -> Value:
    t = _Terms(ctx)
    return t.div(t.x, t.add(t(Abs(), t.x), 1.0))


@handler("Mish")
def _mish(ctx: NodeContext) -> Value:
    t = _Terms(ctx)
    return t.mul(t.x, t(Tanh(), t.softplus()))


@handler("ThresholdedRelu")
def _thresholded_relu(ctx: NodeContext) -> Value:
    t = _Terms(ctx)
    above = t(Greater(), t.x, ctx.attributes.number("alpha", 1.0))
    return t(Where(), above, t.x, 0.0)


@handler("Shrink")
def _shrink(ctx: NodeContext) -> Value:
    t = _Terms(ctx)
    bias, threshold = ctx.attributes.number("bias", 0.0), ctx.attributes.number("lambd", 0.5)
    above = t(Where(), t(Greater(), t.x, threshold), t.sub(t.x, bias), 0.0)
    return t(Where(), t(Less(), t.x, -threshold), t.add(t.x, bias), above)


@handler("Clip")
def _clip_attributes(ctx: NodeContext) -> Value:
    """Bounds as attributes, up to version 10."""
    t = _Terms(ctx)
    result = t.x
    if "min" in ctx.attributes:
        result = t.max(result, ctx.attributes.number("min"))
    if "max" in ctx.attributes:
        result = t.min(result, ctx.attributes.number("max"))
    return result


@handler("Clip", since=11)
def _clip(ctx: NodeContext) -> object:
    """Bounds as optional scalar inputs; where they cross, the upper one wins."""
    result = ctx.value(0)
    for position, op in ((1, Maximum()), (2, Minimum())):
        bound = ctx.optional(position)
        if bound is not None:
            result = ctx.emit(op, result, compose.reshape(ctx, bound, ()))
    return result
