# SPDX-License-Identifier: Apache-2.0
"""The emulated AArch64 machine, built once a session."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from emulator import GCC, QEMU, Emulator, build_program, find_compiler, find_qemu


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A compile cache of the session's own, unless one is chosen."""
    with pytest.MonkeyPatch.context() as patch:
        if "TILEWRIGHT_CACHE_DIR" not in os.environ:
            patch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session")
def emulator(tmp_path_factory: pytest.TempPathFactory) -> Emulator:
    qemu, compiler = find_qemu(), find_compiler()
    if qemu is None:
        pytest.skip(f"there is no '{QEMU[0]}'")
    if compiler is None:
        pytest.skip(f"there is neither '{GCC}' nor the extra 'cross'")
    program: Path = tmp_path_factory.mktemp("aarch64") / "run_on_files"
    build_program(compiler, program)
    return Emulator(qemu, program)
