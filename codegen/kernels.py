# SPDX-License-Identifier: Apache-2.0
"""Compile the kernels of a model, each form once: in worker processes, with a cache on disk.

A cache entry is the outcome for one kernel form and target: the object, and what the host program needs to know of it (tasks,
workspace, work), as text. The key is the text of the unscheduled kernel, which holds all that decides the outcome, and the
target; the cache adds the versions of the compiler and of LLVM. Cached kernels import neither islpy nor llvmlite.
"""

import json
import os
import struct
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tilewright.codegen.cache import CompileCache
from tilewright.codegen.processes import Answer, WorkerPool
from tilewright.ir.expr import Expr
from tilewright.ir.expr_parser import parse_expr
from tilewright.ir.loop import Kernel
from tilewright.ir.target import Target, available_cores

Progress = Callable[[str, int, int], None]
TIMEOUT = 300.0
_LENGTH = struct.Struct("<I")


@dataclass(frozen=True)
class CompiledKernel:
    """A kernel's object, and its ``tasks``, ``workspace`` bytes and ``work`` over the kernel's symbols.

    ``text`` is the scheduled kernel; ``cached`` tells that it came from the disk.
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
    cached: bool


def compile_kernels(
    kernels: Mapping[str, Kernel],
    target: Target,
    cache: CompileCache | None = None,
    progress: Progress | None = None,
) -> dict[str, CompiledKernel]:
    """All kernels by name, in the given order; CodegenError names the first that fails."""
    keys = {name: _key(k, target) for name, k in kernels.items()}
    done: dict[str, CompiledKernel] = {}
    for name, kernel in kernels.items():
        found = cache.get(keys[name]) if cache is not None else None
        if found is not None:
            done[name] = _result(kernel, _unpack(found), cached=True)
    missing = [name for name in kernels if name not in done]
    header = _header(target)
    pool = _pool(len(missing))
    # Long ones first, so that no core idles at the end.
    missing.sort(key=lambda name: -len(keys[name]))
    futures = {n: pool.submit(n, header, str(kernels[n]).encode(), TIMEOUT) for n in missing}
    try:
        for number, (name, future) in enumerate(futures.items()):
            if progress is not None:
                progress("kernels", len(kernels) - len(missing) + number, len(kernels))
            answer = future.result()
            done[name] = _result(kernels[name], answer, cached=False)
            if cache is not None:
                cache.put(keys[name], _pack(answer))
    finally:
        for future in futures.values():
            future.cancel()
    if progress is not None:
        progress("kernels", len(kernels), len(kernels))
    return {name: done[name] for name in kernels}


def _header(target: Target) -> dict[str, Any]:
    sizes = [target.cores, target.l1, target.l2, target.l3]
    return {"arch": target.arch, "features": list(target.features), "sizes": sizes}


def _key(kernel: Kernel, target: Target) -> bytes:
    return f"{json.dumps(_header(target), sort_keys=True)}\n{kernel}".encode()


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
        facts["text"], facts["proof_ms"], cached,
    )  # fmt: skip


_pools: list[WorkerPool] = []
_START = "import sys; sys.path[:] = sys.argv[1:]; from tilewright.codegen.kernel_worker import main; main()"


def _pool(jobs: int) -> WorkerPool:
    """The pool of this process, whose workers find the same packages; a forked child gets its own."""
    if not _pools or _pools[-1].process_id != os.getpid():
        paths = [os.path.abspath(p) for p in sys.path if p]
        command = (sys.executable, "-P", "-c", _START, *paths)
        _pools[:] = [WorkerPool(command, max(1, min(jobs, available_cores())))]
    return _pools[0]
