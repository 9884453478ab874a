# SPDX-License-Identifier: Apache-2.0
"""The statement instances of a scheduled kernel and the memory that they touch.

A walk over the body turns every block into an :class:`Instance`: the loops around it, the
conditions on the way, its place in the order of execution, and its stores. A buffer becomes one
:class:`Memory` per allocation, so that two allocations of equal buffers stay apart, and a fresh
allocation in every iteration of a loop is private to it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from tilewright.ir.buffer import Buffer
from tilewright.ir.dtypes import BOOL, INDEX
from tilewright.ir.errors import ScheduleError
from tilewright.ir.expr import (
    FALSE,
    TRUE,
    Compare,
    Expr,
    Guard,
    Read,
    Unary,
    Var,
    children,
    free_variables,
    reads,
)
from tilewright.ir.loop import Alloc, Barrier, Block, For, If, Kernel, Let, Seq, Stmt, Store
from tilewright.ir.rewrite import substitute
from tilewright.ir.stage import Stage

_OPPOSITE = {"lt": "ge", "ge": "lt", "le": "gt", "gt": "le", "eq": "ne", "ne": "eq"}


@dataclass(frozen=True, eq=False)
class Loop:
    """One loop of the kernel; loops around several statements are the same object in all of
    them.
    """

    var: Var
    kind: str


@dataclass(frozen=True, eq=False)
class Memory:
    """One allocation of a buffer: fresh in every iteration of ``loops``, the loops outside it.

    ``role`` is ``input``, ``output`` or ``local``.
    """

    number: int
    buffer: Buffer
    loops: tuple[Loop, ...]
    role: str


@dataclass(frozen=True, eq=False)
class Write:
    """A store of a block: ``value`` still names the buffers as the kernel does."""

    memory: Memory
    indices: tuple[Expr, ...]
    value: Expr


@dataclass(frozen=True, eq=False)
class Place:
    """Where something happens: loops outside it, conditions on the way, and its position.

    ``position`` has one number for every depth, from outside all loops to inside all of them: of
    two statements, the one with the smaller number at the first depth where their loops part comes
    first.
    """

    loops: tuple[Loop, ...]
    position: tuple[int, ...]
    conditions: tuple[Expr, ...]
    memories: Mapping[Buffer, Memory]

    @property
    def variables(self) -> tuple[Var, ...]:
        return tuple(loop.var for loop in self.loops)


@dataclass(frozen=True, eq=False)
class Instance:
    """A block as it runs at one iteration of its loops."""

    number: int
    place: Place
    stage: str
    part: str
    point: tuple[Expr, ...]
    writes: tuple[Write, ...]

    @property
    def name(self) -> str:
        return f"{self.stage}.{self.part}"


@dataclass(frozen=True, eq=False)
class Evaluation:
    """An expression that is evaluated at a place: only the bounds of its reads matter."""

    place: Place
    value: Expr


@dataclass(eq=False)
class Program:
    """All instances of a kernel in program order, its memories, and evaluations outside blocks."""

    kernel: Kernel
    instances: list[Instance] = field(default_factory=list)
    memories: list[Memory] = field(default_factory=list)
    evaluations: list[Evaluation] = field(default_factory=list)

    def stage(self, name: str) -> Stage:
        for stage in self.kernel.stages:
            if stage.name == name:
                return stage
        known = ", ".join(f"'{s.name}'" for s in self.kernel.stages)
        raise ScheduleError(
            f"A block names stage '{name}', which the kernel does not have; it has {known}."
        )


def collect(kernel: Kernel) -> Program:
    """The program of a kernel's body. ScheduleError for a body that has statements a proof cannot
    read.
    """
    walker = _Walker(Program(kernel))
    memories = {}
    for buffer in (*kernel.inputs, *kernel.outputs):
        role = "output" if buffer in kernel.outputs else "input"
        memories[buffer] = walker.memory(buffer, (), role)
    walker.visit(kernel.body, Place((), (0,), (), memories), {})
    return walker.program


def axes_of(stage: Stage, part: str) -> tuple[Var, ...]:
    """The axes that the coordinates of a block's point stand for."""
    if stage.kind == "scatter":
        return stage.reduce_axes if part == "update" else stage.axes
    if stage.kind == "scan":
        return stage.axes if part == "update" else stage.axes[:-1]
    return (*stage.axes, *stage.reduce_axes) if part == "update" else stage.axes


