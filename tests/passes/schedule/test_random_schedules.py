# SPDX-License-Identifier: Apache-2.0
"""Random small ops, targets and decisions: every schedule that a template offers is proven legal,
and its interpretation equals the op's reference.
"""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import pytest

from tilewright.ir.dtypes import F32, I64
from tilewright.ir.errors import ScheduleError
from tilewright.ir.expr import Expr, Symbol
from tilewright.ir.graph import Builder, ConstantStore, Graph, Node, Value
from tilewright.ir.interpreter.loops import interpret_kernel, logical_shape
from tilewright.ir.layout import Layout, channels_last
from tilewright.ir.layout_data import pack, unpack
from tilewright.ir.op import Op
from tilewright.ir.ops.binary import Add, Mul
from tilewright.ir.ops.concat import Concat
from tilewright.ir.ops.conv import Conv
from tilewright.ir.ops.gather_nd import GatherNd
from tilewright.ir.ops.layer_norm import LayerNorm, RmsNorm
from tilewright.ir.ops.matmul import Matmul
from tilewright.ir.ops.pool import AvgPool, MaxPool
from tilewright.ir.ops.reduce import ReduceMax, ReduceMean
from tilewright.ir.ops.softmax import Softmax
from tilewright.ir.ops.transpose import Transpose
from tilewright.ir.ops.unary import Exp
from tilewright.ir.rewrite import evaluate
from tilewright.ir.target import parse_target
from tilewright.ir.types import TensorType, tensor
from tilewright.passes.lower.kernel import Lowered, lower_group
from tilewright.passes.schedule.defaults import Candidate, default_candidates
from tilewright.passes.schedule.legality import prove
from tilewright.passes.schedule.schedule import apply, parse_schedule, schedule_text

TARGETS = ("x86-64-v1", "x86-64-v3", "x86-64-v4", "aarch64")
LAST = channels_last(4)


@dataclass(frozen=True)
class Case:
    """An op on operands of these types; the result is stored in ``layout`` if there is one."""

    op: Op
    operands: tuple[TensorType, ...]
    layout: Layout | None = None


