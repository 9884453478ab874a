# SPDX-License-Identifier: Apache-2.0
"""Turn products of a batch of rows with one matrix into plain two-dimensional products.

Before ``%1 = matmul(x, w); %2 = add(%1, b)`` with ``x: f32[n,s,k]``, after ::

    %0 = reshape(x)     : f32[n*s,k]
    %1 = matmul(%0, w)  : f32[n*s,m]
    %2 = add(%1, b)     : f32[n*s,m]
    %3 = reshape(%2)    : f32[n,s,m]

The reshapes are free, but they would stand between ops that fuse. So ops that work on rows
(elementwise ones, softmax and normalisation over the last axis) move in front of a reshape that
only splits the rows; their other operands are reshaped the other way. In a transformer all between
two attentions then runs on ``[n*s,k]``.
"""

from dataclasses import dataclass
from typing import ClassVar

from tilewright.ir.bounds import known_equal
from tilewright.ir.expr import ONE, Expr
from tilewright.ir.graph import Builder, Module, Node, Value
from tilewright.ir.ops.elementwise import Elementwise
from tilewright.ir.ops.layer_norm import LayerNorm, RmsNorm
from tilewright.ir.ops.matmul import Matmul
from tilewright.ir.ops.reshape import Reshape
from tilewright.ir.ops.softmax import LogSoftmax, Softmax
from tilewright.ir.types import TensorType
from tilewright.passes.manager import Pass, PassContext
from tilewright.passes.rewriter import rewrite_module
from tilewright.passes.rules.matching import producer_of
from tilewright.passes.rules.movement import reshape_chain
from tilewright.passes.rules.sinking import elementwise_of_reshape


@dataclass(frozen=True)
class CollapseMatmul(Pass):
    """Products with a matrix on rows, and the row-wise ops between them."""

    name: ClassVar[str] = "collapse-matmul"

    def run(self, module: Module, context: PassContext) -> bool:
        rules = (collapse, sink_row_split, elementwise_of_reshape, reshape_chain)
        return rewrite_module(module, {"*": rules})


def collapse(node: Node, builder: Builder) -> Value | None:
    """``matmul(a, b)`` with leading dims on the left alone, on rows."""
    if not isinstance(node.op, Matmul):
        return None
    a, b = node.operands
    if a.type.rank < 3 or any(d is not ONE for d in b.type.shape[:-2]):
        return None
    rows = builder(Reshape(_on_rows(a.type)), a)
    matrix = b if b.type.rank == 2 else builder(Reshape(b.type.shape[-2:]), b)
    return builder(Reshape(node.result.type.shape), builder(node.op, rows, matrix))


def sink_row_split(node: Node, builder: Builder) -> Value | None:
    """A row-wise op on ``reshape(x: [n*s,k]) : [n,s,k]`` as a reshape of the op on ``x``."""
    result = node.results[0].type
    if len(node.results) != 1 or result.rank < 3 or not _is_row_wise(node):
        return None
    split = [_row_source(v) for v in node.operands]
    if not any(split):
        return None
    operands: list[Value] = []
    for operand, source in zip(node.operands, split, strict=True):
        whole = operand.type.shape == result.shape
        if source is not None and whole:
            operands.append(source)
        elif whole:
            operands.append(builder(Reshape(_on_rows(operand.type)), operand))
        elif _same_in_every_row(operand.type):
            flat = operand.type.shape[-1:]
            plain = operand.type.rank <= 1
            operands.append(operand if plain else builder(Reshape(flat), operand))
        else:
            return None
    if not any(v.type.shape == _on_rows(result) for v in operands):
        return None
    rows = builder(_on_two_dims(node), *operands)
    return builder(Reshape(result.shape), rows)


def _on_rows(t: TensorType) -> tuple[Expr, Expr]:
    """The shape with all dims but the last merged."""
    rows: Expr = ONE
    for d in t.shape[:-1]:
        rows = rows * d
    return rows, t.shape[-1]


def _row_source(value: Value) -> Value | None:
    """The two-dimensional value of which ``value`` is a reshape that only splits its rows."""
    node = producer_of(value, "reshape")
    if node is None or value.type.rank < 3:
        return None
    source = node.operands[0]
    same_rows = source.type.rank == 2 and source.type.shape[1] is value.type.shape[-1]
    return (
        source if same_rows and known_equal(source.type.shape[0], _on_rows(value.type)[0]) else None
    )


def _same_in_every_row(t: TensorType) -> bool:
    return all(d is ONE for d in t.shape[:-1])


def _is_row_wise(node: Node) -> bool:
    op = node.op
    if isinstance(op, Elementwise):
        return True
    last = node.operands[0].type.rank - 1 if node.operands else -1
    return isinstance(op, LayerNorm | RmsNorm | Softmax | LogSoftmax) and op.axis == last


def _on_two_dims(node: Node) -> "Elementwise | LayerNorm | RmsNorm | Softmax | LogSoftmax":
    op = node.op
    if isinstance(op, LayerNorm | RmsNorm):
        return type(op)(1, op.epsilon)
    if isinstance(op, Softmax | LogSoftmax):
        return type(op)(1)
    assert isinstance(op, Elementwise)
    return op
