# SPDX-License-Identifier: Apache-2.0
"""The schedule that fits every kernel: no steps at all, or just a parallel outermost loop."""

from collections.abc import Iterator, Mapping

from tilewright.ir.loop import For, Kernel
from tilewright.ir.target import Target
from tilewright.passes.schedule.defaults.plan import Plan
from tilewright.passes.schedule.defaults.template import Template
from tilewright.passes.schedule.steps import Parallel


class Serial(Template):
    """The plain nests, in order."""

    priority = 1000

    def plans(self, kernel: Kernel, target: Target, choices: Mapping[str, int]) -> Iterator[Plan]:
        if isinstance(kernel.body, For):
            plan = Plan(kernel)
            plan.do(Parallel(kernel.body.var.name))
            yield plan
        yield Plan(kernel)
