# SPDX-License-Identifier: Apache-2.0
"""Kernels of maps only: one loop nest in the memory order of the output, its innermost axis on vectors."""

from collections.abc import Iterator

from tilewright.ir.expr import Call, Var, walk
from tilewright.ir.loop import Kernel
from tilewright.ir.stage import Stage
from tilewright.ir.target import Target
from tilewright.passes.schedule.defaults.template import (
    TASK_WORK,
    TASKS_PER_CORE,
    Template,
    extent,
    is_static,
    memory_order,
    points,
)
from tilewright.passes.schedule.schedule import Schedule, Step
from tilewright.passes.schedule.steps import Chunk, Fuse, Parallel, Partition, Reorder, Split, Unroll, Vectorize


class Elementwise(Template):
    """One map stage: reorder to memory order, cut tasks off the outer axes, vectorise the innermost."""

    priority = 10

    def schedules(self, kernel: Kernel, target: Target) -> Iterator[Schedule]:
        if len(kernel.stages) != 1 or kernel.stages[0].kind != "map" or not kernel.stages[0].axes:
            return
        stage = kernel.stages[0]
        yield (*self._loops(stage, target, vector=True),)
        yield (*self._loops(stage, target, vector=False),)

    def _loops(self, stage: Stage, target: Target, vector: bool) -> list[Step]:
        order = memory_order(stage)
        names = [v.name for v in order]
        steps: list[Step] = [Reorder(tuple(names))] if len(names) > 1 else []
        inner = order[-1]
        lanes = target.lanes(stage.output.dtype.bytes)
        tasks = target.cores * TASKS_PER_CORE
        work = points(stage) * cost_of_point(stage)
        if len(order) == 1:
            size = max(4 * lanes, min(TASK_WORK, -(-extent(inner) // tasks)))
            size = -(-size // (4 * lanes)) * 4 * lanes
            steps.append(Chunk(inner.name, size))
            steps += vector_loop(f"{inner.name}_i", None, lanes) if vector else []
            return [*steps, Parallel(f"{inner.name}_o")]
        steps += vector_loop(inner.name, extent(inner) if is_static(inner) else None, lanes) if vector else []
        return [*steps, *outer_tasks(order[:-1], tasks if work > TASK_WORK else 1)]


def cost_of_point(stage: Stage) -> int:
    """A rough cost of one point in scalar operations: math functions count for ten."""
    nodes = [e for v in stage.values for e in walk(v)]
    return sum(10 if isinstance(e, Call) else 1 for e in nodes)


def vector_loop(name: str, size: int | None, lanes: int, unroll: int = 4) -> list[Step]:
    """Run a loop on vectors: whole if it is short, else the main part in vectors and the rest by itself.

    ``size`` is the constant extent, or None if it is symbolic.
    """
    if size is not None and size <= lanes:
        return [Vectorize(name)] if size > 1 else []
    if size is not None and size % lanes == 0 and size <= 4 * lanes:
        return [Vectorize(name)]
    steps: list[Step] = []
    main = name
    if size is None or size >= 2 * unroll * lanes:
        steps += [Partition(name, unroll * lanes, "r"), Split(name, unroll * lanes)]
        steps += [Split(f"{name}_i", lanes), Unroll(f"{name}_i_o"), Vectorize(f"{name}_i_i")]
        rest = None if size is None else size % (unroll * lanes)
        if rest == 0:
            return steps
        return steps + vector_loop(f"{name}_r", rest, lanes, unroll=1)
    rest = size % lanes
    if rest:
        steps.append(Partition(main, lanes, "s"))
    if size // lanes > 1:
        steps += [Split(main, lanes), Vectorize(f"{main}_i")]
    elif rest:
        steps += [Vectorize(main)]
    if rest > 1:
        steps.append(Vectorize(f"{main}_s"))
    return steps


def outer_tasks(outer: list[Var], tasks: int) -> list[Step]:
    """Make the outermost loops the task loop: fuse constant ones until there are enough tasks, chunk if too many."""
    names = [v.name for v in outer]
    steps: list[Step] = []
    symbolic = [v for v in outer if not is_static(v)]
    if symbolic and outer[0] not in symbolic:
        largest = max(symbolic, key=extent)
        others = [v for v in outer if v is not largest]
        steps.append(Reorder((largest.name, *(v.name for v in others))))
        outer = [largest, *others]
        names = [v.name for v in outer]
    name, count = names[0], extent(outer[0])
    for v in outer[1:]:
        if count >= tasks or not is_static(v):
            break
        steps.append(Fuse(name, v.name))
        name, count = f"{name}_f", count * extent(v)
    if count > 4 * tasks:
        steps += [Chunk(name, -(-count // tasks))]
        name = f"{name}_o"
    return [*steps, Parallel(name)]
