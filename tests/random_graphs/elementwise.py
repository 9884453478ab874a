# SPDX-License-Identifier: Apache-2.0
"""Operators that compute each element from those at the same place, drawn at random."""

from collections.abc import Sequence

import numpy as np
from onnx import helper

from tests.random_graphs.drawing import Drawing, NoDraw, draws, exact_limit
from tests.random_graphs.spec import BF16, BOOL, FLOATS, INTS, Dim, Tensor, is_float

_SMOOTH = (
    "Tanh Sigmoid Erf Sin Cos Softplus Softsign Elu Selu LeakyRelu HardSigmoid HardSwish Gelu Mish "
    "Celu Atan Asinh Swish"
).replace(" Swish", "").split()  # fmt: skip
_EXACT = ("Neg", "Abs", "Relu", "Identity")
_STEPS = ("Floor", "Ceil", "Round", "Sign")
_COMPARISONS = ("Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual")
_INTS = frozenset(INTS)


def broadcast(x: Sequence[Dim], y: Sequence[Dim]) -> tuple[Dim, ...]:
    """The dims of a result; NoDraw if two dims do not fit."""
    rank = max(len(x), len(y))
    left, right = (1,) * (rank - len(x)) + tuple(x), (1,) * (rank - len(y)) + tuple(y)
    result: list[Dim] = []
    for a, b in zip(left, right):
        if a != b and 1 not in (a, b):
            raise NoDraw
        result.append(b if a == 1 else a)
    return tuple(result)


def fits_with(x: Tensor, y: Tensor) -> bool:
    try:
        broadcast(x.dims, y.dims)
    except NoDraw:
        return False
    return True


def partner(d: Drawing, x: Tensor) -> Tensor:
    """A value of the same type that broadcasts with x."""
    if d.chance(0.7):
        try:
            return d.pick(lambda t: t.dtype == x.dtype and fits_with(x, t))
        except NoDraw:
            pass
    dims = [1 if d.chance(0.25) else dim for dim in x.dims]
    return d.fresh(x.dtype, tuple(dims[d.rng.randrange(len(dims) + 1) if dims else 0 :]))


def scalar(d: Drawing, value: float, dtype: np.dtype) -> Tensor:
    return d.constant(np.array(value).astype(dtype))


@draws(10)
def smooth(d: Drawing) -> None:
    x = d.float_value()
    op = d.rng.choice(_SMOOTH)
    options = {}
    if op in ("Elu", "LeakyRelu", "Celu") and d.chance(0.5):
        options["alpha"] = d.rng.choice((0.25, 0.5, 1.5))
    if op == "Gelu" and d.chance(0.5):
        options["approximate"] = "tanh"
    d.emit(op, [x], x.dims, **options)


@draws(5)
def guarded(d: Drawing) -> None:
    """Functions that are not defined, or grow too fast, on a part of the numbers."""
    x = d.float_value()
    op = d.rng.choice(("Exp", "Log", "Sqrt", "Reciprocal", "Sinh", "Cosh", "Asin", "Acosh"))
    if op in ("Exp", "Sinh", "Cosh"):
        limits = [scalar(d, v, x.dtype) for v in (-4, 4)]
        inner = d.emit("Clip", [x, *limits], x.dims, exact=x.exact)
    elif op == "Asin":
        inner = d.emit("Mul", [d.emit("Tanh", [x], x.dims), scalar(d, 0.75, x.dtype)], x.dims)
    else:
        positive = d.emit("Abs", [x], x.dims, exact=x.exact, bound=x.bound)
        inner = d.emit("Add", [positive, scalar(d, 1.25, x.dtype)], x.dims)
    d.emit(op, [inner], x.dims)


@draws(4)
def exact(d: Drawing) -> None:
    x = d.pick(lambda t: t.dtype != BOOL)
    op = d.rng.choice(_EXACT)
    d.need(x.dtype.kind != "u" or op != "Neg")
    d.need(op != "Relu" or is_float(x.dtype) or x.dtype in (np.int32, np.int8))
    d.emit(op, [x], x.dims, exact=x.exact, bound=x.bound)


@draws(2)
def steps(d: Drawing) -> None:
    x = d.float_value(lambda t: t.exact)
    op = d.rng.choice(_STEPS)
    d.emit(op, [x], x.dims, exact=True, bound=1 if op == "Sign" else x.bound)


@draws(2)
def clip(d: Drawing) -> None:
    x = d.pick(lambda t: t.dtype != BOOL)
    limits: list[Tensor | None] = [scalar(d, v, x.dtype) for v in (0, 2)]
    if d.chance(0.3):
        limits[d.rng.randrange(2)] = None
    d.emit("Clip", [x, *limits], x.dims, exact=x.exact, bound=x.bound)


