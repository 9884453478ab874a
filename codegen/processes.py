# SPDX-License-Identifier: Apache-2.0
"""Reused worker processes that answer messages on pipes.

A pool starts a worker when a job finds none idle, up to its size, and keeps it. A worker that
crashes, hangs or breaks its pipe costs that one job a CodegenError; the process is replaced.
Workers are plain child processes that run a script, not ``multiprocessing``: a user's program needs
no main guard, and nothing is pickled. They end with this process, however it ends, and with the job
that is given up while they are at it: who is interrupted waits for nothing.
"""

import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import IO, Any
from weakref import WeakKeyDictionary

from tilewright.codegen.llvm.worker import read_message, write_message
from tilewright.ir.errors import CodegenError

Answer = tuple[dict[str, Any], bytes]
_DYING_SECONDS = 2.0
_START = """\
import sys
sys.path[:] = sys.argv[1:-1]
from tilewright.codegen.llvm.worker import end_with_parent
end_with_parent(int(sys.argv[-1]))  # before the imports of the module, which take long
from {} import main
main()
"""


def module_command(module: str) -> tuple[str, ...]:
    """The command that runs ``main`` of a module in a process that finds the same packages as this
    one.
    """
    paths = [os.path.abspath(p) for p in sys.path if p]
    return (sys.executable, "-P", "-c", _START.format(module), *paths)


class Worker:
    """One process that runs ``command`` and answers each message with one message. The command's
    last argument is the number of this process, for :func:`end_with_parent`.

    ``task`` begins the message of an error: ``Compiling`` what.
    """

    def __init__(self, command: Sequence[str], task: str = "Compiling") -> None:
        self._task = task
        # In memory: there may be no folder that can be written.
        self._errors: IO[bytes] = os.fdopen(os.memfd_create("tilewright-errors"), "w+b")
        self._process = subprocess.Popen(
            [*command, str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
        )

    def request(self, what: str, header: dict[str, Any], payload: bytes, timeout: float) -> Answer:
        """The answer to a message; CodegenError naming ``what`` if there is none, or if it holds an
        error.
        """
        assert self._process.stdin is not None and self._process.stdout is not None
        expired = threading.Event()

        def expire() -> None:
            expired.set()
            self._process.kill()

        timer = threading.Timer(timeout, expire)
        timer.start()
        try:
            write_message(self._process.stdin, header, payload)
            answer = read_message(self._process.stdout)
        except OSError:
            answer = None
        finally:
            timer.cancel()
        if answer is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_DYING_SECONDS)  # for the status that it ends with by itself
            self.close()
            late = expired.is_set()
            fate = f"took longer than {timeout:g} s" if late else self._last_words()
            reason = (
                f"{self._task} took longer than {timeout:g} s."
                if late
                else ("The process that generates code crashed.")
            )
            told = f"{self._task} '{what}' failed: the worker {fate}."
            raise CodegenError(told, what, reason)
        if "error" in answer[0]:
            told = f"{self._task} '{what}' failed: {answer[0]['error'].strip()}"
            raise CodegenError(told, what, answer[0].get("reason", ""))
        return answer

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        """Make the request under way fail, from another thread."""
        self._process.kill()

    def _last_words(self) -> str:
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        told = next((x for x in lines if "LLVM ERROR" in x), lines[-1] if lines else "no message")
        return f"ended with status {self._process.returncode} ({told})"

    def close(self) -> None:
        """End the process; it is never left behind."""
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        self._process.kill()
        self._process.wait()


class _Job:
    """A message, and the worker that is at it."""

    def __init__(self, what: str, header: dict[str, Any], payload: bytes, timeout: float) -> None:
        self._message = (what, header, payload, timeout)
        self._lock = threading.Lock()
        self._worker: Worker | None = None
        self._dropped = False

    def run(self, worker: Worker) -> Answer:
        with self._lock:
            if self._dropped:
                raise CodegenError(f"'{self._message[0]}' was given up.", self._message[0])
            self._worker = worker
        try:
            return worker.request(*self._message)
        finally:
            with self._lock:
                self._worker = None

    def drop(self) -> None:
        with self._lock:
            self._dropped = True
            if self._worker is not None:
                self._worker.kill()


_jobs: "WeakKeyDictionary[Future[Answer], _Job]" = WeakKeyDictionary()


def drop_jobs(futures: Iterable[Future[Answer]]) -> None:
    """Give up the jobs that are not done: those that have begun end at once, with their workers."""
    for future in futures:
        if not future.cancel() and (job := _jobs.get(future)) is not None:
            job.drop()


def result_of(future: Future[Answer]) -> Answer:
    """The answer of a job; the job is given up if the wait for it is interrupted."""
    try:
        return future.result()
    finally:
        drop_jobs([future])


class WorkerPool:
    """Threads that each hand one job at a time to an idle worker."""

    def __init__(self, command: Sequence[str], size: int, task: str = "Compiling") -> None:
        self.process_id = os.getpid()
        self._command = command
        self._task = task
        self._idle: list[Worker] = []
        self._lock = threading.Lock()
        self._threads = ThreadPoolExecutor(size, thread_name_prefix="tilewright-worker")

    def submit(
        self, what: str, header: dict[str, Any], payload: bytes, timeout: float
    ) -> Future[Answer]:
        """Hand a message to a worker; see :meth:`Worker.request`."""
        job = _Job(what, header, payload, timeout)
        future = self._threads.submit(self._run, job)
        _jobs[future] = job
        return future

    def result(self, what: str, header: dict[str, Any], payload: bytes, timeout: float) -> Answer:
        """The answer to a message; see :func:`result_of`."""
        return result_of(self.submit(what, header, payload, timeout))

    def _run(self, job: _Job) -> Answer:
        with self._lock:
            worker = self._idle.pop() if self._idle else None
        if worker is None or not worker.alive:
            worker = Worker(self._command, self._task)
        try:
            return job.run(worker)
        finally:
            if worker.alive:
                with self._lock:
                    self._idle.append(worker)

    def close(self) -> None:
        """Drop the jobs that have not begun, wait for the others, and end the workers."""
        self._threads.shutdown(cancel_futures=True)
        while self._idle:
            self._idle.pop().close()
