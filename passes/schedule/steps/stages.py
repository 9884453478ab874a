# SPDX-License-Identifier: Apache-2.0
"""Steps that rewrite the stages of a kernel, before any loop is touched: they change the
specification itself.

``split_reduction(s, k, 8)`` gives a reduction partial accumulators (see
:mod:`tilewright.passes.lower.split_reduction`); ``cache_write(mm)`` lets a stage that writes an
output write a buffer of its own, copied by a new map ``mm_out``; ``cache_read(mm, a)`` lets a stage
read a copy of a buffer, made by a new map ``mm_a``, which ``compute_at`` places at a tile;
``pack(mm, b, 1, 16)`` does so with dim 1 innermost, padded with zeros to a multiple of 16, so that
vectors along it are whole; ``inline(p)`` evaluates a map in the stages that read it; ``pad_axis(mm,
n, 16)`` lets a stage run over a multiple of 16 points of an axis, where what it reads there is
padding of a blocked layout.
"""

from dataclasses import dataclass

from tilewright.ir.bounds import known_le
from tilewright.ir.buffer import Buffer
from tilewright.ir.errors import ScheduleError
from tilewright.ir.expr import Expr, Read, Var, const, reads
from tilewright.ir.layout import Layout
from tilewright.ir.loop import Kernel
from tilewright.ir.rewrite import rewrite
from tilewright.ir.simplify import ceildiv, compare
from tilewright.ir.stage import Stage, map_stage, rename_axes
from tilewright.ir.value_expr import guard
from tilewright.passes.lower.collect import map_stage_expressions
from tilewright.passes.lower.inline import inline_into
from tilewright.passes.lower.kernel import plain_body
from tilewright.passes.lower.split_reduction import is_splittable, split_reduction
from tilewright.passes.schedule.schedule import Step, check_factor


def with_stages(kernel: Kernel, stages: tuple[Stage, ...]) -> Kernel:
    """The kernel of other stages, as plain nests."""
    names = [s.name for s in stages]
    twice = next((n for n in names if names.count(n) > 1), None)
    if twice is not None:
        raise ScheduleError(f"A stage called '{twice}' exists already.")
    body = plain_body(stages, kernel.outputs)
    return Kernel(kernel.name, kernel.inputs, kernel.outputs, kernel.symbols, stages, body)


def plain_stage(kernel: Kernel, name: str) -> Stage:
    """The stage of that name; ScheduleError if there is none, or a step on loops was done."""
    if kernel.body is not plain_body(kernel.stages, kernel.outputs):
        raise ScheduleError("Steps on stages come before steps on loops.")
    for s in kernel.stages:
        if s.name == name:
            return s
    raise ScheduleError(
        f"There is no stage '{name}'; the stages are {', '.join(s.name for s in kernel.stages)}."
    )


def _own_name(kernel: Kernel, name: str) -> str:
    """``name``, or with a number where a buffer of the kernel is called that."""
    taken = {b.name for b in kernel.inputs}.union(b.name for s in kernel.stages for b in s.outputs)
    choices = (f"{name}{number or ''}" for number in range(len(taken) + 1))
    return next(c for c in choices if c not in taken)


def axis_of(axes: tuple[Var, ...], stage: str, name: str) -> Var:
    """The axis of that name; ScheduleError lists those there are."""
    for v in axes:
        if v.name == name:
            return v
    raise ScheduleError(
        f"Stage '{stage}' has no axis '{name}' there; it has {', '.join(v.name for v in axes)}."
    )


@dataclass(frozen=True)
class SplitReduction(Step[str]):
    """Reduce ``axis`` of ``stage`` over ``lanes`` partial accumulators first, in a new stage."""

    name = "split_reduction"
    stage: str
    axis: str
    lanes: int

    def apply(self, kernel: Kernel) -> tuple[Kernel, str]:
        stage = plain_stage(kernel, self.stage)
        check_factor(self.lanes)
        if not is_splittable(stage):
            raise ScheduleError(
                f"Stage '{self.stage}' is not a reduction that starts at the identity of its "
                "operation."
            )
        pair = split_reduction(stage, axis_of(stage.reduce_axes, self.stage, self.axis), self.lanes)
        stages = tuple(p for s in kernel.stages for p in (pair if s is stage else (s,)))
        return with_stages(kernel, stages), pair[0].name


