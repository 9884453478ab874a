# SPDX-License-Identifier: Apache-2.0
"""Inline maps into the stages that read them.

A map disappears when every reader evaluates it about as often as it has points: then nothing is
computed twice and its buffer is never stored. Kept are outputs of the kernel, maps read by a
contraction or a windowed reduction (each point is used many times there: a schedule places them at
a tile), maps read by several stages or several times unless they are mere movements of data,
padding in front of a window, and maps without which an expression would become too long: a value
that is used twice is written twice, so that a chain of such steps doubles with each.
"""

from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import (
    Call,
    Expr,
    Guard,
    Read,
    Select,
    Var,
    children,
    free_variables,
    walk,
)
from tilewright.ir.interning import memoised
from tilewright.ir.rewrite import rewrite, substitute
from tilewright.ir.stage import Stage
from tilewright.passes.lower.collect import Computation, map_stage_expressions

# Of ops in the form of a tree: far more than any model needs, and quick to compile.
LONGEST = 1000


def inline_maps(c: Computation) -> Computation:
    """Inline all maps that gain from it, producers first."""
    stages = list(c.stages)
    for producer in c.stages:
        current = next(s for s in stages if s.name == producer.name)
        if not _can_inline(current, c.outputs):
            continue
        readers = [s for s in stages if any(r.buffer is current.output for r in s.reads())]
        if not readers or not _worthwhile(current, readers):
            continue
        merged = {s.name: inline_into(s, current) for s in readers}
        if any(map(_too_long, merged.values())):
            continue
        stages = [merged.get(s.name, s) for s in stages if s is not current]
    return c.replace(tuple(stages))


def _too_long(stage: Stage) -> bool:
    return sum(map(_length, (*stage.targets, *stage.init, *stage.values))) > LONGEST


@memoised
def _length(e: Expr) -> int:
    """How many operations and operands an expression has when it is written out."""
    return 1 + sum(map(_length, children(e)))


def _can_inline(stage: Stage, outputs: tuple[Buffer, ...]) -> bool:
    plain = stage.kind == "map" and len(stage.outputs) == 1 and stage.output not in outputs
    return plain and all(t is a for t, a in zip(stage.targets, stage.axes, strict=True))


def _worthwhile(producer: Stage, readers: list[Stage]) -> bool:
    if is_movement(producer) and not any(_reuses(s, producer.output) for s in readers):
        return True
    if len(readers) > 1 or _reuses(readers[0], producer.output):
        return False
    indices = {r.indices for r in readers[0].reads() if r.buffer is producer.output}
    return len(indices) == 1


def is_movement(stage: Stage) -> bool:
    """True for a map that only moves, casts or selects data: cheap to evaluate again."""
    return not any(isinstance(e, Call) for v in stage.values for e in walk(v)) and _size(stage) <= 4


def _size(stage: Stage) -> int:
    trivial = (Read, Select, Guard, Var)
    nodes = [e for v in stage.values for e in walk(v)]
    return sum(1 for e in nodes if not isinstance(e, trivial) and e.dtype.kind != "index")


def _reuses(reader: Stage, b: Buffer) -> bool:
    """True if ``reader`` reads cells of ``b`` at several points: a contraction or a window."""
    variables = {*reader.axes, *reader.reduce_axes}
    for read in reader.reads():
        if read.buffer is b:
            used = frozenset().union(*(free_variables(i) for i in read.indices), frozenset())
            if reader.reduce_axes and not variables <= used:
                return True
            if (
                any(len(free_variables(i) & variables) > 1 for i in read.indices)
                and reader.reduce_axes
            ):
                return True
    return False


def inline_into(reader: Stage, producer: Stage) -> Stage:
    """``reader`` with every read of ``producer``'s output replaced by the producer's expression at
    that index.
    """

    def leaf(e: Expr) -> Expr | None:
        if not (isinstance(e, Read) and e.buffer is producer.output):
            return None
        indices = tuple(rewrite(i, leaf) for i in e.indices)
        return substitute(producer.values[0], dict(zip(producer.axes, indices, strict=True)))

    return map_stage_expressions(reader, lambda e: rewrite(e, leaf))