@draws(14)
def arithmetic(d: Drawing) -> None:
    x = d.pick(lambda t: t.dtype != BOOL)
    y = partner(d, x)
    if d.chance(0.3):
        x, y = y, x
    dims = broadcast(x.dims, y.dims)
    op = d.rng.choice(("Add", "Sub", "Mul", "Max", "Min"))
    d.need(x.dtype.kind != "u" or op != "Sub")
    bound = None
    if x.bound is not None and y.bound is not None:
        bound = {"Add": x.bound + y.bound, "Sub": x.bound + y.bound, "Mul": x.bound * y.bound}.get(
            op, max(x.bound, y.bound)
        )
    if not is_float(x.dtype) and (bound is None or bound > exact_limit(x.dtype)):
        bound = None  # wraps
    d.emit(op, [x, y], dims, exact=op in ("Max", "Min") and x.exact and y.exact, bound=bound)


@draws(3)
def quotient(d: Drawing) -> None:
    x = d.pick(lambda t: t.dtype != BOOL)
    if not is_float(x.dtype):
        d.need(x.dtype.itemsize > 1 or x.dtype.kind == "i")
        divisor = d.constant(np.array(d.rng.choice((1, 2, 3, 5)), x.dtype))
        d.need(d.chance(0.5) or x.dtype.kind == "u")
        op = "Div" if x.dtype.kind == "u" else "Mod"
        d.emit(op, [x, divisor], x.dims, bound=x.bound)
        return
    y = partner(d, x)
    positive = d.emit("Abs", [y], y.dims, exact=y.exact, bound=y.bound)
    inner = d.emit("Add", [positive, scalar(d, 0.75, x.dtype)], y.dims)
    d.emit("Div", [x, inner], broadcast(x.dims, y.dims))


@draws(2)
def power(d: Drawing) -> None:
    x = d.float_value()
    if d.chance(0.5):
        d.emit("Pow", [x, scalar(d, d.rng.choice((1, 2, 3)), x.dtype)], x.dims)
        return
    positive = d.emit("Abs", [x], x.dims, exact=x.exact, bound=x.bound)
    inner = d.emit("Add", [positive, scalar(d, 0.75, x.dtype)], x.dims)
    d.emit("Pow", [inner, scalar(d, d.rng.choice((0.5, -1.5, 0.3)), x.dtype)], x.dims)


@draws(2)
def prelu(d: Drawing) -> None:
    x = d.float_value(lambda t: t.rank > 0)
    slope = d.fresh(x.dtype, tuple(1 if d.chance(0.5) else dim for dim in x.dims))
    d.emit("PRelu", [x, slope], x.dims)


@draws(3)
def variadic(d: Drawing) -> None:
    x = d.float_value()
    others = [partner(d, x) for _ in range(d.rng.choice((1, 2)))]
    dims = x.dims
    for each in others:
        dims = broadcast(dims, each.dims)
    d.emit(d.rng.choice(("Sum", "Mean", "Max", "Min")), [x, *others], dims)


@draws(4)
def comparison(d: Drawing) -> None:
    x = d.pick(lambda t: t.exact and t.dtype != BOOL)
    y = partner(d, x)
    d.need(y.exact)
    d.emit(d.rng.choice(_COMPARISONS), [x, y], broadcast(x.dims, y.dims), BOOL)


@draws(3)
def logic(d: Drawing) -> None:
    x = d.pick(lambda t: t.dtype == BOOL)
    if d.chance(0.3):
        d.emit("Not", [x], x.dims)
        return
    y = partner(d, x)
    d.emit(d.rng.choice(("And", "Or", "Xor")), [x, y], broadcast(x.dims, y.dims))


@draws(2)
def bits(d: Drawing) -> None:
    x = d.pick(lambda t: t.dtype in _INTS)
    y = partner(d, x)
    op = d.rng.choice(("BitwiseAnd", "BitwiseOr", "BitwiseXor"))
    d.emit(op, [x, y], broadcast(x.dims, y.dims))


@draws(5)
def where(d: Drawing) -> None:
    condition = d.pick(lambda t: t.dtype == BOOL)
    x = d.pick(lambda t: fits_with(condition, t) and t.dtype != BOOL)
    y = partner(d, x)
    dims = broadcast(broadcast(condition.dims, x.dims), y.dims)
    bound = None if None in (x.bound, y.bound) else max(x.bound or 0, y.bound or 0)
    d.emit("Where", [condition, x, y], dims, x.dtype, x.exact and y.exact, bound)


@draws(7)
def cast(d: Drawing) -> None:
    x = d.pick(lambda t: True)
    kinds = [*FLOATS, *INTS, BOOL] if x.exact else [*FLOATS]
    to = d.rng.choice([k for k in kinds if k != x.dtype])
    bound = x.bound
    if not is_float(to) and is_float(x.dtype) and to != BOOL:
        # Out of range is not defined: only integers that the type has, or small numbers.
        d.need(x.bound is not None and x.bound <= exact_limit(to) and to.kind != "u")
    if x.dtype == BOOL or to == BOOL:
        bound = 1
    narrows = is_float(to) and bound is None and x.dtype not in (BOOL,)
    same = x.exact and not (narrows and BF16 in (to, x.dtype) and x.dtype == np.float64)
    d.emit("Cast", [x], x.dims, to, same, bound, to=helper.np_dtype_to_tensor_dtype(to))
