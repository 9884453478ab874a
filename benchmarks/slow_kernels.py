# SPDX-License-Identifier: Apache-2.0
"""Which kernels of real models are slow: ``python -m benchmarks.slow_kernels [--model NAME]``.

Every model is scheduled for two levels of x86-64, with all dims fixed and with dims left symbolic
(the batch, where the table has no symbols). Nothing is compiled or run. The table has the number of
warnings of each; what they say stands below it. The exit status is 1 if there is one or if a model
fails, 2 if one cannot be had.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.archives import ZooError
from benchmarks.inputs import input_shapes
from benchmarks.zoo import SUITES, Dim, Model, load_table, model_path
from tilewright.driver import CompileOptions, Report, lower_groups, optimize
from tilewright.frontends import import_model
from tilewright.ir.errors import TilewrightError
from tilewright.ir.loop import Kernel
from tilewright.ir.target import available_cores, parse_target
from tilewright.kernel_report import KernelWarning
from tilewright.passes.schedule.findings import SlowStage
from tilewright.passes.schedule.select import schedule_kernel
from tilewright.passes.schedule.slow_stages import slow_stages

TARGETS = ("x86-64-v3", "x86-64-v4")
FILE_WIDTH = 120
"""Columns of the table where it does not go to a terminal."""


@dataclass(frozen=True)
class Case:
    """A model in one form, for one target."""

    model: str
    form: str
    target: str
    path: str
    shapes: dict[str, tuple[Dim, ...]] | None
    optional: bool = False


@dataclass(frozen=True)
class Outcome:
    """What became of a case: how many forms of kernels it has, and the warnings of them."""

    case: Case
    kernels: int = 0
    warnings: tuple[KernelWarning, ...] = ()
    failure: str = ""

    @property
    def failed(self) -> bool:
        """Whether it is the compiler's fault; a model may be written for one batch size."""
        return bool(self.failure) and not self.case.optional


def cases_of(model: Model, path: Path, targets: Sequence[str]) -> Iterator[Case]:
    """The model with fixed and with symbolic dims, for each target."""
    fixed = input_shapes(model, model.sizes[0])
    if fixed != input_shapes(model, {}):
        forms = {"static": fixed, "symbolic": None}
    else:
        batches = {name: ("batch", *shape[1:]) for name, shape in fixed.items()}
        forms = {"static": None, "batch": batches}
    for form, shapes in forms.items():
        for target in targets:
            yield Case(model.name, form, target, str(path), shapes, form == "batch")


@cache
def schedule(kernel: Kernel, target: str) -> tuple[str, tuple[SlowStage, ...]]:
    """The template of a kernel's schedule, and its slow stages."""
    parsed = parse_target(target)
    done = schedule_kernel(kernel, parsed)
    return done.template, slow_stages(kernel, done.kernel, parsed, done.refused)


def check(case: Case) -> Outcome:
    """Import, lower and schedule a case; what cannot be compiled is part of the outcome."""
    try:
        module = import_model(case.path, case.shapes)
        optimize(module, parse_target(case.target), CompileOptions(), Report())
        origins: dict[Kernel, list[str]] = {}
        for low in lower_groups(module):
            origins.setdefault(low.kernel, []).append(low.origin)
        warnings = []
        for kernel, nodes in origins.items():
            template, slow = schedule(kernel, case.target)
            warnings += [
                KernelWarning(kernel.name, tuple(nodes), template, s.stage, s.steps, s.reason)
                for s in slow
            ]
    except TilewrightError as error:
        return Outcome(case, failure=str(error))
    return Outcome(case, len(origins), tuple(warnings))


def as_table(outcomes: Sequence[Outcome]) -> Table:
    """A row for each case, and the sum."""
    table = Table("model", "form", "target", "kernels", "slow")
    for outcome in outcomes:
        case = outcome.case
        found = "failed" if outcome.failed else "-" if outcome.failure else None
        slow = found or str(len(outcome.warnings))
        table.add_row(case.model, case.form, case.target, str(outcome.kernels), slow)
    total = sum(len(outcome.warnings) for outcome in outcomes)
    kernels = sum(outcome.kernels for outcome in outcomes)
    table.add_row(f"{len(outcomes)} cases", "", "", str(kernels), str(total))
    return table


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table and the warnings; see the module for the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.slow_kernels",
        description="Which kernels of real models do not run on full vectors.",
    )
    parser.add_argument("--suite", choices=("core", *SUITES), default="core")
    parser.add_argument("--model", action="append", metavar="NAME", help="only this; repeatable")
    parser.add_argument("--target", action="append", metavar="TARGET", help="repeatable")
    parser.add_argument("--json", type=Path, metavar="FILE")
    given = parser.parse_args(arguments)
    zoo, console, missing = load_table(), Console(stderr=True), False
    cases: list[Case] = []
    try:
        models = [zoo.model(name) for name in given.model or ()] or list(zoo.suite(given.suite))
    except ZooError as error:
        console.print(str(error), markup=False, soft_wrap=True)
        return 2
    for model in models:
        try:
            cases += cases_of(model, model_path(model), given.target or TARGETS)
        except ZooError as error:
            console.print(str(error), markup=False, soft_wrap=True)
            missing = True
    outcomes = []
    with ProcessPoolExecutor(available_cores()) as pool:
        for outcome in pool.map(check, cases):
            _tell(outcome, console)
            outcomes.append(outcome)
    out = Console()
    table = as_table(outcomes)
    out.print(table, width=None if out.is_terminal else FILE_WIDTH, crop=False, no_wrap=True)
    for outcome in outcomes:
        for warning in outcome.warnings:
            case = outcome.case
            head = f"{case.model}, {case.form}, {case.target}"
            out.print(f"{head}: {warning}", markup=False, highlight=False, soft_wrap=True)
    if given.json:
        given.json.write_text(json.dumps([asdict(o) for o in outcomes], indent=1), encoding="utf-8")
    if any(outcome.warnings or outcome.failed for outcome in outcomes):
        return 1
    return 2 if missing else 0


def _tell(outcome: Outcome, console: Console) -> None:
    case = outcome.case
    told = outcome.failure or f"{outcome.kernels} kernels, {len(outcome.warnings)} slow"
    line = f"{case.model}, {case.form}, {case.target}: {told}"
    console.print(line, markup=False, highlight=False, soft_wrap=True)


if __name__ == "__main__":
    sys.exit(main())
