# SPDX-License-Identifier: Apache-2.0
"""The time of compiling grows with the nodes of a model, not with their square."""

import re
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tilewright.codegen.llvm.host import emit_host
from tilewright.driver import HOST_SYMBOL, CompileOptions, Report, lower_groups, optimize
from tilewright.frontends import import_model
from tilewright.ir.expr import index
from tilewright.ir.target import parse_target
from tilewright.passes.host import LaunchSpec, build_host

V3 = parse_target("x86-64-v3,cores=2")
FEW, MANY = 250, 1500


def model_of(
    nodes: list[onnx.NodeProto], inputs: list[str], outputs: list[str], data: dict[str, Any]
) -> onnx.ModelProto:
    infos = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n", 8]) for n in inputs]
    results = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in outputs]
    weights = [numpy_helper.from_array(np.asarray(a), n) for n, a in data.items()]
    graph = helper.make_graph(nodes, "scaling", infos, results, weights)
    opsets = [helper.make_opsetid("", 18)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def sum_of_inputs(count: int) -> onnx.ModelProto:
    names = [f"x{i}" for i in range(count)]
    return model_of([helper.make_node("Sum", names, ["y"])], names, ["y"], {})


def chain_of_products(count: int) -> onnx.ModelProto:
    nodes = [
        helper.make_node("MatMul", [f"h{i}", "w"], [f"h{i + 1}"], f"n{i}") for i in range(count)
    ]
    return model_of(nodes, ["h0"], [f"h{count}"], {"w": np.eye(8, dtype=np.float32)})


def chain_of_sums(count: int) -> onnx.ModelProto:
    nodes = [helper.make_node("Add", [f"h{i}", f"c{i}"], [f"h{i + 1}"]) for i in range(count)]
    data = {f"c{i}": np.float32(i) for i in range(count)}
    return model_of(nodes, ["h0"], [f"h{count}"], data)


def parts(count: int) -> onnx.ModelProto:
    names = [f"y{i}" for i in range(count)]
    node = helper.make_node("Split", ["x"], names, axis=1, num_outputs=count)
    model = model_of([node], ["x"], names, {})
    model.graph.input[0].type.tensor_type.shape.dim[1].dim_value = 2 * count
    return model


def look_ups(count: int) -> onnx.ModelProto:
    nodes = [helper.make_node("Gather", ["x", f"i{i}"], [f"y{i}"], axis=1) for i in range(count)]
    data = {f"i{i}": np.array([i % 8, i % 7, 1]) for i in range(count)}
    return model_of(nodes, ["x"], [f"y{i}" for i in range(count)], data)


MODELS = [sum_of_inputs, chain_of_products, chain_of_sums, parts, look_ups]


def host_text(model: onnx.ModelProto) -> str:
    """The host program of a model as LLVM gets it; that of one whose kernels are not compiled."""
    module = import_model(model)
    optimize(module, V3, CompileOptions(), Report())
    one = index(1)
    launches = []
    for low in lower_groups(module):
        node = low.results[0].producer
        assert node is not None
        name, given, made = low.kernel.name, low.arguments, low.results
        launches.append(
            LaunchSpec(node, name, given, made, low.scalars, one, one, index(0), low.origin)
        )
    return emit_host(build_host(module, launches).program, V3, HOST_SYMBOL).text


@pytest.mark.parametrize("model", [sum_of_inputs, look_ups])
def test_no_function_of_a_host_program_is_long(model: Callable[[int], onnx.ModelProto]) -> None:
    functions = re.findall(r"^define .*?^\}", host_text(model(300)), re.M | re.S)
    assert len(functions) > 3
    assert max(f.count("\n") for f in functions) < 4000


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS)
def test_the_time_of_a_node_stays(model: Callable[[int], onnx.ModelProto]) -> None:
    """In processor time of this process, so that other work on the machine counts little."""
    host_text(model(FEW))  # what is done once is done
    times = []
    for count in (FEW, MANY):
        began = time.process_time()
        host_text(model(count))
        times.append((time.process_time() - began) / count)
    assert times[1] < 1.8 * times[0]
