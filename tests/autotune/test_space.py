# SPDX-License-Identifier: Apache-2.0
"""The schedule space: what can be decided, drawn without repetition."""

from collections.abc import Iterator, Mapping

import numpy as np
import pytest

from tilewright.autotune import space as space_module
from tilewright.autotune.space import Space
from tilewright.codegen.kernels import CompiledKernel
from tilewright.ir.loop import Kernel
from tilewright.ir.target import Target
from tilewright.passes.schedule.defaults import Candidate, default_candidates
from tilewright.passes.schedule.defaults.plan import Plan
from tilewright.passes.schedule.select import replay_schedule
from tilewright.passes.schedule.steps import Split


def draws(space: Space, seed: int, count: int) -> list[str]:
    generator = np.random.default_rng(seed)
    points = [space.draw(generator) for _ in range(count)]
    return [p.schedule for p in points if p is not None]


def fresh(product: Kernel, target: Target, default: CompiledKernel) -> Space:
    return Space(product, target, default.template)


def test_points_are_schedules_that_hold(
    product: Kernel, target: Target, default: CompiledKernel
) -> None:
    space = fresh(product, target, default)
    generator = np.random.default_rng(0)
    points = [space.draw(generator) for _ in range(12)]
    assert len({p.schedule for p in points if p is not None}) == 12
    for point in points[:3]:
        assert point is not None
        assert replay_schedule(product, point.schedule).proof.reads > 0
        first = next(default_candidates(product, target, dict(point.choices)))
        assert {n: d.chosen for n, d in first.decisions.items()} == dict(point.choices)


def test_options_beside_the_default_are_drawn(
    product: Kernel, target: Target, default: CompiledKernel
) -> None:
    space = fresh(product, target, default)
    generator = np.random.default_rng(1)
    values: dict[str, set[int]] = {}
    for _ in range(16):
        point = space.draw(generator)
        if point is None:
            break
        for name, value in point.choices:
            values.setdefault(name, set()).add(value)
    assert all(len(found) > 1 for found in values.values())
    assert len(values) >= 2


def test_the_seed_decides(product: Kernel, target: Target, default: CompiledKernel) -> None:
    first, again, other = (draws(fresh(product, target, default), s, 8) for s in (3, 3, 4))
    assert first == again
    assert first != other


def branching(kernel: Kernel, target: Target, choices: Mapping[str, int]) -> Iterator[Candidate]:
    """Three schedules: a second decision appears only after one choice of the first."""
    plan = Plan(kernel, choices)
    name = next(iter(kernel.stages[0].axes)).name
    if plan.choose("split", 1, (1, 2)) == 2:
        plan.do(Split(name, plan.choose("factor", 4, (4, 8))))
        name = f"{name}_o"
    yield Candidate(plan.schedule, plan.kernel, "branching", plan.decisions)


def test_decisions_that_appear_later(
    product: Kernel, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(space_module, "default_candidates", branching)
    for seed in range(5):
        space = Space(product, target, "branching")
        found = draws(space, seed, 4)
        assert len(found) == 3 and len(set(found)) == 3
        assert space.is_empty


def test_what_is_excluded_is_not_drawn(
    product: Kernel, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(space_module, "default_candidates", branching)
    whole = draws(Space(product, target, "branching"), 0, 4)
    space = Space(product, target, "branching")
    space.exclude(whole[0])
    assert set(draws(space, 0, 4)) == set(whole[1:])


def test_a_template_that_stops_is_not_drawn(
    product: Kernel, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stops(kernel: Kernel, target: Target, choices: Mapping[str, int]) -> Iterator[Candidate]:
        plan = Plan(kernel, choices)
        if plan.choose("way", 0, (0, 1, 2)) == 1:
            return
        if plan.choices.get("way") == 2:
            plan.do(Split(kernel.stages[0].axes[0].name, 4))
        yield Candidate(plan.schedule, plan.kernel, "stops", plan.decisions)

    monkeypatch.setattr(space_module, "default_candidates", stops)
    assert len(draws(Space(product, target, "stops"), 0, 3)) == 2


def test_a_kernel_without_decisions(product: Kernel, target: Target) -> None:
    space = Space(product, target, "serial")
    assert space.is_empty
    assert space.draw(np.random.default_rng(0)) is None
