# SPDX-License-Identifier: Apache-2.0
"""What the legality proofs cost: ``python -m benchmarks.proofs [--suite S] [--model NAME]``.

A row for each form of kernel that the models compile to: the template of its schedule, and the
milliseconds of the proof. Kernels that come from the compile cache report the time of the proof
that was made when they went in; a cache is not used here unless asked for.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.archives import ZooError
from benchmarks.zoo import load_table, model_path
from tilewright.driver import CompileOptions, build
from tilewright.ir.target import parse_target
from tilewright.kernel_report import KernelRow

FILE_WIDTH = 120
"""Columns of the table where it does not go to a terminal."""


def proofs_of(path: Path, cache: bool) -> list[KernelRow]:
    """The kernel rows of a model's compilation."""
    report = build(path, parse_target("native"), None, CompileOptions(cache=cache)).report
    return report.kernels


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table and the sums; 2 if a model cannot be had."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.proofs", description=__doc__)
    parser.add_argument("--suite", default="core")
    parser.add_argument("--model", action="append", metavar="NAME")
    parser.add_argument("--cache", action="store_true", help="Take cached kernels.")
    parser.add_argument("--json", type=Path, metavar="FILE")
    given = parser.parse_args(arguments)
    names = given.model or [m.name for m in load_table().suite(given.suite)]
    rows: dict[str, tuple[str, KernelRow]] = {}
    console = Console(stderr=True)
    for name in names:
        try:
            found = proofs_of(model_path(name), given.cache)
        except ZooError as error:
            console.print(str(error), markup=False)
            return 2
        console.print(f"{name}: {len(found)} forms, {sum(k.proof_ms for k in found):.0f} ms")
        rows.update({k.name: (name, k) for k in found if k.name not in rows})
    table = Table("kernel", "model", "template", "proof ms", "origin")
    for model, k in sorted(rows.values(), key=lambda r: -r[1].proof_ms):
        table.add_row(k.name, model, k.template, f"{k.proof_ms:.1f}", k.origin[:40])
    times = [k.proof_ms for _, k in rows.values()]
    table.add_row(f"{len(times)} forms", "", "", f"{sum(times):.0f}", f"worst {max(times):.1f} ms")
    out = Console()
    out.print(table, width=None if out.is_terminal else FILE_WIDTH, crop=False, no_wrap=True)
    if given.json:
        data = [
            {"kernel": k.name, "model": m, "template": k.template, "ms": k.proof_ms}
            for m, k in rows.values()
        ]
        given.json.write_text(json.dumps(data, indent=2), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
