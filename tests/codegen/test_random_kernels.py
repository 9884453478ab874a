# SPDX-License-Identifier: Apache-2.0
"""Random kernels: machine code against the interpreter, bit for bit.

The targets fuse no multiplication with an addition, so that both sides round alike.
"""

import random
from typing import Any

import numpy as np
import pytest

from tests.targets import runnable_targets
from tilewright.ir.buffer import Buffer, buffer
from tilewright.ir.dtypes import F32, I32, I64, INDEX, U8, DType
from tilewright.ir.expr import (
    Binary,
    Cast,
    Expr,
    Guard,
    Read,
    Scalar,
    Select,
    Symbol,
    Var,
    const,
    index,
)
from tilewright.ir.interpreter.loops import interpret_kernel
from tilewright.ir.layout import Layout
from tilewright.ir.layout_data import pack, unpack
from tilewright.ir.loop import Alloc, For, If, Kernel, Let, Stmt, Store, seq
from tilewright.ir.simplify import ceildiv, compare, floordiv, maximum, minimum, mod
from tilewright.ir.types import tensor
from tilewright.ir.value_expr import logical_and

TARGETS = runnable_targets()
LAYOUTS = [Layout((0, 1)), Layout((1, 0)), Layout((0, 1), ((1, 4),)), Layout((1, 0), ((0, 8),))]
N = Symbol("n", 1, 40)


