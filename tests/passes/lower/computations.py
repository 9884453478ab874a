# SPDX-License-Identifier: Apache-2.0
"""Computations for the tests of lowering: from stages as text, and from groups of ops."""

from tilewright.ir.graph import Builder, ConstantStore, Graph, Node, Value
from tilewright.ir.loop_parser import parse_kernel
from tilewright.ir.ops.group import Group
from tilewright.ir.types import TensorType
from tilewright.passes.lower.collect import Computation


def computation(text: str) -> Computation:
    """A computation from the head of a kernel: its arguments, symbols, buffers and stages."""
    kernel = parse_kernel(f"kernel @k{text.rstrip().removesuffix('}')} barrier }}")
    return Computation(kernel.stages, kernel.inputs, kernel.outputs, ())


def stages(c: Computation) -> list[str]:
    """The stages as text."""
    return [str(s) for s in c.stages]


class Region:
    """A group under construction: add ops with ``build``, then ask for the node."""

    def __init__(self, *types: TensorType) -> None:
        self.store = ConstantStore()
        self.graph = Graph("elementwise")
        self.graph.inputs = [Value(t, f"x{i}") for i, t in enumerate(types)]
        self.build = Builder(self.graph, self.store, "Node_1")

    @property
    def inputs(self) -> list[Value]:
        return self.graph.inputs

    def node(self, *outputs: Value) -> Node:
        self.graph.set_outputs(outputs)
        operands = [Value(v.type) for v in self.graph.inputs]
        outer = Builder(Graph("main"), self.store, "Node_1")
        types = [v.type for v in outputs]
        return outer.add_typed(Group("elementwise"), operands, types, (self.graph,))
