# SPDX-License-Identifier: Apache-2.0
"""Compare one model in two engines: first every output, at every size, then the speed.

    python -m benchmarks.comparison REQUEST.json RESULT.json

is what `benchmarks.models` starts for each model: a process of its own, so that a crash or a leak
in one model cannot reach the next.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.blocks import BlockPlan, time_in_blocks
from benchmarks.engines import Engine, Tilewright, load_engine
from benchmarks.inputs import make_inputs
from benchmarks.standalone import read_arrays, write_arrays
from benchmarks.zoo import Model, load_table, model_path

RTOL = 1e-3
ATOL = 1e-5
ROOT = Path(__file__).resolve().parent.parent
REFERENCE = "onnxruntime"

Arrays = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class Request:
    """What to do with one model. `mode` is time, check, or standalone (check a saved artifact)."""

    model: str
    engine: str = "tilewright"
    against: str = REFERENCE
    threads: int = 2
    mode: str = "time"
    rounds: int = 8


@dataclass
class Result:
    """What came of it. Times are in milliseconds; `used` is the share of the tolerance used up."""

    model: str
    suite: str = ""
    failure: str = ""
    detail: str = ""
    compile_seconds: float = 0.0
    kernels: int | None = None
    sizes: int = 0
    error: float = 0.0
    used: float = 0.0
    worst: str = ""
    ours: float | None = None
    theirs: float | None = None
    blocks: dict[str, list[float]] = field(default_factory=dict)

    @property
    def ratio(self) -> float | None:
        """How many times faster than the rival."""
        return self.theirs / self.ours if self.ours and self.theirs else None


@dataclass(frozen=True)
class Difference:
    """The largest difference of two arrays, relative to the scale and to the tolerance."""

    error: float
    used: float


class MismatchError(RuntimeError):
    """An output is missing, or of the wrong shape or type."""


def compare_arrays(name: str, found: NDArray[Any], expected: NDArray[Any]) -> Difference:
    """Compare one output. Integers and truth values must be equal; so must infinities and NaN.

    Real numbers may differ by 1e-3 of the value and 1e-5 of the largest value in the output.
    """
    if found.shape != expected.shape or found.dtype != expected.dtype:
        raise MismatchError(
            f"Output '{name}' is {found.dtype}{list(found.shape)}, "
            f"but should be {expected.dtype}{list(expected.shape)}."
        )
    if expected.dtype.kind not in "fc":
        equal = bool(np.array_equal(found, expected))
        return Difference(0.0, 0.0) if equal else Difference(np.inf, np.inf)
    found, expected = found.astype(np.float64), expected.astype(np.float64)
    finite = np.isfinite(expected)
    if not np.array_equal(found[~finite], expected[~finite], equal_nan=True):
        return Difference(np.inf, np.inf)
    found, expected = found[finite], expected[finite]
    if not found.size:
        return Difference(0.0, 0.0)
    if not np.isfinite(found).all():
        return Difference(np.inf, np.inf)
    scale = float(np.abs(expected).max()) or 1.0
    distance = np.abs(found - expected)
    allowed = ATOL * scale + RTOL * np.abs(expected)
    return Difference(float(distance.max()) / scale, float((distance / allowed).max()))


def check_size(
    result: Result,
    size: Mapping[str, int],
    found: Arrays,
    expected: Arrays,
    slack: float = 1.0,
) -> None:
    """Enter the differences of all outputs at one size; `slack` widens the tolerance."""
    for name, array in expected.items():
        if name not in found:
            raise MismatchError(f"Output '{name}' is missing; there are {', '.join(found)}.")
        difference = compare_arrays(name, np.asarray(found[name]), array)
        result.error = max(result.error, difference.error)
        used = difference.used / slack
        if used >= result.used:
            shown = ", ".join(f"{symbol}={value}" for symbol, value in size.items())
            result.used = used
            result.worst = f"{name}{f' at {shown}' if shown else ''}"
    result.sizes += 1


def run_standalone(engine: Engine, feeds: Sequence[Arrays]) -> list[Arrays]:
    """Save the artifact and run it where the compiler's dependencies cannot be imported."""
    if not isinstance(engine, Tilewright):
        raise ValueError("Only artifacts of Tilewright run on their own.")
    with tempfile.TemporaryDirectory(prefix="tilewright-standalone-") as scratch:
        folder = Path(scratch)
        artifact = folder / "model.tw"
        engine.model.save(str(artifact))
        for index, inputs in enumerate(feeds):
            write_arrays(inputs, folder / f"inputs-{index}")
        command = [sys.executable, "-m", "benchmarks.standalone", str(artifact), str(folder)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"The saved artifact does not run alone: {last_line(done.stderr)}")
        return [read_arrays(folder / f"outputs-{index}") for index in range(len(feeds))]


def last_line(text: str) -> str:
    """The last line of a program's error output, which says most, without module paths."""
    lines = text.strip().splitlines()
    return re.sub(r"^(\w+\.)+(?=\w+: )", "", lines[-1]) if lines else "no message"


def compare(model: Model, request: Request) -> Result:
    """Compile one model once, check it at all its sizes, and time it at the first."""
    path = model_path(model)
    result = Result(model.name, model.suite)
    start = time.perf_counter()
    ours = load_engine(request.engine, path, request.threads)
    result.compile_seconds = time.perf_counter() - start
    result.kernels = ours.kernels
    reference = load_engine(REFERENCE, path, request.threads)
    feeds = [make_inputs(model, size) for size in model.sizes]
    if request.mode == "standalone":
        found = run_standalone(ours, feeds)
    else:
        found = [ours.run(inputs) for inputs in feeds]
    for size, inputs, outputs in zip(model.sizes, feeds, found):
        check_size(result, size, outputs, reference.run(inputs), model.slack)
    if result.used > 1.0:
        result.failure = f"Output {result.worst} uses {result.used:.3g} times the tolerance."
    elif request.mode == "time":
        same = request.against == REFERENCE
        rival = reference if same else load_engine(request.against, path, request.threads)
        enter_times(result, ours, rival, feeds[0], BlockPlan(rounds=request.rounds))
    return result


def enter_times(
    result: Result, ours: Engine, rival: Engine, inputs: Arrays, plan: BlockPlan
) -> None:
    """Time both engines in blocks and enter the figures into `result`, in milliseconds."""
    calls = {"ours": lambda: ours.run(inputs), "theirs": lambda: rival.run(inputs)}
    timings = time_in_blocks(calls, plan)
    result.blocks = {name: [1e3 * b for b in timing.blocks] for name, timing in timings.items()}
    result.ours = 1e3 * timings["ours"].median
    result.theirs = 1e3 * timings["theirs"].median


def main(arguments: Sequence[str]) -> int:
    """Carry out one request; an exception leaves no result and its message on standard error."""
    request = Request(**json.loads(Path(arguments[0]).read_text(encoding="utf-8")))
    result = compare(load_table().model(request.model), request)
    Path(arguments[1]).write_text(json.dumps(asdict(result)), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
