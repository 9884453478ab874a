# SPDX-License-Identifier: Apache-2.0
"""Compiling with schedules on record: they are used if they hold, and never trusted."""

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import tilewright
from tests.compiler.conftest import DIGITS
from tilewright.autotune.records import Record, ScheduleRecords
from tilewright.autotune.space import Space
from tilewright.autotune.tuner import KernelTask
from tilewright.ir.errors import ScheduleError
from tilewright.ir.target import Target, parse_target
from tilewright.passes.schedule.legality import prove
from tilewright.passes.schedule.schedule import apply, parse_schedule, schedule_text
from tilewright.tuning import kernel_tasks

OPTIONS = tilewright.CompileOptions()


@pytest.fixture(scope="module")
def native() -> Target:
    return parse_target("native")


@pytest.fixture(scope="module")
def task(native: Target) -> KernelTask:
    """A convolution of the digit classifier."""
    return kernel_tasks(DIGITS, native)[1]


@pytest.fixture(scope="module")
def other_schedule(task: KernelTask, native: Target) -> str:
    """A schedule of that kernel that is not the default one."""
    point = Space(task.kernel, native, "tiled").draw(np.random.default_rng(3))
    assert point is not None
    return point.schedule


@pytest.fixture
def kept(task: KernelTask, native: Target, tmp_path: Path) -> Callable[[str], Path]:
    """Makes a file with one record, of that kernel under a schedule."""

    def make(schedule: str) -> Path:
        path = tmp_path / "schedules.sqlite"
        record = Record(
            str(task.kernel), str(native), tilewright.__version__, schedule, 1.0, 2.0, "now"
        )
        with ScheduleRecords(path) as records:
            records.keep(record)
        return path

    return make


def rows(model: tilewright.CompiledModel) -> dict[str, tuple[str, str]]:
    assert model.report is not None
    return {k.name: (k.template, k.schedule) for k in model.report.kernels}


def test_a_record_is_used(
    task: KernelTask,
    other_schedule: str,
    kept: Callable[[str], Path],
    digits: tilewright.CompiledModel,
    images: np.ndarray,
) -> None:
    options = replace(OPTIONS, records=kept(other_schedule))
    tuned = tilewright.compile(DIGITS, options=options)
    name = task.kernel.name
    assert rows(tuned)[name] == ("tuned", other_schedule)
    assert rows(digits)[name] != rows(tuned)[name]
    assert {k: v for k, v in rows(tuned).items() if k != name} == {
        k: v for k, v in rows(digits).items() if k != name
    }
    np.testing.assert_allclose(tuned(images), digits(images), rtol=1e-4, atol=1e-5)
    # From the compile cache it is the same, and without records it is as before.
    again = tilewright.compile(DIGITS, options=options)
    assert again.report is not None and all(k.cached for k in again.report.kernels)
    assert rows(again) == rows(tuned)
    assert rows(tilewright.compile(DIGITS, options=replace(options, tuned=False))) == rows(digits)


@pytest.mark.parametrize(
    "schedule",
    [
        "no schedule at all",
        "split(nowhere, 4)",
        "",
        "split(LOOP, 1000000000); unroll(LOOP_i)",
        "split(LOOP, 0)",
        "split(LOOP, " + "9" * 5000 + ")",
    ],
)
def test_a_record_that_does_not_hold(
    task: KernelTask,
    kept: Callable[[str], Path],
    digits: tilewright.CompiledModel,
    images: np.ndarray,
    schedule: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    text = schedule.replace("LOOP", task.kernel.stages[-1].axes[1].name)
    with caplog.at_level(logging.WARNING, "tilewright"):
        model = tilewright.compile(DIGITS, options=replace(OPTIONS, records=kept(text)))
    template, used = rows(model)[task.kernel.name]
    assert (template, used) == (("tuned", "") if schedule == "" else rows(digits)[task.kernel.name])
    # Nothing is told of a record that is left out; the plain loops, which hold, are slow.
    assert ["is slow" in message for message in caplog.messages] == [True] * (schedule == "")
    np.testing.assert_allclose(model(images), digits(images), rtol=1e-4, atol=1e-5)


def test_a_schedule_that_is_not_proven_is_refused(
    task: KernelTask, kept: Callable[[str], Path], digits: tilewright.CompiledModel
) -> None:
    """The proof, and not only the steps, stands between a record and the code."""
    broken = parse_schedule(f"vectorize({task.kernel.stages[1].reduce_axes[0].name})")
    with pytest.raises(ScheduleError):
        prove(apply(task.kernel, broken))
    options = replace(OPTIONS, records=kept(schedule_text(broken)))
    model = tilewright.compile(DIGITS, options=options)
    assert rows(model)[task.kernel.name] == rows(digits)[task.kernel.name]