def point_ranges(program: Program, instance: Instance, copied: Buffer) -> list[tuple[Expr, Expr]]:
    """The coordinates of an instance's point with the extents of their axes; of a copy, those of
    its cell in ``copied``.

    Instances outside their stage's domain may run (in the padding of a tile): nobody wants what
    they compute.
    """
    if instance.part == "copy":
        return list(zip(instance.point, copied.shape, strict=True))
    axes = axes_of(program.stage(instance.stage), instance.part)
    known: dict[Expr, Expr] = dict(zip(axes, instance.point))
    return [(known[axis], substitute(axis.extent, known)) for axis in axes]


def negated(condition: Expr) -> Expr:
    """The condition that holds where ``condition`` does not."""
    match condition:
        case Compare(op, x, y) if x.dtype is INDEX:
            return Compare(_OPPOSITE[op], x, y)
        case Unary("not", x, _):
            return x
    if condition in (TRUE, FALSE):
        return FALSE if condition is TRUE else TRUE
    return Unary("not", condition, BOOL)


def guarded_reads(e: Expr) -> Iterator[tuple[Read, tuple[Expr, ...]]]:
    """Every read in ``e`` with the guards around it, each pair once."""
    seen: set[tuple[Expr, tuple[Expr, ...]]] = set()
    stack: list[tuple[Expr, tuple[Expr, ...]]] = [(e, ())]
    while stack:
        node, conditions = item = stack.pop()
        if item in seen:
            continue
        seen.add(item)
        if isinstance(node, Read):
            yield node, conditions
        if isinstance(node, Guard):
            stack.append((node.condition, conditions))
            stack.append((node.x, (*conditions, node.condition)))
            stack.append((node.other, (*conditions, negated(node.condition))))
        else:
            stack.extend((child, conditions) for child in children(node))


