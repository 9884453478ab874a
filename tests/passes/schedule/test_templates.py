# SPDX-License-Identifier: Apache-2.0
"""Default schedules of small kernels: proven, and equal to the op's reference when interpreted."""

import random

import numpy as np
import pytest

from tilewright.ir.dtypes import F32
from tilewright.ir.expr import Symbol, index
from tilewright.ir.graph import Builder, ConstantStore, Graph, Node, Value
from tilewright.ir.interpreter.loops import interpret_kernel
from tilewright.ir.layout import Layout, channels_last
from tilewright.ir.op import Op
from tilewright.ir.ops.binary import Add
from tilewright.ir.ops.concat import Concat
from tilewright.ir.ops.conv import Conv
from tilewright.ir.ops.layer_norm import LayerNorm
from tilewright.ir.ops.matmul import Matmul
from tilewright.ir.ops.pool import AvgPool, MaxPool
from tilewright.ir.ops.reduce import ReduceMean
from tilewright.ir.ops.resize import Resize
from tilewright.ir.ops.softmax import Softmax
from tilewright.ir.rewrite import evaluate
from tilewright.ir.simplify import floordiv
from tilewright.ir.target import parse_target
from tilewright.ir.types import TensorType, tensor
from tilewright.passes.lower.kernel import Lowered, lower_group
from tilewright.passes.schedule.defaults import Candidate, default_candidates
from tilewright.passes.schedule.legality import prove
from tilewright.passes.schedule.schedule import apply, parse_schedule, schedule_text

N = Symbol("n", 1, 64, 1, 20)
LAST = channels_last(4)
PACKED = Layout((1, 0), ((1, 16),))
FILTERS = Layout((0, 2, 3, 1), ((0, 16),))
SIZES = {"n": 13}


def image(c: int, h: int, w: int) -> TensorType:
    return tensor(F32, (1, c, h, w), LAST)


CASES: dict[str, tuple[Op, tuple[TensorType, ...], Layout | None, str]] = {
    "matmul": (Matmul(), (tensor(F32, (N, 9)), tensor(F32, (9, 24), PACKED)), None, "tiled"),
    "attention scores": (
        Matmul(), (tensor(F32, (2, N, 8)), tensor(F32, (2, 8, N))), None, "tiled",
    ),
    "conv": (
        Conv((1, 1), (1, 1, 1, 1), (1, 1), 1),
        (image(3, 7, 9), tensor(F32, (20, 3, 3, 3), FILTERS)), LAST, "tiled",
    ),
    "strided conv": (
        Conv((2, 2), (0, 1, 1, 0), (1, 1), 1),
        (image(4, 8, 9), tensor(F32, (16, 4, 3, 3), FILTERS)), LAST, "tiled",
    ),
    "depthwise": (
        Conv((1, 1), (1, 1, 1, 1), (1, 1), 8),
        (image(8, 6, 7), tensor(F32, (8, 1, 3, 3), Layout((2, 3, 0, 1)))), LAST, "tiled",
    ),
    "max pool": (
        MaxPool((3, 3), (2, 2), (1, 1, 1, 1), (1, 1), False), (image(8, 9, 9),), LAST, "tiled",
    ),
    "average pool": (
        AvgPool((2, 3), (1, 2), (0, 1, 1, 0), (1, 1), False, False), (image(8, 5, 8),), LAST,
        "tiled",
    ),
    "global pool": (ReduceMean((2, 3), True), (image(24, 3, 4),), LAST, "columns"),
    "softmax": (Softmax(1), (tensor(F32, (5, N)),), None, "rows"),
    "layer norm": (
        LayerNorm(1, 1e-5), (tensor(F32, (N, 40)), tensor(F32, (40,)), tensor(F32, (40,))), None,
        "rows",
    ),
    "broadcast": (Add(), (tensor(F32, (N, 12)), tensor(F32, (12,))), None, "elementwise"),
    "broadcast both ways": (
        Add(), (tensor(F32, (N, 1, 8)), tensor(F32, (5, 1))), None, "elementwise",
    ),
    "resize to nearest": (
        Resize(tuple(map(index, (1, 5, 7, 6)))), (image(5, 4, 3),), LAST, "elementwise",
    ),
    "resize linearly": (
        Resize(tuple(map(index, (1, 5, 7, 6))), "linear"), (image(5, 4, 3),), LAST, "maps",
    ),
    "concat": (Concat(1), (image(8, 3, 3), image(5, 3, 3)), LAST, "elementwise"),
}  # fmt: skip


