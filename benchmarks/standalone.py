# SPDX-License-Identifier: Apache-2.0
"""Run a saved artifact in a process that cannot import the compiler's dependencies.

    python -m benchmarks.standalone MODEL.tw FOLDER

runs the artifact on every `inputs-N` of FOLDER and writes `outputs-N` beside it. It proves that an
artifact carries all it needs: a run neither compiles nor reads the original model.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

BLOCKED = ("llvmlite", "islpy", "onnx")


class ImportBlocker(importlib.abc.MetaPathFinder):
    """A finder that stands first and refuses the modules of some packages."""

    def __init__(self, packages: Sequence[str]) -> None:
        self.packages = frozenset(packages)

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name.partition(".")[0] in self.packages:
            raise ImportError(f"Module '{name}' is blocked: a saved artifact must run without it.")
        return None


def write_arrays(arrays: Mapping[str, NDArray[Any]], stem: Path) -> None:
    """Write named arrays to `stem`.npz; names lie in `stem`.json, as any text may be a name."""
    stem.with_suffix(".json").write_text(json.dumps(list(arrays)), encoding="utf-8")
    np.savez(stem.with_suffix(".npz"), *arrays.values())


def read_arrays(stem: Path) -> dict[str, NDArray[Any]]:
    """Read what `write_arrays` wrote."""
    names = json.loads(stem.with_suffix(".json").read_text(encoding="utf-8"))
    with np.load(stem.with_suffix(".npz")) as stored:
        return {name: stored[f"arr_{index}"] for index, name in enumerate(names)}


def run_folder(artifact: Path, folder: Path) -> None:
    """Load the artifact once and run it on all inputs in the folder."""
    import tilewright

    model = tilewright.load(str(artifact))
    for stem in sorted(folder.glob("inputs-*.json")):
        outputs = model.run(read_arrays(stem.with_suffix("")))
        write_arrays(outputs, folder / stem.stem.replace("inputs", "outputs"))


def main(arguments: Sequence[str]) -> int:
    """Block the compiler's dependencies, then run; exit status 1 if one is loaded all the same."""
    sys.meta_path.insert(0, ImportBlocker(BLOCKED))
    run_folder(Path(arguments[0]), Path(arguments[1]))
    loaded = [name for name in BLOCKED if name in sys.modules]
    if loaded:
        print(f"Running the artifact loaded {', '.join(loaded)}.", file=sys.stderr)
    return int(bool(loaded))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
