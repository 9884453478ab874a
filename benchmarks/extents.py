# SPDX-License-Identifier: Apache-2.0
"""Cliffs between extents: ``python -m benchmarks.extents [--kind TEXT] [--block B]``.

Kernels of every kind are timed with an axis of extent 1, B-1, B, B+1, 2B and 2B+1, where B is the
width of a vector: once with all dims fixed, once with the batch or the rows symbolic. More work may
never take much less time, so each is compared with the next multiple of B. The exit status is 1 if
one takes more than twice as long. Times are of kernels alone, on one thread.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.blocks import BlockPlan, time_in_blocks
from benchmarks.one_op import kernel_call, one_op
from tilewright.ir.target import parse_target

BAR = 2.0
FILE_WIDTH = 120
"""Columns of the table where it does not go to a terminal."""

FORMS = ("static", "symbolic")


@dataclass(frozen=True)
class Free:
    """A dim that is symbolic in that form, under this name."""

    name: str
    size: int


Dims = tuple[int | Free, ...]


@dataclass(frozen=True)
class Spec:
    """A model of one operator: shapes of its inputs and of its constants."""

    op: str
    inputs: Mapping[str, Dims]
    constants: Mapping[str, Any] = field(default_factory=dict)
    attributes: Mapping[str, Any] = field(default_factory=dict)


N, M = Free("n", 4), Free("m", 128)
_SAME = {"pads": [1, 1, 1, 1]}


def _matmul(m: int | Free, n: int, k: int) -> Spec:
    return Spec("MatMul", {"x": (m, k)}, {"w": (k, n)})


def _conv(inputs: int, outputs: int, width: int = 28, group: int = 1) -> Spec:
    x, w = (N, inputs, 28, width), (outputs, inputs // group, 3, 3)
    return Spec("Conv", {"x": x}, {"w": w}, {"group": group, **_SAME})


def _pool(op: str, channels: int, width: int = 28) -> Spec:
    return Spec(op, {"x": (N, channels, 28, width)}, {}, {"kernel_shape": [3, 3], **_SAME})


def _reduce(op: str, axis: int, *dims: int | Free) -> Spec:
    return Spec(op, {"x": dims}, {"axes": np.array([axis], np.int64)}, {"keepdims": 0})


def _norm(rows: int | Free, length: int) -> Spec:
    return Spec(
        "LayerNormalization", {"x": (rows, length)}, {"scale": (length,), "bias": (length,)}
    )


def _gather(count: int | Free, length: int) -> Spec:
    return Spec("Gather", {"x": (100, length), "indices": (count,)})


KINDS: Mapping[str, Callable[[int], Spec]] = {
    "matmul, M": lambda e: _matmul(Free("m", e), 256, 256),
    "matmul, N": lambda e: _matmul(M, e, 256),
    "matmul, K": lambda e: _matmul(M, 256, e),
    "conv, inputs": lambda e: _conv(e, 64),
    "conv, outputs": lambda e: _conv(64, e),
    "conv, width": lambda e: _conv(32, 64, e),
    "grouped conv, channels of a group": lambda e: _conv(4 * e, 4 * e, group=4),
    "grouped conv, groups": lambda e: _conv(8 * e, 8 * e, group=e),
    "depthwise conv, channels": lambda e: _conv(e, e, group=e),
    "depthwise conv, width": lambda e: _conv(32, 32, e, group=32),
    "max pool, channels": lambda e: _pool("MaxPool", e),
    "max pool, width": lambda e: _pool("MaxPool", 32, e),
    "average pool, channels": lambda e: _pool("AveragePool", e),
    "average pool, width": lambda e: _pool("AveragePool", 32, e),
    "global pool, channels": lambda e: Spec("GlobalAveragePool", {"x": (N, e, 28, 28)}),
    "sum of last axis, length": lambda e: _reduce("ReduceSum", 1, Free("m", 1024), e),
    "sum of last axis, rows": lambda e: _reduce("ReduceSum", 1, Free("m", e), 1024),
    "sum of middle axis, length": lambda e: _reduce("ReduceSum", 1, Free("n", 8), e, 256),
    "sum of middle axis, width": lambda e: _reduce("ReduceSum", 1, Free("n", 8), 256, e),
    "sum of first axis, length": lambda e: _reduce("ReduceSum", 0, Free("n", e), 1024),
    "sum of first axis, width": lambda e: _reduce("ReduceSum", 0, Free("n", 1024), e),
    "max of last axis, length": lambda e: _reduce("ReduceMax", 1, Free("m", 1024), e),
    "max of middle axis, width": lambda e: _reduce("ReduceMax", 1, Free("n", 8), 256, e),
    "max of first axis, width": lambda e: _reduce("ReduceMax", 0, Free("n", 1024), e),
    "softmax, length": lambda e: Spec("Softmax", {"x": (M, e)}, {}, {"axis": 1}),
    "softmax, rows": lambda e: Spec("Softmax", {"x": (Free("m", e), 256)}, {}, {"axis": 1}),
    "softmax of middle axis, width": lambda e: Spec("Softmax", {"x": (N, 64, e)}, {}, {"axis": 1}),
    "layer norm, length": lambda e: _norm(M, e),
    "layer norm, rows": lambda e: _norm(Free("m", e), 256),
    "elementwise, length": lambda e: Spec("Add", {"x": (Free("m", 1024), e)}, {"b": (e,)}),
    "elementwise, rows": lambda e: Spec("Add", {"x": (Free("m", e), 1024)}, {"b": (1024,)}),
    "transpose, columns": lambda e: Spec("Transpose", {"x": (Free("m", 1024), e)}),
    "transpose, rows": lambda e: Spec("Transpose", {"x": (Free("m", e), 1024)}),
    "concat, length": lambda e: Spec("Concat", {"x": (M, e), "z": (M, 64)}, {}, {"axis": 1}),
    "concat, rows": lambda e: Spec(
        "Concat", {"x": (Free("m", e), 256), "z": (64, 256)}, {}, {"axis": 0}
    ),
    "gather, length": lambda e: _gather(Free("n", 1024), e),
    "gather, indices": lambda e: _gather(Free("n", e), 256),
}
"""A model for each kind of kernel and axis that is swept."""


@dataclass(frozen=True)
class Sweep:
    """The seconds of the kernels of one kind by the extent of the axis that is swept."""

    kind: str
    form: str
    block: int
    seconds: Mapping[int, float]

    @property
    def ratios(self) -> dict[int, float]:
        """The time of each extent, relative to that of the next multiple of the block."""
        return {
            e: self.seconds[e] / self.seconds[next_multiple(e, self.block)]
            for e in extents(self.block)
        }

    @property
    def worst(self) -> float:
        """The greatest ratio."""
        return max(self.ratios.values())


def extents(block: int) -> tuple[int, ...]:
    """The extents that are compared.

    >>> extents(8)
    (1, 7, 8, 9, 16, 17)
    """
    return tuple(sorted({1, block - 1, block, block + 1, 2 * block, 2 * block + 1} - {0}))


def next_multiple(extent: int, block: int) -> int:
    """The least multiple of the block that is greater.

    >>> next_multiple(8, 8)
    16
    """
    return (extent // block + 1) * block


def timed(block: int) -> Iterator[int]:
    """All extents that are needed: those that are compared, and what they are compared with."""
    wanted = {x for e in extents(block) for x in (e, next_multiple(e, block))}
    return iter(sorted(wanted))


def build(spec: Spec, form: str) -> tuple[bytes, dict[str, Any]]:
    """The model of a spec in one of the forms, and arrays to feed it with."""
    rng = np.random.default_rng(0)

    def array(shape: Sequence[int]) -> Any:
        return rng.standard_normal(shape, dtype=np.float32)

    inputs, feeds = {}, {}
    for name, dims in spec.inputs.items():
        shape = tuple(d.size if isinstance(d, Free) else d for d in dims)
        names = tuple(d.name if isinstance(d, Free) else d for d in dims)
        feeds[name] = rng.integers(0, 100, shape) if name == "indices" else array(shape)
        inputs[name] = (feeds[name].dtype, shape if form == "static" else names)
    constants = {
        name: given if isinstance(given, np.ndarray) else array(given)
        for name, given in spec.constants.items()
    }
    return one_op(spec.op, inputs, constants, **spec.attributes), feeds


def measure(kind: str, form: str, block: int, plan: BlockPlan) -> Sweep:
    """Time the kernels of one kind at all extents, in interleaved blocks."""
    calls = {str(e): kernel_call(*build(KINDS[kind](e), form)) for e in timed(block)}
    timings = time_in_blocks(calls, plan)
    return Sweep(kind, form, block, {int(e): t.median for e, t in timings.items()})


@contextmanager
def without_warnings() -> Iterator[None]:
    """Slow kernels are not told of: they are what the table shows."""
    logger = logging.getLogger("tilewright")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def as_table(sweeps: Sequence[Sweep], block: int) -> Table:
    """A row for each sweep, what is over the bar in red."""
    table = Table("kernel, axis", "form", *map(str, extents(block)), "worst")
    for sweep in sweeps:
        cells = [*sweep.ratios.values(), sweep.worst]
        shown = [f"[red]{r:.2f}[/]" if r > BAR else f"{r:.2f}" for r in cells]
        table.add_row(sweep.kind, sweep.form, *shown)
    return table


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; 1 if a ratio is over the bar."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.extents",
        description="Times of kernels relative to those of the next multiple of a vector.",
    )
    parser.add_argument("--kind", default="", metavar="TEXT", help="kinds with this in their name")
    parser.add_argument("--form", choices=FORMS, action="append", help="only this")
    parser.add_argument("--block", type=int, metavar="B", help="else the width of a vector")
    parser.add_argument("--rounds", type=int, default=5, help="blocks of each extent")
    parser.add_argument("--seconds", type=float, default=0.05, help="of a block")
    parser.add_argument("--json", type=Path, metavar="FILE")
    given = parser.parse_args(arguments)
    block = given.block or parse_target("native").lanes(4)
    plan = BlockPlan(given.rounds, given.seconds, given.seconds / 5, least_calls=5)
    progress, out = Console(stderr=True), Console()
    sweeps = []
    for kind in (kind for kind in KINDS if given.kind in kind):
        for form in given.form or FORMS:
            with without_warnings():
                sweeps.append(measure(kind, form, block, plan))
            progress.print(f"{kind}, {form}: {sweeps[-1].worst:.2f}", highlight=False)
    table = as_table(sweeps, block)
    out.print(table, width=None if out.is_terminal else FILE_WIDTH, crop=False, no_wrap=True)
    if given.json:
        data = [asdict(s) | {"ratios": s.ratios} for s in sweeps]
        given.json.write_text(json.dumps(data, indent=1), encoding="utf-8")
    return int(any(sweep.worst > BAR for sweep in sweeps))


if __name__ == "__main__":
    sys.exit(main())