class Shapes:
    """Random dims: constants, or a symbol ``n`` whose value at run time is ``size``."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.size = rng.randint(1, 19)
        self.symbol = Symbol("n", 1, 64, 1, rng.choice((1, 7, 20)))

    def dim(self, most: int = 20) -> int:
        return self.rng.choice((1, 2, 3, 4, 5, 8, 9, 12, 16, 17, 20)[: most // 2 + 1])

    def rows(self) -> int | Symbol:
        return self.rng.choice((self.symbol, self.dim()))

    def channels(self) -> int:
        return self.rng.choice((1, 3, 4, 8, 16, 20))

    def image(self, channels: int) -> TensorType:
        batch = self.rng.choice((1, 1, 2, self.symbol))
        height, width = self.rng.randint(4, 9), self.rng.randint(4, 9)
        layout = self.rng.choice((LAST, LAST, None))
        return tensor(F32, (batch, channels, height, width), layout)

    def window(self) -> tuple[tuple[int, int], tuple[int, int], tuple[int, int, int, int]]:
        """A kernel, its strides, and padding that is smaller than the kernel."""
        kernel = self.rng.choice(((1, 1), (2, 2), (3, 3), (3, 1)))
        pads = [self.rng.randrange(k) for k in (*kernel, *kernel)]
        strides = self.rng.choice(((1, 1), (2, 2), (1, 2)))
        return kernel, strides, (pads[0], pads[1], pads[2], pads[3])


def matmul(s: Shapes) -> Case:
    rows, inner, columns = s.rows(), s.dim(), s.rng.choice((s.dim(), 16, 24))
    packed = s.rng.choice((None, Layout((1, 0)), Layout((1, 0), ((1, 16),))))
    return Case(Matmul(), (tensor(F32, (rows, inner)), tensor(F32, (inner, columns), packed)))


def batched_matmul(s: Shapes) -> Case:
    batch, rows, inner, columns = s.rng.choice((1, 2, 3)), s.rows(), s.rows(), s.rows()
    second = s.rng.choice((None, Layout((0, 2, 1))))
    return Case(
        Matmul(),
        (tensor(F32, (batch, rows, inner)), tensor(F32, (batch, inner, columns), second)),
    )


def conv(s: Shapes) -> Case:
    channels, filters = s.rng.choice((1, 3, 4, 8)), s.channels()
    kernel, strides, pads = s.window()
    weights = s.rng.choice((None, Layout((0, 2, 3, 1), ((0, 16),)), Layout((2, 3, 1, 0))))
    x = s.image(channels)
    operands = [x, tensor(F32, (filters, channels, *kernel), weights)]
    if s.rng.random() < 0.5:
        operands.append(tensor(F32, (filters,)))
    return Case(Conv(strides, pads, (1, 1), 1), tuple(operands), x.layout)


def depthwise(s: Shapes) -> Case:
    channels = s.channels()
    kernel, strides, pads = s.window()
    x = s.image(channels)
    weights = tensor(F32, (channels, 1, *kernel), s.rng.choice((None, Layout((2, 3, 0, 1)))))
    return Case(Conv(strides, pads, (1, 1), channels), (x, weights), x.layout)


def pool(s: Shapes) -> Case:
    kernel, strides, pads = s.window()
    x = s.image(s.channels())
    if s.rng.random() < 0.5:
        return Case(MaxPool(kernel, strides, pads, (1, 1), False), (x,), x.layout)
    include = s.rng.random() < 0.5
    return Case(AvgPool(kernel, strides, pads, (1, 1), False, include), (x,), x.layout)


def global_pool(s: Shapes) -> Case:
    x = s.image(s.channels())
    return Case(ReduceMean((2, 3), True), (x,), x.layout)


def row_reduction(s: Shapes) -> Case:
    shape, axis = (s.rows(), s.dim(), s.rows()), s.rng.randrange(3)
    cls = s.rng.choice((ReduceMax, ReduceMean))
    return Case(cls((axis,), s.rng.random() < 0.5), (tensor(F32, shape),))


def softmax(s: Shapes) -> Case:
    return Case(Softmax(s.rng.randrange(2)), (tensor(F32, (s.rows(), s.rows())),))


def normalisation(s: Shapes) -> Case:
    rows, width = s.rows(), s.rng.choice((s.dim(), 40, 64))
    scale = tensor(F32, (width,))
    if s.rng.random() < 0.5:
        return Case(RmsNorm(1, 1e-5), (tensor(F32, (rows, width)), scale))
    return Case(LayerNorm(1, 1e-5), (tensor(F32, (rows, width)), scale, scale))


def gather_nd(s: Shapes) -> Case:
    rows, width = s.rng.choice((3, s.dim())), s.rng.choice((3, s.dim()))
    x = (rows, width, s.rng.choice((3, s.dim(9))))
    indices = tensor(I64, (s.rows(), s.rng.choice((1, 2, 3))))
    return Case(GatherNd(), (tensor(F32, x), indices))


def concat(s: Shapes) -> Case:
    axis, shape = s.rng.randrange(3), [s.rows(), s.dim(9), s.dim()]
    parts = []
    for _ in range(s.rng.choice((2, 3))):
        shape[axis] = s.dim(9)
        parts.append(tensor(F32, tuple(shape)))
    return Case(Concat(axis), tuple(parts))


def elementwise(s: Shapes) -> Case:
    x = (s.rows(), s.dim(9), s.rows())
    y = tuple(d if s.rng.random() < 0.6 else 1 for d in x)[s.rng.randrange(3) :]
    return Case(s.rng.choice((Add(), Mul())), (tensor(F32, x), tensor(F32, y)))


def movement(s: Shapes) -> Case:
    shape = (s.rows(), s.dim(), s.rows())
    if s.rng.random() < 0.2:
        return Case(Exp(), (tensor(F32, shape),))
    return Case(Transpose(tuple(s.rng.sample(range(3), 3))), (tensor(F32, shape),))


FORMS: dict[str, Callable[[Shapes], Case]] = {
    f.__name__: f
    for f in (
        matmul, batched_matmul, conv, depthwise, pool, global_pool, row_reduction, softmax,
        normalisation, gather_nd, concat, elementwise, movement,
    )
}  # fmt: skip


def lowered(case: Case) -> tuple[Node, Lowered]:
    builder = Builder(Graph("g"), ConstantStore())
    node = builder.add(case.op, *(Value(t, f"v{i}") for i, t in enumerate(case.operands)))
    if case.layout is not None:
        node.result.type = node.result.type.with_layout(case.layout)
    return node, lower_group(node, builder.constants)


class Oracle:
    """Integers for the operands of a node, and the result that its op's reference gives.

    Memory is what operands and buffers have in common: a buffer's axes may be several of the
    operand's, joined.
    """

    def __init__(self, node: Node, low: Lowered, sizes: Mapping[str, int]) -> None:
        self.kernel = low.kernel
        rng = np.random.default_rng(7)

        def shape(dims: tuple[Expr, ...]) -> list[int]:
            return [evaluate(d, sizes) for d in dims]

        arrays = [
            rng.integers(-3, 4, shape(v.type.shape)).astype(v.type.dtype.numpy)
            for v in node.operands
        ]
        values = [evaluate(e, sizes) for e in low.scalars]
        self.symbols = {s.name: n for s, n in zip(low.kernel.symbols, values, strict=True)}
        self.inputs = {
            b.name: unpack(pack(a, v.type.layout), logical_shape(b, self.symbols), b.layout)
            for b, a, v in zip(low.kernel.inputs, arrays, node.operands, strict=True)
        }
        (expected,) = node.op.reference(*arrays)
        self.expected = pack(expected, node.result.type.layout)

    def check(self, candidate: Candidate) -> None:
        """The candidate's kernel computes the reference's result."""
        found = interpret_kernel(candidate.kernel, self.inputs, self.symbols)
        (y,) = self.kernel.outputs
        result = pack(found[y.name], y.layout)
        np.testing.assert_allclose(result, self.expected, rtol=2e-5, atol=1e-5)


def explored(rng: random.Random, low: Lowered, target: str) -> list[Candidate]:
    """The first candidate under default decisions, and those under two random choices of them."""
    kernel, machine = low.kernel, parse_target(target)
    found = [next(default_candidates(kernel, machine))]
    for _ in range(2):
        choices = {n: rng.choice(d.options) for n, d in found[0].decisions.items()}
        found.append(next(default_candidates(kernel, machine, choices)))
    return found


def replayed(low: Lowered, candidate: Candidate) -> bool:
    """True if the text of a schedule makes the same kernel again."""
    steps = parse_schedule(schedule_text(candidate.schedule))
    return apply(low.kernel, steps) is candidate.kernel


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("form", FORMS)
def test_candidates_are_legal_and_right(form: str, seed: int) -> None:
    rng = random.Random(f"{form}{seed}")
    shapes = Shapes(rng)
    case = FORMS[form](shapes)
    node, low = lowered(case)
    oracle = Oracle(node, low, {"n": shapes.size})
    candidates = explored(rng, low, rng.choice(TARGETS))
    for candidate in {c.schedule: c for c in candidates}.values():
        try:
            prove(candidate.kernel)
        except ScheduleError as error:
            told = f"{case}: {candidate.template}: {schedule_text(candidate.schedule)}"
            raise AssertionError(told) from error
        oracle.check(candidate)
        assert replayed(low, candidate)
