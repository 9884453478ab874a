# SPDX-License-Identifier: Apache-2.0
"""Races: iterations of a loop that runs them at once share no cell that one of them writes.

Memory allocated inside the loop is private to the iteration. For the rest, an index that gives the
loop variable back when it is divided by some constant shows that iterations touch different cells;
where no index does, isl compares every two accesses of two iterations.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from tilewright.ir.errors import ScheduleError
from tilewright.ir.expr import (
    Const,
    Expr,
    IndexOp,
    Var,
    free_variables,
    polynomial,
    reads,
    sub,
    terms_of,
)
from tilewright.ir.simplify import floordiv
from tilewright.passes.schedule.proof import report
from tilewright.passes.schedule.proof.accesses import (
    Instance,
    Loop,
    Memory,
    Place,
    Program,
    guarded_reads,
)
from tilewright.passes.schedule.proof.facts import Facts
from tilewright.passes.schedule.proof.isl_expr import (
    Domain,
    Frame,
    closure,
    index_parts,
    opaque_atoms,
)

_ORDERED = ("serial", "unrolled")


@dataclass(frozen=True, eq=False)
class _Touch:
    """An access to memory: by a block, or by a condition or index (then there is no instance)."""

    place: Place
    instance: Instance | None
    memory: Memory
    indices: tuple[Expr, ...]
    conditions: tuple[Expr, ...]
    writes: bool


def check_races(program: Program, facts: Facts) -> None:
    """ScheduleError with two iterations and the cell where iterations of a parallel loop meet."""
    loops: dict[Loop, dict[Memory, list[_Touch]]] = {}
    for touch in _touches(program):
        for loop in touch.place.loops:
            if loop.kind not in _ORDERED and loop not in touch.memory.loops:
                loops.setdefault(loop, {}).setdefault(touch.memory, []).append(touch)
    for loop, shared in loops.items():
        for touches in shared.values():
            if any(t.writes for t in touches) and not _apart(loop, touches):
                _compare(loop, touches, facts)


def _touches(program: Program) -> Iterator[_Touch]:
    """All accesses to memory that the kernel writes."""
    reading: list[tuple[Place, Instance | None, Expr]] = [
        (e.place, None, e.value) for e in program.evaluations
    ]
    for instance in program.instances:
        place = instance.place
        for write in instance.writes:
            yield _Touch(place, instance, write.memory, write.indices, place.conditions, True)
            reading += [(place, instance, e) for e in (*write.indices, write.value)]
    for place, reader, e in reading:
        for read, guards in guarded_reads(e):
            memory = place.memories[read.buffer]
            if memory.role != "input":
                yield _Touch(
                    place, reader, memory, read.indices, (*place.conditions, *guards), False
                )


def _apart(loop: Loop, touches: list[_Touch]) -> bool:
    """True if some constant divisions of the indices, the same for all accesses, give the loop
    variable back.

    Two iterations of a loop have the loops outside it in common, so that what depends on those
    alone is left out of the indices.
    """
    around = touches[0].place.loops
    outer = {other.var for other in around[: around.index(loop)]}
    found: set[Expr] = set()
    for dim in range(touches[0].memory.buffer.rank):
        parts = {_varying(t.indices[dim], outer) for t in touches}
        if len({fixed for _, fixed in parts}) > 1:
            continue
        indices = {varying for varying, _ in parts}
        for divisor in sorted({d for e in indices for d in _divisors(e, loop.var)}):
            quotients = {floordiv(e, divisor) for e in indices}
            if len(quotients) == 1:
                found |= quotients
    return _determined(loop.var, found)


def _varying(e: Expr, outer: set[Var]) -> tuple[Expr, Expr]:
    """An index as what depends on other loops than ``outer`` (or on memory), and the rest."""
    varying = {
        m: c
        for m, c in terms_of(e)
        if any(isinstance(v, Var) and v not in outer for a in m for v in free_variables(a))
        or any(reads(a) for a in m)
    }
    first = polynomial(varying)
    return first, sub(e, first)


def _divisors(e: Expr, v: Var) -> set[int]:
    """The coefficients of terms of ``e`` in which ``v`` occurs."""
    return {abs(c) for m, c in terms_of(e) if any(v in free_variables(a) for a in m)}


def _determined(v: Var, found: set[Expr]) -> bool:
    """True if the values of ``found`` fix ``v``: itself, or its quotient and remainder by one
    divisor.
    """
    if v in found:
        return True
    return any(
        isinstance(e, IndexOp)
        and e.op == "floordiv"
        and e.a is v
        and isinstance(e.b, Const)
        and IndexOp("mod", v, e.b) in found
        for e in found
    )


def _compare(loop: Loop, touches: list[_Touch], facts: Facts) -> None:
    """Ask isl for a cell that two iterations touch, the first of them writing."""
    around = touches[0].place.loops
    outer = [other.var for other in around[: around.index(loop)]]
    parts = [
        [*t.indices, *(p for c in t.conditions for p in index_parts(c)), *t.place.variables]
        for t in touches
    ]
    dims = []
    parameters: dict[Expr, None] = dict.fromkeys(outer)
    for touch, asked in zip(touches, parts, strict=True):
        inner: list[Expr] = [v for v in touch.place.variables if v not in outer]
        atoms = closure(asked)
        extents = [a.extent for a in atoms if isinstance(a, Var)]
        opaque = dict.fromkeys(o for e in (*asked, *extents) for o in opaque_atoms(e))
        inner += [o for o in opaque if o not in atoms]
        dims.append(inner)
        parameters.update(dict.fromkeys(a for a in atoms if a not in inner))
    frame = Frame(facts.names, list(parameters))
    places = []
    for number, (touch, inner) in enumerate(zip(touches, dims, strict=True)):
        domain = Domain(frame, f"T{number}", inner, inner)
        for condition in touch.conditions:
            domain.set = domain.where(domain.set, condition)
        places.append((touch, domain))
    for touch, domain in places:
        for other, others in places:
            if touch.writes:
                _meet(loop, touch, domain, other, others)


def _meet(loop: Loop, touch: _Touch, domain: Domain, other: _Touch, others: Domain) -> None:
    """ScheduleError if two different iterations of a loop touch one cell with these accesses."""
    cells = domain.map(touch.indices, "M").intersect_domain(domain.set)
    same = cells.apply_range(others.map(other.indices, "M").intersect_domain(others.set).reverse())
    order = domain.map([loop.var], "V"), others.map([loop.var], "V").reverse()
    different = same.subtract(order[0].apply_range(order[1])).intersect_params(domain.frame.known)
    if different.is_empty():
        return
    point = different.wrap().sample_point()
    values = report.values_of(point, domain)
    second = report.values_of(point, others, len(domain.dims))
    assert touch.instance is not None
    name = report.instance(other.instance, second) if other.instance else "of a condition or index"
    raise ScheduleError(
        f"Iterations {loop.var.name}={values[loop.var]} and {loop.var.name}={second[loop.var]} of "
        f"the {loop.kind} loop meet: "
        f"block {report.instance(touch.instance, values)} writes "
        f"{report.cell(touch.memory.buffer, touch.indices, values)} and block {name} "
        f"{'writes it too' if other.writes else 'reads it'}{report.symbols(values)}. "
        f"Make the loop serial, or allocate '{touch.memory.buffer.name}' inside it."
    )
