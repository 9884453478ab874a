# SPDX-License-Identifier: Apache-2.0
"""How elementwise operators act on contents known at import.

An evaluator sees the contents of all inputs (None for a missing one) and returns those of the
result. It raises :class:`Unknown` where an element cannot be told; the node is then emitted like
any other.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright.frontends import elements
from tilewright.frontends.dims import Unknown
from tilewright.frontends.elements import Element
from tilewright.frontends.onnx.context import NodeContext
from tilewright.frontends.onnx.operand import Operand
from tilewright.frontends.onnx.registry import Contents, evaluator
from tilewright.frontends.onnx.tensors import dtype_named, dtype_of
from tilewright.ir.dtypes import BOOL, DType
from tilewright.ir.expr import Expr

_MOST_NUMBERS = 64
Inputs = list[Any]
Binary = Callable[[Element, Element, DType], Element]


def elementwise(function: Callable[..., Element], *arrays: Any) -> Contents:
    """Apply a function to broadcast object arrays."""
    if any(a is None for a in arrays):
        raise Unknown
    try:
        together = np.broadcast_arrays(*arrays)
    except ValueError as error:
        raise Unknown from error
    result: Contents = np.empty(together[0].shape, object)
    for position in np.ndindex(result.shape):
        result[position] = function(*(a[position] for a in together))
    return result


def _same_dtype(ctx: NodeContext) -> DType:
    """The element type of all inputs; Unknown if they differ, which is refused where the types are
    inferred.
    """
    dtype = ctx.operand(0).dtype
    if any(o is not None and o.dtype is not dtype for o in ctx.operands):
        raise Unknown
    return dtype


def _refuse_many_numbers(*arrays: Contents) -> None:
    """Unknown for more numbers than shapes need: passes compute those in one go."""
    if sum(a.size for a in arrays) > _MOST_NUMBERS and not any(
        isinstance(x, Expr) for a in arrays for x in a.reshape(-1)
    ):
        raise Unknown


def _together(ctx: NodeContext, inputs: Inputs) -> Inputs:
    """Two operands as they broadcast: before version 7 the second at an axis of the first."""
    if ctx.version >= 7 or "axis" not in ctx.attributes or any(i is None for i in inputs):
        return inputs
    first, second = inputs
    rest = first.ndim - second.ndim - ctx.axis(ctx.attributes.integer("axis"), max(first.ndim, 1))
    if rest < 0:
        raise Unknown
    return [first, second.reshape((*second.shape, *(1,) * rest))]


# --- arithmetic -----------------------------------------------------------------------------------


def _register_binary(name: str, function: Binary) -> None:
    @evaluator(name)
    def evaluate(ctx: NodeContext, inputs: Inputs) -> Contents:
        dtype = _same_dtype(ctx)
        result, *others = _together(ctx, inputs)
        for other in others:
            result = elementwise(lambda x, y: function(x, y, dtype), result, other)
        return np.asarray(result, object)


def _bitwise(op: str) -> Binary:
    return lambda x, y, dtype: elements.bitwise(op, x, y, dtype)


for _name, _function in (
    ("Add", elements.plus),
    ("Sub", elements.minus),
    ("Mul", elements.times),
    ("Div", elements.divide),
    ("Min", elements.smallest),
    ("Max", elements.largest),
    ("Sum", elements.plus),
    ("BitwiseAnd", _bitwise("and")),
    ("BitwiseOr", _bitwise("or")),
    ("BitwiseXor", _bitwise("xor")),
):
    _register_binary(_name, _function)


@evaluator("Mod")
def _mod(ctx: NodeContext, inputs: Inputs) -> Contents:
    dtype, of_dividend = _same_dtype(ctx), bool(ctx.attributes.integer("fmod", 0))
    return elementwise(lambda x, y: elements.remainder(x, y, dtype, of_dividend), *inputs)


@evaluator("Pow")
def _pow(ctx: NodeContext, inputs: Inputs) -> Contents:
    base, exponent = ctx.operand(0).dtype, ctx.operand(1).dtype
    _refuse_many_numbers(*inputs)
    return elementwise(lambda x, y: elements.power(x, y, base, exponent), *inputs)


@evaluator("Clip")
def _clip(ctx: NodeContext, inputs: Inputs) -> Contents:
    dtype = _same_dtype(ctx)
    if ctx.version < 11:
        given = [n if n in ctx.attributes else None for n in ("min", "max")]
        ends = [
            np.array(elements.rounded(ctx.attributes.number(n), dtype), object) if n else None
            for n in given
        ]
    else:
        ends = [inputs[i] if i < len(inputs) else None for i in (1, 2)]
    result: Contents = inputs[0]
    for end, function in zip(ends, (elements.largest, elements.smallest), strict=True):
        if end is not None:
            result = elementwise(lambda x, y, of=function: of(x, y, dtype), result, end)
    return result


# --- functions of one operand ---------------------------------------------------------------------


def _register_unary(name: str, function: Callable[[Element, DType], Element]) -> None:
    @evaluator(name)
    def evaluate(ctx: NodeContext, inputs: Inputs) -> Contents:
        dtype = ctx.operand(0).dtype
        _refuse_many_numbers(*inputs)
        return elementwise(lambda x: function(x, dtype), inputs[0])


def _math(function: str) -> Callable[[Element, DType], Element]:
    return lambda x, dtype: elements.math_function(function, x, dtype)


def _whole(op: str) -> Callable[[Element, DType], Element]:
    return lambda x, dtype: elements.whole(op, x, dtype)


for _name, _unary in (
    ("Neg", elements.negative),
    ("Abs", elements.absolute),
    ("Sign", elements.sign),
    ("Relu", lambda x, dtype: elements.largest(x, 0, dtype)),
    ("Reciprocal", lambda x, dtype: elements.divide(1, x, dtype)),
    *((name, _whole(name.lower())) for name in ("Floor", "Ceil", "Round")),
    *(
        (name, _math(name.lower()))
        for name in (
            "Sqrt", "Exp", "Log", "Sin", "Cos", "Tan", "Asin", "Acos", "Atan", "Sinh", "Cosh",
            "Tanh", "Asinh", "Acosh", "Atanh", "Erf", "Sigmoid",
        )
    ),
):  # fmt: skip
    _register_unary(_name, _unary)


@evaluator("Cast")
def _cast(ctx: NodeContext, inputs: Inputs) -> Operand:
    what = f"The target of node {ctx.where}"
    if ctx.version < 6:
        target = dtype_named(ctx.attributes.text("to"), what)
    else:
        target = dtype_of(ctx.attributes.integer("to"), what)
    return _converted(ctx, inputs[0], target)


@evaluator("CastLike")
def _cast_like(ctx: NodeContext, inputs: Inputs) -> Operand:
    return _converted(ctx, inputs[0], ctx.operand(1).dtype)


def _converted(ctx: NodeContext, contents: Contents, target: DType) -> Operand:
    source = ctx.operand(0).dtype
    result = elementwise(lambda x: elements.convert(x, source, target), contents)
    return ctx.known_result(result, target)


# --- logic ----------------------------------------------------------------------------------------


def _register_comparison(name: str, comparison: str) -> None:
    @evaluator(name)
    def evaluate(ctx: NodeContext, inputs: Inputs) -> Operand:
        dtype, both = _same_dtype(ctx), _together(ctx, inputs)
        result = elementwise(lambda x, y: elements.compare(comparison, x, y, dtype), *both)
        return ctx.known_result(result, BOOL)


for _name, _comparison in (
    ("Equal", "eq"),
    ("Less", "lt"),
    ("LessOrEqual", "le"),
    ("Greater", "gt"),
    ("GreaterOrEqual", "ge"),
):
    _register_comparison(_name, _comparison)


def _different(x: Element, y: Element) -> bool | Element:
    return elements.choose(x, elements.negation(y), y, BOOL)


for _name, _logic in (
    ("Not", elements.negation),
    ("And", elements.conjunction),
    ("Or", elements.disjunction),
    ("Xor", _different),
):

    @evaluator(_name)
    def _logical(ctx: NodeContext, inputs: Inputs, of: Callable[..., Element] = _logic) -> Contents:
        return elementwise(of, *_together(ctx, inputs))


for _name, _test in (("IsNaN", "isnan"), ("IsInf", "isinf")):

    @evaluator(_name)
    def _is(ctx: NodeContext, inputs: Inputs, op: str = _test) -> Operand:
        signs = {ctx.attributes.integer(f"detect_{s}", 1) for s in ("positive", "negative")}
        if signs != {1}:
            raise Unknown
        dtype = ctx.operand(0).dtype
        return ctx.known_result(elementwise(lambda x: elements.test(op, x, dtype), inputs[0]), BOOL)


@evaluator("Where")
def _where(ctx: NodeContext, inputs: Inputs) -> Operand:
    dtype = ctx.operand(1).dtype
    result = elementwise(lambda c, x, y: elements.choose(c, x, y, dtype), *inputs)
    return ctx.known_result(result, dtype)
