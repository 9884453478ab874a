# SPDX-License-Identifier: Apache-2.0
"""The tuner: how trials are spent, what is kept, what a failing candidate costs."""

from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.autotune.conftest import candidate_of
from tilewright.autotune import tuner as tuner_module
from tilewright.autotune.measure import CONFIRM_ROUNDS, ROUNDS, Measurement, Measurer
from tilewright.autotune.records import Record, ScheduleRecords
from tilewright.autotune.space import Space
from tilewright.autotune.tuner import KernelTask, Tuner
from tilewright.codegen.kernels import CompiledKernel, finish_compiling, start_compiling
from tilewright.ir.loop import Kernel
from tilewright.ir.target import Target
from tilewright.passes.schedule.select import replay_schedule


@pytest.fixture
def records(tmp_path: Path) -> Iterator[ScheduleRecords]:
    with ScheduleRecords(tmp_path / "schedules.sqlite") as found:
        yield found


def fake_times(monkeypatch: pytest.MonkeyPatch, times: Mapping[str, float], other: float) -> None:
    """Let schedules take these times instead of being measured."""

    def compare(
        self: Measurer,
        kernel: Kernel,
        baseline: CompiledKernel,
        candidate: CompiledKernel,
        rounds: int = 0,
        expected_nanoseconds: float = 0.0,
        sizes: Mapping[str, int] | None = None,
    ) -> Measurement:
        ns = 1000.0 if candidate is baseline else times.get(candidate.schedule, other)
        return Measurement(ns, 1000.0)

    monkeypatch.setattr(Measurer, "compare", compare)


def test_real_trials(task: KernelTask, target: Target, records: ScheduleRecords) -> None:
    """Whatever the times are: the counts are right, and what is kept holds."""
    told: list[tuple[str, int, int]] = []
    tuner = Tuner(target, "1.0", records, progress=lambda *now: told.append(now))
    (outcome,) = tuner.tune([task], 4)
    assert (outcome.trials, outcome.failed) == (4, 0)
    assert outcome.kernel == task.kernel.name and outcome.origin == task.origin
    assert 100 < outcome.baseline_ns < 1e6
    assert told[-1] == ("trials", 4, 4)
    kept = records.find(str(task.kernel), str(target), "1.0")
    if kept is None:
        assert outcome.schedule == "" and outcome.gain == 1.0
    else:
        assert outcome.schedule == kept.schedule and outcome.gain == pytest.approx(kept.gain)
        replay_schedule(task.kernel, kept.schedule)


