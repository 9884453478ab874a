# SPDX-License-Identifier: Apache-2.0
"""Compute at compile time what depends on constants alone.

Before ``%w = constant(); %t = transpose(%w)``, after ``%t = constant()``. The numpy reference of
the op does the work. Not folded: what would grow (a broadcast constant stays a small constant and a
broadcast; the sum of two broadcast vectors stays a sum), what is larger than ``cap`` bytes, and
contractions above ``work`` multiplications, and what reads an index out of range, which is an error
of the run. A ``relayout`` of a constant becomes a constant whose
type has that layout; its bytes are packed when the artifact is written.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from tilewright.ir.expr import TRUE
from tilewright.ir.graph import Builder, Constant, Module, Node, Value
from tilewright.ir.op import MAX_ARRAY_RANK
from tilewright.ir.ops.index_fault import fault_of
from tilewright.ir.types import TensorType
from tilewright.passes.manager import Pass, PassContext
from tilewright.passes.op_kinds import has_symbolic_attributes, is_contraction
from tilewright.passes.rewriter import rewrite_module

# Results up to this many bytes are always worth folding.
_SMALL = 1 << 16


@dataclass(frozen=True)
class FoldConstants(Pass):
    """Constant folding; ``cap`` is the largest result in bytes, ``work`` the most
    multiplications.
    """

    name: ClassVar[str] = "fold-constants"
    cap: int = 1 << 28
    work: int = 1 << 30

    def run(self, module: Module, context: PassContext) -> bool:
        unchecked = context.unchecked_indices
        return rewrite_module(module, {"*": [lambda n, b: self._fold(n, b, unchecked)]})

    def _fold(
        self, node: Node, builder: Builder, unchecked_indices: bool
    ) -> Sequence[Value] | None:
        op = node.op
        if isinstance(op, Constant) or op.effects or node.regions or not self._worthwhile(node):
            return None
        types = [v.type for v in node.results]
        if op.name == "relayout":
            source = node.operands[0].op
            return builder.add_typed(source, (), types).results if source is not None else None
        arrays = [builder.constants[v.op.data] for v in node.operands if isinstance(v.op, Constant)]
        if not unchecked_indices and fault_of(op, arrays) is not None:
            return None
        results = op.reference(*arrays)
        refs = [builder.constants.add(r) for r in results]
        return [
            builder.add_typed(Constant(ref), (), (t,)).result
            for ref, t in zip(refs, types, strict=True)
        ]

    def _worthwhile(self, node: Node) -> bool:
        operands = [v.type for v in node.operands]
        results = [v.type for v in node.results]
        if not all(isinstance(v.op, Constant) for v in node.operands):
            return False
        if node.op.name == "relayout":
            return True
        # What a call must be refused for has no value.
        if any(condition is not TRUE for condition, _, _ in node.op.requirements(operands)):
            return False
        if not all(
            t.is_static and t.rank <= MAX_ARRAY_RANK for t in results
        ) or has_symbolic_attributes(node.op):
            return False
        grown = sum(map(_bytes, results))
        given = sum(map(_bytes, operands))
        if grown > self.cap:
            return False
        if node.op.name == "broadcast_to":
            return grown <= given or any(map(_needs_bytes, node.result.users))
        if grown > max(_SMALL, 2 * given):
            return False
        if is_contraction(node):
            return _multiplications(node) <= self.work
        return True


def _needs_bytes(user: Node) -> bool:
    """True for ops whose constant operands are rewritten or packed at compile time."""
    return is_contraction(user) or user.op.name == "batch_norm"


def _bytes(t: TensorType) -> int:
    return _elements(t) * t.dtype.bytes


def _elements(t: TensorType) -> int:
    count = 1
    for extent in t.static_shape:
        count *= extent
    return count


def _multiplications(node: Node) -> int:
    """An upper bound for matmul, einsum and convolutions: each result may meet each weight once."""
    smallest = min(_elements(v.type) for v in node.operands[:2])
    return _elements(node.results[0].type) * smallest
