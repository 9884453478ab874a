# SPDX-License-Identifier: Apache-2.0
"""Softmax, normalisations and reductions along memory of rows of a few points.

The lanes of a vector are rows then: point ``k`` of sixteen neighbouring rows is a vector, all that
is between input and output stays in that order, and nothing has to be combined across lanes.
"""

from collections.abc import Iterator, Mapping

from tilewright.ir.expr import Var
from tilewright.ir.loop import Kernel
from tilewright.ir.stage import Stage
from tilewright.ir.target import Target
from tilewright.passes.schedule.defaults.columns import ColumnPlan
from tilewright.passes.schedule.defaults.plan import Plan, extent, is_static
from tilewright.passes.schedule.defaults.rows import recognise, reduces_along_memory
from tilewright.passes.schedule.defaults.template import Template
from tilewright.passes.schedule.steps import StoreOrder

LONGEST = 15
"""The longest rows that are faster so: sixteen points are four vectors of four."""


class ShortRows(Template):
    """A chain of maps and reductions along rows of a few points, many of them side by side."""

    priority = 12

    def plans(self, kernel: Kernel, target: Target, choices: Mapping[str, int]) -> Iterator[Plan]:
        chain = recognise(kernel, choices, reduces_along_memory)
        if chain is None or not chain.kept:
            return
        plan, reductions, root, kept = chain
        lanes = target.lanes(max(s.output.dtype.bytes for s in reductions))
        few = is_static(kept[-1]) and extent(kept[-1]) < lanes
        if few or any(_length(s) > LONGEST for s in reductions):
            return
        for name, column in _twins(plan.kernel, kept[-1]).items():
            axes = plan.kernel.stage(name).axes
            if axes[-1] is not column:
                order = [*(v.name for v in axes if v is not column), column.name]
                plan.do(StoreOrder(name, tuple(order)))
        ColumnPlan(plan, root, kept, target).in_blocks(unrolled=True)
        yield plan


def _twins(kernel: Kernel, axis: Var) -> dict[str, Var]:
    """For each stage before the last one the axis that an axis of the last one reads along."""
    root = kernel.stages[-1]
    found = {root.name: axis}
    for reader in reversed(kernel.stages):
        for read in reader.reads() if reader.name in found else ():
            for s in kernel.stages:
                if read.buffer in s.outputs and found[reader.name] in read.indices:
                    found[s.name] = s.axes[read.indices.index(found[reader.name])]
    return {name: v for name, v in found.items() if name != root.name}


def _length(stage: Stage) -> float:
    """The points of a row of a reduction; infinity if that is not known."""
    if not all(map(is_static, stage.reduce_axes)):
        return float("inf")
    total = 1
    for axis in stage.reduce_axes:
        total *= extent(axis)
    return total
