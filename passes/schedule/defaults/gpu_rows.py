# SPDX-License-Identifier: Apache-2.0
"""GPU kernels without shared data: one thread for each row, all of the row in the thread.

The last stage is a map; its axes that every reduction keeps are the rows (all its axes, if there is
no reduction: then a thread computes one element). Maps before it are evaluated where they are read,
reductions are computed by the thread, in registers. Neighbouring threads take neighbouring rows, so
that maps of elements access memory in order.
"""

from collections.abc import Iterator, Mapping

from tilewright.ir.errors import ScheduleError
from tilewright.ir.loop import Kernel
from tilewright.ir.target import Target
from tilewright.passes.schedule.defaults.plan import Plan, memory_order
from tilewright.passes.schedule.defaults.rows import row_axes
from tilewright.passes.schedule.defaults.template import Template
from tilewright.passes.schedule.steps import Bind, CacheWrite, ComputeAt, Fuse, Inline, Split

THREADS = (32, 64, 128, 256)
"""Threads of a block that are worth trying."""


class GpuRows(Template):
    """A thread a row; rows fused into one axis of blocks where their extents allow."""

    kind = "gpu"
    priority = 30

    def plans(self, kernel: Kernel, target: Target, choices: Mapping[str, int]) -> Iterator[Plan]:
        if len(kernel.outputs) != 1 or any(s.kind not in ("map", "reduce") for s in kernel.stages):
            return
        plan = Plan(kernel, choices)
        if kernel.stages[-1].kind == "reduce":
            plan.do(CacheWrite(kernel.stages[-1].name))
        for s in plan.kernel.stages[:-1]:
            if s.kind == "map":
                plan.do(Inline(s.name))
        root = plan.kernel.stages[-1]
        rows = row_axes(root, plan.kernel)
        if root.kind != "map" or not rows:
            return
        names = [v.name for v in rows]
        plan.reorder(*names, *(v.name for v in memory_order(root) if v not in rows))
        groups = fused_groups(plan, names)
        last = groups.pop()
        size = plan.static_size(last)
        most = max(THREADS) if size is None else -(-size // target.warp) * target.warp
        threads = plan.choose("threads", 128, THREADS, lambda n: min(n, most))
        halves = plan.do(Split(last, threads))
        plan.reorder(*groups, halves.outer, halves.inner)
        for s in reversed(plan.kernel.stages[:-1]):
            plan.do(ComputeAt(s.name, "register", (halves.inner,)))
        plan.do(Bind(halves.inner, "thread.x"))
        bind_blocks(plan, [halves.outer, *groups])
        yield plan


class OneThread(Template):
    """Any kernel: the plain nests, run by a single thread."""

    kind = "gpu"
    priority = 1000

    def plans(self, kernel: Kernel, target: Target, choices: Mapping[str, int]) -> Iterator[Plan]:
        yield Plan(kernel, choices)


def fused_groups(plan: Plan, names: list[str]) -> list[str]:
    """Fuse loops nested directly in this order where the inner one is constant; the loops that are
    left, in order.

    A symbolic loop in front of constant ones takes them all.
    """
    groups: list[str] = []
    for name in names:
        if groups and plan.static_size(name) is not None:
            groups[-1] = plan.do(Fuse(groups[-1], name))
        else:
            groups.append(name)
    return groups


def bind_blocks(plan: Plan, names: list[str]) -> None:
    """Bind the outermost loops to axes of blocks, the first to x, which alone may be very long."""
    if len(names) > 3:
        raise ScheduleError(f"There are {len(names)} loops over blocks, but three axes.")
    for name, axis in zip(names, "xyz"):
        plan.do(Bind(name, f"block.{axis}"))
