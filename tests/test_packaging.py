# SPDX-License-Identifier: Apache-2.0
"""The sdist and the wheel built from it: their files are those of the tree, and the wheel runs."""

import importlib.util
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

import tilewright
from tilewright.codegen.artifact import Manifest
from tilewright.runtime import library

ROOT = Path(__file__).parent.parent
PARTS = ("ir", "passes", "codegen", "autotune", "runtime")


def tree_files() -> set[str]:
    """The files that belong into the package, by their names inside ``tilewright/``."""
    found = set()
    for folder in (*PARTS, "compiler/tilewright"):
        for path in (ROOT / folder).rglob("*"):
            inside = path.relative_to(ROOT / "compiler/tilewright" if "/" in folder else ROOT)
            if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".so":
                found.add(inside.as_posix())
    return found


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sdist and a wheel that was built from it, not from the tree."""
    for package in ("build", "setuptools", "wheel"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"'{package}' is not installed")
    source = tmp_path_factory.mktemp("source")
    ignore = shutil.ignore_patterns("__pycache__", "*.so", "*.egg-info", ".mypy_cache")
    for name in (*PARTS, "compiler"):
        shutil.copytree(ROOT / name, source / name, symlinks=True, ignore=ignore)
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source / name)
    out = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(source)]
    subprocess.run(command, check=True, capture_output=True)
    return out


@pytest.mark.slow
def test_wheel_holds_the_tree(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    assert re.fullmatch(r"tilewright-[\d.]+-py3-none-linux_\w+\.whl", wheel.name)
    names = zipfile.ZipFile(wheel).namelist()
    inside = {n.removeprefix("tilewright/") for n in names if n.startswith("tilewright/")}
    assert inside - {"runtime/libtilewright.so"} == tree_files()
    assert "runtime/libtilewright.so" in inside
    assert not [n for n in names if not n.startswith(("tilewright/", "tilewright-"))]


@pytest.mark.slow
def test_sdist_holds_the_tree(built: Path) -> None:
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {m.name.partition("/")[2] for m in archive.getmembers() if m.isfile()}
    assert {f"compiler/tilewright/{name}" for name in tree_files()} <= names
    assert {"pyproject.toml", "setup.py", "README.md", "LICENSE"} <= names


@pytest.mark.slow
def test_wheel_runs(built: Path, tmp_path: Path) -> None:
    (wheel,) = built.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(tmp_path)
    code = "import tilewright; print(tilewright.__file__); import tilewright.cli.main"
    command = [sys.executable, "-c", code]
    done = subprocess.run(
        command, cwd=tmp_path, env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True
    )
    assert done.stdout.startswith(str(tmp_path)), done.stderr


def test_one_version_everywhere() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["version"] == tilewright.__version__
    major, minor, patch = map(int, project["version"].split("."))
    assert 10000 * major + 100 * minor + patch == library.VERSION
    fields = Manifest.__dataclass_fields__
    assert fields["tool"].default == f"tilewright {tilewright.__version__}"
    assert f"## {tilewright.__version__}" in (ROOT / "CHANGELOG.md").read_text()


def test_extras_resolve_to_what_the_readme_names() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = set(re.findall(r"\.\[(\w+)\]", (ROOT / "README.md").read_text()))
    assert named and named <= set(project["optional-dependencies"])
