# SPDX-License-Identifier: Apache-2.0
"""Control flow that can be decided at import: an If whose condition is known is its branch."""

from tilewright.frontends.onnx.context import NodeContext
from tilewright.frontends.onnx.operand import Operand
from tilewright.frontends.onnx.registry import handler


@handler("If")
def _if(ctx: NodeContext) -> list[Operand | None]:
    branch = "then_branch" if ctx.element(0, "condition") else "else_branch"
    graph = ctx.attributes.graph(branch)
    ctx.require(not graph.input, "Its branch takes inputs, which a branch must not.")
    ctx.require(
        len(graph.output) >= len(ctx.node.output),
        f"Its branch gives {len(graph.output)} results where {len(ctx.node.output)} are named.",
    )
    return ctx.importer.sub_graph(graph, ctx.scope, ctx.origin)
