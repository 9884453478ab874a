# SPDX-License-Identifier: Apache-2.0
"""The schedule that fits every kernel: the plain nests, long float sums in blocks, and a parallel
outermost loop where there is one.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress

from tilewright.ir.errors import ScheduleError
from tilewright.ir.loop import For, Kernel
from tilewright.ir.target import Target
from tilewright.passes.schedule.defaults.partial_sums import block_sum, is_long_sum
from tilewright.passes.schedule.defaults.plan import Plan
from tilewright.passes.schedule.defaults.template import Template
from tilewright.passes.schedule.steps import CacheWrite, ComputeAt, Parallel


class Serial(Template):
    """The plain nests, in order."""

    priority = 1000

    def plans(self, kernel: Kernel, target: Target, choices: Mapping[str, int]) -> Iterator[Plan]:
        with suppress(ScheduleError):  # A stage that cannot be placed in a loop stays as it is.
            yield _in_blocks(kernel)
        yield _with_tasks(Plan(kernel))
        yield Plan(kernel)


def _in_blocks(kernel: Kernel) -> Plan:
    """Every float sum in short chains: it may be slow, but it is accurate."""
    plan = Plan(kernel)
    blocks: dict[str, str] = {}
    for s in [s for s in kernel.stages if s.kind == "reduce" and is_long_sum(s)]:
        if s.output in kernel.outputs:
            plan.do(CacheWrite(s.name))
        blocks[s.name] = block_sum(plan, plan.kernel.stage(s.name), s.reduce_axes[-1])
    for name, inner in blocks.items():
        plan.do(ComputeAt(inner, "register", (plan.kernel.stage(name).reduce_axes[-1].name,)))
    return _with_tasks(plan)


def _with_tasks(plan: Plan) -> Plan:
    if isinstance(plan.kernel.body, For):
        plan.do(Parallel(plan.kernel.body.var.name))
    return plan
