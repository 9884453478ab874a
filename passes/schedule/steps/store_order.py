# SPDX-License-Identifier: Apache-2.0
"""Store what a stage writes in another memory order, before any loop is touched.

``store_order(s, k, i)``, before and after, for a stage with a buffer of its own::

    buffer t: f32[m,4] @workspace
    map s(i in m, k in 4) -> t[i, k] = f(i, k)

    buffer t: f32[m,4]{1,0} @workspace
    map s(i in m, k in 4) -> t[i, k] = f(i, k)

So points along ``i`` lie side by side, for a vector to read.
"""

from dataclasses import dataclass

from tilewright.ir.buffer import Buffer
from tilewright.ir.errors import ScheduleError
from tilewright.ir.expr import Expr, Read
from tilewright.ir.layout import Layout
from tilewright.ir.loop import Kernel
from tilewright.ir.rewrite import rewrite
from tilewright.ir.stage import Stage
from tilewright.passes.lower.collect import map_stage_expressions
from tilewright.passes.schedule.schedule import Step
from tilewright.passes.schedule.steps.stages import plain_stage, with_stages


@dataclass(frozen=True)
class StoreOrder(Step[None]):
    """Let the points of ``stage`` lie in memory in the order of ``axes``, the last innermost."""

    name = "store_order"
    stage: str
    axes: tuple[str, ...]

    def apply(self, kernel: Kernel) -> tuple[Kernel, None]:
        stage = plain_stage(kernel, self.stage)
        if any(b in kernel.outputs for b in stage.outputs):
            raise ScheduleError(f"Stage '{self.stage}' writes an output of the kernel.")
        if any(t is not a for t, a in zip(stage.targets, stage.axes, strict=True)):
            raise ScheduleError(f"Stage '{self.stage}' does not write its buffer at its own axes.")
        names = [v.name for v in stage.axes]
        if sorted(names) != sorted(self.axes):
            raise ScheduleError(
                f"Name each axis of stage '{self.stage}' once; it has {', '.join(names)}."
            )
        layout = Layout(tuple(map(names.index, self.axes)))
        stored = {b: Buffer(b.name, b.dtype, b.shape, layout, b.scope) for b in stage.outputs}

        def leaf(e: Expr) -> Expr | None:
            if isinstance(e, Read) and e.buffer in stored:
                return Read(stored[e.buffer], tuple(rewrite(i, leaf) for i in e.indices))
            return None

        def moved(s: Stage) -> Stage:
            read = map_stage_expressions(s, lambda e: rewrite(e, leaf))
            return read.replace(outputs=tuple(stored.values())) if s is stage else read

        return with_stages(kernel, tuple(map(moved, kernel.stages))), None
