# SPDX-License-Identifier: Apache-2.0
"""The worker that runs two schedules of a kernel against each other.

It runs both once on the same random inputs and compares what they computed; then it runs them in
turn, so that whatever else happens on the machine meets both, and answers with the least time of
each.
"""

import os
import resource
import sys
import time
from collections.abc import Mapping
from typing import IO, Any

import numpy as np

from tilewright.autotune.loading import (
    REPEAT,
    Call,
    Code,
    input_memory,
    output_memory,
    prepare,
    values_of,
)
from tilewright.codegen.llvm.worker import Compiler, read_message, write_message
from tilewright.ir.dtypes import DType
from tilewright.ir.errors import TilewrightError
from tilewright.ir.loop import Kernel
from tilewright.ir.loop_parser import parse_kernel
from tilewright.ir.op import Array

_SAMPLE_NS = 2_000_000
"""One sample of a short kernel takes about this long."""

_PROBE_NS = 100_000
"""How long a call is repeated to learn how many repetitions make a sample."""

_MOST_TIMES = 1 << 20
_HOPELESS = 3.0
"""A candidate this many times slower than the baseline is not measured further."""

_TOLERANCE = {8: 1e-9, 4: 1e-4, 2: 3e-2, 1: 0.3}
"""Relative to the largest value, by the bytes of a float: sums in another order round differently.
"""


class Disagreement(TilewrightError):
    """The candidate does not compute what the baseline does."""


def check_same(name: str, dtype: DType, got: Array, expected: Array) -> None:
    """Disagreement unless the arrays are equal, floats up to rounding."""
    if not dtype.is_float:
        wrong = got != expected
    else:
        x, y = got.astype(np.float64), expected.astype(np.float64)
        finite = np.isfinite(y)
        rtol = _TOLERANCE.get(dtype.bytes, 1e-9)
        scale = float(np.abs(y[finite]).max(initial=0.0))
        with np.errstate(invalid="ignore"):
            close = np.abs(x - y) <= rtol * scale
        wrong = ~np.where(finite, close, (x == y) | (np.isnan(x) & np.isnan(y)))
    if wrong.any():
        at = tuple(int(i) for i in np.argwhere(wrong)[0])
        raise Disagreement(
            f"Output '{name}' is {got[at]} at {list(at)} where the default schedule gives "
            f"{expected[at]}; {int(wrong.sum())} of {wrong.size} values differ."
        )


def compare(kernel: Kernel, repeat: Code, header: Mapping[str, Any], codes: list[bytes]) -> Any:
    """What the kernel's baseline and candidate take, in nanoseconds for all tasks on one thread."""
    sizes: dict[str, int] = header["sizes"]
    generator = np.random.default_rng(header["seed"])
    inputs = [input_memory(b, sizes, generator) for b in kernel.inputs]
    calls: list[Call] = []
    results: list[list[Array]] = []
    for code, tasks, workspace in zip(codes, header["tasks"], header["workspace"], strict=True):
        outputs = [output_memory(b, sizes) for b in kernel.outputs]
        call = prepare(kernel, repeat, code, [*inputs, *outputs], sizes, tasks, workspace)
        status = call()
        if status != 0:
            raise Disagreement(f"Kernel '{kernel.name}' ends with status {status}.")
        calls.append(call)
        results.append([values_of(b, m, sizes) for b, m in zip(kernel.outputs, outputs)])
    for b, expected, got in zip(kernel.outputs, *results, strict=True):
        check_same(b.name, b.dtype, got, expected)
    baseline, candidate = best_times(calls, header["rounds"])
    return {"baseline": baseline, "candidate": candidate}


def best_times(calls: list[Call], rounds: int) -> list[float]:
    """The least time of each call, from samples taken in turn; the first one is the baseline."""
    probed = [_probe(c) for c in calls]
    if probed[-1] > _HOPELESS * probed[0]:
        return probed
    times = [max(1, min(_MOST_TIMES, int(_SAMPLE_NS / ns))) for ns in probed]
    best = [float("inf")] * len(calls)
    for _ in range(rounds):
        for number, (call, count) in enumerate(zip(calls, times, strict=True)):
            best[number] = min(best[number], _sample(call, count))
    return best


def _probe(call: Call) -> float:
    """Roughly what a call takes; caches are warm afterwards."""
    times = 1
    while (ns := _sample(call, times)) * times < _PROBE_NS and times < _MOST_TIMES:
        times *= 4
    return min(ns, _sample(call, times))


def _sample(call: Call, times: int) -> float:
    # The time of this thread, which runs all tasks: other processes do not take part in it.
    start = time.thread_time_ns()
    call(times)
    return max(1.0, (time.thread_time_ns() - start) / times)


def serve(source: IO[bytes], sink: IO[bytes]) -> None:
    """Answer requests until the other side closes the pipe."""
    compiler = Compiler()
    repeats: dict[str, Code] = {}
    while (message := read_message(source)) is not None:
        header, payload = message
        triple = header["triple"]
        if triple not in repeats:
            repeats[triple] = Code(compiler.compile(REPEAT, triple, "", 2, False), "repeat")
        parts, start = [], 0
        for length in header["lengths"]:
            parts.append(payload[start : start + length])
            start += length
        try:
            kernel = parse_kernel(parts[0].decode())
            answer = compare(kernel, repeats[triple], header, parts[1:])
        except TilewrightError as error:
            write_message(sink, {"error": str(error)}, b"")
        else:
            write_message(sink, answer, b"")


def main() -> None:
    """Serve on standard input and output; whatever else prints goes to standard error."""
    sink = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    serve(sys.stdin.buffer, sink)