@dataclass(frozen=True)
class CacheWrite(Step[tuple[str, ...]]):
    """Let ``stage`` write a buffer of its own, and a map ``stage_out`` copy that to the output."""

    name = "cache_write"
    stage: str

    def apply(self, kernel: Kernel) -> tuple[Kernel, tuple[str, ...]]:
        stage = plain_stage(kernel, self.stage)
        if any(t is not a for t, a in zip(stage.targets, stage.axes, strict=True)):
            raise ScheduleError(f"Stage '{self.stage}' does not write its buffer at its own axes.")
        local = {
            b: Buffer(_own_name(kernel, f"{b.name}_w"), b.dtype, b.shape, b.layout, "workspace")
            for b in stage.outputs
        }
        inner = stage.replace(outputs=tuple(local.values()))
        copies = []
        prefix = f"{stage.name}_"
        for number, (b, own) in enumerate(local.items()):
            name = f"{stage.name}_out{number or ''}"
            renamed = {
                v: Var(f"{name}_{v.name.removeprefix(prefix)}", v.extent) for v in stage.axes
            }
            copies.append(
                map_stage(name, tuple(renamed.values()), b, Read(own, tuple(renamed.values())))
            )
        stages = tuple(p for s in kernel.stages for p in ((inner, *copies) if s is stage else (s,)))
        return with_stages(kernel, stages), tuple(c.name for c in copies)


@dataclass(frozen=True)
class CacheRead(Step[str]):
    """Let ``stage`` read a copy of ``buffer``, which a new map ``stage_buffer`` makes."""

    name = "cache_read"
    stage: str
    buffer: str

    def apply(self, kernel: Kernel) -> tuple[Kernel, str]:
        stage = plain_stage(kernel, self.stage)
        source = _source(stage, self.buffer)
        name = f"{stage.name}_{source.name}"
        axes = tuple(Var(f"{name}_{d}", e) for d, e in enumerate(source.shape))
        layout = Layout(source.layout.order)
        own_name = _own_name(kernel, f"{source.name}_r")
        own = Buffer(own_name, source.dtype, source.shape, layout, "workspace")
        copy = map_stage(name, axes, own, Read(source, axes))
        return _with_reader(kernel, stage, source, copy), name


def _source(stage: Stage, buffer: str) -> Buffer:
    source = next((r.buffer for r in stage.reads() if r.buffer.name == buffer), None)
    if source is None or source in stage.outputs:
        raise ScheduleError(f"Stage '{stage.name}' does not read a buffer '{buffer}'.")
    return source


def _with_reader(kernel: Kernel, stage: Stage, source: Buffer, copy: Stage) -> Kernel:
    """The kernel with ``copy`` in front of ``stage``, which reads its output in place of
    ``source``.
    """

    def leaf(e: Expr) -> Expr | None:
        if isinstance(e, Read) and e.buffer is source:
            return Read(copy.output, tuple(rewrite(i, leaf) for i in e.indices))
        return None

    reader = map_stage_expressions(stage, lambda e: rewrite(e, leaf))
    return with_stages(
        kernel, tuple(p for s in kernel.stages for p in ((copy, reader) if s is stage else (s,)))
    )


