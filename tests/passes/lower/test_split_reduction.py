# SPDX-License-Identifier: Apache-2.0
"""Splitting reductions over lanes: which may be split, and that the two stages say the same."""

import numpy as np
import pytest
from computations import computation

from tilewright.ir.interpreter.stages import run_stages
from tilewright.passes.lower.split_reduction import is_splittable, split_reduction

FORM = """(x: f32[3,n,5]) -> (y: f32[3]) {{ symbol n in [1, 100] hint 10
  stage reduce s(i in 3; j in n, k in 5) -> y[i] : acc = {} then {} }}"""


@pytest.mark.parametrize(
    ("start", "combine", "splittable"),
    [
        ("f32(0.0)", "(acc + x[i, j, k])", True),
        ("f32(1.0)", "(acc * x[i, j, k])", True),
        ("f32(-inf)", "max(acc, x[i, j, k])", True),
        ("f32(inf)", "min(acc, x[i, j, k])", True),
        ("f32(1.0)", "(acc + x[i, j, k])", False),
        ("f32(0.0)", "max(acc, x[i, j, k])", False),
        ("f32(0.0)", "(acc - x[i, j, k])", False),
        ("f32(0.0)", "(x[i, j, k] + acc)", False),
        ("x[i, 0, 0]", "(acc + x[i, j, k])", False),
    ],
)
def test_which_reductions_may_be_split(start: str, combine: str, splittable: bool) -> None:
    (stage,) = computation(FORM.format(start, combine)).stages
    assert is_splittable(stage) is splittable


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("lanes", [1, 4, 8])
@pytest.mark.parametrize("operation", ["+", "max", "*"])
def test_both_stages_together_say_the_same(operation: str, lanes: int, axis: int) -> None:
    start, combine = {
        "+": ("f32(0.0)", "(acc + x[i, j, k])"),
        "*": ("f32(1.0)", "(acc * x[i, j, k])"),
        "max": ("f32(-inf)", "max(acc, x[i, j, k])"),
    }[operation]
    (stage,) = computation(FORM.format(start, combine)).stages
    pair = split_reduction(stage, stage.reduce_axes[axis], lanes)
    x = np.random.default_rng(lanes).uniform(0.5, 1.5, (3, 11, 5)).astype(np.float32)
    whole = run_stages((stage,), {"x": x}, {"n": 11})["y"]
    found = run_stages(pair, {"x": x}, {"n": 11})
    np.testing.assert_allclose(found["y"], whole, rtol=1e-5)
    assert found[pair[0].output.name].shape == (3, lanes)


def test_partial_accumulators_lie_side_by_side() -> None:
    (stage,) = computation(FORM.format("f32(0.0)", "(acc + x[i, j, k])")).stages
    first, second = split_reduction(stage, stage.reduce_axes[0], 8)
    assert first.output.layout.order[-1] == first.output.rank - 1
    assert second.outputs == stage.outputs and second.name == stage.name


def test_lanes_beyond_the_end_add_nothing() -> None:
    (stage,) = computation(FORM.format("f32(0.0)", "(acc + x[i, j, k])")).stages
    first, _ = split_reduction(stage, stage.reduce_axes[0], 4)
    assert "guard((4*j + j_l4 < n), " in str(first) and str(first).endswith(", f32(0.0)))")
    even, _ = split_reduction(stage, stage.reduce_axes[1], 5)
    assert "guard" not in str(even)
