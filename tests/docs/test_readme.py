# SPDX-License-Identifier: Apache-2.0
"""What the README and the pages beside it tell readers to do works."""

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import tilewright
from tilewright.cli.main import app

ROOT = Path(__file__).parent.parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.S)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path


def test_commands_and_python_code(folder: Path) -> None:
    """The tour of the command line in order, then that of Python, which uses its files."""
    tour = next(block for block in blocks("sh") if block.startswith("tilewright demo"))
    for line in tour.strip().splitlines():
        words = shlex.split(line, comments=True)
        assert words[0] == "tilewright"
        result = CliRunner().invoke(app, words[1:])
        assert result.exit_code == 0, (line, result.stderr)
    (code,) = blocks("python")
    scope: dict[str, object] = {}
    exec(code, scope)
    logits = scope["logits"]
    assert isinstance(logits, np.ndarray)
    assert (logits.argmax(axis=1) == np.load("labels.npy")).mean() > 0.9
    np.testing.assert_array_equal(np.load(folder / "results" / "logits.npy"), logits)


def test_the_two_set_up_commands() -> None:
    """They are what .ci/run takes from here, in this order; their parts exist."""
    first, second, *_ = blocks("sh")
    assert first.startswith("python3 -m venv .venv && .venv/bin/pip install . && ")
    assert second.startswith(".venv/bin/pip install -e '.[test]' && .venv/bin/pytest ")
    assert all(len(command.strip().splitlines()) == 1 for command in (first, second))


def test_links_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name} links to '{target}'."


def test_files_that_pages_name_exist() -> None:
    for page in PAGES:
        if page.name == "CHANGELOG.md":
            continue
        for name in re.findall(r"`((?:\w+/)+[\w.]*)`", page.read_text(encoding="utf-8")):
            inside = name.removeprefix("tilewright/")
            places = [ROOT / name, ROOT / inside, ROOT / "compiler" / name]
            if not name.endswith(".so"):
                assert any(place.exists() for place in places), f"{page.name} names '{name}'."


def test_the_c_program(folder: Path) -> None:
    if shutil.which("cc") is None:
        pytest.skip("there is no C compiler")
    model = tilewright.compile(ROOT / "compiler" / "tilewright" / "data" / "digits.onnx")
    model.save("digits.tw")
    command = [sys.executable, str(ROOT / "docs" / "examples" / "build.py")]
    environment = {"PYTHONPATH": str(ROOT / "compiler"), "PATH": "/usr/local/bin:/usr/bin:/bin"}

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*command, *arguments], env=environment, capture_output=True, text=True
        )

    done = run("digits.tw", "2")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[:2] == [
        "input  image: float32[batch, 1, 8, 8]",
        "output logits: float32[batch, 10]",
    ]
    expected = model(np.zeros((2, 1, 8, 8), np.float32)).reshape(-1)[:10]
    found = [float(word) for word in lines[2].split()[:10]]
    np.testing.assert_allclose(found, expected, rtol=1e-4)
    missing = run("missing.tw")
    assert missing.returncode == 1 and "'missing.tw' cannot be opened" in missing.stderr
