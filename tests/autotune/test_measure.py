# SPDX-License-Identifier: Apache-2.0
"""Measuring: wrong, crashing and hanging candidates cost their own trial; times are sensible."""

import itertools
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.autotune.conftest import candidate_of
from tilewright.autotune import measure_worker
from tilewright.autotune.loading import random_array
from tilewright.autotune.measure import (
    Measurer,
    check_runnable,
    on_cores,
    typical_size,
)
from tilewright.autotune.measure_worker import Disagreement, best_times, check_same
from tilewright.autotune.space import Space
from tilewright.codegen.kernels import CompiledKernel, finish_compiling, start_compiling
from tilewright.codegen.llvm.host import DIRECT_WORK
from tilewright.ir.dtypes import BF16, BOOL, F16, F32, F64, I8, I32, DType
from tilewright.ir.errors import CodegenError, TargetError
from tilewright.ir.expr import UNBOUNDED, Symbol, index
from tilewright.ir.loop import Kernel
from tilewright.ir.rewrite import evaluate
from tilewright.ir.target import Target, parse_target

NOTHING = "  ret i32 0"
FAILS = "  ret i32 7"
TRAPS = "  call void @llvm.trap()\n  unreachable"
HANGS = 'entry:\n  br label %again\nagain:\n  call void asm sideeffect "", ""()\n  br label %again'


@pytest.fixture(scope="module")
def measurer(target: Target) -> Iterator[Measurer]:
    with Measurer(target) as found:
        yield found


def test_the_default_against_itself(
    measurer: Measurer, product: Kernel, default: CompiledKernel
) -> None:
    found = measurer.compare(product, default, default)
    operations = 24 * 16 * 32 * 2
    assert operations / 200 < found.nanoseconds < operations * 20
    assert 0.3 < found.gain < 3


def test_a_schedule_that_is_slower(
    measurer: Measurer, product: Kernel, default: CompiledKernel, target: Target
) -> None:
    plain = finish_compiling(product, start_compiling(product, target, ""))
    assert plain.schedule == ""
    assert measurer.compare(product, default, plain).gain < 0.7


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (NOTHING, r"Output 'y0' is .* where the default schedule gives .* values differ"),
        (FAILS, "ends with status 7"),
        (TRAPS, r"Measuring 'k\w+' failed: the worker ended with status -\d+"),
    ],
)
def test_a_wrong_candidate(
    measurer: Measurer,
    product: Kernel,
    default: CompiledKernel,
    target: Target,
    body: str,
    message: str,
) -> None:
    candidate = candidate_of(default, body, target)
    with pytest.raises(CodegenError, match=message):
        measurer.compare(product, default, candidate)
    assert measurer.compare(product, default, default).nanoseconds > 0


def test_a_missing_task(
    measurer: Measurer, product: Kernel, default: CompiledKernel, target: Target
) -> None:
    space, generator = Space(product, target, default.template), np.random.default_rng(0)
    tasks, candidate = 1, default
    while tasks == 1:  # whether the default schedule has several depends on the target
        point = space.draw(generator)
        assert point is not None
        candidate = finish_compiling(product, start_compiling(product, target, point.schedule))
        tasks = evaluate(candidate.tasks, {})
    assert measurer.compare(product, default, candidate).nanoseconds > 0
    fewer = replace(candidate, tasks=index(tasks - 1))
    with pytest.raises(CodegenError, match="values differ"):
        measurer.compare(product, default, fewer)


def test_a_candidate_that_hangs(product: Kernel, default: CompiledKernel, target: Target) -> None:
    candidate = candidate_of(default, HANGS, target)
    message = r"the worker took longer than 1\.5 s"
    with Measurer(target, timeout=1.5) as measurer, pytest.raises(CodegenError, match=message):
        measurer.compare(product, default, candidate)


def test_a_schedule_that_does_not_hold_is_not_built(product: Kernel, target: Target) -> None:
    axis = product.stages[0].reduce_axes[0].name
    for schedule in ("nonsense", f"parallel({axis})", "split(no_such_loop, 4)"):
        with pytest.raises(CodegenError, match=product.name):
            finish_compiling(product, start_compiling(product, target, schedule))


