# SPDX-License-Identifier: Apache-2.0
"""Runs that are ended: by signals that Python hears during them, and by other threads."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from tilewright.errors import CancelledError, ModelError
from tilewright.runtime import interruptible, load
from tilewright.runtime.interruptible import QuickCalls, interruptibly
from tilewright.runtime.model import Model

Make = Callable[..., bytes]
SOON = 0.1
LIMIT = 1.0
"""Seconds within which a run ends."""


def feeds(count: int, value: float = 1) -> dict[str, np.ndarray]:
    return {"x": np.full(count, value, np.float32)}


@pytest.fixture(params=["host_endless", "host_deaf"])
def model(request: pytest.FixtureRequest, make: Make, monkeypatch: pytest.MonkeyPatch) -> Model:
    """Runs until it is told to end if its input is not 0: one kernel for ever, or many kernels.

    Since it is the value that decides, a quick run tells nothing of the next one.
    """
    monkeypatch.setattr(interruptible, "_QUICK_SECONDS", -1.0)
    return load(make(request.param), threads=2)


class Alarm(Exception):
    pass


@pytest.fixture
def alarm() -> Iterator[list[float]]:
    """A handler that raises after a number of calls; the times of the calls."""
    heard: list[float] = []

    def handle(number: int, frame: object) -> None:
        heard.append(time.monotonic())
        if len(heard) % 3 == 0:
            raise Alarm

    before = signal.signal(signal.SIGALRM, handle)
    yield heard
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("count", [1, 2, 1000])
def test_handlers_run_meanwhile(model: Model, alarm: list[float], count: int) -> None:
    """Two calls of the handler are heard at once and change nothing; the third one raises."""
    for turn in (1, 2):
        signal.setitimer(signal.ITIMER_REAL, SOON, SOON)
        start = time.monotonic()
        with pytest.raises(Alarm):
            model.run(feeds(count))
        signal.setitimer(signal.ITIMER_REAL, 0)
        assert len(alarm) == 3 * turn
        assert time.monotonic() - alarm[-1] < LIMIT
        assert alarm[-1] - start < 3 * SOON + LIMIT
        assert model.run(feeds(count, 0))["y"].shape == (count,)


def test_control_c(model: Model) -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    timer = threading.Timer(SOON, os.kill, (os.getpid(), signal.SIGINT))
    try:
        timer.start()
        start = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            model.run(feeds(7))
        assert time.monotonic() - start < SOON + LIMIT
    finally:
        timer.join()
        signal.signal(signal.SIGINT, before)
    assert model.run(feeds(7, 0))["y"].shape == (7,)


def test_a_profiled_run(model: Model, alarm: list[float]) -> None:
    signal.setitimer(signal.ITIMER_REAL, SOON, SOON)
    with pytest.raises(Alarm):
        model.run_profiled(feeds(7))


def test_other_threads_end_runs(model: Model) -> None:
    found: list[BaseException] = []

    def run() -> None:
        try:
            model.run(feeds(5))
        except CancelledError as error:
            found.append(error)

    threads = [threading.Thread(target=run) for _ in range(3)]
    model.cancel()  # nothing runs
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + 10
    while len(found) < 3 and time.monotonic() < deadline:
        time.sleep(0.02)
        model.cancel()
    for thread in threads:
        thread.join()
    assert [str(error) for error in found] == ["The run was cancelled."] * 3
    assert model.run(feeds(5, 0))["y"].shape == (5,)


def test_a_run_that_goes_on_beside_a_cancelled_one(make: Make, alarm: list[float]) -> None:
    """Signals end the run of the main thread, and no other."""
    model = load(make("host_deaf"), threads=2)
    failed: list[BaseException] = []

    def run() -> None:
        try:
            model.run(feeds(5))
        except CancelledError as error:
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    signal.setitimer(signal.ITIMER_REAL, SOON, SOON)
    with pytest.raises(Alarm):
        model.run(feeds(5))
    signal.setitimer(signal.ITIMER_REAL, 0)
    time.sleep(SOON)
    assert thread.is_alive() and not failed
    while thread.is_alive():
        model.cancel()
        thread.join(0.05)
    assert len(failed) == 1


def test_the_error_of_a_run_arrives(make: Make) -> None:
    with pytest.raises(ModelError, match="Value 42 is not -7"):
        load(make("host_fails")).run(feeds(3, 0))


def test_a_process_ends_at_control_c(make: Make, tmp_path: Path) -> None:
    (tmp_path / "m.tw").write_bytes(make("host_endless"))
    code = """
import numpy as np, sys
from tilewright.runtime import load
model = load("m.tw")
print("runs", flush=True)
model.run({"x": np.ones(4, np.float32)})
"""
    for number in (signal.SIGINT, signal.SIGTERM):
        process = subprocess.Popen(
            [sys.executable, "-c", code], cwd=tmp_path, stdout=subprocess.PIPE, stderr=-3
        )
        assert process.stdout is not None and process.stdout.readline() == b"runs\n"
        time.sleep(0.3)
        process.send_signal(number)
        start = time.monotonic()
        assert process.wait(timeout=60) == -number
        assert time.monotonic() - start < LIMIT


# --- which runs get a thread of their own ---


def test_quick_runs_are_called_as_they_are(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interruptible, "_QUICK_SECONDS", 1000.0)  # on any machine
    made: list[str] = []
    real = interruptible._thread.start_new_thread
    monkeypatch.setattr(
        interruptible._thread, "start_new_thread", lambda *a: (made.append("thread"), real(*a))[1]
    )
    model = load(make())
    for count in (100, 100, 150, 200, 3, 100, 0):
        model.run(feeds(count))
    assert len(made) == 1  # for the first one, since nothing was known
    model.run(feeds(500))
    assert len(made) == 2  # far more than was ever seen
    model.run(feeds(900))
    assert len(made) == 2


def test_slow_runs_get_threads_each_time(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interruptible, "_QUICK_SECONDS", -1.0)
    waits: list[object] = []
    wait = interruptible._Job.wait
    monkeypatch.setattr(
        interruptible._Job, "wait", lambda self, c: (waits.append(self), wait(self, c))[1]
    )
    model = load(make())
    for _ in range(3):
        model.run(feeds(10))
    assert len(waits) == 3
    threading.Thread(target=model.run, args=(feeds(10),)).run()
    other = threading.Thread(target=model.run, args=(feeds(10),))
    other.start()
    other.join()
    assert len(waits) == 4  # other threads hear no signals


def test_what_is_known_of_sizes() -> None:
    calls = QuickCalls()
    assert not calls.include([1, 1])
    assert not calls.note([10, 10], 1.0) and not calls.include([1, 1])
    assert calls.note([10, 10], 0.001)
    assert calls.include([20, 5]) and not calls.include([21, 5]) and not calls.include([1, 30])


def test_no_thread_to_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(interruptible._thread, "start_new_thread", refuse)
    done: list[int] = []
    interruptibly(lambda: done.append(1), lambda: None)
    assert done == [1]


def test_an_interrupt_before_the_call_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then it is never made: nobody would wait for it."""
    started: list[Callable[[], None]] = []

    def interrupted(run: Callable[[], None], _: object) -> int:
        started.append(run)
        raise KeyboardInterrupt

    monkeypatch.setattr(interruptible._thread, "start_new_thread", interrupted)
    done: list[int] = []
    with pytest.raises(KeyboardInterrupt):
        interruptibly(lambda: done.append(1), lambda: None)
    started[0]()
    assert not done
