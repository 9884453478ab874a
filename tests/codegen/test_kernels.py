# SPDX-License-Identifier: Apache-2.0
"""Kernels from worker processes and the compile cache: what is kept, and what a fault costs."""

import io
import logging
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tilewright.codegen import kernels as kernels_module
from tilewright.codegen.cache import CompileCache
from tilewright.codegen.kernel_worker import compile_kernel, serve
from tilewright.codegen.kernels import (
    CompiledKernel,
    compile_kernels,
    finish_compiling,
    start_compiling,
)
from tilewright.codegen.llvm import compile as objects_module
from tilewright.codegen.llvm.symbols import undefined_symbols
from tilewright.codegen.llvm.worker import read_message, write_message
from tilewright.codegen.processes import WorkerPool
from tilewright.ir.errors import CodegenError
from tilewright.ir.loop import Kernel
from tilewright.ir.loop_parser import parse_kernel
from tilewright.ir.target import parse_target
from tilewright.passes.lower.kernel import plain_body
from tilewright.passes.lower.work import work_estimate
from tilewright.passes.schedule.schedule import apply, parse_schedule

V3 = parse_target("x86-64-v3,cores=2")
FORM = """
kernel @{name}(x: f32[n,{width}]) -> (y: f32[n]) {{
  symbol n in [1, 1000] hint 100
  buffer t: f32[n] @workspace
  stage reduce s(i in n; j in {width}) -> t[i] : acc = f32(0.0) then (acc + x[i, j])
  stage map a(k in n) -> y[k] = neg(t[k])
  barrier
}}
"""
BROKEN = """
kernel @broken(x: f32[8]) -> (y: f32[8]) {
  stage map a(i in 8) -> y[i] = neg(x[i])
  for i in 8 serial { block a.map(i) { y[i] = x[i] } }
}
"""
# The worker of the compiler, but that kernels called 'crash', 'hang' and 'fault' do just that. With
# 'frail', only a stored schedule does it.
WORKER = """
import os, sys, time
sys.path[:] = sys.argv[1:]
from tilewright.codegen import kernel_worker

compile_kernel = kernel_worker.compile_kernel


def fragile(kernel, target, stored, exact):
    if kernel.name == "crash" or (kernel.name == "frail" and stored is not None):
        print("LLVM ERROR: Cannot select", file=sys.stderr, flush=True)
        os.abort()
    if kernel.name == "hang":
        time.sleep(60)
    if kernel.name == "fault":
        raise ValueError("no such thing")
    return compile_kernel(kernel, target, stored, exact)


kernel_worker.compile_kernel = fragile
kernel_worker.main()
"""


def form(name: str, width: int = 8) -> Kernel:
    kernel = parse_kernel(FORM.format(name=name, width=width))
    return kernel.with_body(plain_body(kernel.stages, kernel.outputs))


def forms(*names: str) -> dict[str, Kernel]:
    return {name: form(name, 4 + i) for i, name in enumerate(names)}


@pytest.fixture
def cache(tmp_path: Path) -> CompileCache:
    return CompileCache(tmp_path / "objects")


@pytest.fixture(scope="module")
def fragile() -> Iterator[WorkerPool]:
    command = [sys.executable, "-P", "-c", WORKER, *(p for p in sys.path if p)]
    pool = WorkerPool(command, 2)
    yield pool
    pool.close()


@pytest.fixture
def pool(fragile: WorkerPool, monkeypatch: pytest.MonkeyPatch) -> WorkerPool:
    """Workers that crash and hang on demand."""
    monkeypatch.setattr(kernels_module, "_pools", [fragile])
    return fragile


def forbid_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> WorkerPool:
        raise AssertionError("A worker was asked.")

    monkeypatch.setattr(kernels_module, "_pool", refuse)


def uncached(kernel: CompiledKernel) -> CompiledKernel:
    """As it was when it was compiled."""
    return replace(kernel, cached=False)


# --- what comes out ---


def test_what_is_known_of_a_compiled_kernel(pool: WorkerPool) -> None:
    kernel = form("k")
    (done,) = compile_kernels({"k": kernel}, V3).values()
    assert done.name == "k" and not done.cached
    assert done.code[:4] == b"\x7fELF" and undefined_symbols(done.code) == []
    assert apply(kernel, parse_schedule(done.schedule)) is parse_kernel(done.text)
    assert done.work is work_estimate(kernel)
    assert done.proof_ms > 0