class Generator:
    """Makes one kernel: two stores per element of a matrix of n rows, loops split in some way."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.seed = seed
        self.columns = self.random.choice([5, 8, 12, 21])
        shape = (N, index(self.columns))
        self.dtype = self.random.choice([F32, I32, U8])
        self.x, self.y = (self._buffer(name, self.dtype, shape) for name in "xy")
        self.positions = buffer("positions", tensor(I64, shape))
        self.out, self.other = (self._buffer(name, self.dtype, shape) for name in ("out", "other"))
        self.scalars: list[Scalar] = []

    def _buffer(self, name: str, dtype: DType, shape: Any) -> Buffer:
        return buffer(name, tensor(dtype, shape, self.random.choice(LAYOUTS)))

    def kernel(self) -> Kernel:
        width = self.random.choice([4, 8, 16])
        kind = self.random.choice(["vectorized", "vectorized", "unrolled", "serial"])
        outer = Var("jo", ceildiv(index(self.columns), width))
        inner, row = Var("ji", index(width)), Var("i", N)
        self.point = (row, outer * width + inner)
        self.vars = [row, outer, inner]
        inside = compare("lt", self.point[1], self.columns)
        body = If(inside, self._statement())
        loops: list[tuple[Var, str]] = [(outer, "serial"), (inner, kind)]
        if self.random.random() < 0.3:
            loops.reverse()
        stmt: Stmt = body
        for v, k in reversed(loops):
            stmt = For(v, k, stmt)
        stmt = For(row, self.random.choice(["parallel", "serial"]), stmt)
        inputs = (self.x, self.y, self.positions)
        return Kernel(f"random{self.seed}", inputs, (self.out, self.other), (N,), (), stmt)

    def _statement(self) -> Stmt:
        first = self.value(3)
        if self.random.random() < 0.5:
            scalar = Scalar("s", self.dtype)
            self.scalars.append(scalar)
            value = Binary("add", scalar, self.value(2), self.dtype)
            return Let(scalar, first, self._stores(value))
        if self.random.random() < 0.5:
            return self._accumulated(first)
        return self._stores(first)

    def _stores(self, value: Expr) -> Stmt:
        default = Store(self.other, self.point, self.value(1))
        again = If(self.condition(), Store(self.other, self.point, self.value(2)), None)
        if self.random.random() < 0.5:
            again = If(again.condition, again.then, Store(self.other, self.point, self.value(1)))
        return seq([Store(self.out, self.point, value), default, again])

    def _accumulated(self, first: Expr) -> Stmt:
        """A sum over a short loop, in a buffer of one element that each lane has for itself."""
        scope = self.random.choice(["register", "workspace"])
        total = buffer("total", tensor(self.dtype, (2,)), scope)
        step = Var("k", index(self.random.choice([1, 3])))
        kind = self.random.choice(["serial", "unrolled"])
        zero = (index(0),)
        self.vars.append(step)
        added = Binary("add", Read(total, zero), self.value(2), self.dtype)
        self.vars.pop()
        loop = For(step, kind, Store(total, zero, added))
        return Alloc(total, seq([Store(total, zero, first), loop, self._stores(Read(total, zero))]))

    # --- expressions ------------------------------------------------------------------------------

    def index(self) -> Expr:
        """An index expression of any value."""
        e: Expr = index(self.random.randint(-3, 9))
        for v in self.random.sample(self.vars, self.random.randint(1, len(self.vars))):
            e = e + v * self.random.choice([-1, 1, 1, 2, 3])
        choice = self.random.random()
        if choice < 0.2:
            return floordiv(e, self.random.choice([2, 4, 5]))
        return mod(e, self.random.choice([3, 8])) if choice < 0.4 else e

    def clamped(self, e: Expr, extent: Expr) -> Expr:
        return minimum(maximum(e, 0), extent - 1)

    def read(self) -> Expr:
        source = self.random.choice([self.x, self.y])
        row, column = self.index(), self.index()
        choice = self.random.random()
        if choice < 0.4:
            return Read(source, self.point)
        if choice < 0.6:
            inside = [compare("ge", row, 0), compare("lt", row, N), compare("ge", column, 0)]
            holds = logical_and(*inside, compare("lt", column, self.columns))
            return Guard(holds, Read(source, (row, column)), self.number())
        if choice < 0.8:
            return Read(source, (self.clamped(row, N), self.clamped(column, index(self.columns))))
        place = Cast(Read(self.positions, self.point), INDEX)
        return Read(source, (self.clamped(place, N), self.point[1]))

    def number(self) -> Expr:
        return const(self.random.randint(0, 5), self.dtype)

    def condition(self) -> Expr:
        if self.random.random() < 0.5:
            return compare(self.random.choice(["lt", "ge", "eq", "ne"]), self.index(), self.index())
        return compare(self.random.choice(["lt", "gt"]), self.read(), self.number())

    def value(self, depth: int) -> Expr:
        if depth == 0:
            return self.random.choice([self.read, self.read, self.number, self._scalar])()
        a, b = self.value(depth - 1), self.value(depth - 1)
        choice = self.random.random()
        if choice < 0.2:
            return Select(self.condition(), a, b)
        if choice < 0.3:
            return Guard(self.condition(), a, b)
        if choice < 0.4:
            return Cast(self.index(), self.dtype) if self.dtype is not U8 else a
        return Binary(self.random.choice(["add", "sub", "mul", "min", "max"]), a, b, self.dtype)

    def _scalar(self) -> Expr:
        return self.random.choice(self.scalars) if self.scalars else self.read()


@pytest.mark.parametrize("seed", range(20))
def test_machine_code_does_what_the_interpreter_does(run: Any, seed: int) -> None:
    kernel = Generator(seed).kernel()
    x = kernel.inputs[0]
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 12))
    columns = int(str(x.shape[1]))
    values = [rng.integers(0, 20, (n, columns)).astype(x.dtype.numpy) for _ in range(2)]
    inputs = [*values, rng.integers(-5, n + 5, (n, columns))]
    named = {b.name: a for b, a in zip(kernel.inputs, inputs, strict=True)}
    expected = interpret_kernel(kernel, named, {"n": n})
    packed = [pack(a, b.layout) for a, b in zip(inputs, kernel.inputs, strict=True)]
    for target in TARGETS:
        results = [pack(np.zeros((n, columns), x.dtype.numpy), b.layout) for b in kernel.outputs]
        run(kernel, [*packed, *results], [n], target)
        for result, b in zip(results, kernel.outputs, strict=True):
            actual = unpack(result, (n, columns), b.layout)
            assert np.array_equal(actual, expected[b.name]), str(kernel)
