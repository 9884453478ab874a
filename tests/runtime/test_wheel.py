# SPDX-License-Identifier: Apache-2.0
"""The wheel: one for every Python 3, with the C runtime's library, sources and headers inside."""

import importlib.util
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
FOLDERS = ("ir", "passes", "codegen", "autotune", "runtime")


@pytest.mark.slow
def test_wheel(tmp_path: Path) -> None:
    if importlib.util.find_spec("setuptools") is None:
        pytest.skip("setuptools is not installed")
    source = tmp_path / "source"
    source.mkdir()
    ignore = shutil.ignore_patterns("__pycache__", "*.so", "*.egg-info")
    for name in (*FOLDERS, "compiler"):
        shutil.copytree(ROOT / name, source / name, symlinks=True, ignore=ignore)
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source / name)
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "-q"]
    subprocess.run([*command, "-w", str(tmp_path), str(source)], check=True)
    (wheel,) = tmp_path.glob("*.whl")
    assert "-py3-none-linux_" in wheel.name
    names = set(zipfile.ZipFile(wheel).namelist())
    assert "tilewright/runtime/libtilewright.so" in names
    for folder in FOLDERS:
        for file in (source / folder).rglob("*"):
            if file.suffix in (".py", ".c", ".h"):
                assert f"tilewright/{file.relative_to(source)}" in names
