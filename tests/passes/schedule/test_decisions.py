# SPDX-License-Identifier: Apache-2.0
"""The decisions of templates: the options of one are schedules that differ, the default among
them.
"""

import random

import pytest

from tests.passes.schedule import test_random_schedules as random_schedules
from tests.passes.schedule import test_templates as templates
from tilewright.ir.loop import Kernel
from tilewright.ir.target import Target, parse_target
from tilewright.passes.schedule.defaults import Candidate, default_candidates
from tilewright.passes.schedule.defaults.plan import Decision, Plan

TARGETS = ("x86-64-v3", "opencl")


def kernel_of(form: str, seed: int) -> Kernel:
    shapes = random_schedules.Shapes(random.Random(f"{form}{seed}"))
    return random_schedules.lowered(random_schedules.FORMS[form](shapes))[1].kernel


def alternatives(kernel: Kernel, target: Target, name: str, first: Candidate) -> list[Candidate]:
    """What the template makes with each option of one decision; nothing where it stops."""
    found = []
    for option in first.decisions[name].options:
        candidates = default_candidates(kernel, target, {name: option})
        found += [c for c in candidates if c.template == first.template][:1]
    return found


def check_options(kernel: Kernel, target: Target) -> None:
    first = next(default_candidates(kernel, target))
    for name, decision in first.decisions.items():
        assert decision.chosen in decision.options
        found = alternatives(kernel, target, name, first)
        assert first.schedule in {c.schedule for c in found}
        assert len({c.schedule for c in found}) == len(found), (name, decision)
        assert len({c.kernel for c in found}) == len(found), (name, decision)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", templates.CASES)
def test_options_make_different_kernels(name: str, target: str) -> None:
    check_options(templates.lowered(name)[1].kernel, parse_target(target))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("form", random_schedules.FORMS)
def test_options_of_random_kernels_make_different_kernels(form: str, target: str) -> None:
    for seed in range(3):
        check_options(kernel_of(form, seed), parse_target(target))


def test_one_option_is_kept_of_those_with_the_same_effect() -> None:
    plan = Plan(templates.lowered("matmul")[1].kernel, {"other": 9})
    size = 10
    assert plan.choose("block", 16, (4, 8, 12, 32), lambda n: min(n, size)) == 16
    assert plan.decisions["block"] == Decision(16, (4, 8, 16))
    assert plan.choose("other", 4, (8, 12, 32), lambda n: min(n, size)) == 9
    assert plan.decisions["other"] == Decision(9, (4, 8, 12))
