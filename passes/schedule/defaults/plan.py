# SPDX-License-Identifier: Apache-2.0
"""Build a schedule step by step, looking at the kernel as it stands after each step."""

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from tilewright.ir.bounds import known_le, known_lt
from tilewright.ir.dtypes import INDEX
from tilewright.ir.expr import Compare, Const, Var, sub, terms_of
from tilewright.ir.expr import walk as walk_expr
from tilewright.ir.loop import Block, For, Kernel, expressions, walk
from tilewright.ir.rewrite import hinted
from tilewright.ir.stage import Stage
from tilewright.passes.schedule.handles import NO_LOOP
from tilewright.passes.schedule.schedule import Schedule, Step
from tilewright.passes.schedule.steps import (
    Chunk,
    Cut,
    Fuse,
    Partition,
    Peel,
    Reorder,
    Split,
    Unroll,
    Vectorize,
)

_Made = TypeVar("_Made")

MOST_UNROLLED = 8
"""The most iterations of a loop of any length that are unrolled."""

MOST_CUTS = 16
"""The most pieces a loop is cut into: each is code of its own."""


@dataclass(frozen=True)
class Decision:
    """A value that a template chose, and the values that it could have chosen."""

    chosen: int
    options: tuple[int, ...]


class Plan:
    """A kernel and the steps that led to it. ``do`` applies a step at once and returns the handles
    of what it made; a handle of no loop (``""``) may be given wherever a loop may be missing.

    Templates take their decisions through :meth:`choose`, which notes them with their alternatives
    in ``decisions``: that is the space in which the autotuner searches. ``choices`` overrides
    decisions by name.
    """

    def __init__(self, kernel: Kernel, choices: Mapping[str, int] | None = None) -> None:
        self.kernel = kernel
        self.steps: list[Step[Any]] = []
        self.choices = choices or {}
        self.decisions: dict[str, Decision] = {}

    @property
    def schedule(self) -> Schedule:
        return tuple(self.steps)

    def do(self, step: Step[_Made]) -> _Made:
        """Apply a step, and return what it made; ScheduleError if it does not apply."""
        self.kernel, made = step.apply(self.kernel)
        self.steps.append(step)
        return made

    def choose(
        self,
        name: str,
        default: int,
        options: Iterable[int],
        effect: Callable[[int], Hashable] = int,
    ) -> int:
        """Decide: ``default`` unless ``choices`` says otherwise; ``options`` are the values worth
        trying.

        ``effect`` is what the template makes of a value: of options with the same effect one is
        kept, the default or else the least, so that different choices are different schedules.
        """
        distinct = {effect(n): n for n in sorted(options, reverse=True)}
        distinct[effect(default)] = default
        chosen = self.choices.get(name, default)
        self.decisions[name] = Decision(chosen, tuple(sorted(distinct.values())))
        return chosen

    def loop(self, name: str) -> Var | None:
        """The variable of the loop of that name, or None if there is no such loop."""
        if name == NO_LOOP:
            return None
        for node in walk(self.kernel.body):
            if isinstance(node, For) and node.var.name == name:
                return node.var
        return None

    def static_size(self, name: str) -> int | None:
        """The constant extent of a loop; 1 if there is no such loop; None if it is symbolic."""
        var = self.loop(name)
        if var is None:
            return 1
        return int(var.extent.literal) if isinstance(var.extent, Const) else None

    def size(self, name: str) -> int:
        """The extent of a loop that decisions are made for: symbols at their hints."""
        var = self.loop(name)
        return 1 if var is None else max(1, hinted(var.extent))

    def reorder(self, *names: str) -> None:
        """Put those of the named loops that exist in this order."""
        present = tuple(n for n in names if self.loop(n) is not None)
        if len(present) > 1:
            self.do(Reorder(present))

    def unroll(self, name: str) -> None:
        """Unroll a loop if it exists."""
        if self.loop(name) is not None:
            self.do(Unroll(name))

    def peel(self, name: str, at_least: int = MOST_UNROLLED + 1, suffix: str = "t") -> None:
        """Run the iterations in which a bound fails apart, if there are ``at_least`` so many."""
        size = self.static_size(name)
        if size is None or size >= at_least:
            self.do(Peel(name, suffix))

    def unroll_short(self, names: Iterable[str]) -> None:
        """Unroll those loops that have few iterations."""
        for name in names:
            size = self.static_size(name)
            if name and size is not None and size <= MOST_UNROLLED:
                self.unroll(name)

    def vectorize_whole(self, name: str, lanes: int) -> None:
        """Run all of a loop on vectors at once; only a power of two is one vector to LLVM."""
        size = self.static_size(name)
        if name == NO_LOOP or size == 1:
            return
        if size is not None and size % lanes == 0 and size & (size - 1):
            halves = self.do(Split(name, lanes))
            self.do(Unroll(halves.outer))
            name = halves.inner
        self.do(Vectorize(name))

    def vectorize(self, name: str, lanes: int, unroll: int = 4) -> None:
        """Run a loop on vectors: whole if it is short, else the main part in vectors, the rest by
        itself.

        The main part of a long loop takes ``unroll`` vectors at a time. A loop that does not exist
        is left alone.
        """
        size = self.static_size(name)
        if size == 1:
            return
        if size is not None and (size <= lanes or (size % lanes == 0 and size <= unroll * lanes)):
            self.do(Vectorize(name))
            return
        if unroll > 1 and (size is None or size >= 2 * unroll * lanes):
            parts = self.do(Partition(name, unroll * lanes, "r"))
            if parts.main:
                vectors = self.do(Split(self.do(Split(parts.main, unroll * lanes)).inner, lanes))
                self.do(Unroll(vectors.outer))
                self.do(Vectorize(vectors.inner))
            self.vectorize(parts.apart, lanes, unroll=1)
            return
        parts = self.do(Partition(name, lanes, "s"))
        if parts.main:
            self.do(Vectorize(self.do(Split(parts.main, lanes)).inner))
        rest = self.static_size(parts.apart)
        if rest is not None and rest > 1:
            self.do(Vectorize(parts.apart))

    def cut_at_conditions(self, stage: str, loop: str, inner: str) -> list[str]:
        """Cut a loop where conditions in the blocks of a stage change, so that they are decided in
        each piece.

        Returns the copies of ``inner``, a loop inside it or the loop itself, one for each piece.
        Positions are constants from either end; a symbolic one, or one that a short loop may not
        have, stays a condition.
        """
        var = self.loop(loop)
        front, back = condition_changes(self.kernel, stage, var) if var is not None else ([], [])
        if len(front) + len(back) > MOST_CUTS:
            return [inner]
        found: list[str] = []
        before = after = 0  # what has been cut off from either end
        for number, position in enumerate([*front, *(-p for p in back)]):
            left = self.loop(loop)
            size = position - before if position > 0 else position + after
            if left is None or not known_le(abs(size), left.extent):
                continue
            parts = self.do(Cut(loop, size, f"c{number}"))
            found.append(parts.apart if inner == loop else parts.twin(inner))
            if not parts.main:
                return found
            before, after = max(before, position), max(after, -position)
        return [*found, inner]

    def tasks(self, names: list[str], wanted: int, even: bool = False) -> tuple[str, str]:
        """Make one task loop of loops nested directly in this order; returns it and the loop that
        steps through them.

        Constant loops are fused into the first one until there are ``wanted`` tasks; far too many
        are chunked, then each task steps through some of them. A symbolic loop comes first: a
        product of symbols cannot be split again. ``even`` tasks end where one loop begins anew.
        """
        names = [n for n in names if self.loop(n) is not None]
        fused, per_task = self.task_loops(names, wanted, even)
        task = fused[0]
        if task != names[0]:
            self.do(Reorder((task, *(n for n in names if n != task))))
        for name in fused[1:]:
            task = self.do(Fuse(task, name))
        if per_task == 1:
            return task, task
        halves = self.do(Chunk(task, per_task))
        return halves.outer, halves.inner

    def task_loops(
        self, names: list[str], wanted: int, even: bool = False
    ) -> tuple[tuple[str, ...], int]:
        """The loops that :meth:`tasks` fuses, and how many iterations of their product a task takes
        (1 if it is not chunked).
        """
        names = [n for n in names if self.loop(n) is not None]
        symbolic = [n for n in names if self.static_size(n) is None]
        lead = max(symbolic, key=self.size) if symbolic else names[0]
        fused, size = [lead], self.size(lead)
        for name in [n for n in names if n != lead]:
            if size >= wanted or self.static_size(name) is None:
                break
            fused.append(name)
            size *= self.size(name)
        per_task = 1 if size <= 4 * wanted else -(-size // wanted)
        if even and symbolic and len(fused) > 1:
            others = size // self.size(lead)
            per_task = max(n for n in range(1, min(per_task, others) + 1) if others % n == 0)
        return tuple(fused), per_task


def condition_changes(kernel: Kernel, stage: str, var: Var) -> tuple[list[int], list[int]]:
    """Where comparisons of ``var`` with bounds change their truth: positions from the front, and
    from the end.
    """
    front: set[int] = set()
    back: set[int] = set()
    blocks = [n for n in walk(kernel.body) if isinstance(n, Block) and n.stage == stage]
    for e in {e for b in blocks for n in walk(b) for v in expressions(n) for e in walk_expr(v)}:
        if not isinstance(e, Compare) or e.op not in _CHANGE or e.x.dtype is not INDEX:
            continue
        position = sub(sub(var, sub(e.x, e.y)), -_CHANGE[e.op])
        from_end = sub(var.extent, position)
        if isinstance(position, Const) and known_lt(position, var.extent) and known_lt(0, position):
            front.add(int(position.literal))
        elif (
            isinstance(from_end, Const) and known_lt(from_end, var.extent) and known_lt(0, from_end)
        ):
            back.add(int(from_end.literal))
    return sorted(front), sorted(back)


_CHANGE = {"ge": 0, "lt": 0, "gt": 1, "le": 1}
"""By how much the place where a comparison with 0 changes lies behind the root."""


def memory_order(stage: Stage) -> list[Var]:
    """The axes of a stage in the order in which its first output lies in memory."""
    order: list[Var] = []
    for d in stage.output.layout.order:
        # Of axes in one index the one with the largest step is outermost.
        for monomial, _ in sorted(terms_of(stage.targets[d]), key=lambda term: -term[1]):
            order += [a for a in monomial if isinstance(a, Var) and a in stage.axes]
    return order if len(order) == len(stage.axes) == len(set(order)) else list(stage.axes)


def extent(v: Var) -> int:
    """The extent of an axis that decisions are made for: symbols at their hints."""
    return max(1, hinted(v.extent))


def is_static(v: Var) -> bool:
    """True if the extent of an axis is a constant."""
    return isinstance(v.extent, Const)


def points(stage: Stage) -> int:
    """How many points a stage has, symbols at their hints."""
    total = 1
    for v in (*stage.axes, *stage.reduce_axes):
        total *= extent(v)
    return total
