# SPDX-License-Identifier: Apache-2.0
"""Gather the stages of a fusion group, with names that are unique in the kernel.

Each op of the group is asked for its stages over buffers that stand for its operands and results.
Constants with one value in all elements become literals in the expressions; any other constant is
an argument of the kernel.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tilewright.ir.buffer import Buffer, buffer
from tilewright.ir.errors import PassError
from tilewright.ir.expr import Const, Expr, Read, Scalar, Var, const
from tilewright.ir.graph import ConstantStore, Graph, Node, Value, constant_array
from tilewright.ir.op import Array, Op
from tilewright.ir.rewrite import rewrite, substitute
from tilewright.ir.stage import Stage


@dataclass(frozen=True)
class Computation:
    """Stages in an order in which every buffer is written before it is read, and the kernel's
    arguments.

    ``arguments`` are the values behind ``inputs``: group operands, then constants of the group's
    own.
    """

    stages: tuple[Stage, ...]
    inputs: tuple[Buffer, ...]
    outputs: tuple[Buffer, ...]
    arguments: tuple[Value, ...]

    def replace(self, stages: tuple[Stage, ...]) -> "Computation":
        return Computation(stages, self.inputs, self.outputs, self.arguments)


def collect(
    node: Node, constants: ConstantStore, freed: Mapping[Node, Op] | None = None
) -> Computation:
    """The computation of a group node (or of a lone node of any op with stages).

    ``freed`` asks for a kernel without numbers of its own: it has the ops that stand for nodes of
    the group, and constants that hold one number become arguments like the others.
    """
    if node.regions:
        return _collect_graph(node.regions[0], node.operands, constants, freed)
    return _collect_node(node)


def _collect_node(node: Node) -> Computation:
    inputs = tuple(buffer(f"x{i}", v.type) for i, v in enumerate(node.operands))
    outputs = tuple(buffer(f"y{i}", v.type) for i, v in enumerate(node.results))
    stages = _Names().unique(node.op.stages(inputs, outputs), (*inputs, *outputs))
    return Computation(stages, inputs, outputs, tuple(node.operands))


def _collect_graph(
    graph: Graph,
    operands: list[Value],
    constants: ConstantStore,
    freed: Mapping[Node, Op] | None = None,
) -> Computation:
    buffers: dict[Value, Buffer] = {}
    inputs: list[Buffer] = []
    arguments: list[Value] = []
    literals: dict[Buffer, Const] = {}
    for inner, outer in zip(graph.inputs, operands, strict=True):
        buffers[inner] = buffer(f"x{len(inputs)}", inner.type)
        inputs.append(buffers[inner])
        arguments.append(outer)
    for position, value in enumerate(graph.outputs):
        if value in buffers:
            raise PassError(
                f"Group '{graph.name}' returns its own operand {position} or returns a value twice."
            )
        buffers[value] = buffer(f"y{position}", value.type)
    stages: list[Stage] = []
    names = _Names()
    for node in graph.nodes:
        array = constant_array(node.results[0], constants) if node.results else None
        if array is not None:
            b = buffer(f"c{len(buffers)}", node.result.type)
            if freed is None and _is_uniform(array):
                literals[b] = const(array.reshape(-1)[0].item(), b.dtype)
            else:
                inputs.append(b)
                arguments.append(node.result)
            buffers[node.result] = b
            continue
        for result in node.results:
            buffers.setdefault(result, buffer(f"t{len(buffers)}", result.type, "workspace"))
        mine = [buffers[v] for v in (*node.operands, *node.results)]
        op = node.op if freed is None else freed.get(node, node.op)
        made = op.stages(mine[: len(node.operands)], mine[len(node.operands) :])
        stages += names.unique(made, tuple(mine))
    outputs = tuple(buffers[v] for v in graph.outputs)
    literal = tuple(with_literals(s, literals) for s in stages)
    return Computation(literal, tuple(inputs), outputs, tuple(arguments))


def _is_uniform(array: Array) -> bool:
    """True if all elements are the same number; 0.0 and -0.0 are two. Expressions have no complex
    numbers.
    """
    if array.dtype.kind == "c":
        return False
    flat = array.reshape(-1)
    alike = flat.size > 0 and flat.tobytes() == flat[:1].tobytes() * flat.size
    return bool(alike and flat[0] == flat[0])


def with_literals(stage: Stage, literals: Mapping[Buffer, Expr]) -> Stage:
    """Replace reads of the given buffers, whatever the index, by a literal."""

    def leaf(e: Expr) -> Expr | None:
        return literals.get(e.buffer) if isinstance(e, Read) else None

    return map_stage_expressions(stage, lambda e: rewrite(e, leaf)) if literals else stage


def map_stage_expressions(stage: Stage, on_expr: Callable[[Expr], Expr]) -> Stage:
    """The stage with its values, starts and targets (a scatter reads those) mapped; its domain
    stays.
    """
    targets, init, values = (
        tuple(on_expr(e) for e in items) for items in (stage.targets, stage.init, stage.values)
    )
    return stage.replace(targets=targets, init=init, values=values)


class _Names:
    """Renames stages, their axes, accumulators and own buffers so that they are unique in the
    kernel.
    """

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._taken: set[str] = set()
        self._buffers = 0

    def _fresh(self, name: str) -> str:
        fresh = name
        while fresh in self._taken:
            self._counts[name] = self._counts.get(name, 0) + 1
            fresh = f"{name}{self._counts[name]}"
        self._taken.add(fresh)
        return fresh

    def unique(self, stages: tuple[Stage, ...], known: tuple[Buffer, ...]) -> tuple[Stage, ...]:
        """The stages renamed; buffers in ``known`` keep their names."""
        renamed: dict[Buffer, Buffer] = {b: b for b in known}
        result: list[Stage] = []
        for stage in stages:
            for b in stage.outputs:
                if b not in renamed:
                    self._buffers += 1
                    renamed[b] = Buffer(
                        f"u{self._buffers}", b.dtype, b.shape, b.layout, "workspace"
                    )
            result.append(self._rename(stage, renamed))
        return tuple(result)

    def _rename(self, stage: Stage, buffers: Mapping[Buffer, Buffer]) -> Stage:
        name = self._fresh(stage.name)
        swaps: dict[Expr, Expr] = {}
        axes: list[Var] = []
        for v in (*stage.axes, *stage.reduce_axes):
            # Axis names repeat in stages of one op: the stage's name in front keeps loops apart.
            axes.append(Var(f"{name}_{v.name}", substitute(v.extent, swaps)))
            swaps[v] = axes[-1]
        for a in stage.accumulators:
            swaps[a] = Scalar(f"{name}_{a.name}", a.dtype)

        def leaf(e: Expr) -> Expr | None:
            if isinstance(e, Read) and buffers.get(e.buffer, e.buffer) is not e.buffer:
                return Read(buffers[e.buffer], tuple(rewrite(i, leaf) for i in e.indices))
            return swaps.get(e)

        def renewed(items: tuple[Expr, ...]) -> tuple[Expr, ...]:
            return tuple(rewrite(e, leaf) for e in items)

        count = len(stage.axes)
        accumulators = tuple(swaps[a] for a in stage.accumulators)
        assert all(isinstance(a, Scalar) for a in accumulators)
        return stage.replace(
            name=name,
            axes=tuple(axes[:count]),
            reduce_axes=tuple(axes[count:]),
            outputs=tuple(buffers[b] for b in stage.outputs),
            targets=renewed(stage.targets),
            accumulators=accumulators,
            init=renewed(stage.init),
            values=renewed(stage.values),
        )
