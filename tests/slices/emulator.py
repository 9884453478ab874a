# SPDX-License-Identifier: Apache-2.0
"""An AArch64 machine for tests: the C runtime cross-compiled, its programs run by qemu-user.

The cross compiler is Debian's ``aarch64-linux-gnu-gcc``, else Zig's from the extra ``cross``.
"""

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import platformdirs

from tilewright.runtime.artifact import read_manifest
from tilewright.runtime.dtypes import BY_NAME
from tilewright.runtime.library import library_path

HERE = Path(__file__).parent
QEMU = ("qemu-aarch64", "qemu-aarch64-static")
GCC = "aarch64-linux-gnu-gcc"


def find_qemu() -> str | None:
    """The program that runs AArch64 programs here."""
    return next((found for name in QEMU if (found := shutil.which(name))), None)


def find_compiler() -> list[str] | None:
    """The command of a C compiler for AArch64 Linux."""
    if shutil.which(GCC):
        return [GCC]
    if importlib.util.find_spec("ziglang"):
        return [sys.executable, "-m", "ziglang", "cc", "-target", "aarch64-linux-musl"]
    return None


def build_program(compiler: list[str], program: Path) -> None:
    """Compile the runtime and ``run_on_files`` into one static program."""
    folder = library_path().parent
    sources = [HERE / "c/run_on_files.c", *sorted((folder / "src").glob("*.c"))]
    command = [*compiler, "-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-static", "-pthread"]
    command += [f"-I{folder / 'include'}", *map(str, sources), "-o", str(program)]
    # Zig compiles a C library first, which takes a minute: it is kept for the next time.
    base = os.environ.get("TILEWRIGHT_CACHE_DIR") or platformdirs.user_cache_dir("tilewright")
    kept = {f"ZIG_{which}_CACHE_DIR": str(Path(base) / "zig") for which in ("LOCAL", "GLOBAL")}
    subprocess.run(command, check=True, env=os.environ | kept)


class RunError(Exception):
    """The program said why it could not run a model."""


@dataclass(frozen=True)
class Emulator:
    """Runs artifacts on an emulated processor."""

    qemu: str
    program: Path

    def run(
        self, artifact: Path, feeds: Mapping[str, np.ndarray], cpu: str = "max", threads: int = 2
    ) -> dict[str, np.ndarray]:
        """The outputs of a model by name; RunError with the runtime's sentence if it fails."""
        manifest = read_manifest(artifact)
        prefix = artifact.with_suffix("")
        inputs: list[str] = []
        for port in manifest["inputs"]:
            array = feeds[port["name"]]
            path = Path(f"{prefix}.in{len(inputs)}")
            path.write_bytes(np.ascontiguousarray(array).tobytes())
            inputs.append(f"{'x'.join(map(str, array.shape))}:{path}")
        command = [self.qemu, "-cpu", cpu, str(self.program), str(artifact), str(threads)]
        done = subprocess.run(
            [*command, f"{prefix}.out", *inputs], capture_output=True, text=True, timeout=300
        )
        if done.returncode:
            raise RunError(f"{done.returncode}: {done.stderr}")
        return {
            port["name"]: np.frombuffer(
                Path(f"{prefix}.out{i}").read_bytes(), BY_NAME[port["dtype"]].numpy
            ).reshape([int(dim) for dim in line.split()])
            for i, (port, line) in enumerate(zip(manifest["outputs"], done.stdout.splitlines()))
        }
