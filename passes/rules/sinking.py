# SPDX-License-Identifier: Apache-2.0
"""Rules that move reshapes down, so that elementwise ops stay next to what they fuse with."""

from tilewright.ir.expr import ONE
from tilewright.ir.graph import Builder, Node, Value
from tilewright.ir.ops.elementwise import Elementwise
from tilewright.ir.ops.reshape import Reshape
from tilewright.passes.op_kinds import is_contraction, is_elementwise, is_reduction
from tilewright.passes.rules.matching import only_use, producer_of


def elementwise_of_reshape(node: Node, builder: Builder) -> Value | None:
    """``relu(reshape(x))`` becomes ``reshape(relu(x))`` where ``x`` is computed and other operands
    are scalars.
    """
    if not isinstance(node.op, Elementwise) or len(node.results) != 1:
        return None
    shape = node.result.type.shape
    operands: list[Value] = []
    source: Value | None = None
    for value in node.operands:
        reshaped = producer_of(value, "reshape")
        if value.type.rank == 0:
            operands.append(value)
        elif all(d is ONE for d in value.type.shape) and shape != value.type.shape:
            operands.append(builder(Reshape(()), value))
        else:
            if reshaped is None or value.type.shape != shape or not only_use(value):
                return None
            if source is not None and source.type.shape != reshaped.operands[0].type.shape:
                return None
            source = reshaped.operands[0]
            operands.append(source)
    maker = source.producer if source is not None else None
    if source is None or maker is None:
        return None
    if not (is_contraction(maker) or is_reduction(maker) or is_elementwise(maker)):
        return None
    return builder(Reshape(shape), builder(node.op, *operands))
