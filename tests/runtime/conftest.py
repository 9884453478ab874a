# SPDX-License-Identifier: Apache-2.0
"""Artifacts for the runtime's tests: host programs in C, compiled and linked once."""

import platform
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tilewright.codegen.artifact import (
    DefaultsEntry,
    KernelInfo,
    Manifest,
    PortInfo,
    SymbolInfo,
    TargetInfo,
    artifact_bytes,
)
from tilewright.codegen.link import Image, link_image

HERE = Path(__file__).parent
RUNTIME = HERE.parent.parent / "runtime"
Make = Callable[..., bytes]

X = PortInfo("x", "float32", ("n",))
Y = PortInfo("y", "float32", ("n",))


@pytest.fixture(scope="session")
def image(tmp_path_factory: pytest.TempPathFactory) -> Image:
    """The linked image of ``c/models.c``."""
    if shutil.which("cc") is None:
        pytest.skip("there is no C compiler")
    folder = tmp_path_factory.mktemp("models")
    command = ["cc", "-c", "-O2", "-fPIC", "-ffreestanding", "-fno-stack-protector"]
    command += ["-fno-builtin", "-fno-tree-loop-distribute-patterns", f"-I{RUNTIME / 'include'}"]
    subprocess.run([*command, str(HERE / "c/models.c"), "-o", "models.o"], cwd=folder, check=True)
    return link_image([(folder / "models.o").read_bytes()], "host_copy")


@pytest.fixture(scope="session")
def make(image: Image) -> Make:
    """Builds the bytes of an artifact whose entry is a function of ``c/models.c``."""

    def build(
        entry: str = "host_copy",
        inputs: tuple[PortInfo, ...] = (X,),
        outputs: tuple[PortInfo, ...] = (Y,),
        constants: tuple[Any, ...] = (),
        symbols: tuple[SymbolInfo, ...] = (SymbolInfo("n"),),
        features: tuple[str, ...] = (),
        arch: str = platform.machine(),
        defaults_entry: str | None = None,
    ) -> bytes:
        manifest = Manifest(
            TargetInfo(arch, features, "", 1),
            inputs,
            outputs,
            image.symbols[entry],
            host=entry,
            symbols=symbols,
            messages=("Value {0} is not {1}, says '{0}', {2}.", "Only {1}."),
            kernels=(KernelInfo("k_copy", "Copy_0"), KernelInfo("k_fails", "Broken_1")),
            defaults_entry=defaults_entry
            and DefaultsEntry(image.symbols[defaults_entry], defaults_entry, 1),
        )
        return artifact_bytes(manifest, constants, image.code)

    return build
