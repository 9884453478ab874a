# SPDX-License-Identifier: Apache-2.0
"""Tune the kernels of a model: search, build, measure, keep.

Trials go to the kernels by their share of the model's time. Candidates are built side by side, a
batch at a time, and measured one by one while nothing else runs. One that beats the best so far is
measured again, longer, before it is kept: the least of many noisy times is a lucky one. What is
kept is on disk at once, so tuning may be stopped at any moment.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Literal

from tilewright.autotune.measure import (
    CONFIRM_ROUNDS,
    ROUNDS,
    Measurement,
    Measurer,
    check_runnable,
)
from tilewright.autotune.records import Record, ScheduleRecords, now
from tilewright.autotune.search import RandomSearch, Search
from tilewright.autotune.space import Point, Space
from tilewright.codegen.cache import CompileCache
from tilewright.codegen.kernels import (
    CompiledKernel,
    compile_kernels,
    finish_compiling,
    start_compiling,
)
from tilewright.codegen.processes import Answer, drop_jobs
from tilewright.ir.errors import CodegenError
from tilewright.ir.loop import Kernel
from tilewright.ir.target import Target, available_cores
from tilewright.passes.schedule.findings import log_refusals

Progress = Callable[[str, int, int], None]

LEAST_GAIN = 1.03
"""A schedule must be this many times faster than the best so far: less is noise."""

_logger = logging.getLogger("tilewright")


@dataclass(frozen=True)
class KernelTask:
    """A kernel to tune: unscheduled, how often the model launches it, and where it comes from.

    ``sizes`` are those at which it is measured, by the names of its symbols; None: typical ones.
    """

    kernel: Kernel
    launches: int
    origin: str
    sizes: Mapping[str, int] | None = None


@dataclass
class Outcome:
    """What became of a kernel; times in nanoseconds, on the target's cores.

    ``schedule`` is the best one, empty if that is the default; ``failed`` counts the trials whose
    candidate did not build, crashed, or computed something else. ``record`` says what became of
    the schedule that was on record before, if there was one.
    """

    kernel: str
    origin: str
    launches: int
    template: str
    baseline_ns: float
    best_ns: float
    schedule: str = ""
    trials: int = 0
    failed: int = 0
    record: Literal["", "confirmed", "beaten", "forgotten"] = ""

    @property
    def gain(self) -> float:
        """How many times faster than the default schedule."""
        return self.baseline_ns / self.best_ns


@dataclass
class _Run:
    """A kernel under way."""

    kernel: Kernel
    baseline: CompiledKernel
    search: Search
    outcome: Outcome
    sizes: Mapping[str, int] | None = None
    open: bool = True

    @property
    def claim(self) -> float:
        """How much this kernel wants the next trial: its share of the time over its trials."""
        return self.outcome.baseline_ns * self.outcome.launches / (1 + self.outcome.trials)


class Tuner:
    """Tunes kernels for a target and keeps the results in ``records``.

    ``version`` is the compiler's; ``seed`` decides the candidates; ``cache`` holds the compiled
    default schedules; ``progress`` is told a phase, how many steps are done, and of how many.
    """

    def __init__(
        self,
        target: Target,
        version: str,
        records: ScheduleRecords,
        *,
        seed: int = 0,
        search: type[Search] = RandomSearch,
        cache: CompileCache | None = None,
        progress: Progress | None = None,
    ) -> None:
        self._target, self._version, self._records = target, version, records
        self._seed, self._search, self._cache = seed, search, cache
        self._progress = progress or (lambda phase, done, of: None)
        self.outcomes: list[Outcome] = []

    def tune(self, tasks: Sequence[KernelTask], trials: int) -> list[Outcome]:
        """Spend that many trials on the kernels; returns what became of each.

        ``outcomes`` holds the same as far as it is known when an exception ends the work.
        TargetError if the target's code cannot run on this machine.
        """
        check_runnable(self._target)
        kernels = {t.kernel.name: t.kernel for t in tasks}
        baselines = compile_kernels(kernels, self._target, self._cache, self._progress)
        with Measurer(self._target, self._seed) as measurer:
            runs = []
            for number, task in enumerate(tasks):
                self._progress("default schedules", number, len(tasks))
                baseline = baselines[task.kernel.name]
                log_refusals(task.kernel.name, task.origin, baseline.refused)
                runs.append(self._begin(measurer, task, baseline))
            self._spend(measurer, runs, trials)
        return self.outcomes

    def _begin(self, measurer: Measurer, task: KernelTask, baseline: CompiledKernel) -> _Run:
        """Measure the default schedule, and the one that is on record."""
        kernel = task.kernel
        first = measurer.compare(kernel, baseline, baseline, sizes=task.sizes)
        ns = min(first.nanoseconds, first.baseline_nanoseconds)
        outcome = Outcome(kernel.name, task.origin, task.launches, baseline.template, ns, ns)
        self.outcomes.append(outcome)
        space = Space(kernel, self._target, baseline.template)
        search = self._search(space, baseline.schedule, self._seed)
        run = _Run(kernel, baseline, search, outcome, task.sizes)
        record = self._records.find(str(kernel), str(self._target), self._version)
        if record is not None:
            space.exclude(record.schedule)
            self._measure_record(measurer, run, record)
        return run

    def _measure_record(self, measurer: Measurer, run: _Run, record: Record) -> None:
        """Start from what is on record, with the times of today; forget it if it does not hold, or
        is no better than the default schedule.

        A record that claims more than it gains would keep better ones out.
        """
        try:
            candidate = finish_compiling(
                run.kernel, start_compiling(run.kernel, self._target, record.schedule)
            )
            found: Measurement | None = self._compare(measurer, run, candidate, CONFIRM_ROUNDS)
        except CodegenError as error:
            _logger.debug("The record of kernel '%s' fails: %s", run.kernel.name, error)
            found = None
        if found is None or found.gain <= 1:
            self._records.forget(record.kernel, record.target, record.version)
            run.outcome.record = "forgotten"
            return
        run.outcome.record = "confirmed"
        self._improve(run.outcome, record.schedule, found)
        self._records.revise(self._record(run, record.schedule, found))

    def _spend(self, measurer: Measurer, runs: list[_Run], trials: int) -> None:
        """Batches of trials until there are no more, or no kernel has schedules left."""
        done = 0
        self._progress("trials", 0, trials)
        while done < trials:
            batch = self._ask(runs, min(trials - done, max(1, available_cores())))
            if not batch:
                break
            futures = [start_compiling(r.kernel, self._target, p.schedule) for r, p in batch]
            try:
                built = [self._finish(run, f) for (run, _), f in zip(batch, futures, strict=True)]
            finally:
                drop_jobs(futures)
            for (run, point), candidate in zip(batch, built, strict=True):
                self._try(measurer, run, point, candidate)
                done += 1
                self._progress("trials", done, trials)

    def _ask(self, runs: list[_Run], count: int) -> list[tuple[_Run, Point]]:
        """The next candidates, each of the kernel that wants a trial most."""
        batch: list[tuple[_Run, Point]] = []
        while len(batch) < count:
            run = max((r for r in runs if r.open), key=lambda r: r.claim, default=None)
            if run is None:
                break
            point = run.search.ask()
            if point is None:
                run.open = False
                continue
            run.outcome.trials += 1
            batch.append((run, point))
        return batch

    def _finish(self, run: _Run, future: "Future[Answer]") -> CompiledKernel | None:
        try:
            return finish_compiling(run.kernel, future)
        except CodegenError as error:
            _logger.debug("A candidate of kernel '%s': %s", run.kernel.name, error)
            return None

    def _try(
        self, measurer: Measurer, run: _Run, point: Point, candidate: CompiledKernel | None
    ) -> None:
        """Measure a candidate, tell the search, and keep what is confirmed to be the best."""
        found: Measurement | None = None
        if candidate is not None:
            try:
                found = self._compare(measurer, run, candidate, ROUNDS)
                if found.gain > LEAST_GAIN * run.outcome.gain:
                    found = self._compare(measurer, run, candidate, CONFIRM_ROUNDS)
            except CodegenError as error:
                _logger.debug("A candidate of kernel '%s': %s", run.kernel.name, error)
                found = None
        run.search.tell(point, None if found is None else found.nanoseconds)
        if found is None:
            run.outcome.failed += 1
        elif found.gain > LEAST_GAIN * run.outcome.gain:
            self._improve(run.outcome, point.schedule, found)
            if run.outcome.record == "confirmed":
                run.outcome.record = "beaten"
            self._records.keep(self._record(run, point.schedule, found))

    def _compare(
        self, measurer: Measurer, run: _Run, candidate: CompiledKernel, rounds: int
    ) -> Measurement:
        expected = run.outcome.baseline_ns * self._target.cores
        return measurer.compare(
            run.kernel, run.baseline, candidate, rounds, expected, sizes=run.sizes
        )

    def _improve(self, outcome: Outcome, schedule: str, found: Measurement) -> None:
        outcome.schedule = schedule
        outcome.best_ns, outcome.baseline_ns = found.nanoseconds, found.baseline_nanoseconds

    def _record(self, run: _Run, schedule: str, found: Measurement) -> Record:
        return Record(
            str(run.kernel),
            str(self._target),
            self._version,
            schedule,
            found.nanoseconds,
            found.baseline_nanoseconds,
            now(),
        )
