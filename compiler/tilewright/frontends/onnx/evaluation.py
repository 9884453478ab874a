# SPDX-License-Identifier: Apache-2.0
"""The results of nodes whose inputs are known at import, and the way from those back to tensors.

Contents whose elements are integers are tensors of numbers or of ``dim_values``. What a model
computes in floats, or a condition, is needed as a tensor seldom; then the ordinary nodes compute it
from the tensors of its inputs.
"""

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from tilewright.frontends.dims import Unknown
from tilewright.frontends.onnx.constants import materialised
from tilewright.frontends.onnx.operand import Deferred, Operand
from tilewright.frontends.onnx.registry import Contents, find_evaluator
from tilewright.ir.dtypes import INDEX
from tilewright.ir.expr import Expr
from tilewright.ir.graph import Value

if TYPE_CHECKING:
    from tilewright.frontends.onnx.context import NodeContext
    from tilewright.frontends.onnx.importer import Importer


def evaluated(context: "NodeContext", domain: str) -> list[Operand | None] | None:
    """The node's results where the contents of all its inputs are known and small; else None."""
    evaluate = find_evaluator(domain, context.node.op_type)
    limits = context.importer.limits
    if evaluate is None:
        return None
    inputs: list[Contents | None] = []
    for operand in context.operands:
        known = None if operand is None else operand.known(limits.contents)
        if operand is not None and known is None:
            return None
        inputs.append(known)
    if not inputs or inputs[0] is None:
        return None
    try:
        found = evaluate(context, inputs)
    except Unknown:
        return None
    parts = found if isinstance(found, list) else [found]
    results = [_operand(context, part) for part in parts]
    if len(results) < context.outputs or any(_size(r) > limits.contents for r in results):
        return None
    for position, result in enumerate(results):
        if has_values(result):
            inner = [o for o in context.operands if o is not None]
            result.deferred = Deferred(inner, partial(context.importer.emitted, context, position))
    return list(results)


def follows_from_dims(context: "NodeContext", domain: str) -> bool:
    """True for a node without an evaluator whose inputs are known and follow from dims: what the
    standard defines it by is evaluated.
    """
    operands = [o for o in context.operands if o is not None]
    return (
        find_evaluator(domain, context.node.op_type) is None
        and all(o.known(context.importer.limits.contents) is not None for o in operands)
        and any(map(has_values, operands))
    )


def _operand(context: "NodeContext", found: "Operand | Contents") -> Operand:
    if isinstance(found, Operand):
        return found
    return Operand("", context.operand(0).dtype, contents=np.asarray(found, object))


def _size(operand: Operand) -> int:
    return 0 if operand.contents is None else operand.contents.size


def has_values(operand: Operand) -> bool:
    """True for contents with expressions that are no integers."""
    if operand.contents is None:
        return False
    elements = operand.contents.reshape(-1)
    return any(isinstance(x, Expr) and x.dtype is not INDEX for x in elements)


def materialise(operand: Operand, importer: "Importer") -> Value:
    """The operand as a tensor of the graph, made once; operands that it is computed from first,
    however long the chain.
    """
    stack = [operand]
    while stack:
        top = stack[-1]
        inputs = top.deferred.inputs if top.deferred is not None and top.value is None else ()
        waiting = [o for o in inputs if o.value is None and o.deferred is not None]
        if waiting:
            stack += waiting
            continue
        stack.pop()
        if top.value is None and top.deferred is not None:
            top.value = top.deferred.make()
        elif top.value is None:
            top.value = materialised(top, importer.builder)
    assert operand.value is not None
    return operand.value
