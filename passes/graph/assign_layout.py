# SPDX-License-Identifier: Apache-2.0
"""Choose the memory order of every value: channels-last around convolutions, packed weights.

Ops see logical indices, so choosing a layout is setting ``value.type.layout``. Values become
channels-last that a convolution or pool makes, and what follows through ops to which the order is
all one (forwards), then what is used by nothing but these (backwards). All others stay row-major.
Where a producer cannot write what a user wants, a ``relayout`` stands between them: before an
output, and before a convolution or pool without padding of a model input (one with padding copies
its input anyway). Tensors whose spatial dims are 1 stay row-major, which is the same memory.

Narrow convolutions (:mod:`tilewright.passes.narrow_convolutions`) read what they are given, and ask
for nothing. Of row-major memory their result is row-major too, and their weight stays as it is.

Weights go to the layouts that the kernels of convolutions and matrix products read (``B`` is two
vectors):

* convolution ``[O/B][spatial...][I][B]``; depthwise ``[spatial...][C][1]``;
* grouped convolution whose groups do not hold whole blocks ``[spatial...][I][O]``;
* transposed convolution ``[O/B][spatial...][I][B]``, with groups ``[spatial...][I][O]``;
* matrix ``[N/B][K][B]``.

They are written as ``relayout``, which constant folding executes. A weight that is no constant is
converted in every run, where that pays (:mod:`tilewright.passes.conv_weights`); the kernels of
matrix products pack theirs themselves. A table that gathers read and that is such a weight,
transposed or not, gets its bytes (:mod:`tilewright.passes.tables`).
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import ClassVar

from tilewright.ir.expr import ONE
from tilewright.ir.graph import Builder, Constant, Graph, Module, Node, Value
from tilewright.ir.layout import Layout, channels_last, row_major
from tilewright.ir.ops.relayout import Relayout
from tilewright.ir.ops.reshape import Reshape
from tilewright.passes.conv_weights import conversion_pays, convert_weight, weight_layout
from tilewright.passes.manager import Pass, PassContext
from tilewright.passes.narrow_convolutions import is_narrow
from tilewright.passes.op_kinds import (
    carried_layout,
    is_alias,
    is_contraction,
    is_elementwise,
    is_map,
    is_reduction,
)
from tilewright.passes.tables import Packed, shared_tables

_SOURCES = frozenset(("avg_pool", "conv", "conv_transpose", "max_pool", "sum_pool"))
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
        narrow = {node for node in graph.nodes if is_narrow(node)}
        chosen = _choose(graph, narrow)
        for value, layout in chosen.items():
            value.type = value.type.with_layout(layout)
        borders = _Borders(module)
        for node in list(graph.nodes):
            if node in narrow and node.operands[0].type.layout.is_row_major:
                continue
            borders.pack_weights(node, 2 * context.target.lanes(4))
            borders.convert_operands(node)
        borders.share_tables(module)
        borders.convert_outputs()
        graph.sort()
        return bool(chosen) or borders.inserted


def _choose(graph: Graph, narrow: Collection[Node]) -> dict[Value, Layout]:
    """The layouts of the values that are not row-major."""
    chosen: dict[Value, Layout] = {}
    for node in graph.nodes:
        if node in narrow and node.operands[0] not in chosen:
            continue
        layout = _followed(node, chosen)
        if layout is not None:
            chosen[node.results[0]] = layout
    for node in reversed(graph.nodes):
        value = node.results[0]
        writes_any = len(node.results) == 1 and (is_map(node) or is_reduction(node))
        if writes_any and value not in chosen and value.uses and not value.returned:
            wanted = {None if u in narrow else _wanted(u, i, chosen) for u, i in value.uses}
            layout = wanted.pop()
            if layout is not None and not wanted:
                chosen[value] = layout
    return {
        v: t for v, t in chosen.items() if not _is_flat(v, t) and not _is_written_out(v, chosen)
    }


def _reads_windows(node: Node) -> bool:
    """True for a convolution or pool that makes channels-last of its operand, and has no copy of
    that with padding.
    """
    if node.op.name not in _SOURCES or node.op.name == "conv_transpose":
        return False
    return not any(node.op.attributes()["pads"]) and not node.results[0].type.layout.is_row_major


def _followed(node: Node, chosen: dict[Value, Layout]) -> Layout | None:
    """The layout that a result has because of its op or of the operands."""
    result = node.results[0].type
    if node.op.name in _SOURCES:
        return channels_last(result.rank)
    if isinstance(node.op, Reshape) and node.operands[0] in chosen:
        x = node.operands[0]
        layout = carried_layout(x.type.with_layout(chosen[x]), result.shape)
        return None if layout is None or layout.is_row_major else layout
    if not _is_agnostic(node):
        return None
    layouts = [chosen[v] for v in node.operands if v.type.rank == result.rank and v in chosen]
    return layouts[0] if layouts else None


def _is_agnostic(node: Node) -> bool:
    return is_elementwise(node) or node.op.name in _AGNOSTIC


def _wanted(user: Node, position: int, chosen: dict[Value, Layout]) -> Layout | None:
    """The layout in which a user would like to read an operand; None for row-major."""
    given, result = user.operands[position].type, user.results[0].type
    if user.op.name in _SOURCES:
        return channels_last(given.rank) if position == 0 and given.rank > 2 else None
    layout = chosen.get(user.results[0])
    if layout is None:
        return None
    if isinstance(user.op, Reshape):
        return carried_layout(result.with_layout(layout), given.shape)
    return layout if _is_agnostic(user) and given.rank == result.rank else None


def _is_flat(value: Value, layout: Layout) -> bool:
    """True if the layout is row-major in memory: dims of 1 apart, the order is the same."""
    order = [a for a in layout.order if value.type.shape[a] is not ONE]
    return not layout.blocks and order == sorted(order)


def _is_written_out(value: Value, chosen: Collection[Value]) -> bool:
    """True for a model output that its producer, a map or reduction, may as well write
    row-major: not a pool of something channels-last, which would read across memory.
    """
    node = value.producer
    if not value.returned or value.uses or node is None:
        return False
    return not is_contraction(node) and (
        node.op.name not in _SOURCES or node.operands[0] not in chosen
    )


class _Borders:
    """Inserts conversions, one for each value and layout."""

    def __init__(self, module: Module) -> None:
        self._graph = module.graph
        self._builder = Builder(module.graph, module.constants)
        self._made: dict[tuple[Value, Layout], Value] = {}
        self._packed: list[Packed] = []
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
        """Give the weight of a contraction the layout that its kernel reads: a constant always,
        another where converting it in every run pays.
        """
        if node.op.name not in ("conv", "conv_transpose", "matmul"):
            return
        weight = node.operands[1]
        constant = isinstance(weight.op, Constant)
        if not constant and not conversion_pays(node):
            return
        layout = weight_layout(node, block)
        if layout is None or (not constant and _is_flat(weight, layout)):
            return
        convert = self._converted if constant else self._converted_weight
        node.set_operand(1, convert(weight, layout))
        if node.op.name == "matmul":
            self._packed.append(Packed(weight, layout))

    def _converted_weight(self, weight: Value, layout: Layout) -> Value:
        key = (weight, layout)
        if key not in self._made:
            self._made[key] = convert_weight(self._builder, weight, layout)
            self.inserted = True
        return self._made[key]

    def share_tables(self, module: Module) -> None:
        """Let gathers read tables as the bytes of packed weights, where they are the same."""
        for table in shared_tables(module, self._packed):
            converted = self._converted(table.weight, table.layout)
            for user, position in list(table.weight.uses):
                if user is not converted.producer:
                    user.set_operand(position, converted)

    def convert_operands(self, node: Node) -> None:
        """Convert what a node cannot well read as it is."""
        op = node.op
        if _reads_windows(node):
            x = node.operands[0]
            if x.type.layout.is_row_major and not _is_flat(x, channels_last(x.type.rank)):
                node.set_operand(0, self._converted(x, channels_last(x.type.rank)))
        if isinstance(op, Reshape) and not is_alias(node) and not node.operands[0].type.is_static:
            # Between symbolic shapes only a reshape of row-major memory, an alias, is affine.
            plain = row_major(node.operands[0].type.rank)
            node.set_operand(0, self._converted(node.operands[0], plain))
            self._write_row_major(node)
        if not _is_agnostic(node) or node.results[0].type.layout.is_row_major:
            return
        layout = node.results[0].type.layout
        for position, value in enumerate(node.operands):
            full = value.type.rank == len(layout.order) and not _is_flat(value, layout)
            if full and isinstance(value.op, Constant) and value.type.layout.is_row_major:
                node.set_operand(position, self._converted(value, layout))

    def _write_row_major(self, node: Node) -> None:
        """Let the result be row-major, and its users read a copy in the layout chosen for it."""
        result, uses = node.result, list(node.result.uses)
        chosen = result.type.layout
        result.type = result.type.with_layout(row_major(result.type.rank))
        for user, position in uses:
            user.set_operand(position, self._converted(result, chosen))

    def convert_outputs(self) -> None:
        """Return every output in row-major order."""
        outputs = list(self._graph.outputs)
        self._graph.set_outputs([self._converted(v, row_major(v.type.rank)) for v in outputs])
