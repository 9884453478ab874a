# SPDX-License-Identifier: Apache-2.0
"""Check and time real models against another engine.

    python -m benchmarks.models --suite cnn --against onnxruntime
    python -m benchmarks.models --model gpt2 --model resnet50 --check-only
    python -m benchmarks.models --suite core --standalone --json results.json

Every model is compiled once, with its dynamic dims left open, and runs at all its sizes; all
outputs are compared with ONNX Runtime's. Then both engines are timed at the first size, in
interleaved blocks. A model that fails is reported and the rest go on; the exit status is 1 if any
failed.
"""

from __future__ import annotations

import argparse
import json
import math
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from benchmarks.archives import ZooError
from benchmarks.blocks import BlockPlan
from benchmarks.comparison import REFERENCE, ROOT, Request, Result, last_line
from benchmarks.engines import ENGINES
from benchmarks.zoo import SUITES, Model, load_table, model_path

DETAIL = 8000  # characters of a failed process's error output that a report keeps
WIDTH = 110  # of the table where the output is no terminal


def how_it_ended(returncode: int, stderr: str) -> str:
    """Why a child process gave no result, in a sentence."""
    if returncode < 0:
        return f"The process was ended by {signal.Signals(-returncode).name}: {last_line(stderr)}"
    return last_line(stderr)


def compare_apart(model: Model, request: Request, timeout: float) -> Result:
    """Compare one model in a process of its own; a failure becomes part of the result."""
    result = Result(model.name, model.suite)
    try:
        model_path(model)
    except ZooError as error:
        result.failure = str(error)
        return result
    with tempfile.TemporaryDirectory(prefix="tilewright-bench-") as scratch:
        asked, answered = Path(scratch) / "request.json", Path(scratch) / "result.json"
        asked.write_text(json.dumps(asdict(request)), encoding="utf-8")
        command = [sys.executable, "-m", "benchmarks.comparison", str(asked), str(answered)]
        try:
            done = subprocess.run(
                command, cwd=ROOT, capture_output=True, text=True, timeout=timeout, check=False
            )
        except subprocess.TimeoutExpired:
            result.failure = f"No result after {timeout:.0f} s."
            return result
        if done.returncode == 0 and answered.is_file():
            return Result(**json.loads(answered.read_text(encoding="utf-8")))
        result.failure = how_it_ended(done.returncode, done.stderr)
        result.detail = done.stderr[-DETAIL:]
        return result


def _shown(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)


def geometric_mean(values: Sequence[float]) -> float:
    """The geometric mean, which fits ratios."""
    return math.exp(sum(map(math.log, values)) / len(values))


def as_table(results: Sequence[Result], request: Request) -> Table:
    """The results as a table, with the geometric mean of the ratios below."""
    table = Table(title=f"{request.engine} against {request.against}, {request.threads} threads")
    table.add_column("model", no_wrap=True)
    heads = (
        "ours ms",
        "theirs ms",
        "ratio",
        "error",
        "of allowed",
        "sizes",
        "kernels",
        "compile s",
    )
    for head in heads:
        table.add_column(head, justify="right")
    for result in results:
        if not result.sizes:
            table.add_row(f"[red]{result.model}[/]", *["-"] * 8)
            continue
        table.add_row(
            f"[red]{result.model}[/]" if result.failure else result.model,
            _shown(result.ours, ".3f"),
            _shown(result.theirs, ".3f"),
            _shown(result.ratio, ".2f"),
            f"{result.error:.1e}",
            f"{result.used:.3f}",
            str(result.sizes),
            str(result.kernels if result.kernels is not None else ""),
            f"{result.compile_seconds:.1f}",
        )
    ratios = [result.ratio for result in results if result.ratio is not None]
    if ratios:
        table.add_section()
        table.add_row("geometric mean", "", "", f"{geometric_mean(ratios):.2f}", *[""] * 5)
    return table


def as_json(results: Sequence[Result], request: Request) -> str:
    """The results as JSON text; infinite differences become null."""

    def row(result: Result) -> dict[str, Any]:
        values = asdict(result) | {"ratio": result.ratio}
        return {
            key: None if isinstance(value, float) and not math.isfinite(value) else value
            for key, value in values.items()
        }

    settings = {k: v for k, v in asdict(request).items() if k != "model"}
    return json.dumps({"settings": settings, "results": [row(r) for r in results]}, indent=1)


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="benchmarks.models", description="Check and time real models against another engine."
    )
    parser.add_argument("--suite", choices=("core", *SUITES), default="core")
    parser.add_argument("--model", action="append", metavar="NAME", help="only this; repeatable")
    parser.add_argument("--engine", choices=ENGINES, default="tilewright", help="under test")
    parser.add_argument("--against", choices=ENGINES, default=REFERENCE)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument(
        "--rounds", type=int, default=BlockPlan.rounds, help="blocks of each engine"
    )
    parser.add_argument("--timeout", type=float, default=1800.0, help="seconds for one model")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results there too")
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--check-only", action="store_true", help="compare outputs, measure nothing")
    mode.add_argument(
        "--standalone",
        action="store_true",
        help="save, and check in a process that cannot import the compiler's dependencies",
    )
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare the models asked for; exit status 1 if one fails, 2 if one is unknown."""
    options = parse_arguments(arguments)
    mode = "check" if options.check_only else "standalone" if options.standalone else "time"
    console = Console()
    if not console.is_terminal:
        console = Console(width=WIDTH)
    zoo = load_table()
    try:
        chosen = [zoo.model(n) for n in options.model or ()] or list(zoo.suite(options.suite))
    except ZooError as error:
        console.print(escape(str(error)), style="red")
        return 2
    shared = (options.engine, options.against, options.threads, mode, options.rounds)
    results: list[Result] = []
    for model in chosen:
        result = compare_apart(model, Request(model.name, *shared), options.timeout)
        results.append(result)
        figures = f"{_shown(result.ours, '.3f')} ms, ratio {_shown(result.ratio, '.2f')}"
        outcome = result.failure or (figures if result.ratio else "agrees")
        console.print(f"{model.name}: {escape(outcome)}", soft_wrap=True, highlight=False)
    console.print(as_table(results, Request("", *shared)))
    failed = [result for result in results if result.failure]
    if options.json:
        options.json.write_text(as_json(results, Request("", *shared)) + "\n", encoding="utf-8")
    if failed:
        console.print(f"{len(failed)} of {len(results)} models failed:", style="red")
        for result in failed:
            console.print(f"  {result.model}: {escape(result.failure)}", soft_wrap=True)
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
