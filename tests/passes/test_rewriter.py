# SPDX-License-Identifier: Apache-2.0
"""What the rewriter holds rules to."""

import pytest

from tilewright.ir.dtypes import F16, F32
from tilewright.ir.errors import PassError
from tilewright.ir.graph import Builder, Graph, Module, Node, Value
from tilewright.ir.ops.cast import Cast
from tilewright.ir.ops.unary import Neg
from tilewright.ir.types import tensor
from tilewright.passes.rewriter import rewrite_module


def test_a_rule_keeps_the_type_of_what_it_replaces() -> None:
    graph = Graph("main", [Value(tensor(F32, (4,)), "x")])
    module = Module(graph)
    build = Builder(graph, module.constants)
    graph.set_outputs([build(Neg(), graph.inputs[0])])

    def narrowed(node: Node, builder: Builder) -> Value:
        return builder(Cast(F16), node.operands[0])

    with pytest.raises(PassError, match="Rule 'narrowed' makes f16 of the f32 of 'neg'"):
        rewrite_module(module, {"neg": [narrowed]})
