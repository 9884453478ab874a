# SPDX-License-Identifier: Apache-2.0
"""Long reductions of tiles: in blocks, whose results are added to the tile's in L1.

A tile of accumulators takes the terms of its sums one after another. A chain as long as the deep
layers of a network have, thousands of terms, loses accuracy, so it is cut: the innermost axes in
the order in which the weights lie make a block. The blocks of plain sums are short, as in
:mod:`.partial_sums`. Those of products are longer, as each pays for adding a tile to memory, which
a block of 256 steps hides; few are added up in the type of the terms, many in a wider one.
"""

from collections.abc import Sequence

from tilewright.ir.expr import Expr, Var, free_variables
from tilewright.passes.schedule.defaults.contraction import Form
from tilewright.passes.schedule.defaults.partial_sums import CHAIN, UNCUT, is_float_sum, wide_type
from tilewright.passes.schedule.defaults.plan import Plan, extent, is_static, points
from tilewright.passes.schedule.defaults.template import is_contraction
from tilewright.passes.schedule.steps import BlockReduction

PRODUCT_CHAIN = 256
"""The most steps of a block of products."""

FEW_BLOCKS = 32
"""Of products: up to so many blocks are added up in the type of the terms."""


def block_reduction(plan: Plan, form: Form) -> str:
    """Cut a long float sum into blocks; the stage of the blocks, or none if the sum is short."""
    stage = form.reduction
    if not is_float_sum(stage):
        return ""
    product = is_contraction(stage)
    terms = points(stage) // points(form.root)
    static = all(map(is_static, stage.reduce_axes))
    if static and terms <= (PRODUCT_CHAIN if product else UNCUT):
        return ""
    most = PRODUCT_CHAIN if product else CHAIN
    inside: list[Var] = []
    steps = 1
    for axis in reversed(reduce_order(form)):
        if is_static(axis) and steps * extent(axis) <= most:
            inside.append(axis)
            steps *= extent(axis)
            continue
        size = _part(axis, most // steps)
        count = -(-terms // (steps * size))
        short = count <= FEW_BLOCKS if product else steps * size + count <= CHAIN + 2
        few = static and short
        names = tuple(v.name for v in inside)
        dtype = "same" if few else wide_type(stage)
        return plan.do(BlockReduction(stage.name, axis.name, size, 1, dtype, names))
    return ""


def _part(axis: Var, most: int) -> int:
    """Into how long parts an axis is cut: equal ones, unless those are much shorter than most."""
    most = max(1, most)
    equal = (n for n in range(most, max(1, most // 4) - 1, -1) if extent(axis) % n == 0)
    return next(equal, most) if is_static(axis) else most


def reduce_order(form: Form) -> list[Var]:
    """The reduce axes of a block so that the operand along the vector axis (the weights) is read in
    memory order.
    """
    return _in_memory_order(form, form.reduction.reduce_axes, form.reduction.reduce_axes)


def outer_order(form: Form) -> list[Var]:
    """The axes over which blocks are added up, in the same order."""
    own = form.reduction.axes[len(form.total.axes) :]
    return _in_memory_order(form, form.total.reduce_axes, own)


def _in_memory_order(form: Form, axes: Sequence[Var], inside: Sequence[Var]) -> list[Var]:
    """``axes``, by where the operand reads at those that they are ``inside`` of the blocks."""
    operand = form.operand()
    if operand is None:
        return list(axes)
    position: dict[Expr, int] = {}
    for place, d in enumerate(operand.buffer.layout.order):
        for v in free_variables(operand.indices[d]):
            position.setdefault(v, place)
    rank = {axis: position.get(own, -1) for axis, own in zip(axes, inside, strict=True)}
    return sorted(axes, key=rank.__getitem__)
