# SPDX-License-Identifier: Apache-2.0
"""Targets for tests: named ones, so that no expectation follows from the machine in use.

Tests of passes and schedules name their target: ``native`` raises there. Tests that run code for
``native`` hold the values it computes, never its shape. ``pytest --machine x86-64-v3`` lets
``native`` be another target that this machine can run, as if the tests ran on such a machine.
"""

from dataclasses import replace

import pytest

from tilewright.autotune.measure import check_runnable
from tilewright.ir import target as target_module
from tilewright.ir.errors import TargetError
from tilewright.ir.target import Target, parse_target

LEVELS = ("x86-64-v2", "x86-64-v3", "x86-64-v4")
# Two that differ in all that a pass may ask: width and number of vectors, FMA, cores.
NARROW, WIDE = parse_target("x86-64-v2,cores=2"), parse_target("x86-64-v4,cores=16")


def runs_here(target: Target) -> bool:
    """True if this machine executes code for the target."""
    try:
        check_runnable(target)
    except TargetError:
        return False
    return True


def runnable_targets() -> list[Target]:
    """This machine, and every level of x86-64 that it executes."""
    levels = [parse_target(text) for text in ("x86-64", *LEVELS)]
    return [parse_target("native"), *filter(runs_here, levels)]


def fixed_target(cores: int = 2) -> Target:
    """The target for tests that measure: the same on every x86-64 machine that has AVX2."""
    texts = ("x86-64-v3", "x86-64-v2", "x86-64", "aarch64")
    targets = (parse_target(f"{text},cores={cores}") for text in texts)
    return next(t for t in targets if runs_here(t))


def refuse_native() -> Target:
    """Stands in for the detection of this machine where tests must not follow it."""
    raise AssertionError("This test's result follows from the machine in use: name a target.")


def be_machine(text: str) -> None:
    """Let ``native`` be that target from now on; UsageError unless it runs here."""
    target = parse_target(text)
    if not runs_here(target):
        raise pytest.UsageError(f"--machine: this machine does not run code for '{text}'.")
    target_module._native = lambda: replace(target, cores=target_module.available_cores())
