# SPDX-License-Identifier: Apache-2.0
"""Plain loop nests for stages: what schedules start from, and what ``compute_at`` builds at a tile.

A map is one nest. A reduction is a nest that initialises, then a nest that updates; the two have
loops of their own, so that the reduction can run outside the loops over a tile of accumulators.
"""

from collections.abc import Mapping

from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import Expr, Read, Scalar, Var
from tilewright.ir.layout import row_major
from tilewright.ir.loop import Alloc, Block, For, Let, Stmt, Store, nest, seq
from tilewright.ir.rewrite import substitute
from tilewright.ir.stage import Stage


def stage_nest(stage: Stage) -> Stmt:
    """The loops of a stage over its whole domain, serial, in the order of its axes."""
    if stage.kind == "map":
        return nest([(v, "serial") for v in stage.axes], map_block(stage, {}))
    if stage.kind == "reduce":
        init_axes = {v: Var(f"{v.name}_init", v.extent) for v in stage.axes}
        first = nest(
            [(v, "serial") for v in init_axes.values()], init_block(stage, dict(init_axes.items()))
        )
        loops = [(v, "serial") for v in (*stage.axes, *stage.reduce_axes)]
        return seq([first, nest(loops, update_block(stage, {}))])
    if stage.kind == "scan":
        return _scan_nest(stage)
    if stage.kind == "scatter":
        return _scatter_nest(stage)
    if stage.body is None:
        raise ValueError(f"Opaque stage '{stage.name}' has no body.")
    return stage.body


def map_block(stage: Stage, point: Mapping[Expr, Expr]) -> Stmt:
    """The block of a map at a point given as values for its axes."""
    cell = tuple(substitute(t, point) for t in stage.targets)
    values = [substitute(v, point) for v in stage.values]
    stores = seq(Store(b, cell, v) for b, v in zip(stage.outputs, values, strict=True))
    return Block(stage.name, "map", tuple(substitute(v, point) for v in stage.axes), stores)


def init_block(stage: Stage, point: Mapping[Expr, Expr]) -> Stmt:
    """The block that sets the accumulators of a reduction at a point of its axes."""
    cell = tuple(substitute(t, point) for t in stage.targets)
    stores = seq(
        Store(b, cell, substitute(i, point)) for b, i in zip(stage.outputs, stage.init, strict=True)
    )
    return Block(stage.name, "init", tuple(substitute(v, point) for v in stage.axes), stores)


def update_block(stage: Stage, point: Mapping[Expr, Expr]) -> Stmt:
    """The block of one step of a reduction; several accumulators are all computed before any is
    stored.
    """
    cell = tuple(substitute(t, point) for t in stage.targets)
    current: dict[Expr, Expr] = {
        a: Read(b, cell) for a, b in zip(stage.accumulators, stage.outputs, strict=True)
    }
    values = [substitute(v, {**point, **current}) for v in stage.values]
    at = tuple(substitute(v, point) for v in (*stage.axes, *stage.reduce_axes))
    return Block(
        stage.name, "update", at, _simultaneous(stage.outputs, cell, values, stage.accumulators)
    )


def _simultaneous(
    outputs: tuple[Buffer, ...],
    cell: tuple[Expr, ...],
    values: list[Expr],
    names: tuple[Scalar, ...],
) -> Stmt:
    if len(outputs) == 1:
        return Store(outputs[0], cell, values[0])
    fresh = [Scalar(f"{a.name}_new", a.dtype) for a in names]
    body: Stmt = seq(Store(b, cell, s) for b, s in zip(outputs, fresh, strict=True))
    for scalar, value in reversed(list(zip(fresh, values, strict=True))):
        body = Let(scalar, value, body)
    return body


def _scan_nest(stage: Stage) -> Stmt:
    """A scan carries its values along the last axis in registers and stores them at every step."""
    *outer, scanned = stage.axes
    carried = {
        a: Buffer(f"{a.name}_carried", a.dtype, (), row_major(0), "register")
        for a in stage.accumulators
    }
    current: dict[Expr, Expr] = {a: Read(b, ()) for a, b in carried.items()}
    start = seq(Store(b, (), i) for b, i in zip(carried.values(), stage.init, strict=True))
    first = Block(stage.name, "init", tuple(outer), start)
    values = [substitute(v, current) for v in stage.values]
    step = _simultaneous(tuple(carried.values()), (), values, stage.accumulators)
    keep = seq(
        Store(b, stage.targets, r) for b, r in zip(stage.outputs, current.values(), strict=False)
    )
    update = Block(
        stage.name, "update", stage.axes, seq([keep, step] if stage.exclusive else [step, keep])
    )
    body: Stmt = seq([first, For(scanned, "serial", update)])
    for b in carried.values():
        body = Alloc(b, body)
    return nest([(v, "serial") for v in outer], body)


def _scatter_nest(stage: Stage) -> Stmt:
    """All cells start at ``init``; then the updates, in order, each at its own cell."""
    fill = seq(Store(b, stage.axes, i) for b, i in zip(stage.outputs, stage.init, strict=True))
    first = nest([(v, "serial") for v in stage.axes], Block(stage.name, "init", stage.axes, fill))
    old: dict[Expr, Expr] = {
        a: Read(b, stage.targets) for a, b in zip(stage.accumulators, stage.outputs, strict=True)
    }
    values = [substitute(v, old) for v in stage.values]
    write = _simultaneous(stage.outputs, stage.targets, values, stage.accumulators)
    update = Block(stage.name, "update", stage.reduce_axes, write)
    return seq([first, nest([(v, "serial") for v in stage.reduce_axes], update)])
