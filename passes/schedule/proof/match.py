# SPDX-License-Identifier: Apache-2.0
"""Hold what blocks compute against what their stages say.

The stage's expression, with its axes replaced by the block's point, and the block's expression are
walked side by side. They must agree in everything but the addresses of reads: a read of the
specification names a value (a cell of a logical buffer), the block's read names a place in memory
that is supposed to hold it. Each such pair becomes a :class:`Demand`, which the dataflow proof
discharges.

Where one side has a guard that the other lacks, or another condition, the iterations are divided by
that condition and each half is compared; a half without iterations agrees with anything. A stage
that was inlined has no memory: its expression is walked in its place.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.ir.buffer import Buffer
from tilewright.ir.dtypes import INDEX
from tilewright.ir.errors import ScheduleError
from tilewright.ir.expr import (
    Binary,
    Call,
    Cast,
    Compare,
    Const,
    Expr,
    Guard,
    IndexOp,
    Read,
    Scalar,
    Select,
    Unary,
    index,
    reads,
)
from tilewright.ir.rewrite import substitute
from tilewright.ir.stage import Stage
from tilewright.passes.schedule.proof import report
from tilewright.passes.schedule.proof.accesses import (
    Instance,
    Memory,
    Program,
    Write,
    axes_of,
    negated,
)
from tilewright.passes.schedule.proof.facts import Facts, replaced
from tilewright.passes.schedule.proof.isl_expr import is_condition, opaque_atoms


@dataclass(frozen=True, eq=False)
class Demand:
    """``instance`` reads ``memory[indices]`` and needs the final value of ``buffer[cell]`` there.

    It needs it only where ``conditions`` hold as well as those of the instance.
    """

    instance: Instance
    memory: Memory
    indices: tuple[Expr, ...]
    buffer: Buffer
    cell: tuple[Expr, ...]
    conditions: tuple[Expr, ...]


class _Differs(Exception):
    """The two expressions differ, at the values of loops and symbols that are given."""

    def __init__(self, spec: Expr, actual: Expr, values: report.Values) -> None:
        super().__init__(f"{spec} {actual}")
        self.spec, self.actual, self.values = spec, actual, values


def carried_buffers(program: Program) -> dict[Memory, tuple[Buffer, ...]]:
    """Which logical buffers each memory holds values of, from the blocks that write it."""
    carried: dict[Memory, dict[Buffer, None]] = {m: {} for m in program.memories}
    for memory in program.memories:
        if memory.role == "input":
            carried[memory][memory.buffer] = None
    copies = []
    for instance in program.instances:
        if instance.part == "copy":
            copies.append(instance)
            continue
        stage = program.stage(instance.stage)
        for write, role in zip(instance.writes, roles(stage, instance), strict=True):
            if role.output:
                carried[write.memory][stage.outputs[role.number]] = None
    changed = True
    while changed:
        changed = False
        for instance in copies:
            write, read = copy_of(instance)
            source = carried[instance.place.memories[read.buffer]]
            missing = [b for b in source if b not in carried[write.memory]]
            carried[write.memory].update(dict.fromkeys(missing))
            changed = changed or bool(missing)
    return {m: tuple(buffers) for m, buffers in carried.items()}


def copy_of(instance: Instance) -> tuple[Write, Read]:
    """The store and the read of a copy block; ScheduleError if it is not a plain copy."""
    if len(instance.writes) == 1 and isinstance(instance.writes[0].value, Read):
        read = instance.writes[0].value
        if read.buffer in instance.place.memories:
            return instance.writes[0], read
    raise ScheduleError(
        f"Block '{instance.name}' is not a plain copy of one cell, as its part 'copy' says."
    )


class Matcher:
    """Collects the demands of all instances; ScheduleError where one computes something else than
    its stage says.
    """

    def __init__(self, program: Program, facts: Facts) -> None:
        self.program = program
        self.facts = facts
        self.carried = carried_buffers(program)
        self.producers: dict[Buffer, list[Stage]] = {}
        for stage in program.kernel.stages:
            for buffer in stage.outputs:
                self.producers.setdefault(buffer, []).append(stage)
        self.inputs = frozenset(program.kernel.inputs)
        self.demands: list[Demand] = []
        self.cells: dict[Instance, tuple[Expr, ...]] = {}
        self._seen: set[tuple[Expr, Expr, tuple[Expr, ...]]] = set()
        self._accumulators: dict[Expr, Write] = {}

    def run(self) -> list[Demand]:
        for instance in self.program.instances:
            self._seen = set()
            if instance.part == "copy":
                self._copy(instance)
                continue
            stage = self.program.stage(instance.stage)
            found = roles(stage, instance)
            running = stage.kind != "scan"
            self._accumulators = {
                stage.accumulators[role.number]: write
                for write, role in zip(instance.writes, found, strict=True)
                if role.output == running and stage.accumulators
            }
            try:
                for write, role in zip(instance.writes, found, strict=True):
                    self._compare(instance, specification(stage, instance, role), write.value, ())
                self.cells[instance] = self._cell(stage, instance)
            except _Differs as difference:
                self._fail(instance, difference)
        return self.demands

    def _cell(self, stage: Stage, instance: Instance) -> tuple[Expr, ...]:
        """The logical cell that a block writes; a data-dependent one in terms of the block's
        reads.
        """
        if instance.part == "init" and stage.kind != "reduce":
            return instance.point
        known: dict[Expr, Expr] = dict(zip(axes_of(stage, instance.part), instance.point))
        cell = tuple(substitute(t, known) for t in stage.targets)
        return self._aligned(instance, cell, instance.writes[0].indices, ())

    def _fail(self, instance: Instance, found: _Differs) -> None:
        values = found.values
        known: dict[Expr, Expr] = {e: index(v) for e, v in values.items()}
        wanted, got = (substitute(e, known) for e in (found.spec, found.actual))
        raise ScheduleError(
            f"Block {report.instance(instance, values)}{report.symbols(values)} computes '{got}' "
            "where stage "
            f"'{instance.stage}' says '{wanted}'. The last step changed what the block computes."
        )

    def _copy(self, instance: Instance) -> None:
        _, read = copy_of(instance)
        memory = instance.place.memories[read.buffer]
        held = self.carried[memory]
        if len(held) > 1:
            named = [b for b in held for s in self.producers.get(b, ()) if s.name == instance.stage]
            held = tuple(named) or held
        if len(held) != 1:
            raise ScheduleError(
                f"Block '{instance.name}' copies from '{read.buffer.name}', which holds values of "
                f"{len(held)} buffers. "
                "Name the block after the stage whose output it copies."
            )
        self.demands.append(Demand(instance, memory, read.indices, held[0], instance.point, ()))

    def _compare(
        self, instance: Instance, spec: Expr, actual: Expr, conditions: tuple[Expr, ...]
    ) -> None:
        key = (spec, actual, conditions)
        if key in self._seen:
            return
        self._seen.add(key)
        if spec.dtype is INDEX and actual.dtype is INDEX:
            if not self._same_index(instance, spec, actual, conditions):
                self._differ(instance, spec, actual, conditions)
            return
        if self._branches(instance, spec, actual, conditions):
            return
        match spec:
            case Scalar():
                self._accumulator(instance, spec, actual, conditions)
                return
            case Read():
                self._read(instance, spec, actual, conditions)
                return
        pairs = _pairs(spec, actual)
        if pairs is None:
            self._differ(instance, spec, actual, conditions)
        for x, y in pairs or ():
            self._compare(instance, x, y, conditions)

    def _branches(
        self, instance: Instance, spec: Expr, actual: Expr, conditions: tuple[Expr, ...]
    ) -> bool:
        """Compare where one side has a guard or select; False if that does not help."""
        if isinstance(spec, Guard | Select):
            x, y = _arms(spec)
            if isinstance(actual, Guard | Select) and self._same_condition(
                instance, spec.condition, actual.condition, conditions
            ):
                first, second = _arms(actual)
                self._compare(instance, x, first, (*conditions, spec.condition))
                self._compare(instance, y, second, (*conditions, negated(spec.condition)))
                return True
            if is_condition(spec.condition):
                self._divided(instance, spec.condition, ((x, actual), (y, actual)), conditions)
                return True
        if isinstance(actual, Guard | Select) and is_condition(actual.condition):
            inlined = self._inlined(spec) if isinstance(spec, Read) else None
            if inlined is not None and self._agree(instance, [(inlined, actual)], conditions):
                return True
            x, y = _arms(actual)
            self._divided(instance, actual.condition, ((spec, x), (spec, y)), conditions)
            return True
        return False

    def _differ(
        self, instance: Instance, spec: Expr, actual: Expr, conditions: tuple[Expr, ...]
    ) -> None:
        """Raise _Differs, unless the place is never reached under the conditions."""
        values = self.facts.example(instance.place, conditions)
        if values is not None:
            raise _Differs(spec, actual, values)

    def _divided(
        self,
        instance: Instance,
        condition: Expr,
        pairs: tuple[tuple[Expr, Expr], tuple[Expr, Expr]],
        conditions: tuple[Expr, ...],
    ) -> None:
        """Compare the first pair where a condition holds and the second where it does not."""
        for (spec, actual), part in zip(pairs, (condition, negated(condition)), strict=True):
            within = (*conditions, part)
            if part in conditions or self.facts.example(instance.place, within) is not None:
                self._compare(instance, spec, actual, conditions if part in conditions else within)

    def _accumulator(
        self, instance: Instance, spec: Scalar, actual: Expr, conditions: tuple[Expr, ...]
    ) -> None:
        write = self._accumulators.get(spec)
        if (
            instance.part == "update"
            and write is not None
            and isinstance(actual, Read)
            and instance.place.memories.get(actual.buffer) is write.memory
            and all(
                self._same_index(instance, x, y, conditions)
                for x, y in zip(write.indices, actual.indices, strict=True)
            )
        ):
            return
        self._differ(instance, spec, actual, conditions)

    def _read(
        self, instance: Instance, spec: Read, actual: Expr, conditions: tuple[Expr, ...]
    ) -> None:
        if isinstance(actual, Read):
            memory = instance.place.memories.get(actual.buffer)
            if memory is not None and spec.buffer in self.carried[memory]:
                cell = self._aligned(instance, spec.indices, actual.indices, conditions)
                self.demands.append(
                    Demand(instance, memory, actual.indices, spec.buffer, cell, conditions)
                )
                return
        inlined = self._inlined(spec)
        if inlined is None:
            self._differ(instance, spec, actual, conditions)
        else:
            self._compare(instance, inlined, actual, conditions)

    def _inlined(self, spec: Read) -> Expr | None:
        """The expression of the map that computes a cell, if one map writes its whole buffer axis
        by axis.
        """
        stages = self.producers.get(spec.buffer, [])
        if len(stages) != 1 or stages[0].kind != "map" or stages[0].targets != stages[0].axes:
            return None
        value = stages[0].values[stages[0].outputs.index(spec.buffer)]
        return replaced((value,), stages[0].axes, spec.indices)[0]

    # --- index expressions ---

    def _aligned(
        self,
        instance: Instance,
        spec: Sequence[Expr],
        actual: Sequence[Expr],
        conditions: tuple[Expr, ...],
    ) -> tuple[Expr, ...]:
        """The indices of a specification with values that they read replaced by the same values as
        the block reads them. Which of the block's values is meant is a guess where several have
        the same form: the dataflow proof refuses a wrong one.
        """
        wanted = [o for o in dict.fromkeys(o for e in spec for o in opaque_atoms(e)) if reads(o)]
        given = [o for o in dict.fromkeys(o for e in actual for o in opaque_atoms(e)) if reads(o)]
        partner: dict[Expr, Expr] = {}
        for w in wanted:
            for g in sorted(given, key=lambda g: -_likeness(w, g)):
                pairs = _pairs(w, g)
                if pairs is not None and self._agree(instance, pairs, conditions):
                    partner[w] = g
                    break
        return tuple(substitute(e, partner) for e in spec)

    def _same_index(
        self, instance: Instance, spec: Expr, actual: Expr, conditions: tuple[Expr, ...]
    ) -> bool:
        if spec is actual and not reads(spec):
            return True
        (wanted,) = self._aligned(instance, (spec,), (actual,), conditions)
        return (
            wanted is actual
            or self.facts.difference(instance.place, conditions, (wanted,), (actual,)) is None
        )

    def _same_condition(
        self, instance: Instance, spec: Expr, actual: Expr, conditions: tuple[Expr, ...]
    ) -> bool:
        """True if two conditions are the same expression; equivalent ones are found by division."""
        if spec is actual and not reads(spec):
            return True
        if is_condition(spec) and not reads(spec):
            return False
        return self._agree(instance, [(spec, actual)], conditions)

    def _agree(
        self, instance: Instance, pairs: Sequence[tuple[Expr, Expr]], conditions: tuple[Expr, ...]
    ) -> bool:
        """Try to compare pairs; leaves no trace if they differ."""
        before, seen = len(self.demands), set(self._seen)
        try:
            for spec, actual in pairs:
                self._compare(instance, spec, actual, conditions)
        except _Differs:
            del self.demands[before:]
            self._seen = seen
            return False
        return True


@dataclass(frozen=True)
class Role:
    """What a store of a block is for: output ``number`` of its stage, or a value that a scan
    carries.
    """

    number: int
    output: bool


def roles(stage: Stage, instance: Instance) -> list[Role]:
    """The roles of a block's stores, in order; ScheduleError if the block does not fit its
    stage.
    """
    outputs = [Role(n, True) for n in range(len(stage.outputs))]
    carried = [Role(n, False) for n in range(len(stage.accumulators))]
    parts = ("map",) if stage.kind == "map" else ("init", "update")
    found = outputs
    if stage.kind == "scan" and instance.part == "init":
        found = carried
    elif stage.kind == "scan":
        found = [*outputs, *carried] if stage.exclusive else [*carried, *outputs]
    fits = (
        instance.part in parts
        and stage.kind != "opaque"
        and len(instance.point) == len(axes_of(stage, instance.part))
        and len(instance.writes) == len(found)
    )
    if not fits:
        raise ScheduleError(
            f"Block '{instance.name}' with {len(instance.point)} coordinates and "
            f"{len(instance.writes)} stores does not fit stage '{stage.name}' of kind "
            f"'{stage.kind}'."
        )
    return found


def specification(stage: Stage, instance: Instance, role: Role) -> Expr:
    """What the stage says that a store writes, at the block's point; accumulators stay scalars."""
    if instance.part == "init":
        value = stage.init[role.number]
    elif stage.kind == "scan" and stage.exclusive and role.output:
        value = stage.accumulators[role.number]
    else:
        value = stage.values[role.number]
    return replaced((value,), axes_of(stage, instance.part), instance.point)[0]