def test_what_is_better_is_kept(
    task: KernelTask, target: Target, records: ScheduleRecords, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_times(monkeypatch, {}, 500.0)
    (outcome,) = Tuner(target, "1.0", records).tune([task], 3)
    kept = records.find(str(task.kernel), str(target), "1.0")
    assert kept is not None
    assert (kept.nanoseconds, kept.baseline_nanoseconds) == (500.0, 1000.0)
    assert kept.schedule == outcome.schedule and outcome.gain == 2.0
    replay_schedule(task.kernel, kept.schedule)
    # The next job begins with it, and finds nothing that is better still.
    (again,) = Tuner(target, "1.0", records, seed=1).tune([task], 2)
    assert again.schedule == kept.schedule and again.trials == 2
    assert (outcome.record, again.record) == ("", "confirmed")
    revised = records.find(str(task.kernel), str(target), "1.0")
    assert revised is not None and replace(revised, written=kept.written) == kept


@pytest.mark.parametrize("today", [1000.0, 900.0])
def test_a_record_that_claims_too_much_keeps_nothing_out(
    task: KernelTask,
    default: CompiledKernel,
    target: Target,
    records: ScheduleRecords,
    monkeypatch: pytest.MonkeyPatch,
    today: float,
) -> None:
    point = Space(task.kernel, target, default.template).draw(np.random.default_rng(99))
    assert point is not None
    claim = Record(str(task.kernel), str(target), "1.0", point.schedule, 10.0, 100.0, "now")
    records.keep(claim)
    fake_times(monkeypatch, {point.schedule: today}, 500.0)
    (outcome,) = Tuner(target, "1.0", records).tune([task], 0)
    assert outcome.gain == 1000.0 / today
    assert [r.gain for r in records] == ([] if today == 1000.0 else [1000.0 / today])
    assert outcome.record == ("forgotten" if today == 1000.0 else "confirmed")
    records.revise(claim)
    (outcome,) = Tuner(target, "1.0", records).tune([task], 2)
    assert [(r.schedule, r.gain) for r in records] == [(outcome.schedule, 2.0)]
    assert outcome.record == ("forgotten" if today == 1000.0 else "beaten")


def test_a_lucky_time_is_not_kept(
    task: KernelTask, target: Target, records: ScheduleRecords, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What seems better is measured again, longer; only that time counts."""
    asked: list[int] = []

    def compare(
        self: Measurer,
        kernel: Kernel,
        baseline: CompiledKernel,
        candidate: CompiledKernel,
        rounds: int = ROUNDS,
        expected_nanoseconds: float = 0.0,
        sizes: Mapping[str, int] | None = None,
    ) -> Measurement:
        if candidate is baseline:
            return Measurement(1000.0, 1000.0)
        asked.append(rounds)
        return Measurement(again if rounds == CONFIRM_ROUNDS else 500.0, 1000.0)

    monkeypatch.setattr(Measurer, "compare", compare)
    again = 1000.0
    (outcome,) = Tuner(target, "1.0", records).tune([task], 2)
    assert asked == [ROUNDS, CONFIRM_ROUNDS] * 2 and CONFIRM_ROUNDS > 2 * ROUNDS
    assert (outcome.schedule, outcome.gain, outcome.failed) == ("", 1.0, 0)
    assert list(records) == []
    again = 800.0
    (outcome,) = Tuner(target, "1.0", records).tune([task], 1)
    assert outcome.gain == 1.25 and [r.nanoseconds for r in records] == [800.0]


@pytest.mark.parametrize("times", [(700.0, 1000.0), (1000.0, 700.0)])
def test_the_default_schedule_is_as_fast_as_the_better_of_its_times(
    task: KernelTask,
    target: Target,
    records: ScheduleRecords,
    monkeypatch: pytest.MonkeyPatch,
    times: tuple[float, float],
) -> None:
    monkeypatch.setattr(Measurer, "compare", lambda *_, **__: Measurement(*times))
    (outcome,) = Tuner(target, "1.0", records).tune([task], 0)
    assert (outcome.baseline_ns, outcome.best_ns) == (700.0, 700.0)


def test_what_is_better_is_found_by_real_times(
    task: KernelTask,
    default: CompiledKernel,
    target: Target,
    records: ScheduleRecords,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Beside plain loops, which the compiler would not choose, any tiled schedule is faster."""
    plain = finish_compiling(task.kernel, start_compiling(task.kernel, target, ""))
    plain = replace(plain, template=default.template)
    monkeypatch.setattr(tuner_module, "compile_kernels", lambda *_: {task.kernel.name: plain})
    (outcome,) = Tuner(target, "1.0", records).tune([task], 6)
    assert outcome.failed == 0 and outcome.gain > 1.2
    (record,) = records
    assert record.schedule == outcome.schedule != ""
    best = finish_compiling(task.kernel, start_compiling(task.kernel, target, record.schedule))
    with Measurer(target) as measurer:
        found = measurer.compare(task.kernel, plain, best)
    assert found.gain > 1.1
    assert found.nanoseconds == pytest.approx(record.nanoseconds, rel=1.0)


def test_noise_is_not_kept(
    task: KernelTask, target: Target, records: ScheduleRecords, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_times(monkeypatch, {}, 990.0)
    (outcome,) = Tuner(target, "1.0", records).tune([task], 3)
    assert outcome.schedule == "" and list(records) == []


def test_a_record_that_does_not_hold_is_forgotten(
    task: KernelTask, target: Target, records: ScheduleRecords, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_times(monkeypatch, {}, 2000.0)
    text = str(task.kernel)
    records.keep(Record(text, str(target), "1.0", "split(nowhere, 4)", 1.0, 2.0, "now"))
    (outcome,) = Tuner(target, "1.0", records).tune([task], 0)
    assert outcome.schedule == "" and list(records) == []


def test_failing_candidates_cost_their_trial(
    task: KernelTask,
    default: CompiledKernel,
    target: Target,
    records: ScheduleRecords,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every candidate becomes code that crashes, or computes nothing."""
    bodies = iter(["  unreachable", "  ret i32 0"] * 2)
    wrong = {b: candidate_of(default, b, target) for b in ("  unreachable", "  ret i32 0")}
    monkeypatch.setattr(tuner_module, "finish_compiling", lambda k, f: wrong[next(bodies)])
    (outcome,) = Tuner(target, "1.0", records).tune([task], 4)
    assert (outcome.trials, outcome.failed, outcome.schedule) == (4, 4, "")
    assert list(records) == []


def test_candidates_depend_on_the_seed_only(
    task: KernelTask, target: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_times(monkeypatch, {}, 2000.0)
    asked: list[str] = []
    original = tuner_module.start_compiling

    def note(kernel: Kernel, target: Target, schedule: str) -> object:
        asked.append(schedule)
        return original(kernel, target, schedule)

    monkeypatch.setattr(tuner_module, "start_compiling", note)
    for seed in (5, 5, 6):
        with ScheduleRecords(tmp_path / "r.sqlite") as kept:
            Tuner(target, "1.0", kept, seed=seed).tune([task], 3)
    assert asked[:3] == asked[3:6] and asked[:3] != asked[6:]


def test_trials_follow_the_time(
    task: KernelTask, target: Target, records: ScheduleRecords, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two kernels that take as long, the one that is launched three times gets more trials."""
    fake_times(monkeypatch, {}, 2000.0)
    monkeypatch.setattr(tuner_module, "start_compiling", lambda *_: Future())
    monkeypatch.setattr(tuner_module.Tuner, "_finish", lambda *_: None)
    other = replace(task, kernel=renamed(task.kernel), launches=3)
    outcomes = Tuner(target, "1.0", records).tune([task, other], 8)
    assert [o.trials for o in outcomes] == [2, 6]
    assert [o.failed for o in outcomes] == [2, 6]


def test_an_interrupt_leaves_what_was_found(
    task: KernelTask, target: Target, records: ScheduleRecords, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_times(monkeypatch, {}, 500.0)

    def stop(phase: str, done: int, of: int) -> None:
        if (phase, done) == ("trials", 1):
            raise KeyboardInterrupt

    tuner = Tuner(target, "1.0", records, progress=stop)
    with pytest.raises(KeyboardInterrupt):
        tuner.tune([task], 50)
    assert [o.gain for o in tuner.outcomes] == [2.0]
    assert [r.gain for r in records] == [2.0]


def renamed(kernel: Kernel) -> Kernel:
    """The same kernel under another name, as if it were another form."""
    return Kernel(
        "kother",
        kernel.inputs,
        kernel.outputs,
        kernel.symbols,
        kernel.stages,
        kernel.body,
    )
