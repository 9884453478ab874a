# SPDX-License-Identifier: Apache-2.0
"""A small matrix product with its default schedule, and code that stands for candidates."""

from dataclasses import replace

import pytest
from onnx import TensorProto, helper

from tests.targets import fixed_target
from tilewright.autotune.tuner import KernelTask
from tilewright.codegen.kernels import CompiledKernel, compile_kernels
from tilewright.codegen.llvm.compile import compile_ir
from tilewright.ir.expr import ONE, ZERO
from tilewright.ir.loop import Kernel
from tilewright.ir.target import Target
from tilewright.tuning import kernel_tasks


@pytest.fixture(scope="session")
def target() -> Target:
    """Not this machine's own: the space of the product follows from the width of vectors."""
    return fixed_target()


@pytest.fixture(scope="session")
def product_onnx() -> bytes:
    """``y = relu(x @ w)`` with ``x`` of 24 rows."""

    def port(name: str, *dims: int) -> object:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, dims)

    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"]),
        helper.make_node("Relu", ["h"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes, "product", [port("x", 24, 16), port("w", 16, 32)], [port("y", 24, 32)]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    return bytes(model.SerializeToString())


@pytest.fixture(scope="session")
def task(product_onnx: bytes, target: Target) -> KernelTask:
    (only,) = kernel_tasks(product_onnx, target)
    return only


@pytest.fixture(scope="session")
def product(task: KernelTask) -> Kernel:
    return task.kernel


@pytest.fixture(scope="session")
def default(product: Kernel, target: Target) -> CompiledKernel:
    """The kernel under its default schedule."""
    return compile_kernels({product.name: product}, target)[product.name]


def candidate_of(default: CompiledKernel, body: str, target: Target) -> CompiledKernel:
    """A candidate whose code is this body of LLVM IR, instead of what a schedule would make."""
    parameters = "ptr %args, i64 %begin, i64 %end, ptr %workspace"
    text = f"define i32 @{default.name}({parameters}) {{\n{body}\n}}"
    return replace(default, code=compile_ir(text, target), tasks=ONE, workspace=ZERO)
