# SPDX-License-Identifier: Apache-2.0
"""The form that contractions and windowed reductions share: a reduction, and a map that stores it.

Matrix products, convolutions of all kinds and pooling are recognised by their access maps, whatever
op they come from. The innermost axis of the output in memory is the vector axis, the innermost one
along which the operand is used again is the row axis. Axes of the map that index what was reduced
have a twin among the axes of the reduction.
"""

from dataclasses import dataclass

from tilewright.ir.expr import Const, IndexOp, Read, Var, free_variables, walk
from tilewright.ir.loop import Kernel
from tilewright.ir.stage import Stage
from tilewright.passes.schedule.defaults.plan import memory_order
from tilewright.passes.schedule.defaults.template import (
    is_contiguous,
    is_contraction,
    stride_along,
)

LONGEST_STRIDE = 4
"""The longest stride at which reading vectors pays: each takes as many loads."""


@dataclass
class Form:
    """What was recognised: the reduction, the map that stores it, the stages before, and how their
    axes match.

    Where the reduction is in blocks, ``reduction`` is the stage of the blocks, which reads the
    operands, and ``total`` the one that combines them.
    """

    reduction: Stage
    total: Stage
    root: Stage
    before: list[Stage]
    order: list[Var]
    twin: dict[Var, Var]

    @property
    def vector(self) -> Var:
        """The root's innermost axis in memory."""
        return self.order[-1]

    @property
    def row(self) -> Var | None:
        """The root's axis of which a tile takes several points: the innermost one along which the
        operand is reused.
        """
        others = [v for v in reversed(self.order[:-1]) if v in self.twin]
        operand = self.operand() or self.varying()
        used = free_variables(operand) if operand is not None else frozenset()
        return next((v for v in others if self.twin[v] not in used), others[0] if others else None)

    def varying(self) -> Read | None:
        """The read of a contraction that depends on the vector axis, contiguous or not."""
        axis = self.twin[self.vector]
        along = [r for r in self.reduction.reads() if axis in free_variables(r)]
        return along[0] if len(along) == 1 and is_contraction(self.reduction) else None

    def group(self) -> int:
        """How many points of the vector axis belong to one group, such as the channels of one in a
        grouped convolution; 0 if there are no groups of one size.
        """
        axis = self.twin[self.vector]
        if self.operand() is None or not isinstance(axis.extent, Const):
            return 0
        indices = [i for read in self.reduction.reads() for i in read.indices]
        divisors = {
            int(e.b.literal)
            for i in indices
            for e in walk(i)
            if isinstance(e, IndexOp)
            and e.op == "floordiv"
            and e.a is axis
            and isinstance(e.b, Const)
        }
        whole = [d for d in divisors if int(axis.extent.literal) % d == 0]
        return whole[0] if len(divisors) == len(whole) == 1 else 0

    def operand(self) -> Read | None:
        """The read of the reduction that is contiguous along the vector axis: the weights of a
        contraction.
        """
        axis = self.twin[self.vector]
        along = [r for r in self.reduction.reads() if is_contiguous(r, axis)]
        return min(
            along, key=lambda r: len(free_variables(r) & set(self.reduction.axes)), default=None
        )

    def strided(self) -> Read | None:
        """The read of a contraction that moves by a few elements, always as many, along the vector
        axis: the input of a convolution of one output that steps by two.
        """
        read = self.varying()
        if read is None:
            return None
        step = stride_along(read.buffer, read.indices, self.twin[self.vector])
        few = isinstance(step, Const) and 1 < int(step.literal) <= LONGEST_STRIDE
        return read if few else None

    @property
    def is_blocked(self) -> bool:
        """True if the reduction is in blocks."""
        return self.total is not self.reduction

    def total_axis(self, axis: Var) -> Var:
        """The axis of what combines the blocks that an axis of the blocks is."""
        return self.total.axes[self.reduction.axes.index(axis)]


def recognise(kernel: Kernel, blocks: str = "") -> Form | None:
    """The form of a kernel of one reduction and one map that stores it; None if it is of another
    form. ``blocks`` names the stage of the reduction's blocks, if it is in blocks.
    """
    reductions = [s for s in kernel.stages if s.kind == "reduce" and s.name != blocks]
    if len(reductions) != 1 or any(s.kind not in ("map", "reduce") for s in kernel.stages):
        return None
    (total,) = reductions
    reduction = kernel.stage(blocks) if blocks else total
    at = kernel.stages.index(total)
    before = [s for s in kernel.stages[:at] if s is not reduction]
    after = list(kernel.stages[at + 1 :])
    if len(after) != 1 or after[0].kind != "map" or after[0].output not in kernel.outputs:
        return None
    cells = {r.indices for r in after[0].reads() if r.buffer in total.outputs}
    if len(cells) != 1:
        return None
    twin: dict[Var, Var] = {}
    for i, axis in zip(cells.pop(), reduction.axes[: len(total.axes)], strict=True):
        if not isinstance(i, Var) or i in twin:
            return None
        twin[i] = axis
    order = memory_order(after[0])
    if not order or order[-1] not in twin:
        return None
    return Form(reduction, total, after[0], before, order, twin)