def test_results_come_in_the_given_order_and_progress_is_told(pool: WorkerPool) -> None:
    told: list[tuple[str, int, int]] = []
    given = forms("b", "a", "c")
    done = compile_kernels(given, V3, progress=lambda *step: told.append(step))
    assert list(done) == ["b", "a", "c"] and [k.name for k in done.values()] == ["b", "a", "c"]
    assert told == [("kernels", i, 3) for i in range(4)]


# --- the cache ---


def test_a_hit_needs_no_worker(
    cache: CompileCache, pool: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = forms("a", "b")
    first = compile_kernels(given, V3, cache)
    forbid_workers(monkeypatch)
    told: list[tuple[str, int, int]] = []
    second = compile_kernels(given, V3, cache, progress=lambda *step: told.append(step))
    assert all(k.cached for k in second.values())
    assert {n: uncached(k) for n, k in second.items()} == first
    assert told == [("kernels", 2, 2)]


def test_another_target_form_or_schedule_is_no_hit(
    cache: CompileCache, pool: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    compile_kernels({"k": form("k", 8)}, V3, cache)
    forbid_workers(monkeypatch)
    assert compile_kernels({"k": form("k", 8)}, V3, cache)["k"].cached
    for kernel, target, schedules in (
        (form("k", 9), V3, {}),
        (form("k", 8), parse_target("x86-64-v4,cores=2"), {}),
        (form("k", 8), parse_target("x86-64-v3,cores=3"), {}),
        (form("k", 8), V3, {"k": "unroll(j)"}),
    ):
        with pytest.raises(AssertionError, match=r"A worker was asked\."):
            compile_kernels({"k": kernel}, target, cache, schedules=schedules)


def test_only_what_is_missing_is_compiled(cache: CompileCache, pool: WorkerPool) -> None:
    given = forms("a", "b", "c")
    compile_kernels({"b": given["b"]}, V3, cache)
    done = compile_kernels(given, V3, cache)
    assert {n: k.cached for n, k in done.items()} == {"a": False, "b": True, "c": False}
    assert list(done) == ["a", "b", "c"]


def test_a_damaged_entry_is_compiled_again(
    cache: CompileCache, pool: WorkerPool, caplog: pytest.LogCaptureFixture
) -> None:
    given = {"k": form("k")}
    first = compile_kernels(given, V3, cache)["k"]
    (entry,) = (p for p in cache.folder.glob("*/*") if p.is_file())
    data = bytearray(entry.read_bytes())
    data[-1] ^= 1
    entry.write_bytes(data)
    with caplog.at_level(logging.WARNING, "tilewright"):
        again = compile_kernels(given, V3, cache)["k"]
    assert "is damaged; it is compiled again." in caplog.text
    assert not again.cached and again.code == first.code
    assert compile_kernels(given, V3, cache)["k"].cached


# --- faults of a worker ---


def test_a_crash_names_the_kernel_and_the_pool_goes_on(
    cache: CompileCache, pool: WorkerPool
) -> None:
    told = r"Compiling 'crash' failed: the worker ended with status -6 \(LLVM ERROR: Cannot sel"
    with pytest.raises(CodegenError, match=told):
        compile_kernels(forms("a", "crash", "b"), V3, cache)
    assert all(w.alive for w in pool._idle)
    done = compile_kernels(forms("a", "k", "b"), V3, cache)
    assert [n for n, k in done.items() if k.code[:4] == b"\x7fELF"] == ["a", "k", "b"]


def test_a_fault_of_the_compiler_is_told_with_its_place(pool: WorkerPool) -> None:
    told = r"(?s)Compiling 'fault' .* internal fault of the compiler.*ValueError: no such thing"
    with pytest.raises(CodegenError, match=told) as caught:
        compile_kernels(forms("fault"), V3)
    assert caught.value.reason == "There is an internal fault of the compiler, ValueError."


def test_a_hang_names_the_kernel_and_the_pool_goes_on(
    pool: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(kernels_module, "TIMEOUT", 0.5)
        with pytest.raises(CodegenError, match=r"Compiling 'hang' .* took longer than 0\.5 s\."):
            compile_kernels(forms("hang"), V3)
    assert compile_kernels(forms("k"), V3)["k"].code


def test_a_kernel_without_a_proven_schedule_is_an_error(pool: WorkerPool) -> None:
    told = "Compiling 'broken' failed: No schedule of kernel 'broken' is proven legal: "
    with pytest.raises(CodegenError, match=told):
        compile_kernels({"broken": parse_kernel(BROKEN)}, V3)


# --- stored schedules ---


def test_a_stored_schedule_is_used(cache: CompileCache, pool: WorkerPool) -> None:
    given, stored = {"k": form("k")}, {"k": "unroll(j)"}
    plain = compile_kernels(given, V3, cache)["k"]
    tuned = compile_kernels(given, V3, cache, schedules=stored)["k"]
    assert (tuned.template, tuned.schedule) == ("tuned", "unroll(j)")
    assert plain.template != "tuned" and plain.schedule != tuned.schedule
    again = compile_kernels(given, V3, cache, schedules=stored)["k"]
    assert again.cached and uncached(again) == tuned


@pytest.mark.parametrize("name", ["k", "frail"])
def test_a_stored_schedule_that_fails_costs_a_try(pool: WorkerPool, name: str) -> None:
    """One that does not apply, and one that makes the worker crash."""
    given = {name: form(name)}
    expected = compile_kernels(given, V3)[name]
    text = "unroll(nowhere)" if name == "k" else "unroll(j)"
    found = compile_kernels(given, V3, schedules={name: text})[name]
    assert (found.template, found.schedule, found.code) == (
        expected.template, expected.schedule, expected.code,
    )  # fmt: skip


def test_exactly_one_schedule(pool: WorkerPool) -> None:
    kernel = form("k")
    done = finish_compiling(kernel, start_compiling(kernel, V3, "unroll(j)"))
    assert done.schedule == "unroll(j)" and not done.cached
    with pytest.raises(CodegenError, match=r"Compiling 'k' failed: .*There is no loop 'nowhere'"):
        finish_compiling(kernel, start_compiling(kernel, V3, "unroll(nowhere)"))


# --- the worker itself, in this process ---


def test_a_worker_answers_every_message() -> None:
    kernel, source, sink = form("k"), io.BytesIO(), io.BytesIO()
    header = {"arch": V3.arch, "features": list(V3.features),
              "sizes": [V3.cores, V3.l1, V3.l2, V3.l3]}  # fmt: skip
    for text in ("kernel nonsense", BROKEN, str(kernel)):
        write_message(source, header, text.encode())
    source.seek(0)
    serve(source, sink)
    sink.seek(0)
    answers = [read_message(sink) for _ in range(4)]
    assert answers[3] is None
    (first, _), (second, _), (facts, code) = (a for a in answers if a is not None)
    assert first.keys() == second.keys() == {"error", "reason"}
    assert second["reason"] == "No schedule of its loops is proven right."
    assert "is proven legal" in second["error"]
    expected, expected_code = compile_kernel(kernel, V3)
    assert code == expected_code
    assert {**facts, "proof_ms": 0.0} == {**expected, "proof_ms": 0.0}


def test_tasks_are_those_of_the_parallel_loop() -> None:
    serial, _ = compile_kernel(form("k"), V3, "unroll(j)", exact=True)
    assert serial["tasks"] == "1" and serial["workspace"] != "0"
    text = "compute_at(s, register, k); parallel(k)"
    parallel, _ = compile_kernel(form("k"), V3, text, exact=True)
    assert parallel["tasks"] == "n" and parallel["workspace"] == "0"


def test_a_pool_has_a_worker_for_each_core(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (kernels_module, objects_module):
        monkeypatch.setattr(module, "_pools", [])
        monkeypatch.setattr(module, "available_cores", lambda: 3)
        pool = module._pool()
        assert pool._threads._max_workers == 3
        pool.close()


def test_a_forked_process_gets_its_own_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels_module, "_pools", [])
    mine = kernels_module._pool()
    assert kernels_module._pool() is mine
    monkeypatch.setattr(mine, "process_id", -1)
    other = kernels_module._pool()
    assert other is not mine and kernels_module._pool() is other
    mine.close()
    other.close()
