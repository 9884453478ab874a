# SPDX-License-Identifier: Apache-2.0
"""How long a kernel takes on one core, roughly: what decides whether a launch is worth several
threads.
"""

from tilewright.ir.expr import Call, Expr, add, index, mul, walk
from tilewright.ir.loop import Kernel
from tilewright.ir.simplify import floordiv
from tilewright.ir.stage import Stage

OPERATIONS_PER_NANOSECOND = 16
"""Scalar operations of vector code a nanosecond; a math function counts for ten."""


def work_estimate(kernel: Kernel) -> Expr:
    """Nanoseconds on one core, an expression over the kernel's symbols."""
    total: Expr = index(0)
    for stage in kernel.stages:
        points: Expr = index(operations(stage))
        for v in (*stage.axes, *stage.reduce_axes):
            points = mul(points, v.extent)
        total = add(total, points)
    return floordiv(total, OPERATIONS_PER_NANOSECOND)


def operations(stage: Stage) -> int:
    """Scalar operations of one point of a stage, memory accesses included."""
    nodes = [e for v in stage.values for e in walk(v) if e.dtype.kind != "index"]
    return max(1, sum(10 if isinstance(e, Call) else 1 for e in nodes))
