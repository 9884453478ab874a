# SPDX-License-Identifier: Apache-2.0
"""The command as a process: lightness of help, signals, pipes, terminals."""

import itertools
import os
import pty
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

import tilewright
from tilewright.model import load

SOURCES = Path(tilewright.__file__).parent.parent
COMMAND = [sys.executable, "-m", "tilewright"]
PATIENCE = 600
"""Seconds after which a process is given up; no test waits for them to pass."""


@pytest.fixture
def environment(cache: Path) -> dict[str, str]:
    """Nothing of the caller's but what is needed, so that coverage does not slow processes down."""
    return {"PYTHONPATH": str(SOURCES), "TILEWRIGHT_CACHE_DIR": str(cache), "HOME": "/nonexistent"}


def test_help_imports_nothing_heavy(environment: dict[str, str]) -> None:
    """Help takes a tenth of a second since it loads none of the compiler."""
    code = """
import sys
from tilewright.cli.main import app
try:
    app(["compile", "--help"])
except SystemExit as end:
    assert not end.code
heavy = {"numpy", "onnx", "llvmlite", "islpy", "rich", "networkx"}
print("loaded:", sorted(heavy & set(sys.modules)))
own = (name.split(".") for name in sys.modules)
print("parts:", sorted({parts[1] for parts in own if parts[0] == "tilewright" and parts[1:]}))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    heavy, parts = done.stdout.splitlines()[-2:]
    assert (heavy, parts) == ("loaded: []", "parts: ['cli', 'requirements', 'version']")


def test_python_m_is_the_command(environment: dict[str, str]) -> None:
    done = subprocess.run([*COMMAND, "--version"], env=environment, capture_output=True, text=True)
    assert done.stdout.startswith(f"tilewright {tilewright.__version__}\nLLVM ")
    done = subprocess.run([*COMMAND, "nothing"], env=environment, capture_output=True, text=True)
    assert done.returncode == 2 and "Usage: tilewright" in done.stderr


@pytest.mark.parametrize(
    ("shell", "variables"),
    [
        ("bash", {"COMP_WORDS": "tilewright com", "COMP_CWORD": "1"}),
        ("zsh", {"_TYPER_COMPLETE_ARGS": "tilewright com"}),
        (
            "fish",
            {"_TYPER_COMPLETE_ARGS": "tilewright com", "_TYPER_COMPLETE_FISH_ACTION": "get-args"},
        ),
        (
            "powershell",
            {"_TYPER_COMPLETE_ARGS": "tilewright com", "_TYPER_COMPLETE_WORD_TO_COMPLETE": "com"},
        ),
    ],
)
def test_shells_complete(
    environment: dict[str, str], shell: str, variables: dict[str, str]
) -> None:
    asked = environment | variables | {"_TILEWRIGHT_COMPLETE": f"complete_{shell}"}
    done = subprocess.run(COMMAND, env=asked, capture_output=True, text=True)
    assert "compile" in done.stdout and "not supported" not in done.stdout + done.stderr


@pytest.mark.parametrize("module", ["tilewright.cli", "typer", "tilewright.cli.usage"])
def test_control_c_while_it_starts(environment: dict[str, str], module: str) -> None:
    """The interrupt comes at the import of a module, as it may on a slow disk."""
    code = f"""
