# SPDX-License-Identifier: Apache-2.0
"""Replace ops that are defined through other ops by those.

Each op that has no stages of its own says itself what it stands for (``Op.decompose``); what that
yields is decomposed in turn.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from tilewright.ir.graph import Builder, Module, Node, Value
from tilewright.passes.manager import Pass, PassContext
from tilewright.passes.rewriter import rewrite_module


@dataclass(frozen=True)
class Decompose(Pass):
    """Expansion of composite ops."""

    name: ClassVar[str] = "decompose"

    def run(self, module: Module, context: PassContext) -> bool:
        return rewrite_module(module, {"*": [_decompose]})


def _decompose(node: Node, builder: Builder) -> Sequence[Value] | None:
    return node.op.decompose(builder, node.operands)
