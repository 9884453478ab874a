# SPDX-License-Identifier: Apache-2.0
"""Calling the command inside the test's process."""

import json
import math
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from typer.testing import CliRunner, Result

from tilewright.cli.main import app
from tilewright.cli.terminal import settings

Call = Callable[..., Result]


def npy_header(shape: str) -> bytes:
    """The beginning of an .npy file of floats, with a text as their shape."""
    header = "{'descr': '<f4', 'fortran_order': False, 'shape': " + shape
    return b"\x93NUMPY\x01\x00v\x00" + header.ljust(117).encode() + b"\n"


DAMAGED_HEADER = npy_header("(((((((")
HUGE_ARRAY = npy_header("(1000000000000000,)}")


@pytest.fixture(autouse=True)
def no_lines_of_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    """Standard error has what a test expects of it on a slow machine too."""
    monkeypatch.setattr("tilewright.cli.progress._SECONDS_BETWEEN_LINES", math.inf)


@pytest.fixture(scope="session", autouse=True)
def interrupts_arrive() -> Iterator[None]:
    """Ctrl-C reaches what tests start, also where a shell in the background lets it be ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Call]:
    """Runs a command line in an empty folder; checks its exit status."""
    monkeypatch.chdir(tmp_path)
    for name in ("FORCE_COLOR", "NO_COLOR", "TILEWRIGHT_LOG"):
        monkeypatch.delenv(name, raising=False)

    def run(*arguments: object, status: int = 0) -> Result:
        result = CliRunner().invoke(app, [str(a) for a in arguments], prog_name="tilewright")
        assert result.exit_code == status, (result.stdout, result.stderr, result.exception)
        if status and "--json" not in arguments:
            assert result.stdout == ""
        return result

    yield run
    settings.debug = False


@pytest.fixture
def ask(call: Call) -> Callable[..., Any]:
    """Runs a command line with --json; the decoded result."""
    return lambda *arguments: json.loads(call(*arguments, "--json").stdout)


@pytest.fixture
def pair_onnx(pair: onnx.ModelProto, tmp_path: Path) -> Path:
    path = tmp_path / "pair.onnx"
    onnx.save(pair, path)
    return path


@pytest.fixture
def arrays(tmp_path: Path) -> dict[str, np.ndarray]:
    """Inputs for the model with two of them, also in the files a.npy, b.npy and both.npz."""
    rng = np.random.default_rng(0)
    found = {name: rng.standard_normal((3, 4)).astype(np.float32) for name in ("a", "b/0")}
    np.save(tmp_path / "a.npy", found["a"])
    np.save(tmp_path / "b.npy", found["b/0"])
    np.savez(tmp_path / "both.npz", **found)
    return found
