# SPDX-License-Identifier: Apache-2.0
"""Proof that a scheduled kernel computes its stages.

It reads the scheduled loop IR and the stages, not the steps, so it catches a faulty step as well as
a wrong schedule. Shown, in this order:

1. every block computes, at its point, the expression of its stage (:mod:`.proof.match`);
2. every access is inside its buffer (:mod:`.proof.bounds`);
3. every read finds the value that its stage's expression names, and the kernel's outputs hold
   theirs at the end, so that every point that is needed runs (:mod:`.proof.dataflow`);
4. every reduction starts once and takes every update exactly once before it is read
   (:mod:`.proof.reductions`);
5. iterations of parallel, vectorized and thread loops share no cell that one of them writes
   (:mod:`.proof.races`);
6. the phases of a GPU block are apart where they must be (:mod:`.proof.threads`).

Taken for granted: a kernel is launched with buffers of the shapes that it declares, so no dim of an
input or output is negative; the host program requires that of every value before the first launch.

Together: by induction over time, every read finds what a run of the stages one after another would
give it.
"""

import time
from dataclasses import dataclass

import islpy as isl

from tilewright.ir.bounds import is_nonnegative
from tilewright.ir.errors import ScheduleError
from tilewright.ir.loop import Kernel
from tilewright.passes.lower.kernel import plain_body
from tilewright.passes.schedule.proof.accesses import Memory, Program, collect
from tilewright.passes.schedule.proof.bounds import check_bounds
from tilewright.passes.schedule.proof.dataflow import Flow, accesses_of
from tilewright.passes.schedule.proof.direct import Direct
from tilewright.passes.schedule.proof.facts import Facts
from tilewright.passes.schedule.proof.inputs import check_inputs
from tilewright.passes.schedule.proof.match import Demand, Matcher
from tilewright.passes.schedule.proof.races import check_races
from tilewright.passes.schedule.proof.reductions import check_reductions
from tilewright.passes.schedule.proof.threads import check_threads
from tilewright.passes.schedule.proof.tuples import check_tuples

MAX_OPERATIONS = 20_000_000


@dataclass(frozen=True)
class Proof:
    """What was shown of a kernel, and in how many seconds."""

    kernel: str
    instances: int
    reads: int
    memories: int
    seconds: float

    def __str__(self) -> str:
        return (
            f"'{self.kernel}' is legal: {self.instances} blocks, {self.reads} reads, "
            f"{self.memories} memories, "
            f"{self.seconds * 1e3:.1f} ms"
        )


def prove(
    kernel: Kernel,
    max_operations: int = MAX_OPERATIONS,
    allow_reorder: bool = True,
    thorough: bool = False,
) -> Proof:
    """Show that the body of ``kernel`` computes its stages; ScheduleError with a counter-example if
    it does not.

    ``max_operations`` caps the work of the proof: over it, ScheduleError says so. ``allow_reorder``
    lets floating-point sums and products run in another order than the stage's; integer ones and
    minima and maxima may always.
    """
    started = time.perf_counter()
    context = isl.Context()
    context.set_max_operations(max_operations)
    try:
        program, demands = _prove(kernel, context, allow_reorder, thorough)
    except isl.Error as error:
        if "operations" not in str(error):
            raise
        raise ScheduleError(
            f"The proof for '{kernel.name}' takes more than {max_operations} operations. "
            "Use a simpler schedule, or allow more."
        ) from error
    seconds = time.perf_counter() - started
    return Proof(kernel.name, len(program.instances), len(demands), len(program.memories), seconds)


def _prove(
    kernel: Kernel, context: isl.Context, allow_reorder: bool, thorough: bool
) -> tuple[Program, list[Demand]]:
    if any(stage.kind == "opaque" for stage in kernel.stages):
        _require_plain(kernel)
        return Program(kernel), []
    dims = dict.fromkeys(d for b in (*kernel.inputs, *kernel.outputs) for d in b.shape)
    facts = Facts(context, (d for d in dims if not is_nonnegative(d)))
    program = collect(kernel)
    matcher = Matcher(program, facts)
    demands = matcher.run()
    check_bounds(program, facts)
    check_inputs(program, demands, facts)
    accesses = {
        m: accesses_of(program, m, demands, matcher.cells)
        for m in program.memories
        if m.role != "input"
    }
    directs: dict[Memory, Direct] = {}
    flows: dict[tuple[Memory, int], Flow] = {}

    def flow_of(memory: Memory, depth: int) -> Flow:
        key = memory, depth
        if key not in flows:
            flows[key] = Flow(program, memory, accesses[memory], depth, facts)
            flows[key].solve()
        return flows[key]

    for memory in accesses:
        direct = Direct(program, accesses[memory], allow_reorder)
        if not thorough and direct.holds():
            directs[memory] = direct
        else:
            check_reductions(program, flow_of(memory, len(memory.loops)), allow_reorder)
    check_tuples(program, directs, flow_of)
    check_races(program, facts)
    check_threads(kernel)
    return program, demands


def _require_plain(kernel: Kernel) -> None:
    """A kernel with an opaque stage runs its stages one after another: that needs no proof."""
    if kernel.body is not plain_body(kernel.stages, kernel.outputs):
        name = next(stage.name for stage in kernel.stages if stage.kind == "opaque")
        raise ScheduleError(
            f"Nothing is known of opaque stage '{name}' but its effects, so that no schedule of "
            f"'{kernel.name}' can be proven. Leave the kernel unscheduled."
        )
