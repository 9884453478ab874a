# SPDX-License-Identifier: Apache-2.0
"""Contractions on a GPU: a tile of the output for each block, a tile of accumulators for each
thread, operands in shared memory.

Matrix products and convolutions are of the form that :mod:`.contraction` recognises: a reduction of
products, stored by a map. A block computes a tile of rows x columns (columns are the innermost axis
of the output in memory). It steps through the reduction in chunks; for each chunk its threads first
copy the box of every operand that the block needs to shared memory (padding is computed there),
then each adds to its own tile of accumulators. Rows of a thread are neighbours, its columns lie a
row of threads apart, so that neighbouring threads read and write neighbouring cells.
"""

from collections.abc import Iterator, Mapping

from tilewright.ir.errors import ScheduleError
from tilewright.ir.expr import Var
from tilewright.ir.loop import Kernel
from tilewright.ir.stage import Stage
from tilewright.ir.target import Target
from tilewright.passes.loop.threads import shared_bytes
from tilewright.passes.schedule.defaults.contraction import Form, recognise
from tilewright.passes.schedule.defaults.gpu_rows import bind_blocks, fused_groups
from tilewright.passes.schedule.defaults.plan import Plan, extent, is_static, memory_order
from tilewright.passes.schedule.defaults.template import Template, is_contraction
from tilewright.passes.schedule.handles import Placed
from tilewright.passes.schedule.steps import (
    Bind,
    CacheRead,
    CacheWrite,
    ComputeAt,
    Split,
    Synchronize,
    Unroll,
)

CHUNKS = (32, 16, 8, 4)
"""Lengths of a chunk of the reduction; the first whose operands fit shared memory is taken."""


class GpuTiled(Template):
    """One contraction, a map after it, and padding (or other maps) before it."""

    kind = "gpu"
    priority = 20

    def plans(self, kernel: Kernel, target: Target, choices: Mapping[str, int]) -> Iterator[Plan]:
        for chunk in CHUNKS:
            plan = Plan(kernel, choices)
            reductions = [s for s in kernel.stages if s.kind == "reduce"]
            if len(reductions) != 1 or not is_contraction(reductions[0]):
                return
            if not reductions[0].reduce_axes:
                return  # There is nothing to step through in chunks.
            if reductions[0].output in kernel.outputs:
                plan.do(CacheWrite(reductions[0].name))
            for b in dict.fromkeys(r.buffer for r in reductions[0].reads()):
                if b in kernel.inputs:
                    plan.do(CacheRead(reductions[0].name, b.name))
            form = recognise(plan.kernel)
            if form is None:
                return
            _Tiling(plan, form, chunk).build()
            used = shared_bytes(plan.kernel)
            if used is not None and used <= target.shared_bytes:
                yield plan
                return
        raise ScheduleError("The operands of a tile do not fit shared memory.")


class _Tiling:
    """Builds the plan of a recognised form; ``_tile`` says how many points of an axis a block has,
    and on how many threads.
    """

    def __init__(self, plan: Plan, form: Form, chunk: int) -> None:
        self.plan, self.form, self.chunk = plan, form, chunk
        self.columns = self._tile("columns", form.vector)
        self.rows = self._tile("rows", form.row) if form.row is not None else None

    def _tile(self, name: str, v: Var) -> tuple[int, int]:
        """Threads along an axis, and points of each: no more than a constant axis has."""
        threads, each = 16, 4
        if is_static(v):
            threads = min(threads, 1 << (extent(v) - 1).bit_length())
            each = min(each, -(-extent(v) // threads))
        options = (n for n in (1, 2, 4) if not is_static(v) or n * threads < extent(v) + threads)
        return threads, self.plan.choose(f"{name}_each", each, options)

    def build(self) -> None:
        plan, form = self.plan, self.form
        column, row = form.vector.name, form.row.name if form.row is not None else ""
        outer = [v.name for v in form.order if v.name not in (column, row)]
        plan.reorder(*outer, row, column)
        columns = plan.do(Split(column, self.columns[0] * self.columns[1]))
        blocks, inner, own_rows = outer, [columns.inner], ""
        if row and self.rows is not None:
            rows = plan.do(Split(row, self.rows[0] * self.rows[1]))
            own_rows = rows.inner
            blocks, inner = [*outer, rows.outer], [own_rows, *inner]
        symbolic = [n for n in blocks if plan.static_size(n) is None]
        blocks = [*symbolic, *(n for n in blocks if n not in symbolic)]
        plan.reorder(*blocks, columns.outer, *inner)
        groups = fused_groups(plan, blocks)
        (tile,) = plan.do(ComputeAt(form.reduction.name, "register", (columns.outer,)))
        self._threads(own_rows, columns.inner, [])
        twins = [form.twin[v].name for v in (form.row, form.vector) if v is not None]
        row_twin, column_twin = twins if len(twins) == 2 else ("", twins[0])
        self._threads(tile.first_over(row_twin), tile.first_over(column_twin), [])
        chunks, steps = self._cut_reduction(tile)
        self._threads(tile.over(row_twin), tile.over(column_twin), steps, chunks)
        for s in reversed(form.before):
            self._copy(s, chunks)
        bind_blocks(plan, [*groups[:1], columns.outer, *groups[1:]])
        plan.do(Synchronize())

    def _cut_reduction(self, tile: Placed) -> tuple[str, list[str]]:
        """The loop over chunks of the reduction, and the loops over the points of one."""
        axes = self.form.reduction.reduce_axes
        longest = max(axes, key=extent)
        size = min(self.chunk, extent(longest)) if is_static(longest) else self.chunk
        halves = self.plan.do(Split(tile.over(longest.name), size))
        rest = [tile.over(v.name) for v in axes if v is not longest]
        return halves.outer, [halves.inner, *rest]

    def _threads(self, row: str, column: str, steps: list[str], chunks: str = "") -> None:
        """Give a nest over a tile to the threads: each runs ``steps`` around its own points, which
        are unrolled.
        """
        plan, own, across = self.plan, [], []
        if row and self.rows is not None and plan.loop(row) is not None:
            rows = plan.do(Split(row, self.rows[1]))
            plan.do(Bind(rows.outer, "thread.y"))
            plan.do(Unroll(rows.inner))
            across, own = [rows.outer], [rows.inner]
        if plan.loop(column) is not None:
            columns = plan.do(Split(column, self.columns[0]))
            plan.do(Bind(columns.inner, "thread.x"))
            plan.do(Unroll(columns.outer))
            across, own = [*across, columns.inner], [*own, columns.outer]
        plan.reorder(chunks, *across, *steps, *own)

    def _copy(self, s: Stage, chunks: str) -> None:
        """Let all threads of the block fill the shared box of an operand."""
        plan = self.plan
        (box,) = plan.do(ComputeAt(s.name, "shared", (chunks,)))
        names = [n for v in memory_order(s) if (n := box.over(v.name))]
        if not names:
            return
        plan.reorder(*names)
        whole, *others = fused_groups(plan, names)
        if others:
            raise ScheduleError(f"The box of '{s.name}' for a block has a symbolic size.")
        width, height = self.columns[0], self.rows[0] if self.rows is not None else 1
        turns = plan.do(Split(whole, width * height))
        across = [turns.inner]
        if height > 1:
            threads = plan.do(Split(turns.inner, width))
            plan.do(Bind(threads.outer, "thread.y"))
            across = [threads.outer, threads.inner]
        plan.do(Bind(across[-1], "thread.x"))
        plan.reorder(*across, turns.outer)
