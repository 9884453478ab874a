# SPDX-License-Identifier: Apache-2.0
"""LLVM IR text to relocatable objects, in reused worker processes.

A crash of LLVM is an error of the one module that caused it, and names its function. An object may
need no symbol but those that the caller allows, so no call of a math or compiler library slips in.
"""

import importlib.util
import os
import re
import sys
import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from pathlib import Path

from tilewright.codegen.cache import CompileCache
from tilewright.codegen.llvm.symbols import check_symbols
from tilewright.codegen.processes import Answer, WorkerPool, drop_jobs, result_of
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
    than ``timeout`` seconds, or the object needs another symbol.
    """
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
    futures = {i: _submit(texts[i], target, speed_level, timeout, False) for i in waiting}
    try:
        for i, future in futures.items():
            _, results[i] = future.result()
            check_symbols(results[i], _name(texts[i]), allowed)
            if cache is not None:
                cache.put(keys[i], results[i])
    finally:
        drop_jobs(futures.values())
    return [results[i] for i in range(len(texts))]


def compile_assembly(text: str, target: Target, speed_level: int = 2) -> str:
    """The assembly of a module, to read."""
    _, code = result_of(_submit(text, target, speed_level, DEFAULT_TIMEOUT, True))
    return code.decode()


def _submit(
    text: str, target: Target, speed_level: int, timeout: float, assembly: bool
) -> Future[Answer]:
    header = {
        "triple": target.triple,
        "features": target.feature_text,
        "speed_level": speed_level,
        "assembly": assembly,
    }
    return _pool().submit(_name(text), header, text.encode(), timeout)


def _key(text: str, target: Target, speed_level: int) -> bytes:
    """All that determines the object, apart from versions, which the cache adds."""
    return f"{target.triple}\n{target.feature_text}\n{speed_level}\n{text}".encode()


def _name(text: str) -> str:
    found = _DEFINITION.search(text)
    return found[1] if found else "?"


_pools: list[WorkerPool] = []
_pools_lock = threading.Lock()


def _pool() -> WorkerPool:
    """The pool of this process; a forked child gets its own."""
    with _pools_lock:
        if not _pools or _pools[-1].process_id != os.getpid():
            _pools[:] = [WorkerPool(_command(), max(1, available_cores()))]
        return _pools[0]


def _command() -> tuple[str, ...]:
    """How a worker is started: isolated, with the folder of llvmlite as its argument."""
    spec = importlib.util.find_spec("llvmlite")
    if spec is None or spec.origin is None:
        missing = "Package 'llvmlite' is not installed. Install it to compile for a CPU."
        raise CodegenError(missing, reason=missing)
    script = str(Path(__file__).with_name("worker.py"))
    return sys.executable, "-I", script, str(Path(spec.origin).parent.parent)
