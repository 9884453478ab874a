# SPDX-License-Identifier: Apache-2.0
"""An operator on 16-bit floats is rounded once, however many nodes of ours it takes.

Handlers and the standard's function bodies are written for numbers of any type. What one makes of a
node is counted first: if it rounds to a 16-bit float more than once, or rounds a number of its own,
it is taken back and made again with the node's operands in f32, and the results are rounded to the
types that they had. A model's own functions, and the branches of an If, are nodes that say
themselves what they round to.
"""

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from tilewright.frontends.elements import convert
from tilewright.frontends.onnx.context import NodeContext
from tilewright.frontends.onnx.evaluators import elementwise
from tilewright.frontends.onnx.operand import Operand
from tilewright.frontends.onnx.order import sub_graphs
from tilewright.ir.graph import Node
from tilewright.ir.ops.cast import Cast
from tilewright.ir.rounding import HALVES, WIDE, roundings

Give = Callable[[NodeContext], list[Operand | None]]


def rounded_once(context: NodeContext, give: Give) -> list[Operand | None]:
    """What ``give`` makes of a node, in f32 up to the end if it takes several steps."""
    operands, builder = context.operands, context.importer.builder
    if any(o is not None and o.dtype in HALVES for o in operands):
        # What makes a tensor of an operand is of other nodes: it is not counted, nor taken back.
        for operand in operands:
            if operand is not None and operand.deferred is not None:
                context.importer.materialise(operand)
    begin = builder.position
    results = give(context)
    halves = any(o is not None and o.dtype in HALVES for o in (*operands, *results))
    blocked = any(o is not None and o.blocked for o in results)
    if not halves or blocked or any(True for _ in sub_graphs(context.node)):
        return results
    if roundings(builder.graph.nodes[begin:]) + context.inexact < 2:
        return results
    _forget(operands, builder.take_back(begin))
    builder.origin = context.origin
    wide = give(context.on([_widened(context, o) for o in operands]))
    builder.origin = context.origin
    return [_narrowed(context, w, r) for w, r in zip(wide, results, strict=True)]


def _forget(operands: Iterable[Operand | None], gone: Sequence[Node]) -> None:
    """Let operands that became nodes only now be data again."""
    for operand in operands:
        if operand is not None and operand.value is not None and operand.value.producer in gone:
            operand.value = None


def _widened(context: NodeContext, operand: Operand | None) -> Operand | None:
    """An operand of 16-bit floats in f32, which holds them all; another as it is."""
    if operand is None or operand.dtype not in HALVES:
        return operand
    contents = operand.contents
    if contents is not None:
        contents = elementwise(lambda x: convert(x, operand.dtype, WIDE), contents)
    if operand.array is not None:
        return Operand(operand.name, WIDE, operand.array.astype(np.float32), contents)
    value = context.emit(Cast(WIDE), context.importer.materialise(operand))
    return Operand(operand.name, WIDE, contents=contents, value=value)


def _narrowed(context: NodeContext, wide: Operand | None, wanted: Operand | None) -> Operand | None:
    """A result in the type that it has without the detour."""
    if wide is None or wanted is None or wide.dtype is wanted.dtype:
        return wide
    value = context.emit(Cast(wanted.dtype), context.importer.materialise(wide))
    return Operand(wide.name, wanted.dtype, contents=wanted.contents, value=value)
