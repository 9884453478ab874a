# SPDX-License-Identifier: Apache-2.0
"""Control flow that can be decided at import: an If whose condition is known is its branch, and one
on a symbolic shape, in whose branches shapes are computed, is a choice of each element.
"""

from tilewright.frontends.dims import Unknown
from tilewright.frontends.elements import choose
from tilewright.frontends.onnx.context import NodeContext
from tilewright.frontends.onnx.evaluation import has_values
from tilewright.frontends.onnx.evaluators import elementwise
from tilewright.frontends.onnx.operand import Deferred, Operand, blocked
from tilewright.frontends.onnx.registry import handler
from tilewright.ir.expr import Expr
from tilewright.ir.graph import Value
from tilewright.ir.ops.where import Where


@handler("If")
def _if(ctx: NodeContext) -> list[Operand | None]:
    condition = ctx.element(0, "condition")
    if not isinstance(condition, Expr):
        return _branch(ctx, "then_branch" if condition else "else_branch")
    branches = [_branch(ctx, name) for name in ("then_branch", "else_branch")]
    return [_chosen(ctx, condition, x, y) for x, y in zip(*branches)][: ctx.outputs]


def _branch(ctx: NodeContext, name: str) -> list[Operand | None]:
    """What the outputs of a branch stand for."""
    graph = ctx.attributes.graph(name)
    ctx.require(not graph.input, "Its branch takes inputs, which a branch must not.")
    ctx.require(
        len(graph.output) >= len(ctx.node.output),
        f"Its branch gives {len(graph.output)} results where {len(ctx.node.output)} are named.",
    )
    return ctx.importer.sub_graph(graph, ctx.scope, ctx.origin)


def _chosen(
    ctx: NodeContext, condition: Expr, x: Operand | None, y: Operand | None
) -> Operand | None:
    """The result of an If whose condition follows from symbolic dims: branches that do so too are
    computed both, and each element is that of the branch taken.
    """
    if x is None or y is None or x.blocked or y.blocked:
        return blocked("")
    found = [ctx.importer.known(o) for o in (x, y)]
    if x.dtype is not y.dtype or None in [None if c is None else c.shape for c in found]:
        ctx.needs_sizes("condition", condition)
    first, second = found
    assert first is not None and second is not None
    if first.shape != second.shape:
        ctx.needs_sizes("condition", condition)
    dtype = x.dtype
    try:
        contents = elementwise(lambda a, b: choose(condition, a, b, dtype), first, second)
    except Unknown:
        ctx.needs_sizes("condition", condition)
    result = ctx.known_result(contents, dtype)
    if has_values(result):
        inputs = [ctx.operand(0), x, y]
        result.deferred = Deferred(inputs, lambda: _selected(ctx, inputs))
    return result


def _selected(ctx: NodeContext, operands: list[Operand]) -> Value:
    return ctx.emit(Where(), *map(ctx.importer.materialise, operands))
