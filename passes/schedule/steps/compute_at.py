# SPDX-License-Identifier: Apache-2.0
"""Compute a stage inside a loop of its reader, just what one iteration needs.

``compute_at(p, register, i)`` (or ``workspace``, or ``shared`` for the threads of a GPU block),
before and after: the buffer shrinks to the box that the loop's body reads (halo included)::

    alloc t: f32[4*n] @workspace {
      for p_i in 4*n serial { block p.map(p_i) { t[p_i] = f(p_i) } }
      for i in n serial { for j in 4 serial { S(t[4*i + j]) } }
    }

    for i in n serial {
      alloc t_1: f32[4] @register {
        for p_i in 4 serial { block p.map(4*i + p_i) { t_1[p_i] = f(4*i + p_i) } }
        for j in 4 serial { S(t_1[j]) }
      }
    }

All readers must be inside the named loops; at the second and third (the copies of a tail, say) the
new loops' names end in ``_1``, ``_2``.
"""

from dataclasses import dataclass

from tilewright.ir.buffer import Buffer
from tilewright.ir.errors import ScheduleError
from tilewright.ir.expr import ONE, TRUE, Const, Expr, Read, Var, reads
from tilewright.ir.layout import Layout
from tilewright.ir.loop import (
    Alloc,
    Block,
    For,
    If,
    Kernel,
    Seq,
    Stmt,
    Store,
    expressions,
    map_stmt,
    nest,
    seq,
    walk,
)
from tilewright.ir.rewrite import rewrite, substitute
from tilewright.ir.simplify import compare
from tilewright.ir.stage import Stage
from tilewright.ir.value_expr import logical_and
from tilewright.passes.lower.nests import init_block, map_block, update_block
from tilewright.passes.schedule.handles import Placed
from tilewright.passes.schedule.loops import find_loop, fresh, loop_names, replace_loop
from tilewright.passes.schedule.region import Region, constant_bound, region_read
from tilewright.passes.schedule.schedule import Step

SCOPES = ("register", "workspace", "shared")


@dataclass(frozen=True)
class ComputeAt(Step[tuple[Placed, ...]]):
    """Compute ``stage`` inside each of ``loops``, its buffer in ``scope`` (one of ``SCOPES``).

    It hands back the nests that it has placed, one for each of ``loops``.
    """

    name = "compute_at"
    stage: str
    scope: str
    loops: tuple[str, ...]

    def apply(self, kernel: Kernel) -> tuple[Kernel, tuple[Placed, ...]]:
        if self.scope not in SCOPES or not self.loops:
            raise ScheduleError(
                "The form is compute_at(STAGE, register|workspace|shared, LOOP...)."
            )
        stage = _placeable(kernel, self.stage)
        bare = kernel.with_body(_without(kernel.body, stage))
        placed = bare
        nests: list[Placed] = []
        for number, loop in enumerate(self.loops):
            placed, nest_there = self._place(placed, stage, loop, f"_{number}" if number else "")
            nests.append(nest_there)
        inside = set(stage.outputs)
        for node in walk(placed.body):
            if any(r.buffer in inside for e in expressions(node) for r in reads(e)):
                raise ScheduleError(
                    f"Stage '{self.stage}' is also read outside of {', '.join(self.loops)}."
                )
        return placed, tuple(nests)

    def _place(self, kernel: Kernel, stage: Stage, loop: str, mark: str) -> tuple[Kernel, Placed]:
        taken = _buffer_names(kernel)
        region = region_read(find_loop(kernel.body, loop).body, stage.outputs)
        if region is None:
            raise ScheduleError(f"The body of '{loop}' does not read stage '{self.stage}'.")
        local = {b: _shrunk(b, region, self.scope, taken) for b in stage.outputs}
        producer, axes, first = _nest_over(stage, region, local, mark)
        fresh(kernel, *loop_names(producer))

        def change(target: For) -> Stmt:
            body: Stmt = seq([producer, _redirect(target.body, local, region)])
            for b in local.values():
                body = Alloc(b, body)
            return For(target.var, target.kind, body)

        return replace_loop(kernel, loop, change), Placed(loop, axes, first)


def _placeable(kernel: Kernel, name: str) -> Stage:
    try:
        stage = kernel.stage(name)
    except KeyError:
        known = ", ".join(s.name for s in kernel.stages)
        raise ScheduleError(f"There is no stage '{name}'; the stages are {known}.") from None
    if stage.kind not in ("map", "reduce"):
        raise ScheduleError(f"Stage '{name}' of kind '{stage.kind}' cannot be placed in a loop.")
    if any(t is not a for t, a in zip(stage.targets, stage.axes, strict=True)):
        raise ScheduleError(f"Stage '{name}' does not write its buffer at its own axes.")
    if any(b in kernel.outputs for b in stage.outputs):
        raise ScheduleError(f"Stage '{name}' writes an output of the kernel.")
    return stage


