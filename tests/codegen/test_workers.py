# SPDX-License-Identifier: Apache-2.0
"""Worker processes end with what they were started for: their parent, and their job."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tilewright.codegen.processes import WorkerPool, drop_jobs, module_command, result_of
from tilewright.ir.errors import CodegenError

LIMIT = 1.0

# A worker that notes its number, and is busy in C code, as LLVM is, for a long time.
BUSY = """
import os, sys
from tilewright.codegen.llvm.worker import read_message, write_message

def main():
    while (message := read_message(sys.stdin.buffer)) is not None:
        header, _ = message
        with open(header["note"], "w") as file:
            file.write(str(os.getpid()))
        if header["long"]:
            sum(range(10 ** 11))
        write_message(sys.stdout.buffer, {}, b"done")
"""

PARENT = """
import signal
from tilewright.codegen.processes import WorkerPool, module_command, result_of
signal.signal(signal.SIGINT, signal.default_int_handler)
pool = WorkerPool(module_command("busy_worker"), 2)
futures = [pool.submit("k", {"note": f"note{n}", "long": n < 2}, b"", 600) for n in range(2)]
for future in futures:
    result_of(future)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "busy_worker.py").write_text(BUSY)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def worker_in(note: Path) -> int:
    """The number of the process that has noted that it is busy."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if note.exists() and (text := note.read_text()):
            return int(text)
        time.sleep(0.01)
    raise AssertionError("The worker did not begin.")


def is_alive(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def wait_for_end(*processes: int) -> float:
    start = time.monotonic()
    while any(map(is_alive, processes)) and time.monotonic() < start + 30:
        time.sleep(0.005)
    return time.monotonic() - start


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_workers_end_with_their_parent(folder: Path, number: int) -> None:
    """At once, though they are in the middle of their work, and cannot look around."""
    path = os.pathsep.join([str(folder), *sys.path])
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT], env={**os.environ, "PYTHONPATH": path}, stderr=-3
    )
    workers = [worker_in(folder / f"note{n}") for n in range(2)]
    assert all(map(is_alive, workers))
    parent.send_signal(number)
    parent.wait(timeout=30)
    assert wait_for_end(*workers) < LIMIT


def test_a_parent_that_is_gone_already(folder: Path) -> None:
    code = "from tilewright.codegen.llvm.worker import end_with_parent; end_with_parent(1234567)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 1


def test_a_job_that_is_given_up(folder: Path) -> None:
    pool = WorkerPool(module_command("busy_worker"), 1)
    job = pool.submit("k", {"note": "first", "long": True}, b"", 600)
    waiting = pool.submit("l", {"note": "second", "long": True}, b"", 600)
    worker = worker_in(folder / "first")
    drop_jobs([job, waiting])
    assert wait_for_end(worker) < LIMIT
    with pytest.raises(CodegenError, match="'k' failed"):
        job.result(timeout=30)
    assert waiting.cancelled() and not (folder / "second").exists()
    # The pool goes on; and a job that is done takes no worker with it.
    done = pool.submit("m", {"note": "third", "long": False}, b"", 600)
    assert done.result(timeout=60)[1] == b"done"
    drop_jobs([done])
    assert is_alive(worker_in(folder / "third"))
    pool.close()


def test_a_worker_that_ends_between_jobs(folder: Path) -> None:
    """Another takes its place; one that lives is used again."""
    pool = WorkerPool(module_command("busy_worker"), 1)
    workers = []
    for name in ("first", "second", "third"):
        job = pool.submit(name, {"note": name, "long": False}, b"", 600)
        assert job.result(timeout=60)[1] == b"done"
        workers.append(worker_in(folder / name))
        if name == "second":
            os.kill(workers[-1], signal.SIGKILL)
            wait_for_end(workers[-1])
    assert workers[0] == workers[1] != workers[2]
    pool.close()


def test_a_wait_that_is_interrupted(folder: Path) -> None:
    """The job is given up, so that nothing is left to wait for at the end of the process."""
    pool = WorkerPool(module_command("busy_worker"), 1)

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        job = pool.submit("k", {"note": "first", "long": True}, b"", 600)
        worker = worker_in(folder / "first")
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        with pytest.raises(KeyboardInterrupt):
            result_of(job)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert wait_for_end(worker) < LIMIT
    start = time.monotonic()
    pool.close()
    assert time.monotonic() - start < LIMIT
