# SPDX-License-Identifier: Apache-2.0
"""How long compiling takes: ``python -m benchmarks.compile_time [MODEL...] [--json FILE]``.

Cold is the wall time of ``tilewright compile`` in a new process with an empty cache folder; cached
is the same again with what the first left behind. Exit status 1 if a model is over its budget.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.archives import ZooError
from benchmarks.zoo import model_path

BUDGETS = {"resnet50": (20.0, 1.0), "minilm_l6_v2_trained": (15.0, None)}
"""Seconds cold and cached; None: no budget."""

MODELS = (*BUDGETS, "mobilenetv2_100")


@dataclass(frozen=True)
class CompileTime:
    """Seconds of one model, cold and cached."""

    model: str
    cold: float
    cached: float

    @property
    def within_budget(self) -> bool:
        limits = BUDGETS.get(self.model, (None, None))
        return all(
            limit is None or took <= limit
            for took, limit in zip((self.cold, self.cached), limits, strict=True)
        )


def compile_once(model: Path, folder: Path) -> float:
    """Seconds of one ``tilewright compile`` in a new process that caches in ``folder``."""
    command = [sys.executable, "-m", "tilewright", "compile", str(model), "--quiet"]
    command += ["-o", str(folder / "model.tw"), "--cache-dir", str(folder / "cache")]
    start = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=dict(os.environ))
    return time.perf_counter() - start


def measure(name: str) -> CompileTime:
    """Compile a model of the zoo twice, the second time from the cache."""
    path = model_path(name)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        return CompileTime(name, compile_once(path, folder), compile_once(path, folder))


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; 1 if a model is over its budget, 2 if one cannot be had."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compile_time", description=__doc__)
    parser.add_argument("models", nargs="*", default=MODELS, metavar="MODEL")
    parser.add_argument("--json", type=Path, metavar="FILE")
    given = parser.parse_args(arguments)
    try:
        rows = [measure(name) for name in given.models]
    except ZooError as error:
        print(error, file=sys.stderr)
        return 2
    table = Table("model", "cold s", "budget", "cached s", "budget")
    for row in rows:
        cold, cached = BUDGETS.get(row.model, (None, None))
        limits = ["" if b is None else f"{b:.0f}" for b in (cold, cached)]
        table.add_row(row.model, f"{row.cold:.2f}", limits[0], f"{row.cached:.2f}", limits[1])
    Console().print(table)
    if given.json:
        given.json.write_text(json.dumps([asdict(r) for r in rows], indent=2), encoding="utf-8")
    return int(not all(row.within_budget for row in rows))


if __name__ == "__main__":
    sys.exit(main())
