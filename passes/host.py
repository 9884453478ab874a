# SPDX-License-Identifier: Apache-2.0
"""The host program: from launches in order to loop IR of kind ``host``, memory planned.

The program binds each symbol from the input dim that gives its value, requires everything else that
compilation took for granted (fixed dims, bounds, multiples, dims that must agree), then places
buffers and launches kernels. Values that alias each other (a reshape and its operand, or a
transposition that leaves memory as it is) are one buffer, that of whoever wrote it; a launch passes
memory, and the kernel knows the shape.

    host @main(x: f32[n,3]) -> (y: f32[n,2]) {
      constant w: f32[3,2]
      arena 64*n
      let symbol n in [1, 8] = cast(x.shape[0], index) {
        require ...
        place t: f32[n,2] at 0
        launch @matmul(x, w, t; n) tasks n work ... workspace 0 "Gemm_0"
        output y: f32[n,2] as 0
        launch @relu(t, y; n) tasks n work ... workspace 0 "Relu_1"
      }
    }
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial, reduce

from tilewright.ir.buffer import Buffer, buffer
from tilewright.ir.errors import PassError
from tilewright.ir.expr import FALSE, TRUE, Expr, Symbol, binary, free_variables, index, mul
from tilewright.ir.graph import Constant, ConstantRef, Module, Node, Value
from tilewright.ir.host_sizes import computed
from tilewright.ir.layout import Layout, row_major
from tilewright.ir.loop import (
    HostProgram,
    If,
    Launch,
    Let,
    Output,
    Place,
    Stmt,
    seq,
)
from tilewright.ir.simplify import compare
from tilewright.ir.sizes import value_range
from tilewright.passes.host_checks import Binding, bind_symbols, graph_checks, index_checks
from tilewright.passes.host_sizes import SizeChecks
from tilewright.passes.memory import Lifetime, Plan, check_plan, plan_memory
from tilewright.passes.op_kinds import memory_of


@dataclass(frozen=True)
class LaunchSpec:
    """A kernel call that lowering asks for.

    ``inputs`` and ``outputs`` are values of the main graph (or constants inside a group) in the
    order of the kernel's buffers; ``outputs`` are results of ``node``. ``scalars`` are the values
    of the kernel's symbols; see :class:`tilewright.ir.loop.Launch` for the rest.
    """

    node: Node
    kernel: str
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    scalars: tuple[Expr, ...]
    tasks: Expr
    work: Expr
    workspace: Expr
    origin: str


@dataclass(frozen=True)
class Host:
    """The program, and what the artifact needs beside it: the constants in order, each with its
    layout.
    """

    program: HostProgram
    constants: tuple[tuple[ConstantRef, Layout], ...]
    plan: Plan


def build_host(module: Module, launches: Sequence[LaunchSpec], name: str = "main") -> Host:
    """The host program of a module whose nodes are constants, reshapes and the nodes of
    ``launches``.

    Every output must be the whole result of a launch, or a reshape of one, in row-major layout and
    returned once: ``materialize-outputs`` sees to it. PassError if not, or if a symbol cannot be
    bound.
    """
    memory = _Memory(module)
    memory.check_outputs(launches)
    lifetimes = memory.lifetimes(launches)
    plan = plan_memory(lifetimes)
    check_plan(lifetimes, plan)
    sizes = SizeChecks()
    definitions: list[tuple[Stmt, Value, str]] = []
    body: list[Stmt] = []
    for launch in launches:
        for v in launch.outputs:
            made = memory.define(v, plan)
            definitions.append((made, v, launch.origin))
            body.append(made)
        buffers = tuple(memory.buffer(v) for v in (*launch.inputs, *launch.outputs))
        call = Launch(
            launch.kernel,
            buffers,
            launch.scalars,
            launch.tasks,
            launch.work,
            launch.workspace,
            launch.origin,
        )
        body.append(_unless_empty(call, len(launch.outputs)))
        for subject, check in index_checks(launch.node, buffers[-1]):
            body += [*sizes.count(subject, computed(check)), check]
    bindings, dim_checks = bind_symbols(module, memory.inputs, _used(launches, plan, module))
    bound = [_bound(b, sizes) for b in bindings]
    checked: list[Stmt] = []
    for subject, check in [*dim_checks, *graph_checks(module)]:
        checked += [*sizes.count(subject, computed(check)), check]
    checked += _size_checks(sizes, definitions, plan, module, body)
    stmt = seq([*checked, *body])
    for binding, (before, after) in zip(reversed(bindings), reversed(bound), strict=True):
        stmt = seq([*before, Let(binding.symbol, binding.value, seq([*after, stmt]))])
    program = HostProgram(
        name, memory.inputs, memory.outputs, tuple(memory.constants.values()), plan.size, stmt
    )
    return Host(program, tuple(memory.constants), plan)


def _bound(binding: Binding, sizes: SizeChecks) -> tuple[list[Stmt], list[Stmt]]:
    """What comes before a symbol has its value, and what right after."""
    subject = f"Symbol '{binding.symbol.name}'"
    before = [*sizes.count(subject, [binding.value])]
    after: list[Stmt] = []
    for check in binding.checks:
        after += [*sizes.count(subject, computed(check)), check]
    return before, after


def _size_checks(
    sizes: SizeChecks,
    definitions: Sequence[tuple[Stmt, Value, str]],
    plan: Plan,
    module: Module,
    body: Sequence[Stmt],
) -> Iterator[Stmt]:
    """That all memory and all launches can be: each value by itself, then all that are placed."""
    for s, value, origin in definitions:
        if isinstance(s, Place):
            yield from sizes.placed(s.buffer, value, origin)
    placed = [s for s, _, _ in definitions if isinstance(s, Place)]
    yield from sizes.arena([plan.size, *(s.offset for s in placed)] if placed else [])
    for s, _, _ in definitions:
        if isinstance(s, Output):
            yield from sizes.output(s.buffer, (module.output_names or [s.buffer.name])[s.number])
    for s in body:
        call, condition = (s.then, s.condition) if isinstance(s, If) else (s, TRUE)
        if isinstance(call, Launch):
            yield from sizes.launch(call, condition)


def _unless_empty(s: Launch, outputs: int) -> Stmt:
    """The launch where one of its outputs has an element.

    A kernel without any would do nothing in many steps, if other dims are large. One symbol alone
    makes loops of no more steps than a dim may have.
    """
    conditions: dict[Expr, None] = {}
    for b in s.buffers[len(s.buffers) - outputs :]:
        if all(value_range(d)[0] > 0 for d in b.shape):
            return s
        conditions[compare("gt", row_major(b.rank).size(b.shape), 0)] = None
    dims = {v for e in (*s.scalars, s.work) for v in free_variables(e)}
    if len(dims) < 2 and conditions.keys() != {FALSE}:
        return s
    return If(reduce(partial(binary, "or"), conditions), s)


def _used(launches: Sequence[LaunchSpec], plan: Plan, module: Module) -> list[Symbol]:
    """The symbols whose values the program needs, in the order of the module."""
    needed = [e for s in launches for e in (*s.scalars, s.tasks, s.work, s.workspace)]
    needed += [plan.size, *(d for v in module.graph.outputs for d in v.type.shape)]
    needed += [d for v in module.graph.inputs for d in v.type.shape]
    found = {v for e in needed for v in free_variables(e) if isinstance(v, Symbol)}
    declared = [s for s in module.symbols.values() if s in found]
    return declared + sorted(found - set(declared), key=lambda s: s.name)


class _Memory:
    """Which buffer each value lives in, and when a value's memory holds data."""

    def __init__(self, module: Module) -> None:
        self._graph = module.graph
        self._names = _Names()
        self._buffers: dict[Value, Buffer] = {}
        self.constants: dict[tuple[ConstantRef, Layout], Buffer] = {}
        names = module.input_names or [v.name for v in self._graph.inputs]
        for value, label in zip(self._graph.inputs, names, strict=True):
            self._buffers[value] = buffer(self._names.unique(label or "x"), value.type)
        self.inputs = tuple(self._buffers[v] for v in self._graph.inputs)
        names = module.output_names or [v.name for v in self._graph.outputs]
        self.outputs = tuple(
            buffer(self._names.unique(label or "y"), v.type)
            for v, label in zip(self._graph.outputs, names, strict=True)
        )
        self._output_numbers = {memory_of(v): i for i, v in enumerate(self._graph.outputs)}

    def check_outputs(self, launches: Sequence[LaunchSpec]) -> None:
        """Refuse outputs that no launch of their own writes."""
        written = {v for s in launches for v in s.outputs}
        seen: set[Value] = set()
        for position, value in enumerate(self._graph.outputs):
            own = memory_of(value) in written and memory_of(value) not in seen
            if not own or not value.type.layout.is_row_major:
                raise PassError(
                    f"Output {position} ('{value.name}') has no memory of its own; run the pass "
                    "'materialize-outputs' before fusion."
                )
            seen.add(memory_of(value))

    def lifetimes(self, launches: Sequence[LaunchSpec]) -> list[Lifetime]:
        """One lifetime for each value that needs a place in the arena; steps are launches."""
        first: dict[Value, int] = {}
        last: dict[Value, int] = {}
        for step, launch in enumerate(launches):
            for v in map(memory_of, launch.inputs):
                last[v] = step
            for v in launch.outputs:
                first[v] = last[v] = step
        for v in last.keys() - first.keys():
            if v not in self._buffers and not isinstance(v.op, Constant):
                raise PassError(f"A launch reads '{v.name}', which no launch before it writes.")
        arena = [v for v in first if v not in self._output_numbers]
        return [Lifetime(v, stored_bytes(v), first[v], last[v]) for v in arena]

    def define(self, value: Value, plan: Plan) -> Stmt:
        """The statement that gives a launch result its memory."""
        number = self._output_numbers.get(value)
        if number is not None:
            self._buffers[value] = self.outputs[number]
            return Output(self.outputs[number], number)
        self._buffers[value] = buffer(self._names.unique(value.name or "t"), value.type)
        return Place(self._buffers[value], plan.offset(value))

    def buffer(self, value: Value) -> Buffer:
        """The buffer that holds a value."""
        value = memory_of(value)
        if isinstance(value.op, Constant):
            key = (value.op.data, value.type.layout)
            if key not in self.constants:
                label = self._names.unique(value.name or "c")
                self.constants[key] = buffer(label, value.type)
            return self.constants[key]
        return self._buffers[value]


def stored_bytes(value: Value) -> Expr:
    """The bytes of a value in memory, layout padding included."""
    return mul(value.type.layout.size(value.type.shape), index(value.type.dtype.bytes))


class _Names:
    """Names for buffers: words of letters, digits, dots and underscores, short and unique."""

    def __init__(self) -> None:
        self._taken: dict[str, int] = {}

    def unique(self, label: str) -> str:
        word = re.sub(r"[^A-Za-z0-9_]+", "_", label)[:40]
        if not re.match(r"[A-Za-z_]", word):
            word = f"_{word}"
        while True:
            count = self._taken.get(word, 0)
            self._taken[word] = count + 1
            if count == 0:
                return word
            word = f"{word}_{count}"
