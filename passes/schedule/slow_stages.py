# SPDX-License-Identifier: Apache-2.0
"""Which reductions of a scheduled kernel do not run on full vectors: what a user is warned of.

The check reads the scheduled loops, not the name of a template: each block that updates a reduction
is in a vectorised loop that fills a vector register, or is not. A reduction that a schedule has
split into several stages counts as one; its blocks count by their points, so that a remainder of
some elements does no harm, and a remainder that is most of the work is seen. Scans, scatters and
opaque stages have an order of their own, and are left out.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tilewright.ir.expr import Const, Expr, Symbol, Var, free_variables, index
from tilewright.ir.loop import Block, For, Kernel, Stmt, children
from tilewright.ir.rewrite import substitute
from tilewright.ir.stage import Stage
from tilewright.ir.target import Target
from tilewright.passes.loop.lockstep import runs_in_lockstep
from tilewright.passes.schedule.defaults.plan import is_static, points
from tilewright.passes.schedule.findings import Refusal, SlowStage

LEAST_STEPS = 4096
"""Reductions of fewer steps are over before it matters."""

UNKNOWN_SIZE = 256
"""What a symbolic dim that nothing is known of counts for in the shares of a loop's pieces: at its
least size the loop's main part would never run.
"""


@dataclass(frozen=True)
class _Nest:
    """A block that updates a reduction: how often it runs, and the widest loop that runs as one
    vector around it.
    """

    points: int
    vector: Var | None

    @property
    def lanes(self) -> int:
        return 1 if self.vector is None else _size(self.vector.extent)


def slow_stages(
    kernel: Kernel, scheduled: Kernel, target: Target, refused: Sequence[Refusal] = ()
) -> tuple[SlowStage, ...]:
    """The reductions of ``kernel`` of at least :data:`LEAST_STEPS` steps, most of which the
    ``scheduled`` kernel does not do on full vectors.

    ``refused`` are the schedules that were tried before; they are part of the reason. On a GPU
    nothing is slow for want of vectors.
    """
    if target.kind != "cpu":
        return ()
    slow = []
    for stage in kernel.stages:
        if stage.kind != "reduce" or points(stage) < LEAST_STEPS or _is_empty(stage):
            continue
        full = target.lanes(max(a.dtype.bytes for a in stage.accumulators))
        names = _parts(stage, kernel, scheduled)
        nests = [n for name in names for n in _updates(scheduled.body, name)]
        on_vectors = sum(n.points for n in nests if n.lanes >= full)
        if not nests or 2 * on_vectors < sum(n.points for n in nests):
            reason = " ".join([_width(stage, nests, full), *map(str, refused)])
            slow.append(SlowStage(stage.name, points(stage), reason))
    return tuple(slow)


def _is_empty(stage: Stage) -> bool:
    return any(_size(v.extent) == 0 for v in (*stage.axes, *stage.reduce_axes))


def _parts(stage: Stage, kernel: Kernel, scheduled: Kernel) -> set[str]:
    """The names of the scheduled stages that compute one of the kernel's: itself, and the partial
    reductions that it is given.
    """
    own = {s.name for s in kernel.stages}
    parts = {stage.name}
    for s in reversed(scheduled.stages):
        if s.kind == "reduce" and s.name not in own:
            readers = [r for r in scheduled.stages if any(x.buffer in s.outputs for x in r.reads())]
            if any(r.name in parts for r in readers):
                parts.add(s.name)
    return parts


def _updates(body: Stmt, stage: str) -> Iterator[_Nest]:
    """The blocks that update a stage."""
    stack: list[tuple[Stmt, int, Var | None]] = [(body, 1, None)]
    while stack:
        s, count, vector = stack.pop()
        if isinstance(s, Block) and s.stage == stage and s.part == "update":
            yield _Nest(count, vector)
        if isinstance(s, For):
            count *= _size(s.var.extent)
            if s.kind == "vectorized" and runs_in_lockstep(s):
                vector = s.var
        stack.extend((c, count, vector) for c in children(s))


def _size(e: Expr) -> int:
    """An extent at expected sizes, in the first iteration of the loops around: the last may be one
    that does not fill a tile.
    """
    known: dict[Expr, Expr] = {}
    for v in free_variables(e):
        if isinstance(v, Symbol):
            known[v] = index(v.hint if v.hint > 1 else max(v.lo, min(v.hi, UNKNOWN_SIZE)))
        elif isinstance(v, Var):
            known[v] = index(0)
    value = substitute(e, known)
    return max(0, int(value.literal)) if isinstance(value, Const) else 1


def _width(stage: Stage, nests: Sequence[_Nest], full: int) -> str:
    """What most of the steps run on, or what a template would have to know."""
    widest = max(nests, key=lambda n: (n.points * (n.lanes < full), n.lanes), default=None)
    if widest is None or widest.vector is None:
        kept, reduced = _extents(stage.axes), _extents(stage.reduce_axes)
        return f"No loop of it runs on vectors: its axes are {kept}, the reduced ones {reduced}."
    return f"Its vectors, along '{widest.vector.name}', have {widest.lanes} of {full} lanes."


def _extents(axes: Sequence[Var]) -> str:
    return f"[{', '.join(str(v.extent) if is_static(v) else '?' for v in axes)}]"
