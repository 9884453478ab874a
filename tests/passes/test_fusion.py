# SPDX-License-Identifier: Apache-2.0
"""What fusion leaves apart though it could be one kernel."""

import numpy as np
import pytest

from tests.targets import NARROW
from tilewright.ir.dtypes import F32
from tilewright.ir.graph import Builder, Graph, Module, Value
from tilewright.ir.ops.binary import Add
from tilewright.ir.ops.concat import MOST, Concat
from tilewright.ir.ops.reduce import ReduceSum
from tilewright.ir.ops.unary import Neg, Sin
from tilewright.ir.types import tensor
from tilewright.passes.manager import PassContext, parse_pipeline, run_passes


def kernels(value: Value, module: Module, passes: str = "fuse") -> list[int]:
    """The number of nodes in each group of the fused module that returns ``value``."""
    module.graph.set_outputs([value])
    run_passes(module, parse_pipeline(passes), PassContext(NARROW))
    return [len(n.regions[0].nodes) for n in module.graph.nodes if n.regions]


def test_long_chains_of_math_functions_are_several_kernels() -> None:
    for start in (None, ReduceSum((1,), False)):
        graph = Graph("main", [Value(tensor(F32, (8, 4)), "x")])
        module = Module(graph)
        build = Builder(graph, module.constants)
        value = graph.inputs[0] if start is None else build(start, graph.inputs[0])
        for _ in range(45):
            value = build(Neg(), build(Sin(), value))
        found = kernels(value, module)
        assert len(found) == 3 and sum(found) == 90 + (start is not None)


@pytest.mark.parametrize(("count", "baked"), [(1, True), (16, True), (17, False)])
def test_constants_of_64_bytes_are_part_of_the_code(count: int, baked: bool) -> None:
    graph = Graph("main", [Value(tensor(F32, (count,)), "x")])
    module = Module(graph)
    build = Builder(graph, module.constants)
    constant = build.constant(np.arange(count, dtype=np.float32))
    assert kernels(build(Add(), graph.inputs[0], constant), module) == [1 + baked]


def test_a_concat_of_many_parts_has_two_levels() -> None:
    graph = Graph("main", [Value(tensor(F32, (4,)), "x")])
    module = Module(graph)
    build = Builder(graph, module.constants)
    value = build(Concat(0), *[graph.inputs[0]] * (2 * MOST + 1))
    passes = "canonicalize,decompose,canonicalize,fuse"
    assert kernels(build(Neg(), value), module, passes) == [1, 1, 1, 1]
    assert value.type.static_shape == (4 * (2 * MOST + 1),)