def _arms(e: Guard | Select) -> tuple[Expr, Expr]:
    return (e.x, e.other) if isinstance(e, Guard) else (e.x, e.y)


def _likeness(spec: Expr, actual: Expr) -> int:
    """How many indices of the reads in two expressions of one form are the same."""
    both = zip(reads(spec), reads(actual), strict=False)
    return sum(i is j for a, b in both for i, j in zip(a.indices, b.indices, strict=False))


def _pairs(spec: Expr, actual: Expr) -> list[tuple[Expr, Expr]] | None:
    """The operands of two nodes of one operation, or None if the operations differ."""
    match spec, actual:
        case Const(), Const():
            return [] if spec is actual else None
        case (Binary(op, a, b, dtype), Binary(op2, x, y, dtype2)) if op == op2 and dtype is dtype2:
            return [(a, x), (b, y)]
        case (Compare(op, a, b), Compare(op2, x, y)) if op == op2 and a.dtype is x.dtype:
            return [(a, x), (b, y)]
        case (Unary(op, a, dtype), Unary(op2, x, dtype2)) if op == op2 and dtype is dtype2:
            return [(a, x)]
        case (Cast(a, dtype), Cast(x, dtype2)) if dtype is dtype2 and a.dtype is x.dtype:
            return [(a, x)]
        case (Call(f, args, _), Call(g, others, _)) if f == g and len(args) == len(others):
            return list(zip(args, others, strict=True))
        case ((Select(c, a, b) | Guard(c, a, b)), (Select(d, x, y) | Guard(d, x, y))):
            return [(c, d), (a, x), (b, y)]
        case (IndexOp("min" | "max" as op, a, b), IndexOp(op2, x, y)) if op == op2:
            # The two may be in either order: what is data goes with what is data.
            return [(a, x), (b, y)] if bool(reads(a)) == bool(reads(x)) else [(a, y), (b, x)]
    return None
