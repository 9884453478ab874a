# SPDX-License-Identifier: Apache-2.0
"""LLVM IR text to relocatable objects, in reused worker processes.

The pool starts a worker when a job finds none idle, up to the cores of this process, and keeps it.
A worker that crashes, hangs or breaks its pipe is an error of that one job: the message names the
kernel, the process is replaced. An object may need no symbol but those that the caller allows, so
no call of a math or compiler library slips in."""

import contextlib
import importlib.util
import os
import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import IO

from tilewright.codegen.cache import CompileCache
from tilewright.codegen.llvm.symbols import undefined_symbols
from tilewright.codegen.llvm.worker import read_message, write_message
from tilewright.ir.errors import CodegenError
from tilewright.ir.target import Target, available_cores

DEFAULT_TIMEOUT = 120.0
_DEFINITION = re.compile(r"^define i32 @([\w.]+)\(", re.MULTILINE)


def compile_ir(
    text: str,
    target: Target,
    speed_level: int = 2,
    *,
    external: Iterable[str] = (),
    timeout: float = DEFAULT_TIMEOUT,
) -> bytes:
    """The relocatable object of a module; ``external`` are the symbols that it may leave undefined.

    Raises CodegenError, naming the function, if the text is invalid, LLVM fails or takes longer
    than ``timeout`` seconds, or the object needs another symbol."""
    return compile_many([text], target, speed_level, external=external, timeout=timeout)[0]


def compile_many(
    texts: Sequence[str],
    target: Target,
    speed_level: int = 2,
    *,
    external: Iterable[str] = (),
    timeout: float = DEFAULT_TIMEOUT,
    cache: CompileCache | None = None,
) -> list[bytes]:
    """The objects of several modules, compiled side by side; those in ``cache`` are not compiled
    again.
    """
    allowed = frozenset(external)
    results: dict[int, bytes] = {}
    keys = [_key(t, target, speed_level) for t in texts]
    if cache is not None:
        for i, key in enumerate(keys):
            found = cache.get(key)
            if found is not None:
                results[i] = found
    # Long ones first, so that no core idles at the end.
    waiting = sorted(
        (i for i in range(len(texts)) if i not in results), key=lambda i: -len(texts[i])
    )
    pool = _pool()
    futures = {i: pool.submit(texts[i], target, speed_level, timeout, False) for i in waiting}
    try:
        for i, future in futures.items():
            results[i] = future.result()
            _check_symbols(texts[i], results[i], allowed)
            if cache is not None:
                cache.put(keys[i], results[i])
    finally:
        for future in futures.values():
            future.cancel()
    return [results[i] for i in range(len(texts))]


def compile_assembly(text: str, target: Target, speed_level: int = 2) -> str:
    """The assembly of a module, to read."""
    return _pool().submit(text, target, speed_level, DEFAULT_TIMEOUT, True).result().decode()


def _key(text: str, target: Target, speed_level: int) -> bytes:
    """All that determines the object, apart from versions, which the cache adds."""
    head = f"{target.triple}\n{_features(target)}\n{speed_level}\n"
    return (head + text).encode()


def _features(target: Target) -> str:
    return ",".join(f"+{f}" for f in target.features)


def _name(text: str) -> str:
    found = _DEFINITION.search(text)
    return found[1] if found else "?"


def _check_symbols(text: str, obj: bytes, allowed: frozenset[str]) -> None:
    missing = [s for s in undefined_symbols(obj) if s not in allowed]
    if missing:
        raise CodegenError(
            f"The code of '{_name(text)}' needs the symbol '{missing[0]}', which no target "
            "provides. This is a fault of code generation; report it with the kernel's text."
        )


class _Worker:
    """One process that runs ``worker.py``."""

    def __init__(self) -> None:
        spec = importlib.util.find_spec("llvmlite")
        if spec is None or spec.origin is None:
            raise CodegenError(
                "Package 'llvmlite' is not installed. Install it to compile for a CPU."
            )
        folder = str(Path(spec.origin).parent.parent)
        script = str(Path(__file__).with_name("worker.py"))
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
        self._process = subprocess.Popen(
            [sys.executable, "-I", script, folder],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
        )

    def request(
        self, text: str, target: Target, speed_level: int, timeout: float, assembly: bool
    ) -> bytes:
        """One compilation; CodegenError if it fails, after which :attr:`alive` tells if the worker
        lives.
        """
        assert self._process.stdin is not None and self._process.stdout is not None
        header = {
            "triple": target.triple,
            "features": _features(target),
            "speed_level": speed_level,
            "assembly": assembly,
        }
        expired = threading.Event()

        def expire() -> None:
            expired.set()
            self._process.kill()

        timer = threading.Timer(timeout, expire)
        timer.start()
        try:
            write_message(self._process.stdin, header, text.encode())
            answer = read_message(self._process.stdout)
        except OSError:
            answer = None
        finally:
            timer.cancel()
        if answer is None:
            self.close()
            reason = f"took longer than {timeout:g} s" if expired.is_set() else self._last_words()
            raise CodegenError(f"Compiling '{_name(text)}' failed: LLVM {reason}.")
        reply, payload = answer
        if "error" in reply:
            raise CodegenError(
                f"LLVM refuses the code of '{_name(text)}': {reply['error'].strip()}"
            )
        return payload

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

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


class _Pool:
    """Threads that each hand one job at a time to an idle worker."""

    def __init__(self, size: int) -> None:
        self.process_id = os.getpid()
        self._idle: list[_Worker] = []
        self._lock = threading.Lock()
        self._threads = ThreadPoolExecutor(size, thread_name_prefix="tilewright-llvm")

    def submit(
        self, text: str, target: Target, speed_level: int, timeout: float, assembly: bool
    ) -> Future[bytes]:
        return self._threads.submit(self._run, text, target, speed_level, timeout, assembly)

    def _run(
        self, text: str, target: Target, speed_level: int, timeout: float, assembly: bool
    ) -> bytes:
        with self._lock:
            worker = self._idle.pop() if self._idle else None
        if worker is None or not worker.alive:
            worker = _Worker()
        try:
            return worker.request(text, target, speed_level, timeout, assembly)
        finally:
            if worker.alive:
                with self._lock:
                    self._idle.append(worker)


_pools: list[_Pool] = []
_pools_lock = threading.Lock()


def _pool() -> _Pool:
    """The pool of this process; a forked child gets its own."""
    with _pools_lock:
        if not _pools or _pools[-1].process_id != os.getpid():
            _pools[:] = [_Pool(max(1, available_cores()))]
        return _pools[0]
