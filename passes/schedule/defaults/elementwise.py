# SPDX-License-Identifier: Apache-2.0
"""Kernels of one map: a loop nest in the memory order of the output, its innermost axis on vectors."""

from collections.abc import Iterator, Mapping

from tilewright.ir.loop import Kernel
from tilewright.ir.target import Target
from tilewright.passes.schedule.defaults.plan import Plan, memory_order, points
from tilewright.passes.schedule.defaults.template import (
    TASK_WORK,
    TASKS_PER_CORE,
    Template,
    cost_of_point,
)
from tilewright.passes.schedule.steps import Chunk, Parallel


class Elementwise(Template):
    """Reorder to memory order, cut tasks off the outer axes, vectorise the innermost."""

    priority = 10

    def plans(self, kernel: Kernel, target: Target, choices: Mapping[str, int]) -> Iterator[Plan]:
        if len(kernel.stages) != 1 or kernel.stages[0].kind != "map" or not kernel.stages[0].axes:
            return
        stage = kernel.stages[0]
        order = [v.name for v in memory_order(stage)]
        lanes = target.lanes(stage.output.dtype.bytes)
        work = points(stage) * cost_of_point(stage)
        wanted = min(target.cores * TASKS_PER_CORE, 1 + work // TASK_WORK)
        plan = Plan(kernel, choices)
        wanted = plan.choose(
            "tasks", wanted, (1, target.cores, 2 * target.cores, 4 * target.cores, 8 * target.cores)
        )
        plan.reorder(*order)
        if len(order) == 1:
            size = -(-plan.size(order[0]) // wanted)
            plan.do(Chunk(order[0], -(-size // (4 * lanes)) * 4 * lanes))
            plan.vectorize(f"{order[0]}_i", lanes)
            plan.do(Parallel(f"{order[0]}_o"))
        else:
            plan.vectorize(order[-1], lanes)
            plan.do(Parallel(plan.tasks(order[:-1], wanted)[0]))
        yield plan
