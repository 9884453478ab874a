# SPDX-License-Identifier: Apache-2.0
"""Checks many graphs in child processes, and makes those with a fault smaller."""

import base64
import contextlib
import json
import os
import pickle
import select
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx
import onnx.printer

from tests.random_graphs.check import Outcome
from tests.random_graphs.drawing import draw
from tests.random_graphs.minimise import minimise
from tests.random_graphs.spec import Spec

ROOT = Path(__file__).parent.parent.parent
TIMEOUT = 180.0  # seconds for one graph


class Child:
    """A worker process, started anew after a crash."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> "Child":
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def check(self, request: dict[str, object]) -> tuple[Outcome, list[str]]:
        """The outcome of a graph, and its operators."""
        if self._process is None:
            self._process = _start()
        assert self._process.stdin is not None and self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):  # it is dead: reading tells
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
        if not select.select([self._process.stdout], [], [], TIMEOUT)[0]:
            self._stop()
            return Outcome("hang", f"more than {TIMEOUT:.0f} s"), []
        line = self._process.stdout.readline()
        if not line:
            status = self._process.wait()
            self._stop()
            return Outcome("crash", f"the process ended with status {status}"), []
        answer = json.loads(line)
        return Outcome(answer["kind"], answer["message"]), answer["ops"]

    def _stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None


def _start() -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "tests.random_graphs.worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)])},
    )


@dataclass
class Summary:
    """What became of the graphs: counts by kind, by operator, and the faults by seed."""

    kinds: Counter[str] = field(default_factory=Counter)
    operators: Counter[str] = field(default_factory=Counter)
    refusals: Counter[str] = field(default_factory=Counter)
    faults: dict[int, Outcome] = field(default_factory=dict)

    @property
    def compared(self) -> int:
        """Graphs that were not skipped."""
        return self.kinds.total() - self.kinds["skipped"]


def hunt(
    seeds: Iterable[int], count: int, told: Callable[[int, Outcome], None] = lambda *_: None
) -> Summary:
    """Check graphs until that many were compared; ``told`` hears of each."""
    summary = Summary()
    with Child() as child:
        for seed in seeds:
            if summary.compared >= count:
                break
            outcome, operators = child.check({"seed": seed})
            summary.kinds[outcome.kind] += 1
            summary.operators.update(operators)
            if outcome.kind == "refused":
                summary.refusals[outcome.message] += 1
            if outcome.is_fault:
                summary.faults[seed] = outcome
            told(seed, outcome)
    return summary


def smallest(seed: int, kind: str) -> tuple[Spec, Outcome]:
    """The graph of a seed, as small as it still has a fault of the kind, and that fault."""
    spec = draw(seed)
    last = Outcome(kind)
    with Child() as child:

        def fails(smaller: Spec) -> bool:
            nonlocal last
            text = base64.b64encode(pickle.dumps(smaller)).decode()
            outcome, _ = child.check({"spec": text})
            if outcome.kind == kind:
                last = outcome
            return outcome.kind == kind

        if fails(spec):
            spec = minimise(spec, fails)
    return spec, last


def save(spec: Spec, outcome: Outcome, folder: Path) -> Path:
    """Write a model, its feeds and a text that tells what is wrong."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"seed{spec.seed}"
    model = spec.to_onnx()
    onnx.save(model, path.with_suffix(".onnx"))
    for number, feed in enumerate(spec.feeds):
        # Files of numpy do not know bfloat16.
        known = {n: a.view(np.uint16) if a.dtype.kind == "V" else a for n, a in feed.items()}
        np.savez(folder / f"seed{spec.seed}-feed{number}.npz", **known)  # type: ignore[arg-type]
    text = f"{outcome.kind}: {outcome.message}\n\n{onnx.printer.to_text(model)}\n"
    path.with_suffix(".txt").write_text(text, encoding="utf-8")
    return path.with_suffix(".txt")
