# SPDX-License-Identifier: Apache-2.0
"""The machines that tests pretend to be."""

import pytest

from tests.targets import NARROW, WIDE, be_machine, fixed_target, runnable_targets, runs_here
from tilewright.ir import target as target_module
from tilewright.ir.target import parse_target


def test_native_becomes_another_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target_module, "_native", target_module._native)
    lesser = runnable_targets()[-1]
    be_machine(str(lesser))
    assert parse_target("native").features == lesser.features
    assert parse_target("native,cores=3").features == lesser.features


def test_a_machine_that_does_not_run_here_is_refused() -> None:
    other = "aarch64" if parse_target("native").arch == "x86-64" else "x86-64"
    with pytest.raises(pytest.UsageError, match=f"does not run code for '{other}'"):
        be_machine(other)


def test_targets_differ_in_all_that_passes_ask() -> None:
    assert NARROW.lanes(4) < WIDE.lanes(4) and NARROW.registers < WIDE.registers
    assert NARROW.has_fma < WIDE.has_fma and NARROW.cores < WIDE.cores


def test_what_is_measured_runs_here() -> None:
    assert runs_here(fixed_target()) and all(map(runs_here, runnable_targets()))
    assert not runs_here(parse_target("x86-64+avxvnniint8,cores=2"))
