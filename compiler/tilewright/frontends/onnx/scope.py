# SPDX-License-Identifier: Apache-2.0
"""Scopes of names: the main graph, the body of a function, a sub-graph that also sees the names
around it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import onnx

from tilewright.frontends.names import quoted
from tilewright.frontends.onnx.operand import Operand
from tilewright.ir.errors import FrontendError

if TYPE_CHECKING:
    from tilewright.frontends.onnx.context import NodeContext


@dataclass(eq=False)
class Scope:
    """``opsets``: versions in force; ``bindings``: attributes of the function call; ``prefix``: for
    origins; ``calls``: the functions being inlined, to refuse recursion; ``nesting``: how deep this
    scope lies; ``defines``: the node of which this is the standard's definition, or inside it.
    """

    opsets: Mapping[str, int]
    bindings: Mapping[str, onnx.AttributeProto] = field(default_factory=dict)
    parent: "Scope | None" = None
    prefix: str = ""
    calls: tuple[tuple[str, str, str], ...] = ()
    nesting: int = 0
    defines: "NodeContext | None" = None
    names: dict[str, Operand] = field(default_factory=dict)

    def find(self, name: str) -> Operand | None:
        """What a name stands for here or around here."""
        scope: Scope | None = self
        while scope is not None:
            found = scope.names.get(name)
            if found is not None:
                return found
            scope = scope.parent
        return None

    def define(self, name: str, operand: Operand) -> None:
        """Give a name its only meaning in this scope."""
        if name in self.names:
            raise FrontendError(
                f"The name {quoted(name)} is defined twice in one graph. Export the model again."
            )
        self.names[name] = operand

    def sub_graph(self) -> "Scope":
        """A scope for a sub-graph of a node here."""
        return replace(self, parent=self, nesting=self.nesting + 1, names={})
