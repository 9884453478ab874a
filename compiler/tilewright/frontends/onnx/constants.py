# SPDX-License-Identifier: Apache-2.0
"""Between data known at import and tensors of the graph, both ways.

``materialised`` turns an operand's data into nodes: a constant, or ``dim_values`` where elements
are symbolic. ``computed_array`` goes back: where a shape depends on tensors that are computed from
constants alone, it runs the references of the nodes between, within a budget.
"""

import math
from collections.abc import Collection, Mapping

import numpy as np

from tilewright.frontends.elements import is_number
from tilewright.frontends.names import printable
from tilewright.frontends.onnx.limits import Limits
from tilewright.frontends.onnx.operand import Operand
from tilewright.ir.dtypes import I64
from tilewright.ir.expr import TRUE, Const, Expr, index
from tilewright.ir.graph import Builder, Constant, ConstantStore, Node, Value
from tilewright.ir.op import MAX_ARRAY_RANK, Array
from tilewright.ir.ops.cast import Cast
from tilewright.ir.ops.dim_values import DimValues
from tilewright.ir.ops.reshape import Reshape


def materialised(operand: Operand, builder: Builder) -> Value:
    """The operand's data as a tensor; constants take their own name as origin."""
    contents = operand.contents
    if (
        operand.array is None
        and contents is not None
        and all(is_number(x) for x in contents.reshape(-1))
    ):
        flat = np.array(
            contents.reshape(-1).tolist(), dtype=np.float64 if operand.dtype.is_float else object
        )
        operand.array = flat.astype(operand.dtype.numpy).reshape(contents.shape)
    if operand.array is not None:
        origin, builder.origin = builder.origin, printable(operand.name) or builder.origin
        value = builder.constant(operand.array, name=printable(operand.name))
        builder.origin = origin
        return value
    assert contents is not None
    return _symbolic(operand, builder)


def _symbolic(operand: Operand, builder: Builder) -> Value:
    """``dim_values`` of the elements, in the operand's shape and dtype."""
    assert operand.contents is not None
    contents = operand.contents
    value = builder(DimValues(tuple(map(index, contents.reshape(-1)))))
    if operand.dtype is not I64:
        value = builder(Cast(operand.dtype), value)
    if contents.ndim != 1:
        value = builder(Reshape(tuple(index(d) for d in contents.shape)), value)
    value.name = printable(operand.name)
    return value


def computed_array(
    value: Value, store: ConstantStore, limits: Limits, given: Mapping[Value, Array] | None = None
) -> Array | None:
    """The array that a value holds if constants and what is ``given`` alone decide it; None if not
    or over budget.
    """
    known: dict[Value, Array] = dict(given or {})
    chain = _constant_chain(value, known, limits)
    if chain is None:
        return None
    for node in chain:
        if isinstance(node.op, Constant):
            results: tuple[Array, ...] = (store[node.op.data],)
        else:
            with np.errstate(all="ignore"):
                results = node.op.reference(*(known[v] for v in node.operands))
        # Numpy turns what has no dims into scalars here and there.
        known.update(zip(node.results, map(np.asarray, results)))
    return known[value]


def _is_static(node: Node) -> bool:
    """True if no symbol is in the types of a node's results or in its attributes, and numpy has
    arrays of these types; and no call is refused for it.
    """
    attributes: list[object] = list(node.op.attributes().values())
    parts = [x for a in attributes for x in (a if isinstance(a, tuple) else (a,))]
    symbolic = any(isinstance(x, Expr) and not isinstance(x, Const) for x in parts)
    types = [v.type for v in node.results]
    held = all(t.is_static and t.rank <= MAX_ARRAY_RANK for t in types)
    fits = all(c is TRUE for c, _, _ in node.op.requirements([v.type for v in node.operands]))
    return held and fits and not (symbolic or node.regions)


def _constant_chain(value: Value, known: Collection[Value], limits: Limits) -> list[Node] | None:
    """The nodes that a value depends on, in order, if all come from constants and known values and
    have static types.
    """
    budget = limits.folded
    order: list[Node] = []
    placed: set[Node] = set()
    stack: list[tuple[Value, bool]] = [(value, False)]
    while stack:
        current, ready = stack.pop()
        if current in known:
            continue
        node = current.producer
        if node is None or not _is_static(node):
            return None
        if node in placed:
            continue
        if ready:
            placed.add(node)
            order.append(node)
            continue
        budget -= sum(math.prod(v.type.static_shape) for v in node.results)
        if budget < 0:
            return None
        stack.append((current, True))
        stack.extend((v, False) for v in node.operands)
    return order
