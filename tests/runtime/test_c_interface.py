# SPDX-License-Identifier: Apache-2.0
"""The C interface, used and abused by a C program that is built with the runtime's sources.

The same program runs plain, under the address and undefined-behaviour sanitizers, and under the
thread sanitizer.
"""

import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tilewright.codegen.artifact import DefaultInfo, PortInfo, SymbolInfo

Make = Callable[..., bytes]
HERE = Path(__file__).parent
RUNTIME = HERE.parent.parent / "runtime"
FLAGS = ["-std=c11", "-g", "-Wall", "-Wextra", "-Werror", "-pthread", f"-I{RUNTIME / 'include'}"]

VARIANTS = {
    "plain": ["-O2"],
    "address": ["-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"],
    "thread": ["-O1", "-fsanitize=thread"],
}


@pytest.fixture(scope="module")
def artifacts(make: Make, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Paths of the artifacts that the program takes: a copy, a sum, one that fails, a copy of an
    input with a default, and one that runs until it is cancelled.
    """
    folder = tmp_path_factory.mktemp("artifacts")
    total = make(
        "host_sum",
        inputs=(PortInfo("x", "float32", ("rows", 64)),),
        outputs=(PortInfo("y", "float32", (1,)),),
        constants=(np.float32(0.5),),
        symbols=(SymbolInfo("rows"),),
    )
    default = make(
        inputs=(PortInfo("x", "float32", ("n",), DefaultInfo(0, (3,))),),
        constants=(np.float32([1, 2, 3]),),
    )
    paths = []
    made = {"copy": make(), "sum": total, "fails": make("host_fails"), "default": default}
    made["endless"] = make("host_endless")
    for name, data in made.items():
        (folder / f"{name}.tw").write_bytes(data)
        paths.append(str(folder / f"{name}.tw"))
    return paths


@pytest.mark.parametrize("variant", VARIANTS)
def test_program(variant: str, artifacts: list[str], tmp_path: Path) -> None:
    flags = VARIANTS[variant]
    if flags[1:]:
        trial = tmp_path / "trial.c"
        trial.write_text("int main(void) { return 0; }\n")
        command = ["cc", *flags, str(trial), "-o", str(tmp_path / "trial")]
        if (
            subprocess.run(command, capture_output=True).returncode
            or subprocess.run([str(tmp_path / "trial")], capture_output=True).returncode
        ):
            pytest.skip("the compiler has no such sanitizer")
    program = str(tmp_path / "use_runtime")
    sources = [str(HERE / "c/use_runtime.c"), *map(str, sorted((RUNTIME / "src").glob("*.c")))]
    subprocess.run(["cc", *FLAGS, *flags, *sources, "-o", program], check=True)
    *used, endless = artifacts
    for arguments in (["use", *used], ["damage", artifacts[0], "3000"], ["cancel", endless]):
        result = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=120)
        assert (result.stdout, result.returncode) == ("ok\n", 0), result.stdout + result.stderr
