# SPDX-License-Identifier: Apache-2.0
"""Reductions and transposes: ``python -m benchmarks.reductions [--rounds N] [--json FILE]``.

Sum, maximum and mean over the last, the middle and the first axis of arrays that fit into a cache
(512 KiB) and that do not (64 MiB), then transposes of 2048 by 2048 elements; on one thread. Ours is
the time of the kernels. ONNX Runtime's is that of a run, which takes some microseconds more. The
share is that of the best there is, measured in the same run: a vector loop in C that reads the
array once, for a transpose a copy.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from benchmarks import plain_loops
from benchmarks.blocks import BlockPlan, Call, time_in_blocks
from benchmarks.one_op import kernel_call, one_op

Array = NDArray[Any]

REDUCTIONS = ("ReduceSum", "ReduceMax", "ReduceMean")
SHAPES: Mapping[str, Mapping[str, tuple[tuple[int, ...], int]]] = {
    "512 KiB": {
        "last": ((256, 512), 1),
        "middle": ((8, 128, 128), 1),
        "first": ((512, 256), 0),
    },
    "64 MiB": {
        "last": ((4096, 4096), 1),
        "middle": ((16, 1024, 1024), 1),
        "first": ((4096, 4096), 0),
    },
}
"""For each size and place the shape and the axis that is reduced."""

TRANSPOSED = (2048, 2048)
DTYPES = ("float32", "float64", "float16", "uint8")
FILE_WIDTH = 120
"""Columns of the table where it does not go to a terminal."""


@dataclass(frozen=True)
class Case:
    """One row of the table: an operator on an array of that shape and dtype, and the loop in C that
    it is held to.
    """

    name: str
    size: str
    model: bytes
    shape: tuple[int, ...]
    dtype: str
    best: Callable[[Array], Call]


@dataclass(frozen=True)
class Row:
    """Microseconds of a case: ours, ONNX Runtime's and the plain loop's."""

    name: str
    size: str
    ours: float
    theirs: float
    best: float

    @property
    def ratio(self) -> float:
        """How many times faster than ONNX Runtime."""
        return self.theirs / self.ours

    @property
    def share(self) -> float:
        """The share of the plain loop's speed."""
        return self.best / self.ours


def cases() -> Iterator[Case]:
    """All rows: reductions of each size, then transposes."""
    for size, places in SHAPES.items():
        for op in REDUCTIONS:
            for place, (shape, axis) in places.items():
                axes = {"axes": np.array([axis], np.int64)}
                model = one_op(op, {"x": (np.float32, shape)}, axes, keepdims=0)
                yield Case(f"{op}, {place} axis", size, model, shape, "float32", reading)
    size = "x".join(map(str, TRANSPOSED))
    for dtype in DTYPES:
        model = one_op("Transpose", {"x": (dtype, TRANSPOSED)}, perm=[1, 0])
        yield Case(f"Transpose, {dtype}", size, model, TRANSPOSED, dtype, copying)


def reading(x: Array) -> Call:
    """The loop that reads an array."""
    return lambda: plain_loops.read(x)[0]


def copying(x: Array) -> Call:
    """The copy of an array."""
    return partial(plain_loops.copy, x, np.zeros_like(x))


def onnxruntime_call(model: bytes, feeds: Mapping[str, Array]) -> Call:
    """A run of ONNX Runtime on one thread, from memory to memory that are bound before."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    binding = session.io_binding()
    for name, array in feeds.items():
        binding.bind_cpu_input(name, array)
    (found,) = session.run(None, dict(feeds))
    result = onnxruntime.OrtValue.ortvalue_from_numpy(found)
    binding.bind_ortvalue_output(session.get_outputs()[0].name, result)
    return lambda: session.run_with_iobinding(binding)


def measure(case: Case, plan: BlockPlan) -> Row:
    """Time a case in all three engines, in interleaved blocks."""
    x = np.random.default_rng(0).integers(0, 100, case.shape).astype(case.dtype)
    feeds = {"x": x}
    calls = {
        "ours": kernel_call(case.model, feeds),
        "theirs": onnxruntime_call(case.model, feeds),
        "best": case.best(x),
    }
    timings = time_in_blocks(calls, plan)
    return Row(case.name, case.size, *(1e6 * timings[name].median for name in calls))


def as_table(rows: Sequence[Row]) -> Table:
    """The rows as a table."""
    table = Table("operator", "size", "ours us", "theirs us", "ratio", "best us", "share")
    for r in rows:
        figures = [f"{r.ours:.1f}", f"{r.theirs:.1f}", f"{r.ratio:.2f}", f"{r.best:.1f}"]
        table.add_row(r.name, r.size, *figures, f"{r.share:.0%}")
    return table


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.reductions",
        description="Reductions and transposes beside ONNX Runtime and plain loops in C.",
    )
    parser.add_argument("--only", default="", metavar="TEXT", help="rows with this in their name")
    parser.add_argument("--rounds", type=int, default=4, help="blocks of each engine")
    parser.add_argument("--json", type=Path, metavar="FILE")
    given = parser.parse_args(arguments)
    plan = BlockPlan(rounds=given.rounds)
    rows = [measure(case, plan) for case in cases() if given.only in f"{case.name}, {case.size}"]
    out = Console()
    out.print(
        as_table(rows), width=None if out.is_terminal else FILE_WIDTH, crop=False, no_wrap=True
    )
    if given.json:
        data = [asdict(r) | {"ratio": r.ratio, "share": r.share} for r in rows]
        given.json.write_text(json.dumps(data, indent=1), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
