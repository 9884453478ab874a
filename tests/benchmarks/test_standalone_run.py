# SPDX-License-Identifier: Apache-2.0
"""Running a saved artifact alone, with a stand-in for the package that loads it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks.comparison import run_standalone
from benchmarks.engines import OnnxRuntime, Tilewright

STAND_IN = """
from pathlib import Path

class Model:
    def __init__(self, path):
        self.factor = float(Path(path).read_text())

    def run(self, inputs):
        {body}
        return {{"y/1": inputs["x:0"] * self.factor}}

load = Model
"""
FEEDS = [{"x:0": np.arange(size, dtype=np.float32)} for size in (3, 1, 0)]


@pytest.fixture
def engine() -> Tilewright:
    """An engine whose artifact is a text file with a factor."""
    made = Tilewright.__new__(Tilewright)
    made.model = SimpleNamespace(save=lambda path: Path(path).write_text("2.5"))
    return made


def stand_in(folder: Path, monkeypatch: pytest.MonkeyPatch, body: str) -> None:
    package = folder / "tilewright"
    package.mkdir()
    (package / "__init__.py").write_text(STAND_IN.format(body=body))
    monkeypatch.setenv("PYTHONPATH", str(folder))


def test_every_size_runs_in_another_process(
    engine: Tilewright, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(tmp_path, monkeypatch, "pass")
    outputs = run_standalone(engine, FEEDS)
    for inputs, found in zip(FEEDS, outputs, strict=True):
        np.testing.assert_array_equal(found["y/1"], inputs["x:0"] * np.float32(2.5))


@pytest.mark.parametrize("package", ["llvmlite", "islpy", "onnx"])
def test_a_run_that_needs_the_compiler_fails(
    engine: Tilewright, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    stand_in(tmp_path, monkeypatch, f"import {package}")
    with pytest.raises(RuntimeError, match=rf"does not run alone: .*'{package}' is blocked"):
        run_standalone(engine, FEEDS)


def test_other_engines_have_no_artifact() -> None:
    rival = OnnxRuntime.__new__(OnnxRuntime)
    with pytest.raises(ValueError, match="Only artifacts of Tilewright"):
        run_standalone(rival, FEEDS)
