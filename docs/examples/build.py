# SPDX-License-Identifier: Apache-2.0
"""Compiles the example program with the installed runtime's library, and runs it.

python docs/examples/build.py MODEL.tw [SIZE]
"""

import subprocess
import sys
import tempfile
from pathlib import Path

from tilewright.runtime.library import library_path

SOURCE = Path(__file__).with_name("run_model.c")


def build(program: Path) -> None:
    """Compiles the example; the program finds the library where the package has it."""
    library = library_path()
    command = ["cc", "-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", str(SOURCE)]
    command += ["-o", str(program), f"-I{library.parent / 'include'}", str(library)]
    subprocess.run([*command, f"-Wl,-rpath,{library.parent}"], check=True)


def main(arguments: list[str]) -> int:
    """Build the program and run it with the arguments."""
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "run_model"
        build(program)
        return subprocess.run([str(program), *arguments], check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
