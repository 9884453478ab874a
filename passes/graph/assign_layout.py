# SPDX-License-Identifier: Apache-2.0
"""Choose the memory order of every value: channels-last around convolutions, packed weights.

Ops see logical indices, so choosing a layout is setting ``value.type.layout``. Values become
channels-last that a convolution or pool makes, and what follows through ops to which the order is
all one (forwards), then what is used by nothing but these (backwards). All others stay row-major.
Where a producer cannot write what a user wants, a ``relayout`` stands between them: before an
output, and before a convolution without padding of a model input (one with padding copies its input
anyway). Tensors whose spatial dims are 1 stay row-major, which is the same memory.

Constant weights go to the layouts that the kernels of convolutions and matrix products read (``B``
is two vectors):

* convolution ``[O/B][spatial...][I][B]``; depthwise ``[spatial...][C][1]``;
* grouped convolution whose groups do not hold whole blocks ``[spatial...][I][O]``;
* transposed convolution ``[O/B][spatial...][I][B]``;
* matrix ``[N/B][K][B]``.

They are written as ``relayout`` of constants, which constant folding executes.
"""

from dataclasses import dataclass
from typing import ClassVar

from tilewright.ir.expr import ONE
from tilewright.ir.graph import Builder, Constant, Graph, Module, Node, Value
from tilewright.ir.layout import Layout, channels_last, row_major
from tilewright.ir.ops.conv import Conv
from tilewright.ir.ops.relayout import Relayout
from tilewright.passes.manager import Pass, PassContext
from tilewright.passes.op_kinds import is_contraction, is_elementwise, is_map, is_reduction

_SOURCES = frozenset(("avg_pool", "conv", "conv_transpose", "max_pool"))
_AGNOSTIC = frozenset(
    (
        "concat",
        "group_norm",
        "instance_norm",
        "log_softmax",
        "pad",
        "reduce_max",
        "reduce_mean",
        "reduce_min",
        "reduce_prod",
        "reduce_sum",
        "resize",
        "slice",
        "softmax",
    )
)


@dataclass(frozen=True)
class AssignLayout(Pass):
    """Layout assignment in the main graph."""

    name: ClassVar[str] = "assign-layout"

    def run(self, module: Module, context: PassContext) -> bool:
        graph = module.graph
        chosen = _channels_last_values(graph)
        for value in chosen:
            value.type = value.type.with_layout(channels_last(value.type.rank))
        borders = _Borders(module)
        for node in list(graph.nodes):
            borders.pack_weights(node, 2 * context.target.lanes(4))
            borders.convert_operands(node)
        borders.convert_outputs()
        graph.sort()
        return bool(chosen) or borders.inserted


def _channels_last_values(graph: Graph) -> set[Value]:
    chosen: set[Value] = set()
    for node in graph.nodes:
        follows = _is_agnostic(node) and any(v in chosen for v in _same_rank_operands(node))
        if node.op.name in _SOURCES or follows:
            chosen.add(node.results[0])
    for node in reversed(graph.nodes):
        value = node.results[0]
        writes_any = is_map(node) or is_reduction(node)
        if value not in chosen and writes_any and len(node.results) == 1:
            wanted = value.uses and all(_wants(user, i, chosen) for user, i in value.uses)
            if wanted and not value.returned:
                chosen.add(value)
    return {v for v in chosen if v.type.rank > 2 and not _is_flat(v) and not _is_written_out(v)}


def _is_agnostic(node: Node) -> bool:
    return is_elementwise(node) or node.op.name in _AGNOSTIC


def _same_rank_operands(node: Node) -> list[Value]:
    return [v for v in node.operands if v.type.rank == node.results[0].type.rank]


def _wants(user: Node, position: int, chosen: set[Value]) -> bool:
    if user.op.name in _SOURCES:
        return position == 0
    same = user.operands[position].type.rank == user.results[0].type.rank
    return same and _is_agnostic(user) and user.results[0] in chosen


def _is_flat(value: Value) -> bool:
    """True if channels-last is row-major in memory: all spatial dims are 1."""
    return all(d is ONE for d in value.type.shape[2:])


def _is_written_out(value: Value) -> bool:
    """True for a model output that its producer, a map or reduction, may as well write
    row-major.
    """
    return bool(value.returned and not value.uses and value.producer) and not is_contraction(
        value.producer  # type: ignore[arg-type]
    )


class _Borders:
    """Inserts conversions, one for each value and layout."""

    def __init__(self, module: Module) -> None:
        self._graph = module.graph
        self._builder = Builder(module.graph, module.constants)
        self._made: dict[tuple[Value, Layout], Value] = {}
        self.inserted = False

    def _converted(self, value: Value, layout: Layout) -> Value:
        if value.type.layout is layout:
            return value
        key = (value, layout)
        if key not in self._made:
            origin = value.producer.origin if value.producer else ""
            node = self._builder.add_typed(
                Relayout(layout), [value], [value.type.with_layout(layout)], origin=origin
            )
            node.result.name = value.name
            self._made[key] = node.result
            self.inserted = True
        return self._made[key]

    def pack_weights(self, node: Node, block: int) -> None:
        """Give the constant weight of a contraction its packed layout."""
        if node.op.name not in ("conv", "conv_transpose", "matmul"):
            return
        weight = node.operands[1]
        if isinstance(weight.op, Constant) and weight.type.layout.is_row_major:
            layout = _weight_layout(node, block)
            if layout is not None:
                node.set_operand(1, self._converted(weight, layout))

    def convert_operands(self, node: Node) -> None:
        """Convert what a node cannot well read as it is."""
        op = node.op
        if isinstance(op, Conv) and not any(op.pads):
            x = node.operands[0]
            if x.type.layout.is_row_major and not _is_flat(x):
                node.set_operand(0, self._converted(x, channels_last(x.type.rank)))
        if not _is_agnostic(node) or node.results[0].type.layout.is_row_major:
            return
        layout = node.results[0].type.layout
        for position, value in enumerate(node.operands):
            full = value.type.rank == node.results[0].type.rank and not _is_flat(value)
            if full and isinstance(value.op, Constant) and value.type.layout.is_row_major:
                node.set_operand(position, self._converted(value, layout))

    def convert_outputs(self) -> None:
        """Return every output in row-major order."""
        outputs = list(self._graph.outputs)
        self._graph.set_outputs([self._converted(v, row_major(v.type.rank)) for v in outputs])


def _weight_layout(node: Node, block: int) -> Layout | None:
    weight = node.operands[1].type
    if node.op.name == "matmul":
        return Layout((1, 0), ((1, block),)) if weight.rank == 2 else None
    groups = int(node.op.attributes()["groups"])
    spatial = tuple(range(2, weight.rank))
    outputs, inputs = weight.static_shape[:2]
    if node.op.name == "conv_transpose":
        return Layout((1, *spatial, 0), ((1, block),)) if groups == 1 else None
    if groups > 1 and inputs == 1:
        return Layout((*spatial, 0, 1))
    if outputs // groups % block and groups > 1:
        return Layout((*spatial, 1, 0))
    return Layout((0, *spatial, 1), ((0, block),))
