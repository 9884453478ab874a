# SPDX-License-Identifier: Apache-2.0
"""Make two axes of one of a stage, before any loop is touched: it changes the stages.

``split_axis(s, o, 4)``, before and after, for a stage of a kernel's output and for one with a
buffer of its own, whose readers follow::

    map s(o in 12) -> y[o] = f(o)

    map s(o_g in 3, o_e in 4) -> y[4*o_g + o_e] = f(4*o_g + o_e)

    map s(o_g in 3, o_e in 4) -> t[o_g, o_e] = f(4*o_g + o_e)

So ``o // 4``, the group of a channel, is an axis of its own: all points of a vector along ``o_e``
read what belongs to one group.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.ir.bounds import multiple_of
from tilewright.ir.buffer import Buffer
from tilewright.ir.errors import ScheduleError
from tilewright.ir.expr import Const, Expr, Read, Var, index
from tilewright.ir.layout import Layout
from tilewright.ir.loop import Kernel
from tilewright.ir.rewrite import rewrite, substitute
from tilewright.ir.simplify import floordiv, mod
from tilewright.ir.stage import Stage
from tilewright.passes.lower.collect import map_stage_expressions
from tilewright.passes.schedule.schedule import Step, check_factor
from tilewright.passes.schedule.steps.stages import axis_of, plain_stage, with_stages


@dataclass(frozen=True)
class SplitAxis(Step[tuple[str, str]]):
    """Split ``axis`` of ``stage`` into groups of ``factor`` points; the names of the axes."""

    name = "split_axis"
    stage: str
    axis: str
    factor: int

    def apply(self, kernel: Kernel) -> tuple[Kernel, tuple[str, str]]:
        stage = plain_stage(kernel, self.stage)
        axis = axis_of(stage.axes, self.stage, self.axis)
        check_factor(self.factor)
        if stage.kind not in ("map", "reduce"):
            raise ScheduleError(f"Stage '{self.stage}' of kind '{stage.kind}' cannot be split.")
        if not isinstance(axis.extent, Const) or multiple_of(axis.extent) % self.factor:
            raise ScheduleError(
                f"The extent {axis.extent} of '{self.axis}' is not known to be a multiple of "
                f"{self.factor}."
            )
        groups = Var(f"{axis.name}_g", floordiv(axis.extent, self.factor))
        each = Var(f"{axis.name}_e", index(self.factor))
        divided = _divided(stage, axis, groups, each)
        names = (groups.name, each.name)
        if any(b in kernel.outputs for b in stage.outputs):
            stages = tuple(divided if s is stage else s for s in kernel.stages)
            return with_stages(kernel, stages), names
        if any(t is not a for t, a in zip(stage.targets, stage.axes, strict=True)):
            raise ScheduleError(f"Stage '{self.stage}' does not write its buffer at its own axes.")
        return _with_own_buffer(kernel, stage, divided, stage.axes.index(axis), self.factor), names


def _divided(stage: Stage, axis: Var, groups: Var, each: Var) -> Stage:
    """The stage over the two axes, writing the cells that it wrote."""
    point: dict[Expr, Expr] = {axis: groups * each.extent + each}

    def moved(items: Sequence[Expr]) -> tuple[Expr, ...]:
        return tuple(substitute(e, point) for e in items)

    return stage.replace(
        axes=tuple(v for a in stage.axes for v in ((groups, each) if a is axis else (a,))),
        targets=moved(stage.targets),
        init=moved(stage.init),
        values=moved(stage.values),
    )


def _with_own_buffer(kernel: Kernel, stage: Stage, divided: Stage, dim: int, factor: int) -> Kernel:
    """The kernel with the buffers of ``stage`` divided along a dim too, and their readers moved."""
    buffers: dict[Buffer, Buffer] = {}
    for b in stage.outputs:
        if any(d == dim for d, _ in b.layout.blocks):
            raise ScheduleError(f"'{b.name}' is stored in blocks along that dim.")
        shape = (*b.shape[:dim], floordiv(b.shape[dim], factor), index(factor), *b.shape[dim + 1 :])
        order = [n for d in b.layout.order for n in _renumbered(d, dim)]
        blocks = tuple((_renumbered(d, dim)[0], f) for d, f in b.layout.blocks)
        buffers[b] = Buffer(b.name, b.dtype, shape, Layout(tuple(order), blocks), b.scope)

    def leaf(e: Expr) -> Expr | None:
        if not (isinstance(e, Read) and e.buffer in buffers):
            return None
        at = [rewrite(i, leaf) for i in e.indices]
        two = (floordiv(at[dim], factor), mod(at[dim], factor))
        return Read(buffers[e.buffer], (*at[:dim], *two, *at[dim + 1 :]))

    own = divided.replace(outputs=tuple(buffers[b] for b in stage.outputs), targets=divided.axes)
    stages = (
        own if s is stage else map_stage_expressions(s, lambda e: rewrite(e, leaf))
        for s in kernel.stages
    )
    return with_stages(kernel, tuple(stages))


def _renumbered(d: int, dim: int) -> tuple[int, ...]:
    return (dim, dim + 1) if d == dim else (d + (d > dim),)