class Calls:
    """Calls of two kernels on a clock of their own; ``slow`` is how much each is slowed down by
    other work, call by call, 1 when there is no more.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *nanoseconds: float) -> None:
        self.now = 0.0
        self.slow: list[list[float]] = [[] for _ in nanoseconds]
        self.samples: list[list[int]] = [[] for _ in nanoseconds]
        self.calls = [self._call(i, ns) for i, ns in enumerate(nanoseconds)]
        clock = SimpleNamespace(thread_time_ns=lambda: self.now)
        monkeypatch.setattr(measure_worker, "time", clock)

    def _call(self, number: int, nanoseconds: float) -> Any:
        def call(times: int = 1) -> int:
            factor = self.slow[number].pop(0) if self.slow[number] else 1.0
            self.now += nanoseconds * times * factor
            self.samples[number].append(times)
            return 0

        return call


def test_the_least_of_all_samples_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = Calls(monkeypatch, 1000.0, 2500.0)
    calls.slow = [[1.1] * 10, [1.2] * 12]  # the probes, and the first samples
    assert best_times(calls.calls, 9) == [1000.0, 2500.0]
    assert all(len(samples) > 9 for samples in calls.samples)
    # A sample takes about two milliseconds, whatever the kernel takes.
    assert 1500 < calls.samples[0][-1] <= 2000 and 600 < calls.samples[1][-1] <= 800


def test_a_hopeless_candidate_is_not_measured_further(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = Calls(monkeypatch, 1000.0, 3500.0)
    assert best_times(calls.calls, 1000) == [1000.0, 3500.0]
    assert all(len(samples) < 20 for samples in calls.samples)
    calls = Calls(monkeypatch, 1000.0, 2900.0)
    best_times(calls.calls, 1000)
    assert all(len(samples) > 1000 for samples in calls.samples)


def test_a_kernel_of_no_time_is_not_repeated_forever(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = Calls(monkeypatch, 0.0, 0.0)
    assert best_times(calls.calls, 2) == [1.0, 1.0]
    assert max(map(max, calls.samples)) == 1 << 20


@pytest.mark.parametrize(
    ("tasks", "work", "cores", "expected"),
    [
        (1, 10 * DIRECT_WORK, 4, 1000.0),
        (8, DIRECT_WORK, 4, 1000.0),
        (8, 10 * DIRECT_WORK, 4, 250.0),
        (9, 10 * DIRECT_WORK, 4, 1000.0 * 3 / 9),
        (3, 10 * DIRECT_WORK, 4, 1000.0 / 3),
        (8, 10 * DIRECT_WORK, 1, 1000.0),
    ],
)
def test_time_on_cores(tasks: int, work: int, cores: int, expected: float) -> None:
    assert on_cores(1000.0, tasks, work, cores) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("symbol", "size"),
    [
        (Symbol("n"), 1),
        (Symbol("n", 0, UNBOUNDED, 1, 17), 17),
        (Symbol("n", 3), 3),
        (Symbol("n", 0, UNBOUNDED, 8), 8),
        (Symbol("n", 0, 5, 1, 9), 5),
    ],
)
def test_sizes(symbol: Symbol, size: int) -> None:
    assert typical_size(symbol) == size


def test_a_target_that_does_not_run_here(target: Target) -> None:
    check_runnable(target)
    other = "aarch64" if target.arch == "x86-64" else "x86-64-v3"
    with pytest.raises(TargetError, match="cannot be measured on this machine"):
        check_runnable(parse_target(other))
    with pytest.raises(TargetError, match="without imaginary"):
        check_runnable(replace(target, features=(*target.features, "imaginary")))


SPECIAL = np.array([np.nan, np.inf, -np.inf, 0.0, 1.0])


def test_equal_arrays_are_the_same() -> None:
    for dtype in (F32, BF16):
        check_same("y", dtype, SPECIAL.astype(dtype.numpy), SPECIAL.astype(dtype.numpy))
    rounded = np.array([1.0, -2e-3, 100.0], np.float32)
    check_same("y", F32, rounded, np.array([1.0002, 0.0, 100.009], np.float32))
    check_same("y", I32, np.arange(4), np.arange(4))
    check_same("y", F32, np.zeros((0, 3), np.float32), np.zeros((0, 3), np.float32))


def wrong_pairs() -> Iterator[tuple[DType, np.ndarray, np.ndarray]]:
    base = SPECIAL.astype(np.float32)
    for at, value in itertools.product(range(5), (2.0, np.nan, np.inf, -np.inf)):
        changed = base.copy()
        changed[at] = value
        if not np.array_equal(changed, base, equal_nan=True):
            yield F32, changed, base
    yield F32, np.float32([1.01, 5]), np.float32([1, 5])
    yield F32, np.float32([100.02, 5]), np.float32([100, 5])
    yield F32, np.float32([1e-30, 0]), np.float32([0, 0])
    yield I32, np.array([1, 2]), np.array([1, 3])


@pytest.mark.parametrize(("dtype", "got", "expected"), list(wrong_pairs()))
def test_different_arrays(dtype: DType, got: np.ndarray, expected: np.ndarray) -> None:
    with pytest.raises(Disagreement, match="1 of"):
        check_same("y", dtype, got, expected)


@pytest.mark.parametrize(
    ("dtype", "rounding", "fault"),
    [(F64, 1e-12, 1e-6), (F32, 1e-5, 1e-3), (F16, 1e-2, 0.1), (BF16, 1e-2, 0.1)],
    ids=str,
)
def test_sums_in_another_order_are_the_same(dtype: DType, rounding: float, fault: float) -> None:
    base = np.linspace(1, 2, 50)
    expected = base.astype(dtype.numpy)
    check_same("y", dtype, (base * (1 + rounding)).astype(dtype.numpy), expected)
    with pytest.raises(Disagreement, match="values differ"):
        check_same("y", dtype, (base * (1 + fault)).astype(dtype.numpy), expected)


def test_random_inputs_differ_between_buffers() -> None:
    generator = np.random.default_rng(0)
    first, second = (random_array(F32, (100,), generator) for _ in range(2))
    assert first.dtype == np.float32 and not np.array_equal(first, second)
    assert set(random_array(BOOL, (100,), generator).tolist()) == {False, True}
    assert set(random_array(I8, (1000,), generator).tolist()) == set(range(10))
