# SPDX-License-Identifier: Apache-2.0
"""What the README and the pages beside it tell readers to do works."""

import dataclasses
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import tilewright

ROOT = Path(__file__).parent.parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.S)


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that looks like a clone after the set-up, with the environment of the tests."""
    root = tmp_path_factory.mktemp("clone")
    (root / "docs").symlink_to(ROOT / "docs")
    binaries = root / ".venv" / "bin"
    binaries.mkdir(parents=True)
    (binaries / "activate").write_text(f'PATH="{binaries}:$PATH"\n')
    for name, arguments in (("python", ""), ("tilewright", " -m tilewright")):
        script = binaries / name
        script.write_text(f'#!/bin/sh\nexec "{sys.executable}"{arguments} "$@"\n')
        script.chmod(0o755)
    return root


def shell(folder: Path, text: str) -> str:
    """Runs a block as a reader would, line after line, up to the first that fails."""
    done = subprocess.run(
        ["bash", "-xeuo", "pipefail", "-c", text],
        cwd=folder,
        env={
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "TILEWRIGHT_CACHE_DIR": str(folder / "cache"),
            "PYTHONPATH": str(ROOT / "compiler"),
        },
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def played(clone: Path) -> Path:
    """The clone after the README's tour."""
    _, _, tour, *_ = blocks("sh")
    assert "Measured at batch=1" in shell(clone, tour)
    return clone


def test_the_tour(played: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The Python code uses the files of the tour; nothing is left where git would see it."""
    assert sorted(p.name for p in played.iterdir()) == [".venv", "cache", "docs", "playground"]
    assert "/playground/" in (ROOT / ".gitignore").read_text().splitlines()
    monkeypatch.chdir(played / "playground")
    (code,) = blocks("python")
    scope: dict[str, object] = {}
    exec(code, scope)
    logits = scope["logits"]
    assert isinstance(logits, np.ndarray)
    assert (logits.argmax(axis=1) == np.load("labels.npy")).mean() > 0.9
    np.testing.assert_allclose(np.load("results/logits.npy"), logits, rtol=1e-4, atol=1e-5)


def test_the_page_on_python(played: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its blocks run in order; the comments on results say what comes out."""
    monkeypatch.chdir(played / "playground")
    page = (ROOT / "docs" / "python_api.md").read_text(encoding="utf-8")
    scope: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", page, re.S):
        exec(block, scope)
    assert f"# {scope['message']}\n" in page and f"# {scope['kind']}\n" in page
    ports = [(port.name, port.dtype, port.shape) for port in scope["model"].inputs]
    assert f"# {ports}\n" in page
    assert scope["fixed"].inputs[0].shape == (4, 1, 8, 8)
    np.testing.assert_allclose(scope["out"], scope["logits"], rtol=1e-4, atol=1e-5)
    fields = {f.name for f in dataclasses.fields(tilewright.CompileOptions)}
    table = page.partition("| field |")[2].partition("\n\n")[0]
    assert fields <= set(re.findall(r"`(\w+)`", table))


@pytest.mark.parametrize(
    ("text", "given", "expected"),
    [
        ("y = Gather(x, i)", {"x": [5, 6, 7], "i": [2, -3, 1]}, [7, 5, 6]),
        ("y = Div(x, i)", {"x": [5, -6, 7], "i": [0, 0, 2]}, [0, 0, 3]),
    ],
)
def test_results_that_the_page_fixes(
    text: str, given: dict[str, list[int]], expected: list[int]
) -> None:
    model = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : 17]> g (int64[n] x, int64[n] i) => (int64[n] y) '
        f"{{ {text} }}"
    )
    arrays = {name: np.array(values) for name, values in given.items()}
    assert tilewright.compile(model).run(arrays)["y"].tolist() == expected


NEEDED = ("cc", "aarch64-linux-gnu-gcc", "qemu-aarch64")
SHELL = [
    (page.name, text)
    for page in PAGES
    if page.name != "CONTRIBUTING.md"
    for text in re.findall(r"```sh\n(.*?)```", page.read_text(encoding="utf-8"), re.S)
    if text not in blocks("sh")[:3]
]


@pytest.mark.parametrize(("page", "text"), SHELL, ids=[page for page, _ in SHELL])
def test_shell_blocks(page: str, text: str, played: Path) -> None:
    """Every other block runs in the folder of the tour, with the environment active."""
    for tool in NEEDED:
        if (tool in text or (tool == "cc" and "build.py" in text)) and not shutil.which(tool):
            pytest.skip(f"there is no {tool}")
    shell(played, f". .venv/bin/activate\ncd playground\n{text}")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


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
