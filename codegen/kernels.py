# SPDX-License-Identifier: Apache-2.0
"""Compile the kernels of a model, each form once: in worker processes, with a cache on disk.

A cache entry is the outcome for one kernel form and target: the object, and what the host program
needs to know of it (tasks, workspace, work), as text. The key is the text of the unscheduled
kernel, which holds all that decides the outcome, and the target, and the stored schedule if there
is one; the cache adds the versions of the compiler and of LLVM. Cached kernels import neither islpy
nor llvmlite.
"""

import json
import logging
import os
import struct
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from tilewright.codegen.cache import CompileCache
from tilewright.codegen.processes import Answer, WorkerPool, drop_jobs, module_command, result_of
from tilewright.ir.errors import CodegenError
from tilewright.ir.expr import Expr
from tilewright.ir.expr_parser import parse_expr
from tilewright.ir.loop import Kernel
from tilewright.ir.target import Target, available_cores
from tilewright.passes.schedule.findings import Refusal, SlowStage

Progress = Callable[[str, int, int], None]
TIMEOUT = 300.0
STORED_TIMEOUT = 60.0
"""Seconds for a kernel under a stored schedule, which nobody has promised to be sensible."""

_logger = logging.getLogger("tilewright")
_LENGTH = struct.Struct("<I")


@dataclass(frozen=True)
class CompiledKernel:
    """A kernel's object, and its ``tasks``, ``workspace`` bytes and ``work`` over the kernel's
    symbols.

    ``text`` is the scheduled kernel; ``refused`` are the schedules that were tried before it, and
    ``slow`` the reductions that do not run on full vectors; ``cached`` tells that it came from the
    disk.
    """

    name: str
    code: bytes
    tasks: Expr
    workspace: Expr
    work: Expr
    template: str
    schedule: str
    text: str
    proof_ms: float
    refused: tuple[Refusal, ...]
    slow: tuple[SlowStage, ...]
    cached: bool


def compile_kernels(
    kernels: Mapping[str, Kernel],
    target: Target,
    cache: CompileCache | None = None,
    progress: Progress | None = None,
    schedules: Mapping[str, str] | None = None,
) -> dict[str, CompiledKernel]:
    """All kernels by name, in the given order; CodegenError names the first that fails.

    ``schedules`` are stored ones by the kernel's name. They are tried, never trusted: one that does
    not hold costs a try, and the kernel gets its default schedule.
    """
    stored = schedules or {}
    keys = {name: _key(k, target, stored.get(name)) for name, k in kernels.items()}
    done: dict[str, CompiledKernel] = {}
    for name, kernel in kernels.items():
        found = cache.get(keys[name]) if cache is not None else None
        if found is not None:
            done[name] = _result(kernel, _unpack(found), cached=True)
    missing = [name for name in kernels if name not in done]
    # Long ones first, so that no core idles at the end.
    missing.sort(key=lambda name: -len(keys[name]))
    futures = {n: _submit(kernels[n], target, stored.get(n)) for n in missing}
    try:
        for number, (name, future) in enumerate(futures.items()):
            if progress is not None:
                progress("kernels", len(kernels) - len(missing) + number, len(kernels))
            answer = _answer(future, kernels[name], target, stored.get(name))
            done[name] = _result(kernels[name], answer, cached=False)
            if cache is not None:
                cache.put(keys[name], _pack(answer))
    finally:
        drop_jobs(futures.values())
    if progress is not None:
        progress("kernels", len(kernels), len(kernels))
    return {name: done[name] for name in kernels}


def start_compiling(kernel: Kernel, target: Target, schedule: str) -> "Future[Answer]":
    """Begin to compile a kernel under exactly this schedule; :func:`finish_compiling` takes the
    result.
    """
    return _submit(kernel, target, schedule, exact=True)


def finish_compiling(kernel: Kernel, future: "Future[Answer]") -> CompiledKernel:
    """The outcome of :func:`start_compiling`; CodegenError if the schedule does not hold or the
    compilation fails.
    """
    return _result(kernel, result_of(future), cached=False)


def _submit(
    kernel: Kernel, target: Target, schedule: str | None, exact: bool = False
) -> "Future[Answer]":
    header = _header(target)
    if schedule is not None:
        header |= {"schedule": schedule, "exact": exact}
    timeout = TIMEOUT if schedule is None else STORED_TIMEOUT
    return _pool().submit(kernel.name, header, str(kernel).encode(), timeout)


def _answer(
    future: "Future[Answer]", kernel: Kernel, target: Target, schedule: str | None
) -> Answer:
    """A worker's answer; where a stored schedule has made it fail or crash, that of a second try
    without.
    """
    try:
        return future.result()
    except CodegenError as error:
        if schedule is None:
            raise
        _logger.debug("Stored schedule '%s' is left out: %s", schedule, error)
        return result_of(_submit(kernel, target, None))


def _header(target: Target) -> dict[str, Any]:
    sizes = [target.cores, target.l1, target.l2, target.l3]
    return {"arch": target.arch, "features": list(target.features), "sizes": sizes}


def _key(kernel: Kernel, target: Target, schedule: str | None) -> bytes:
    stored = "" if schedule is None else f"\nstored schedule: {schedule}"
    return f"{json.dumps(_header(target), sort_keys=True)}\n{kernel}{stored}".encode()


def _pack(answer: Answer) -> bytes:
    facts = json.dumps(answer[0]).encode()
    return _LENGTH.pack(len(facts)) + facts + answer[1]


def _unpack(data: bytes) -> Answer:
    (length,) = _LENGTH.unpack_from(data)
    end = _LENGTH.size + length
    return json.loads(data[_LENGTH.size : end]), data[end:]


def _result(kernel: Kernel, answer: Answer, cached: bool) -> CompiledKernel:
    facts, code = answer
    tasks, workspace, work = (
        parse_expr(facts[f], *kernel.symbols) for f in ("tasks", "workspace", "work")
    )
    return CompiledKernel(
        kernel.name, code, tasks, workspace, work, facts["template"], facts["schedule"],
        facts["text"], facts["proof_ms"], tuple(Refusal(**r) for r in facts["refused"]),
        tuple(SlowStage(**s) for s in facts["slow"]), cached,
    )  # fmt: skip


_pools: list[WorkerPool] = []
_pools_lock = threading.Lock()


def _pool() -> WorkerPool:
    """The pool of this process; a forked child gets its own."""
    with _pools_lock:
        if not _pools or _pools[-1].process_id != os.getpid():
            command = module_command("tilewright.codegen.kernel_worker")
            _pools[:] = [WorkerPool(command, max(1, available_cores()))]
        return _pools[0]
