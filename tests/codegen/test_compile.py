# SPDX-License-Identifier: Apache-2.0
"""Objects from worker processes: what is refused, and what a crash or a hang of LLVM costs."""

import os
import signal
import sys
import time

import pytest

from tilewright.codegen.llvm import compile as compile_module
from tilewright.codegen.llvm.compile import compile_assembly, compile_ir, compile_many
from tilewright.codegen.llvm.symbols import undefined_symbols
from tilewright.codegen.processes import Worker, WorkerPool
from tilewright.ir.errors import CodegenError
from tilewright.ir.target import parse_target

V3 = parse_target("x86-64-v3")
ARM = parse_target("aarch64")


def module(name: str, body: str, extra: str = "") -> str:
    signature = "ptr %args, i64 %begin, i64 %end, ptr %workspace"
    return f"define i32 @{name}({signature}) nounwind {{\n{body}\nret i32 0\n}}\n{extra}"


def test_object_for_each_architecture() -> None:
    text = module("k", "store i32 1, ptr %workspace")
    for target, machine in ((V3, 62), (ARM, 183)):
        obj = compile_ir(text, target)
        assert obj[:4] == b"\x7fELF" and int.from_bytes(obj[18:20], "little") == machine
        assert undefined_symbols(obj) == []


def test_library_calls_are_refused() -> None:
    text = module(
        "k",
        "%x = load double, ptr %args\n%y = call double @llvm.exp.f64(double %x)\n"
        "store double %y, ptr %args",
        "declare double @llvm.exp.f64(double)",
    )
    with pytest.raises(CodegenError, match="The code of 'k' needs the symbol 'exp', which no"):
        compile_ir(text, V3)


def test_symbols_that_the_caller_provides() -> None:
    text = module("host", "call void @kernel()", "declare void @kernel()")
    assert undefined_symbols(compile_ir(text, V3, external=["kernel"])) == ["kernel"]


def test_invalid_text_names_the_function_and_the_worker_goes_on() -> None:
    with pytest.raises(CodegenError, match=r"(?s)Compiling 'broken' failed: .*expected"):
        compile_ir(module("broken", "nonsense"), V3)
    assert compile_ir(module("k", ""), V3)


def test_results_come_in_the_order_of_the_texts() -> None:
    texts = [module(f"kernel{i}", "\n".join(["fence seq_cst"] * i)) for i in range(6)]
    objects = compile_many(texts, V3)
    assert [f"kernel{i}".encode() in o for i, o in enumerate(objects)] == [True] * 6


def test_objects_are_deterministic() -> None:
    text = module("k", "store <8 x float> zeroinitializer, ptr %workspace")
    assert compile_ir(text, V3) == compile_ir(text, V3)


def test_abort_of_llvm_is_an_error_of_that_module() -> None:
    # Inline assembly that the assembler rejects ends LLVM's process.
    text = module("cursed", 'call void asm sideeffect "not an instruction", ""()')
    with pytest.raises(CodegenError, match="Compiling 'cursed' failed"):
        compile_ir(text, V3)
    assert compile_ir(module("k", ""), V3)


def test_killed_worker_is_replaced() -> None:
    compile_ir(module("k", ""), V3)
    pool = compile_module._pool()
    for worker in pool._idle:
        os.kill(worker._process.pid, signal.SIGKILL)
        worker._process.wait()
    assert compile_ir(module("k", ""), V3)


_ECHO = """
import os, sys, time
sys.path.insert(0, {folder!r})
from worker import read_message, write_message
while (message := read_message(sys.stdin.buffer)) is not None:
    header, payload = message
    if payload == b"die":
        print("LLVM ERROR: Cannot select", file=sys.stderr, flush=True)
        os.abort()
    if payload == b"hang":
        time.sleep(60)
    if payload == b"leave":
        os.close(1)
        time.sleep(0.2)
        sys.exit("a last word")
    write_message(sys.stdout.buffer, header, payload)
"""


@pytest.fixture
def echo() -> WorkerPool:
    folder = os.path.dirname(compile_module.__file__)
    return WorkerPool([sys.executable, "-c", _ECHO.format(folder=folder)], 2)


def test_last_words_of_a_crash_are_told(echo: WorkerPool) -> None:
    with pytest.raises(CodegenError, match=r"Compiling 'k' .* status -6 \(LLVM ERROR: Cannot sel"):
        echo.submit("k", {}, b"die", 20).result()
    assert echo.submit("k", {"a": 1}, b"fine", 20).result() == ({"a": 1}, b"fine")


def test_a_worker_that_leaves_may_end_by_itself(echo: WorkerPool) -> None:
    with pytest.raises(CodegenError, match=r"ended with status 1 \(a last word\)"):
        echo.submit("k", {}, b"leave", 20).result()


def test_hanging_worker_is_ended(echo: WorkerPool) -> None:
    start = time.monotonic()
    with pytest.raises(CodegenError, match=r"Compiling 'slow' failed: .* longer than 0\.5 s"):
        echo.submit("slow", {}, b"hang", 0.5).result()
    assert time.monotonic() - start < 10
    assert echo.submit("k", {}, b"fine", 20).result()[1] == b"fine"


def test_large_messages_do_not_block(echo: WorkerPool) -> None:
    payload = bytes(3 << 20)
    assert echo.submit("k", {}, payload, 60).result()[1] == payload


def test_workers_are_reused(echo: WorkerPool) -> None:
    for _ in range(3):
        echo.submit("k", {}, b"x", 20).result()
    assert len(echo._idle) == 1
    for future in [echo.submit("k", {}, bytes(1 << 20), 20) for _ in range(8)]:
        future.result()
    assert len(echo._idle) <= 2


def test_closed_worker_leaves_no_process() -> None:
    worker = Worker([sys.executable, "-c", "input()"])
    worker.close()
    assert not worker.alive


def test_assembly() -> None:
    assert "ret" in compile_assembly(module("k", ""), V3)