class _Walker:
    """Builds a :class:`Program`; ``bound`` maps what ``let`` binds outside blocks to its value."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._order = 0

    def memory(self, buffer: Buffer, loops: tuple[Loop, ...], role: str) -> Memory:
        memory = Memory(len(self.program.memories), buffer, loops, role)
        self.program.memories.append(memory)
        return memory

    def _next(self, place: Place) -> Place:
        """The place of the next statement at the same depth."""
        self._order += 1
        position = (*place.position[:-1], self._order)
        return Place(place.loops, position, place.conditions, place.memories)

    def visit(self, s: Stmt, place: Place, bound: dict[Expr, Expr]) -> None:
        match s:
            case Seq(stmts):
                for child in stmts:
                    self.visit(child, place, bound)
            case For():
                self._loop(s, place, bound)
            case If(condition, then, otherwise):
                condition = substitute(condition, bound)
                self._evaluate(condition, place)
                self._require_input_reads("A condition around blocks", condition, place)
                self.visit(then, _under(place, condition), bound)
                if otherwise is not None:
                    self.visit(otherwise, _under(place, negated(condition)), bound)
            case Let(var, value, body):
                value = substitute(value, bound)
                self._evaluate(value, place)
                self._require_input_reads(f"'{var.name}', bound outside blocks,", value, place)
                self.visit(body, place, {**bound, var: value})
            case Alloc(buffer, body):
                memory = self.memory(buffer, place.loops, "local")
                memories = {**place.memories, buffer: memory}
                self.visit(
                    body, Place(place.loops, place.position, place.conditions, memories), bound
                )
            case Block():
                self._block(s, place, bound)
            case Barrier():
                pass  # The order of the text holds without it; see proof/threads.py.
            case Store(buffer, _, _):
                raise ScheduleError(
                    f"A store to '{buffer.name}' stands outside any block. Put it into a block "
                    "that says which point it computes."
                )
            case _:
                raise ScheduleError(
                    f"The proof cannot read a statement of kind '{type(s).__name__.lower()}'. "
                    "Leave the kernel unscheduled."
                )

    def _loop(self, s: For, place: Place, bound: dict[Expr, Expr]) -> None:
        var = s.var
        extent = substitute(var.extent, bound)
        if extent is not var.extent:
            var = Var(var.name, extent)
            bound = {**bound, s.var: var}
        if any(loop.var is var for loop in place.loops):
            raise ScheduleError(
                f"Loop '{var.name}' stands inside a loop over the same variable. Rename one of "
                "them."
            )
        self._evaluate(extent, place)
        self._require_input_reads(f"The extent of '{var.name}'", extent, place)
        here = self._next(place)
        inner = Place(
            (*here.loops, Loop(var, s.kind)), (*here.position, 0), here.conditions, here.memories
        )
        self.visit(s.body, inner, bound)

    def _evaluate(self, value: Expr, place: Place) -> None:
        if reads(value):
            self.program.evaluations.append(Evaluation(place, value))

    def _require_input_reads(self, what: str, value: Expr, place: Place) -> None:
        """What is evaluated outside blocks must not change until the blocks inside use it."""
        for read in reads(value):
            memory = place.memories.get(read.buffer)
            if memory is None or memory.role != "input":
                raise ScheduleError(
                    f"{what} depends on '{read}', which the kernel writes. "
                    "Move it into the blocks that use it."
                )

    def _block(self, block: Block, place: Place, bound: dict[Expr, Expr]) -> None:
        here = self._next(place)
        point = tuple(substitute(e, bound) for e in block.point)
        for conditions, writes in self._paths(block.body, here, bound, []):
            at = Place(here.loops, here.position, conditions, here.memories)
            number = len(self.program.instances)
            instance = Instance(number, at, block.stage, block.part, point, tuple(writes))
            self._require_bound(instance)
            self.program.instances.append(instance)
            here = self._next(place)

    def _require_bound(self, instance: Instance) -> None:
        """Everything that a block names is a symbol of the kernel or a loop around the block."""
        known = {*self.program.kernel.symbols, *instance.place.variables}
        for e in (
            *instance.point,
            *instance.place.conditions,
            *(i for w in instance.writes for i in (*w.indices, w.value)),
        ):
            unknown = free_variables(e) - known
            if unknown:
                name = min(map(str, unknown))
                raise ScheduleError(
                    f"Block '{instance.name}' uses '{name}', which nothing around it binds."
                )

    def _paths(
        self, s: Stmt, place: Place, bound: Mapping[Expr, Expr], stored: list[Write]
    ) -> list[tuple[tuple[Expr, ...], list[Write]]]:
        """The straight-line paths through a block's body: the conditions of each and its stores.

        ``stored`` is what the path has written so far. Expressions come out as functions of memory
        before the block: all its reads happen at one time and all its writes at the next.
        """
        match s:
            case Store(buffer, indices, value):
                memory = place.memories.get(buffer)
                if memory is None:
                    raise ScheduleError(
                        f"A block stores to '{buffer.name}', which is neither an argument nor "
                        "allocated."
                    )
                at = tuple(self._before(i, place, bound, stored) for i in indices)
                write = Write(memory, at, self._before(value, place, bound, stored))
                stored.append(write)
                return [(place.conditions, [write])]
            case Let(var, value, body):
                value = self._before(value, place, bound, stored)
                self._evaluate(value, place)
                return self._paths(body, place, {**bound, var: value}, stored)
            case If(condition, then, otherwise):
                condition = self._before(condition, place, bound, stored)
                self._evaluate(condition, place)
                found = self._paths(then, _under(place, condition), bound, list(stored))
                if otherwise is not None:
                    under = _under(place, negated(condition))
                    found += self._paths(otherwise, under, bound, list(stored))
                return found
            case Seq(stmts):
                parts = [self._paths(child, place, bound, stored) for child in stmts]
                if all(len(p) == 1 and p[0][0] == place.conditions for p in parts):
                    return [(place.conditions, [w for p in parts for w in p[0][1]])]
        raise ScheduleError(
            f"A block holds a statement of kind '{type(s).__name__.lower()}' that the proof cannot "
            "read. Keep blocks to stores."
        )

    def _before(
        self, e: Expr, place: Place, bound: Mapping[Expr, Expr], stored: list[Write]
    ) -> Expr:
        """``e`` as a function of memory before the block: what it reads back is put in its
        place.
        """
        replacements = dict(bound)
        for read in reads(e):
            writes = [w for w in stored if place.memories.get(read.buffer) is w.memory]
            if not writes:
                continue
            at = tuple(substitute(i, bound) for i in read.indices)
            if len(writes) != 1 or at != writes[0].indices:
                raise ScheduleError(
                    f"A block reads '{read}' after it has stored to '{read.buffer.name}'. "
                    "Bind the value with 'let' before the store."
                )
            replacements[read] = writes[0].value
        return substitute(e, replacements)


def _under(place: Place, condition: Expr) -> Place:
    return Place(place.loops, place.position, (*place.conditions, condition), place.memories)
