# SPDX-License-Identifier: Apache-2.0
"""Which vectorised loops run on vectors: those whose iterations can go through the body together.

The others are unrolled, which computes the same one element at a time.
"""

from tilewright.ir.expr import free_variables
from tilewright.ir.loop import For, Stmt, While, walk


def runs_in_lockstep(loop: For) -> bool:
    """True if the lanes of a vectorised loop can execute its body together: it holds no ``while``,
    no other vectorised loop, and no loop whose extent differs between lanes.
    """
    return not any(_parts_lanes(s, loop) for s in walk(loop.body))


def _parts_lanes(s: Stmt, loop: For) -> bool:
    if isinstance(s, For):
        return s.kind == "vectorized" or loop.var in free_variables(s.var.extent)
    return isinstance(s, While)