import os, runpy, signal, sys
class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupting())
sys.argv = ["tilewright", "--help"]
runpy.run_module("tilewright", run_name="__main__")
"""
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


@pytest.mark.parametrize(
    ("number", "status", "words"),
    [(signal.SIGINT, 130, "Interrupted."), (signal.SIGTERM, 143, "")],
)
def test_signals_leave_no_output(
    environment: dict[str, str], tmp_path: Path, number: int, status: int, words: str
) -> None:
    """A compilation that is told to stop ends soon, and its artifact is not there."""
    source = SOURCES / "tilewright" / "data" / "digits.onnx"
    # The folder of dumped IR appears when the graph passes run: then the signal is sent.
    dump = tmp_path / "ir"
    command = [*COMMAND, "compile", str(source), "--no-cache", "--dump-ir", str(dump)]
    process = subprocess.Popen(
        command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + PATIENCE
    while not dump.exists() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(number)
    _, told = process.communicate(timeout=PATIENCE)
    assert process.returncode == status, told
    assert words in told and "Traceback" not in told
    assert not list(tmp_path.glob("*.tw")) and not list(tmp_path.glob(".*.tw*"))


LONG = 6000
"""Rows of a product of two square matrices that takes seconds."""


@pytest.fixture(scope="module")
def long_run(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Path:
    """An artifact that takes many seconds to run: a product of matrices, again and again."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", "n"])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", "n"])
    names = ["x", "a", "b", "y"]
    nodes = [helper.make_node("MatMul", [p, "x"], [q]) for p, q in itertools.pairwise(names)]
    graph = helper.make_graph(nodes, "long", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    path = tmp_path_factory.mktemp("long") / "long.tw"
    tilewright.compile(model).save(path)
    return path


@pytest.mark.parametrize(
    ("number", "status", "words"),
    [(signal.SIGINT, 130, "Interrupted."), (signal.SIGTERM, 143, "")],
)
def test_signals_end_a_run(
    environment: dict[str, str], long_run: Path, number: int, status: int, words: str
) -> None:
    command = [*COMMAND, "run", str(long_run), "--random", "--size", f"n={LONG}", "--repeat", "99"]
    process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + PATIENCE
    # When it has taken several seconds of processor time, it is running the model.
    while time.monotonic() < deadline and processor_seconds(process.pid) < 8:
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(number)
    start = time.monotonic()
    _, told = process.communicate(timeout=PATIENCE)
    assert time.monotonic() - start < 4  # with the end of the process, on a busy machine
    assert process.returncode == status and words in told and "Traceback" not in told


def processor_seconds(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


def test_a_closed_pipe_is_no_error(environment: dict[str, str], digits_file: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [*COMMAND, "inspect", str(digits_file)],
        env=environment,
        stdout=writing,
        stderr=subprocess.PIPE,
        text=True,
    )
    os.close(writing)
    assert "Traceback" not in done.stderr and "Exception" not in done.stderr


@pytest.mark.usefixtures("digits")  # so that kernels come from the cache
@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_standard_streams_are_no_error(
    environment: dict[str, str], digits_file: Path, tmp_path: Path, closed: str
) -> None:
    """The work is done, and what is written to the streams goes nowhere, not into a file."""
    model = SOURCES / "tilewright" / "data" / "digits.onnx"
    for arguments in (
        ["inspect", str(digits_file)],
        ["compile", str(model), "-o", "digits.tw"],
        ["run", "digits.tw", "--random", "--output", "results"],
    ):
        line = f"{shlex.join([*COMMAND, *arguments])} {closed}"
        done = subprocess.run(
            ["sh", "-c", line], cwd=tmp_path, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, (line, done.stderr)
        assert "Error" not in done.stderr and "Exception" not in done.stderr
    assert load(tmp_path / "digits.tw").inputs[0].name == "image"
    assert np.load(tmp_path / "results" / "logits.npy").ndim == 2
    line = f"{shlex.join([*COMMAND, 'inspect', 'missing.tw'])} {closed}"
    assert subprocess.run(["sh", "-c", line], env=environment, capture_output=True).returncode == 1


@pytest.mark.usefixtures("digits")  # so that kernels come from the cache
def test_progress_on_a_terminal(environment: dict[str, str], tmp_path: Path) -> None:
    """A bar on standard error if that is a terminal; the result on standard output stays plain."""
    source = SOURCES / "tilewright" / "data" / "digits.onnx"
    # With --verify the artifact is made anew, whatever the cache holds.
    for term, is_bar in (("xterm", True), ("dumb", False)):
        parent, child = pty.openpty()
        done = subprocess.Popen(
            [*COMMAND, "compile", str(source), "--verify"],
            cwd=tmp_path,
            env=environment | {"TERM": term},
            stdout=subprocess.PIPE,
            stderr=child,
        )
        os.close(child)
        shown = b""
        while True:
            try:
                part = os.read(parent, 65536)
            except OSError:  # the other end is closed
                break
            if not part:
                break
            shown += part
        out, _ = done.communicate()
        os.close(parent)
        assert done.returncode == 0 and out.startswith(b"Wrote 'digits.tw'") and b"\x1b" not in out
        assert (b"\x1b[" in shown) == is_bar
        assert not is_bar or b"reading the model" in shown
