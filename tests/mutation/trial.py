# SPDX-License-Identifier: Apache-2.0
"""Puts one mutant at a time into a copy of the tree, and runs the tests that should notice."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.mutation.mutants import Mutant
from tests.mutation.selection import ROOT, stages

_LIBRARY = "runtime/libtilewright.so"
_BUILD = "cc -shared -fPIC -O2 -g0 -std=c11 -fvisibility=hidden -pthread -Wl,-z,nodelete"


@dataclass(frozen=True)
class Verdict:
    """``by`` names what noticed the mutant; it is empty if nothing did. ``unfinished`` are the
    tests that took too long to tell.
    """

    mutant: Mutant
    by: str
    difference: str
    unfinished: tuple[str, ...] = ()

    @property
    def killed(self) -> bool:
        return bool(self.by)


def _left_out(folder: str, names: list[str]) -> set[str]:
    """What is not part of the sources: hidden folders, environments, what was built."""
    there = Path(folder)
    return {
        name
        for name in names
        if name in ("build", "__pycache__")
        or (name.startswith(".") and name != ".ci" and (there / name).is_dir())
        or (there / name / "pyvenv.cfg").exists()
    }


class Copy:
    """A copy of the tree in which sources may be changed; the package is imported from it."""

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._unfinished: list[str] = []
        self.folder = Path(tempfile.mkdtemp(prefix="tilewright-mutation-"))
        shutil.copytree(ROOT, self.folder, symlinks=True, ignore=_left_out, dirs_exist_ok=True)

    def __enter__(self) -> "Copy":
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def try_one(self, mutant: Mutant) -> Verdict:
        """Whether a test notices the mutant: one that fails with it and passes without."""
        path = self.folder / mutant.path
        original = path.read_bytes()
        library = (self.folder / _LIBRARY).read_bytes()
        self._unfinished = []
        path.write_bytes(mutant.applied(original))
        try:
            by = self._built() if path.suffix == ".c" else ""
            mutated = path.read_bytes(), (self.folder / _LIBRARY).read_bytes()
            failed: list[str] = []  # with the mutant or without
            for tests in stages(mutant.path):
                while not by and (found := self._run(tests, failed)):
                    path.write_bytes(original)
                    (self.folder / _LIBRARY).write_bytes(library)
                    test = found.split(" ")[1] if found.startswith(("FAILED ", "ERROR ")) else ""
                    if not test or not self._run([test], failed):
                        by = found
                    failed.append(test)
                    path.write_bytes(mutated[0])
                    (self.folder / _LIBRARY).write_bytes(mutated[1])
        finally:
            path.write_bytes(original)
            (self.folder / _LIBRARY).write_bytes(library)
        return Verdict(mutant, by, mutant.difference(original), tuple(self._unfinished))

    def _built(self) -> str:
        """Compiles the runtime; what the compiler refuses is noticed by it."""
        sources = map(str, sorted(self.folder.glob("runtime/src/*.c")))
        command = [*_BUILD.split(), f"-I{self.folder / 'runtime/include'}", *sources]
        done = subprocess.run([*command, "-o", str(self.folder / _LIBRARY)], capture_output=True)
        return "" if done.returncode == 0 else "the C compiler"

    def _run(self, tests: list[str], left_out: list[str]) -> str:
        """What noticed: the first test that fails. No more time proves nothing: not noticed."""
        cache = self.folder / ".cache"
        shutil.rmtree(cache, ignore_errors=True)  # compiled code of another mutant proves nothing
        paths = [str(self.folder / "compiler"), str(self.folder), sysconfig.get_path("purelib")]
        # Options for the run around this one, such as a least coverage, are not for one test.
        environment = {
            **{k: v for k, v in os.environ.items() if k != "PYTEST_ADDOPTS"},
            "PYTHONPATH": os.pathsep.join(paths),
            "PYTHONDONTWRITEBYTECODE": "1",
            "TILEWRIGHT_CACHE_DIR": str(cache),
        }
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"]
        command += ["-m", "not slow and not zoo", "--no-header", "--tb=no", *tests]
        command += [f"--deselect={test}" for test in left_out]
        status, output = _in_a_session(command, self.folder, environment, self._timeout)
        if status is None:
            self._unfinished.append(" ".join(tests))
            return ""
        if status == 0:
            return ""
        noticed = [x for x in output.split("\n") if x.startswith(("FAILED", "ERROR"))]
        return noticed[0] if noticed else f"pytest ends with status {status}"


def _in_a_session(
    command: list[str], folder: Path, environment: dict[str, str], timeout: float
) -> tuple[int | None, str]:
    """The status of a command, None if it took too long, and what it printed; whatever it started
    ends with it, lest it runs beside the next one.
    """
    with (
        tempfile.TemporaryFile("w+") as output,
        subprocess.Popen(
            command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=output,
            stderr=subprocess.STDOUT, start_new_session=True,
        ) as process,
    ):  # fmt: skip
        try:
            status: int | None = process.wait(timeout)
        except subprocess.TimeoutExpired:
            status = None
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        output.seek(0)
        return status, output.read()