@dataclass(frozen=True)
class Pack(Step[str]):
    """Let ``stage`` read a copy of ``buffer`` with ``dim`` innermost and padded with zeros to a
    multiple of ``factor``.
    """

    name = "pack"
    stage: str
    buffer: str
    dim: int
    factor: int

    def apply(self, kernel: Kernel) -> tuple[Kernel, str]:
        stage = plain_stage(kernel, self.stage)
        source = _source(stage, self.buffer)
        check_factor(self.factor)
        if not 0 <= self.dim < source.rank or source.layout.blocks:
            raise ScheduleError(f"'{source.name}' has no plain dim {self.dim} to pack.")
        name = f"{stage.name}_{source.name}"
        whole = ceildiv(source.shape[self.dim], self.factor) * self.factor
        shape = tuple(whole if d == self.dim else e for d, e in enumerate(source.shape))
        axes = tuple(Var(f"{name}_{d}", e) for d, e in enumerate(shape))
        own_name = _own_name(kernel, f"{source.name}_r")
        order = (*(d for d in source.layout.order if d != self.dim), self.dim)
        own = Buffer(own_name, source.dtype, shape, Layout(order), "workspace")
        inside = compare("lt", axes[self.dim], source.shape[self.dim])
        value = guard(inside, Read(source, axes), const(0, source.dtype))
        return _with_reader(kernel, stage, source, map_stage(name, axes, own, value)), name


@dataclass(frozen=True)
class Inline(Step[None]):
    """Evaluate the map ``stage`` wherever it is read; its buffer disappears."""

    name = "inline"
    stage: str

    def apply(self, kernel: Kernel) -> tuple[Kernel, None]:
        stage = plain_stage(kernel, self.stage)
        if stage.kind != "map" or len(stage.outputs) != 1 or stage.output in kernel.outputs:
            raise ScheduleError(f"Stage '{self.stage}' is not a map into a buffer of the kernel.")
        if any(t is not a for t, a in zip(stage.targets, stage.axes, strict=True)):
            raise ScheduleError(f"Stage '{self.stage}' does not write its buffer at its own axes.")
        rest = (s for s in kernel.stages if s is not stage)
        return with_stages(kernel, tuple(inline_into(s, stage) for s in rest)), None


@dataclass(frozen=True)
class PadAxis(Step[None]):
    """Let ``stage`` run over the next multiple of ``factor`` points of ``axis``."""

    name = "pad_axis"
    stage: str
    axis: str
    factor: int

    def apply(self, kernel: Kernel) -> tuple[Kernel, None]:
        stage = plain_stage(kernel, self.stage)
        axis = axis_of(stage.axes, self.stage, self.axis)
        check_factor(self.factor)
        if any(b in kernel.outputs for b in stage.outputs):
            raise ScheduleError(f"Stage '{self.stage}' writes an output of the kernel.")
        extent = ceildiv(axis.extent, self.factor) * self.factor
        position = stage.axes.index(axis)
        padded = rename_axes(stage, {axis: Var(axis.name, extent)})
        grown: dict[Buffer, Buffer] = {}
        for b in stage.outputs:
            shape = tuple(extent if d == position else e for d, e in enumerate(b.shape))
            grown[b] = Buffer(b.name, b.dtype, shape, Layout(b.layout.order), b.scope)
        padded = padded.replace(outputs=tuple(grown.values()))
        _check_padding(padded, padded.axes[position], self.factor)

        def leaf(e: Expr) -> Expr | None:
            if isinstance(e, Read) and e.buffer in grown:
                return Read(grown[e.buffer], tuple(rewrite(i, leaf) for i in e.indices))
            return None

        def redirected(s: Stage) -> Stage:
            return map_stage_expressions(s, lambda e: rewrite(e, leaf))

        stages = tuple(padded if s is stage else redirected(s) for s in kernel.stages)
        return with_stages(kernel, stages), None


def _check_padding(stage: Stage, axis: Var, factor: int) -> None:
    """Every read along the padded axis must stay inside the buffer or the padding of a layout
    blocked by that factor.
    """
    for value in stage.values:
        for read in reads(value):
            for d, i in enumerate(read.indices):
                if i is not axis or (d, factor) in read.buffer.layout.blocks:
                    continue
                if not known_le(axis.extent, read.buffer.shape[d]):
                    raise ScheduleError(
                        f"'{read.buffer.name}' is not stored in blocks of {factor} along that axis."
                    )
