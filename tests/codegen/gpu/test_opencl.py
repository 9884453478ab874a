# SPDX-License-Identifier: Apache-2.0
"""Kernels run by an OpenCL device, PoCL here, against numpy and the interpreter of graphs."""

import os
from collections.abc import Iterator
from math import erf

import numpy as np
import pytest
from gpu_kernels import ARGMAX, GELU, MATMUL, OPENCL, SOFTMAX, digit_model, plain

from tilewright.ir.graph import Constant, Node, Value
from tilewright.ir.interpreter.graphs import interpret_graph
from tilewright.ir.interpreter.loops import from_memory, memory_shape, to_memory
from tilewright.ir.loop import Kernel
from tilewright.ir.ops.group import Group
from tilewright.ir.simplify import evaluate
from tilewright.passes.lower.kernel import Lowered
from tilewright.passes.schedule.select import schedule_kernel

pytest.importorskip("pyopencl", reason="needs the extra 'opencl'")

from tilewright.codegen.gpu.opencl_runner import OpenCLRunner

RNG = np.random.default_rng(0)
SIZES = ((1, 1, 1), (64, 32, 64), (65, 33, 7), (130, 100, 70))


@pytest.fixture(scope="module")
def device() -> Iterator[OpenCLRunner]:
    # PoCL's other way to make loops of threads takes three times as long to compile unrolled tiles.
    os.environ.setdefault("POCL_WORK_GROUP_METHOD", "loopvec")
    yield OpenCLRunner()


def run(device: OpenCLRunner, kernel: Kernel, *arrays: np.ndarray, **symbols: int) -> np.ndarray:
    """The output of a scheduled kernel for logical inputs."""
    feeds = {b.name: a for b, a in zip(kernel.inputs, arrays, strict=True)}
    memory = [to_memory(b, feeds, symbols) for b in kernel.inputs]
    (output,) = kernel.outputs
    memory.append(np.full(memory_shape(output, symbols), 77, output.dtype.numpy))
    device.run(kernel, memory, [symbols[s.name] for s in kernel.symbols])
    return from_memory(output, memory[-1], symbols)


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def test_matmul(device: OpenCLRunner) -> None:
    kernel = schedule_kernel(plain(MATMUL), OPENCL).kernel
    for m, k, n in SIZES:
        a, b, c = floats(m, k), floats(k, n), floats(n)
        found = run(device, kernel, a, b, c, m=m, k=k, n=n)
        np.testing.assert_allclose(found, np.maximum(a @ b + c, 0), rtol=1e-4, atol=1e-4)


def test_softmax(device: OpenCLRunner) -> None:
    kernel = schedule_kernel(plain(SOFTMAX), OPENCL).kernel
    for m, _, n in SIZES:
        x = floats(m, n) * 10
        e = np.exp(x - x.max(axis=1, keepdims=True))
        found = run(device, kernel, x, m=m, n=n)
        np.testing.assert_allclose(found, e / e.sum(axis=1, keepdims=True), rtol=1e-5, atol=1e-7)


def test_elementwise(device: OpenCLRunner) -> None:
    kernel = schedule_kernel(plain(GELU), OPENCL).kernel
    x, w = floats(33, 5), floats(5)
    wanted = (x + w) * 0.5 * (1 + np.vectorize(erf)((x + w) * np.sqrt(0.5)))
    np.testing.assert_allclose(
        run(device, kernel, x, w, m=33, n=5), wanted, rtol=1e-5, atol=1e-6
    )


def test_one_thread_with_workspace(device: OpenCLRunner) -> None:
    kernel = schedule_kernel(plain(ARGMAX), OPENCL).kernel
    x = floats(9, 40)
    assert (run(device, kernel, x, m=9, n=40) == x.argmax(axis=1)).all()


def test_digit_model(device: OpenCLRunner) -> None:
    module, lowered = digit_model()
    image = RNG.random((3, 1, 8, 8), dtype=np.float32)
    values: dict[Value, np.ndarray] = {module.graph.inputs[0]: image}
    waiting = iter(lowered)
    for node in module.graph.nodes:
        values |= dict(zip(node.results, compute(device, module, node, values, waiting)))
    found = values[module.graph.outputs[0]]
    wanted = interpret_graph(module, [image])["logits"]
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


def compute(
    device: OpenCLRunner,
    module: object,
    node: Node,
    values: dict[Value, np.ndarray],
    waiting: Iterator[Lowered],
) -> list[np.ndarray]:
    """The results of a node of the main graph, each group by its kernel."""
    if isinstance(node.op, Constant):
        return [module.constants[node.op.data]]  # type: ignore[attr-defined]
    (result,) = node.results
    shape = [evaluate(d, {"batch": 3}) for d in result.type.shape]
    if not isinstance(node.op, Group):
        return [values[node.operands[0]].reshape(shape)]
    low = next(waiting)
    kernel = schedule_kernel(low.kernel, OPENCL).kernel
    arrays = [
        values[v].reshape([evaluate(d, {"n0": 3}) for d in b.shape])
        for v, b in zip(low.arguments, low.kernel.inputs)
    ]
    return [run(device, kernel, *arrays, n0=3).reshape(shape)]
