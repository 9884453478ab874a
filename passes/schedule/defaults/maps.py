# SPDX-License-Identifier: Apache-2.0
"""Chains of maps that were not inlined: each producer computed at a loop of the last map, where its
box stays in cache.
"""

from collections.abc import Iterator, Mapping

from tilewright.ir.loop import Kernel
from tilewright.ir.target import Target
from tilewright.passes.schedule.defaults.plan import Plan, memory_order, points
from tilewright.passes.schedule.defaults.template import Template, cost_of_point, default_tasks
from tilewright.passes.schedule.steps import ComputeAt, Parallel


class Maps(Template):
    """Several map stages, the last of which writes the only output."""

    priority = 40

    def plans(self, kernel: Kernel, target: Target, choices: Mapping[str, int]) -> Iterator[Plan]:
        *before, root = kernel.stages
        if any(s.kind != "map" for s in kernel.stages) or not before or len(kernel.outputs) != 1:
            return
        order = [v.name for v in memory_order(root)]
        if len(order) < 2 or root.output not in kernel.outputs:
            return
        plan = Plan(kernel, choices)
        lanes = target.lanes(root.output.dtype.bytes)
        work = sum(points(s) * cost_of_point(s) for s in kernel.stages)
        plan.reorder(*order)
        task, block = plan.tasks(order[:-1][:2], default_tasks(work, target))
        for s in reversed(before):
            (placed,) = plan.do(ComputeAt(s.name, "workspace", (block,)))
            inner = [n for v in memory_order(s) if (n := placed.over(v.name))]
            plan.reorder(*inner)
            if inner:
                plan.vectorize(inner[-1], lanes)
        plan.vectorize(order[-1], lanes)
        plan.do(Parallel(task))
        yield plan
