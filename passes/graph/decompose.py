# SPDX-License-Identifier: Apache-2.0
"""Replace ops that are defined through other ops by those.

Each op that has no stages of its own says itself what it stands for (``Op.decompose``); what that
yields is decomposed in turn. Several steps on 16-bit floats are computed in f32 and rounded once.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from tilewright.ir.graph import Builder, Module, Node, Value
from tilewright.ir.rounding import computed_wide, roundings
from tilewright.passes.manager import Pass, PassContext
from tilewright.passes.rewriter import rewrite_module


@dataclass(frozen=True)
class Decompose(Pass):
    """Expansion of composite ops."""

    name: ClassVar[str] = "decompose"

    def run(self, module: Module, context: PassContext) -> bool:
        return rewrite_module(module, {"*": [_decompose]})


def _decompose(node: Node, builder: Builder) -> Sequence[Value] | None:
    def parts(operands: Sequence[Value]) -> Sequence[Value]:
        values = node.op.decompose(builder, operands)
        assert values is not None
        return values

    begin = builder.position
    values = node.op.decompose(builder, node.operands)
    if values is None or roundings(builder.graph.nodes[begin:]) < 2:
        return values
    builder.take_back(begin)
    return computed_wide(builder, node.operands, [v.type for v in node.results], parts)
