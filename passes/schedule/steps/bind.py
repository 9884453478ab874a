# SPDX-License-Identifier: Apache-2.0
"""Give loops to the blocks and threads of a GPU, and put barriers between their phases.

``bind(i, block.x); bind(j, thread.x); bind(k, thread.x); synchronize()``, before and after::

    for i in n serial {
      alloc t: f32[64] @shared {
        for j in 64 serial { t[j] = x[i, j] }
        for k in 64 serial { y[i, k] = t[63 - k] }
      }
    }

    for i in n block.x {
      alloc t: f32[64] @shared {
        for j in 64 thread.x { t[j] = x[i, j] }
        barrier
        for k in 64 thread.x { y[i, k] = t[63 - k] }
      }
    }

A loop over threads is one phase of its block. ``synchronize``, the last step, puts a barrier
wherever a phase touches memory that an earlier one touched since the last barrier, one of them
writing; also from the end of a loop to its next iteration. Registers need none: each thread has its
own.
"""

from dataclasses import dataclass

from tilewright.ir.errors import ScheduleError
from tilewright.ir.expr import Const
from tilewright.ir.loop import GPU_AXES, Barrier, For, Kernel, Stmt, map_stmt, seq, walk
from tilewright.passes.loop.phases import Phases
from tilewright.passes.schedule.loops import replace_loop
from tilewright.passes.schedule.schedule import Step


@dataclass(frozen=True)
class Bind(Step[None]):
    """Run the iterations of ``loop`` on the GPU axis ``axis``; one of threads has a constant
    extent.
    """

    name = "bind"
    loop: str
    axis: str

    def apply(self, kernel: Kernel) -> tuple[Kernel, None]:
        if self.axis not in GPU_AXES:
            raise ScheduleError(f"'{self.axis}' is not one of the axes {', '.join(GPU_AXES)}.")

        def change(target: For) -> Stmt:
            if self.axis.startswith("thread") and not isinstance(target.var.extent, Const):
                raise ScheduleError(
                    f"'{self.loop}' cannot be a loop over threads: its extent "
                    f"{target.var.extent} is not constant."
                )
            return For(target.var, self.axis, target.body)

        return replace_loop(kernel, self.loop, change), None


@dataclass(frozen=True)
class Synchronize(Step[None]):
    """Put barriers between the phases of each block."""

    name = "synchronize"

    def apply(self, kernel: Kernel) -> tuple[Kernel, None]:
        if any(isinstance(s, Barrier) for s in walk(kernel.body)):
            raise ScheduleError("The kernel has barriers already.")
        early: set[Stmt] = set()
        Phases(lambda phase, _: early.add(phase)).visit(kernel.body)
        return kernel.with_body(_with_barriers(kernel.body, early)), None


def _with_barriers(s: Stmt, early: set[Stmt]) -> Stmt:
    def on_stmt(node: Stmt) -> Stmt | None:
        if node not in early:
            return None
        return seq([Barrier(), _with_barriers(node, early - {node})])

    return map_stmt(s, on_stmt)