def _buffer_names(kernel: Kernel) -> set[str]:
    names = {b.name for b in (*kernel.inputs, *kernel.outputs)}
    return names | {n.buffer.name for n in walk(kernel.body) if isinstance(n, Alloc)}


def _shrunk(b: Buffer, region: Region, scope: str, taken: set[str]) -> Buffer:
    number = next(i for i in range(1, len(taken) + 2) if f"{b.name}_{i}" not in taken)
    taken.add(f"{b.name}_{number}")
    shape = tuple(constant_bound(e) for e in region.extent)
    if scope == "register" and not all(isinstance(e, Const) for e in shape):
        cells = ", ".join(map(str, shape))
        raise ScheduleError(
            f"'{b.name}' takes [{cells}] cells, but registers are a constant number. "
            "Place it in the workspace, or at an inner loop."
        )
    return Buffer(f"{b.name}_{number}", b.dtype, shape, Layout(b.layout.order), scope)


_Handles = dict[str, str]


def _nest_over(
    stage: Stage, region: Region, local: dict[Buffer, Buffer], mark: str
) -> tuple[Stmt, _Handles, _Handles]:
    """The loops of ``stage`` over ``region``, writing the shrunk buffers; the handles of the loops
    over its axes, and of those that start a reduction.
    """
    cell = tuple(a - s for a, s in zip(stage.axes, region.start, strict=True))
    moved = stage.replace(outputs=tuple(local[b] for b in stage.outputs), targets=cell)

    def over(suffix: str) -> tuple[_Handles, list[Var], dict[Expr, Expr], Expr]:
        handles: _Handles = {}
        loops: list[Var] = []
        point: dict[Expr, Expr] = {}
        inside: Expr = TRUE
        for axis, start, extent in zip(stage.axes, region.start, region.extent, strict=True):
            at = start
            if extent is not ONE:
                loops.append(Var(f"{axis.name}{suffix}{mark}", extent))
                handles[axis.name] = loops[-1].name
                at = start + loops[-1]
            point[axis] = at
            bounds = (compare("ge", at, 0), compare("lt", at, axis.extent))
            inside = logical_and(inside, *bounds)
        return handles, loops, point, inside

    def guarded(condition: Expr, s: Stmt) -> Stmt:
        return s if condition is TRUE else If(condition, s)

    handles, loops, point, inside = over("")
    if stage.kind == "map":
        body = nest([(v, "serial") for v in loops], guarded(inside, map_block(moved, point)))
        return body, handles, {}
    first_handles, first_loops, first_point, first_inside = over("_init")
    first = nest(
        [(v, "serial") for v in first_loops], guarded(first_inside, init_block(moved, first_point))
    )
    steps: list[Var] = []
    for v in stage.reduce_axes:
        steps.append(Var(f"{v.name}{mark}", substitute(v.extent, point)))
        point[v] = steps[-1]
    update = guarded(inside, update_block(moved, point))
    handles |= {a.name: v.name for a, v in zip(stage.reduce_axes, steps, strict=True)}
    updates = nest([(v, "serial") for v in (*loops, *steps)], update)
    return seq([first, updates]), handles, first_handles


def _redirect(s: Stmt, local: dict[Buffer, Buffer], region: Region) -> Stmt:
    memo: dict[Expr, Expr] = {}

    def leaf(e: Expr) -> Expr | None:
        if not (isinstance(e, Read) and e.buffer in local):
            return None
        return Read(
            local[e.buffer],
            tuple(i - start for i, start in zip(e.indices, region.start, strict=True)),
        )

    return map_stmt(s, on_expr=lambda e: rewrite(e, leaf, memo))


def _without(s: Stmt, stage: Stage) -> Stmt:
    """``s`` without the plain nest of ``stage`` and the allocation of its buffers."""

    def only_this_stage(node: Stmt) -> bool:
        blocks = [n for n in walk(node) if isinstance(n, Block)]
        return bool(blocks) and all(b.stage == stage.name and _writes(b, stage) for b in blocks)

    def on_stmt(node: Stmt) -> Stmt | None:
        if isinstance(node, Alloc) and node.buffer in stage.outputs:
            return _without(node.body, stage)
        if isinstance(node, Seq):
            kept = [_without(c, stage) for c in node.stmts if not only_this_stage(c)]
            return seq(kept)
        return None

    return map_stmt(s, on_stmt)


def _writes(block: Block, stage: Stage) -> bool:
    return all(n.buffer in stage.outputs for n in walk(block) if isinstance(n, Store))
