# SPDX-License-Identifier: Apache-2.0
"""Expressions at all points of a grid at once, by numpy's broadcasting.

An axis is an ``arange`` along a dimension of its own, so an expression becomes an array that has
extent 1 along the axes it does not depend on. A read is an indexed gather from a logical array.
Under a guard, places where the condition is false are not read.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tilewright.ir.buffer import Buffer
from tilewright.ir.dtypes import INDEX
from tilewright.ir.errors import InterpreterError
from tilewright.ir.expr import (
    Binary,
    Call,
    Cast,
    Compare,
    Const,
    Expr,
    Guard,
    IndexOp,
    Poly,
    Read,
    Scalar,
    Select,
    Symbol,
    Unary,
    Var,
    free_variables,
)
from tilewright.ir.interpreter import values
from tilewright.ir.op import Array
from tilewright.ir.rewrite import evaluate
from tilewright.ir.stage import Stage


class Grid:
    """The values of expressions at all points of some axes, others being fixed.

    ``axes`` span the grid; ``fixed`` gives the value of other variables, ``bound`` those of
    accumulators.
    """

    def __init__(
        self,
        stage: Stage,
        memory: dict[str, Array],
        symbols: Mapping[str, int],
        axes: tuple[Var, ...] | None = None,
        fixed: Mapping[Expr, int] | None = None,
    ) -> None:
        self.stage = stage
        self.memory = memory
        self.symbols = symbols
        self.axes = stage.axes if axes is None else axes
        self.fixed = dict(fixed or {})
        self.extents = [self._extent(v) for v in self.axes]
        self.bound: dict[str, Any] = {}
        self._memo: dict[tuple[Expr, int], Any] = {}
        # Kept alive because the memo names them by id.
        self._masks: list[Any] = []

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.extents)

    def extended(self, axes: tuple[Var, ...], fixed: Mapping[Expr, int]) -> "Grid":
        """A grid with ``axes`` in front of these."""
        return Grid(
            self.stage, self.memory, self.symbols, axes + self.axes, {**self.fixed, **fixed}
        )

    def _extent(self, v: Var) -> int:
        known = {**self.symbols, **{str(k): n for k, n in self.fixed.items()}}
        try:
            return max(0, evaluate(v.extent, known))
        except KeyError as missing:
            raise InterpreterError(
                f"The extent '{v.extent}' of axis '{v.name}' of stage '{self.stage.name}' depends "
                f"on {missing}; give the symbol a value."
            ) from None

    def extent(self, v: Var) -> int:
        """The number of values that a variable takes."""
        return self._extent(v)

    def fix(self, fixed: Mapping[Expr, int], bound: Mapping[str, Any]) -> None:
        """Set variables outside the grid and accumulators, forgetting what depended on them."""
        self.fixed.update(fixed)
        self.bound = dict(bound)
        changed = set(fixed)
        self._memo = {
            key: value
            for key, value in self._memo.items()
            if not any(v in changed or isinstance(v, Scalar) for v in free_variables(key[0]))
        }

    def full(self, value: Any, dtype: "np.dtype[Any]") -> Array:
        """A value as an array over the whole grid."""
        return np.array(np.broadcast_to(np.asarray(value, dtype=dtype), self.shape))

    def store(self, output: Buffer, targets: Sequence[Expr], value: Any) -> None:
        """Write a value at the targets of every point."""
        full = np.broadcast_to(np.asarray(value), self.shape)
        array = self.memory[output.name]
        if tuple(targets) == self.axes and array.shape == self.shape:
            array[...] = full
            return
        places = tuple(np.broadcast_to(self.value(t), self.shape) for t in targets)
        self.check(output, targets, places, None)
        array[places] = full

    def value(self, e: Expr, mask: Any = None) -> Any:
        """An expression at all points; where ``mask`` is false, reads are not done."""
        if mask is not None and mask is not True and not any(mask is m for m in self._masks):
            self._masks.append(mask)
        key = (e, id(mask) if mask is not None else 0)
        if key not in self._memo:
            self._memo[key] = self._compute(e, mask)
        return self._memo[key]

    def _compute(self, e: Expr, mask: Any) -> Any:
        match e:
            case Const(literal, dtype):
                return values.constant(literal, dtype)
            case Symbol(name):
                return self.symbols[name]
            case Var():
                return self._variable(e)
            case Scalar(name):
                return self.bound[name]
            case Poly(terms):
                total: Any = 0
                for monomial, coefficient in terms:
                    product: Any = coefficient
                    for atom in monomial:
                        product = product * self.value(atom, mask)
                    total = total + product
                return total
            case IndexOp(op, a, b):
                return _index_op(op, self.value(a, mask), self.value(b, mask))
            case Unary(op, x, _):
                return values.unary(op, self.value(x, mask), x.dtype)
            case Binary(op, x, y, dtype):
                return values.binary(op, self.value(x, mask), self.value(y, mask), dtype)
            case Compare(op, x, y):
                return values.COMPARISONS[op](self.value(x, mask), self.value(y, mask))
            case Select(c, x, y):
                return np.where(self.value(c, mask), self.value(x, mask), self.value(y, mask))
            case Guard(c, x, other):
                return self._guard(c, x, other, mask)
            case Cast(x, dtype):
                return values.cast(self.value(x, mask), x.dtype, dtype)
            case Call(function, args, dtype):
                return values.call(function, tuple(self.value(a, mask) for a in args), dtype)
            case Read():
                return self._read(e, mask)
        raise TypeError(f"No evaluation of {type(e).__name__}.")

    def _variable(self, v: Var) -> Any:
        if v in self.axes:
            position = self.axes.index(v)
            shape = [1] * len(self.axes)
            shape[position] = self.extents[position]
            return np.arange(self.extents[position]).reshape(shape)
        if v not in self.fixed:
            raise InterpreterError(f"Stage '{self.stage.name}' uses '{v}', which is no axis of it.")
        return self.fixed[v]

    def _guard(self, condition: Expr, x: Expr, other: Expr, mask: Any) -> Any:
        holds = self.value(condition, mask)
        inside = holds if mask is None else np.logical_and(holds, mask)
        if not np.any(inside):
            return self.value(other, mask)
        return np.where(holds, self.value(x, inside), self.value(other, mask))

    def _read(self, e: Read, mask: Any) -> Any:
        if e.buffer.name not in self.memory:
            raise InterpreterError(
                f"Stage '{self.stage.name}' reads '{e.buffer.name}', which is neither an input "
                "nor written before."
            )
        array = self.memory[e.buffer.name]
        places = tuple(self.value(i, mask) for i in e.indices)
        if mask is not None:
            places = tuple(np.where(mask, p, 0) for p in places)
        self.check(e.buffer, e.indices, places, mask)
        if array.size == 0:
            return np.zeros(np.broadcast_shapes(*map(np.shape, places)), dtype=array.dtype)
        result = array[places]
        return np.asarray(result).astype(np.int64) if e.dtype is INDEX else result

    def check(
        self, target: Buffer, indices: Sequence[Expr], places: Sequence[Any], mask: Any
    ) -> None:
        """InterpreterError if an access is out of bounds at a point that ``mask`` lets through."""
        shape = self.memory[target.name].shape
        if len(shape) != len(places):
            raise InterpreterError(
                f"The array for '{target.name}' has rank {len(shape)}, not {len(places)}."
            )
        for axis, (place, extent) in enumerate(zip(places, shape, strict=True)):
            array = np.asarray(place)
            if array.size == 0 or (array.min() >= 0 and array.max() < extent):
                continue
            if mask is not None and extent == 0 and not np.any(mask):
                continue
            text = ", ".join(map(str, indices))
            worst = int(array.min()) if array.min() < 0 else int(array.max())
            raise InterpreterError(
                f"Stage '{self.stage.name}' accesses '{target.name}[{text}]' out of bounds: "
                f"index {worst} on axis {axis} of extent {extent}."
            )


def _index_op(op: str, a: Any, b: Any) -> Any:
    if op in ("floordiv", "mod"):
        if np.any(np.less_equal(b, 0)):
            raise InterpreterError(f"A divisor of '{op}' is not positive.")
        return a // b if op == "floordiv" else a % b
    if op == "bcast":
        return np.where(np.equal(a, 1), b, a) if np.ndim(a) or np.ndim(b) else (b if a == 1 else a)
    if np.ndim(a) == 0 and np.ndim(b) == 0:
        return min(a, b) if op == "min" else max(a, b)
    return np.minimum(a, b) if op == "min" else np.maximum(a, b)
