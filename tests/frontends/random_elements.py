# SPDX-License-Identifier: Apache-2.0
"""Random chains of arithmetic on a dim, followed in three ways at once: as elements over the
symbol, as elements of each size, and as numpy computes it in the element's type.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.frontends import elements
from tilewright.frontends.dims import Unknown
from tilewright.frontends.elements import Element
from tilewright.ir.dtypes import BF16, F16, F32, F64, I32, I64, U8, DType
from tilewright.ir.expr import Symbol

N = Symbol("n", 1)
SIZES = (1, 2, 3, 7, 10, 24, 25, 100, 1001, 2049, 65_535, (1 << 24) + 1)
FLOATS = (F64, F32, F16, BF16)
_LARGEST = 1 << 40
_CONSTANTS = (0.1, 0.3, 0.7, 1 / 3, 0.5, 1.1, 2.0, 2.3, 16.0, 255.0, -1.5, 1e-3)


class Unfit(Exception):
    """A step that numpy leaves undefined, or that leaves the range of sizes."""


@dataclass(frozen=True)
class Traced:
    """One element: over the symbol, and at each of ``SIZES`` as we fold it and as numpy has it."""

    dtype: DType
    symbolic: Element
    folded: tuple[Element, ...]
    expected: tuple[Any, ...]

    def then(
        self,
        ours: Callable[..., Element],
        numpys: Callable[..., Any],
        *others: "Traced",
        dtype: DType | None = None,
    ) -> "Traced":
        """The element that a function gives for this one and others."""
        result, all_ = dtype or self.dtype, (self, *others)
        with np.errstate(all="ignore"):
            expected = [
                _checked(numpys(*values), result)
                for values in zip(*(t.expected for t in all_), strict=True)
            ]
        try:
            symbolic = ours(*(t.symbolic for t in all_))
            folded = [ours(*values) for values in zip(*(t.folded for t in all_), strict=True)]
        except Unknown:
            raise Unfit from None
        return Traced(result, symbolic, tuple(folded), tuple(expected))


def _checked(value: Any, dtype: DType) -> Any:
    if dtype.is_bool:
        return bool(value)
    if not np.isfinite(np.float64(value)) or abs(float(value)) > _LARGEST:
        raise Unfit
    if dtype.is_integer:
        if not dtype.min <= int(value) <= dtype.max:
            raise Unfit
        return int(value)
    return np.asarray(value).astype(dtype.numpy)[()]


def constant(number: float, dtype: DType) -> Traced:
    value = elements.rounded(number, dtype)
    return Traced(dtype, value, (value,) * len(SIZES), (_checked(value, dtype),) * len(SIZES))


SIZE = Traced(I64, N, SIZES, SIZES)


def _truncated(a: int, b: int) -> int:
    if b == 0:
        raise Unfit
    return (1 if (a < 0) == (b < 0) else -1) * (abs(a) // abs(b))


def _modulo(a: int, b: int) -> int:
    if b == 0:
        raise Unfit
    return a % b


INTEGERS: dict[str, tuple[Callable[..., Element], Callable[[int, int], int]]] = {
    "add": (elements.plus, lambda a, b: a + b),
    "sub": (elements.minus, lambda a, b: a - b),
    "mul": (elements.times, lambda a, b: a * b),
    "div": (elements.divide, _truncated),
    "mod": (elements.remainder, _modulo),
    "fmod": (
        lambda a, b, t: elements.remainder(a, b, t, True),
        lambda a, b: a - b * _truncated(a, b),
    ),
    "min": (elements.smallest, min),
    "max": (elements.largest, max),
}
BINARY: dict[str, tuple[Callable[..., Element], Callable[..., Any]]] = {
    "add": (elements.plus, np.add),
    "sub": (elements.minus, np.subtract),
    "mul": (elements.times, np.multiply),
    "div": (elements.divide, np.divide),
    "min": (elements.smallest, np.minimum),
    "max": (elements.largest, np.maximum),
    "mod": (elements.remainder, np.mod),
    "fmod": (lambda a, b, t: elements.remainder(a, b, t, True), np.fmod),
}
UNARY: dict[str, tuple[Callable[..., Element], Callable[..., Any]]] = {
    "floor": (lambda x, t: elements.whole("floor", x, t), np.floor),
    "ceil": (lambda x, t: elements.whole("ceil", x, t), np.ceil),
    "round": (lambda x, t: elements.whole("round", x, t), np.rint),
    "neg": (elements.negative, np.negative),
    "abs": (elements.absolute, np.abs),
    "sign": (elements.sign, np.sign),
    "sqrt": (lambda x, t: elements.math_function("sqrt", x, t), np.sqrt),
}
COMPARISONS = {"lt": np.less, "le": np.less_equal, "eq": np.equal, "gt": np.greater}
_PAIRS = {"neg": lambda a: -a, "abs": abs, "sign": lambda a: (a > 0) - (a < 0)}


def chain(rng: random.Random, steps: int) -> Traced:
    """An element that some steps make from the size, and from one another."""
    found = [SIZE]
    while len(found) <= steps:
        try:
            found.append(_step(rng, rng.choice(found[-3:]), found))
        except Unfit:
            continue
    return found[-1]


def _step(rng: random.Random, x: Traced, found: list[Traced]) -> Traced:
    kind = rng.random()
    if kind < 0.25:
        return converted(x, rng.choice((*FLOATS, I64, I32, U8)))
    if kind < 0.4:
        name = rng.choice(list(UNARY if x.dtype.is_float else _PAIRS))
        ours, numpys = UNARY[name]
        oracle = numpys if x.dtype.is_float else _PAIRS[name]
        return x.then(lambda e: ours(e, x.dtype), oracle)
    same = [t for t in found if t.dtype is x.dtype]
    if x.dtype.is_float:
        other = constant(rng.choice(_CONSTANTS), x.dtype)
    else:
        other = constant(rng.choice((1, 2, 3, 5, 10, -3, 24, 64)), x.dtype)
    y = rng.choice([other, other, *same])
    if kind < 0.55:
        comparison = rng.choice(list(COMPARISONS))
        return chosen(comparison, x, y, *(rng.choice([x, y, *same]) for _ in range(2)))
    name = rng.choice(list(BINARY))
    ours, numpys = BINARY[name] if x.dtype.is_float else INTEGERS[name]
    return x.then(lambda a, b: ours(a, b, x.dtype), numpys, y)


def converted(x: Traced, target: DType) -> Traced:
    def cast(value: Any) -> Any:
        if x.dtype.is_float and target.is_integer:
            return int(np.trunc(np.float64(value)))
        if not x.dtype.is_float and target.is_integer:
            return int(np.asarray(value).astype(np.int64).astype(target.numpy))
        return np.asarray(value).astype(target.numpy)[()]

    return x.then(lambda e: elements.convert(e, x.dtype, target), cast, dtype=target)


def chosen(comparison: str, x: Traced, y: Traced, a: Traced, b: Traced) -> Traced:
    def ours(x_: Element, y_: Element, a_: Element, b_: Element) -> Element:
        return elements.choose(elements.compare(comparison, x_, y_, x.dtype), a_, b_, a.dtype)

    def numpys(x_: Any, y_: Any, a_: Any, b_: Any) -> Any:
        return a_ if COMPARISONS[comparison](x_, y_) else b_

    return x.then(ours, numpys, y, a, b, dtype=a.dtype)