def lowered(name: str) -> tuple[Node, Lowered]:
    op, types, layout, _ = CASES[name]
    builder = Builder(Graph("g"), ConstantStore())
    node = builder.add(op, *(Value(t, f"v{i}") for i, t in enumerate(types)))
    if layout is not None:
        node.result.type = node.result.type.with_layout(layout)
    return node, lower_group(node, builder.constants)


def check(name: str, candidate: Candidate) -> None:
    """Prove a candidate, and compare its interpretation with the op's reference."""
    node, low = lowered(name)
    prove(candidate.kernel)
    rng = np.random.default_rng(7)
    shapes = [tuple(evaluate(d, SIZES) for d in v.type.shape) for v in node.operands]
    arrays = [rng.integers(-3, 4, s).astype(np.float32) for s in shapes]
    sizes = [evaluate(e, SIZES) for e in low.scalars]
    symbols = {s.name: n for s, n in zip(low.kernel.symbols, sizes, strict=True)}
    inputs = {
        b.name: a.reshape([evaluate(d, symbols) for d in b.shape])
        for b, a in zip(low.kernel.inputs, arrays, strict=True)
    }
    found = interpret_kernel(candidate.kernel, inputs, symbols)
    (expected,) = node.op.reference(*arrays)
    (result,) = (found[b.name] for b in low.kernel.outputs)
    np.testing.assert_allclose(result.reshape(expected.shape), expected, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("target", ["x86-64-v1", "x86-64-v3", "x86-64-v4", "aarch64"])
@pytest.mark.parametrize("name", CASES)
def test_first_candidate(name: str, target: str) -> None:
    candidate = next(default_candidates(lowered(name)[1].kernel, parse_target(target)))
    assert candidate.template == CASES[name][3]
    check(name, candidate)


@pytest.mark.parametrize("name", ["matmul", "attention scores", "conv", "depthwise", "softmax"])
def test_other_decisions(name: str) -> None:
    target, rng = parse_target("x86-64-v3"), random.Random(3)
    kernel = lowered(name)[1].kernel
    first = next(default_candidates(kernel, target))
    for _ in range(3):
        choices = {n: rng.choice(d.options) for n, d in first.decisions.items()}
        check(name, next(default_candidates(kernel, target, choices)))


@pytest.mark.parametrize("name", CASES)
def test_schedules_replay_from_text(name: str) -> None:
    kernel = lowered(name)[1].kernel
    candidate = next(default_candidates(kernel, parse_target("x86-64-v3")))
    steps = parse_schedule(schedule_text(candidate.schedule))
    assert steps == candidate.schedule
    assert apply(kernel, steps) is candidate.kernel


def test_the_last_candidate_is_the_plain_nest() -> None:
    kernel = lowered("conv")[1].kernel
    *_, last = default_candidates(kernel, parse_target("x86-64-v3"))
    assert last.schedule == () and last.kernel is kernel


def test_channels_that_are_expected_to_be_many_and_images_that_are_small() -> None:
    channels = Symbol("c", 0, 1 << 31, 1, 224)
    op = AvgPool((2, 3, 3), (1, 1, 1), (0, 2, 1, 0, 2, 1), (1, 1, 1))
    builder = Builder(Graph("g"), ConstantStore())
    node = builder.add(op, Value(tensor(F32, (2, channels, 4, 3, 5)), "x"))
    node.result.type = node.result.type.with_layout(channels_last(5))
    kernel = lower_group(node, builder.constants).kernel
    for target in ("x86-64-v3", "x86-64-v4", "aarch64"):
        prove(next(default_candidates(kernel, parse_target(target))).kernel)


def test_images_whose_size_is_computed_are_tiled() -> None:
    """Their dims may seem negative: `(h + 1) // 2 - 3` is, for small `h`."""
    height, width = (floordiv(Symbol(n, 1, 1 << 31, 1, 224) + 1, 2) - 1 for n in "hw")
    builder = Builder(Graph("g"), ConstantStore())
    types = tensor(F32, (1, 10, height, width), LAST), tensor(F32, (16, 10, 3, 3), FILTERS)
    operands = (Value(t, f"v{i}") for i, t in enumerate(types))
    node = builder.add(Conv((1, 1), (0, 0, 0, 0), (1, 1)), *operands)
    node.result.type = node.result.type.with_layout(LAST)
    kernel = lower_group(node, builder.constants).kernel
    for target in ("x86-64-v3", "x86-64-v4", "aarch64"):
        candidate = next(default_candidates(kernel, parse_target(target)))
        assert candidate.template == "tiled"
        prove(candidate.kernel)
