# SPDX-License-Identifier: Apache-2.0
"""Kernels run by an OpenCL device, PoCL here, against numpy and the interpreter of graphs."""

import os
from collections.abc import Iterator
from math import erf

import numpy as np
import pytest
from gpu_kernels import ARGMAX, GELU, MATMUL, OPENCL, SOFTMAX, digit_model, plain

from tilewright.ir.dtypes import BY_NAME
from tilewright.ir.graph import Constant, Value
from tilewright.ir.interpreter.graphs import interpret_graph
from tilewright.ir.interpreter.loops import (
    from_memory,
    interpret_kernel,
    memory_shape,
    to_memory,
)
from tilewright.ir.loop import Kernel
from tilewright.ir.ops.group import Group
from tilewright.ir.rewrite import evaluate
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
    np.testing.assert_allclose(run(device, kernel, x, w, m=33, n=5), wanted, rtol=1e-5, atol=1e-6)


def test_one_thread_with_workspace(device: OpenCLRunner) -> None:
    kernel = schedule_kernel(plain(ARGMAX), OPENCL).kernel
    x = floats(9, 40)
    assert (run(device, kernel, x, m=9, n=40) == x.argmax(axis=1)).all()


FLOATS = "neg,abs,sign,ceil,floor,round,trunc,exp,log,sqrt,tanh,erf,sigmoid"
FLOAT_PAIRS = "(x[i] / y[i]),mod(x[i], y[i]),fmod(x[i], y[i]),min(x[i], y[i]),max(x[i], y[i])"
INTEGER_PAIRS = (
    "(x[i] + y[i]),(x[i] - y[i]),(x[i] * y[i]),(x[i] / y[i]),mod(x[i], y[i]),fmod(x[i], y[i]),"
    "min(x[i], y[i]),max(x[i], y[i]),and(x[i], y[i]),or(x[i], y[i]),xor(x[i], y[i]),"
    "shl(x[i], y[i]),shr(x[i], y[i]),neg(x[i]),abs(x[i]),sign(x[i]),bitwise_not(x[i])"
)


def every(values: list[tuple[str, str]], dtype: str, count: int) -> Kernel:
    """A kernel that computes some values, given with their types, of the elements of two inputs."""
    outputs = ", ".join(f"o{n}: {kind}[{count}]" for n, (_, kind) in enumerate(values))
    stages = "\n".join(
        f"  stage map s{n}(i in {count}) -> o{n}[i] = {e}".replace("[i]", f"[i{n}]").replace(
            "(i ", f"(i{n} "
        )
        for n, (e, _) in enumerate(values)
    )
    return plain(
        f"kernel @every(x: {dtype}[{count}], y: {dtype}[{count}]) -> ({outputs}) {{\n{stages}\n"
        f"  block s0.map(0) {{ o0[0] = x[0] }}\n}}"
    )


def same_as_interpreted(device: OpenCLRunner, kernel: Kernel, x: np.ndarray, y: np.ndarray) -> None:
    arrays = [np.zeros(len(x), b.dtype.numpy) for b in kernel.outputs]
    device.run(schedule_kernel(kernel, OPENCL).kernel, [x, y, *arrays])
    wanted = interpret_kernel(kernel, {"x": x, "y": y})
    for stage, found, array in zip(kernel.stages, arrays, wanted.values(), strict=True):
        np.testing.assert_allclose(found, array, rtol=2e-6, err_msg=str(stage))


def test_floating_point_operations(device: OpenCLRunner) -> None:
    special = [0.0, -0.0, 0.5, -0.5, 1.5, 2.5, -3.25, 1e10, -1e10, 3e38, np.inf, -np.inf, np.nan]
    x, y = (np.array(v, np.float32) for v in zip(*((a, b) for a in special for b in special)))
    values = [(f"{f}(x[i])", "f32") for f in FLOATS.split(",")]
    values += [(f"{e})", "f32") for e in FLOAT_PAIRS.split("),")[:-1]]
    values += [("max(x[i], y[i])", "f32"), ("isnan(x[i])", "bool"), ("isinf(x[i])", "bool")]
    values += [(f"cast(x[i], {t})", t) for t in ("i32", "i64", "u8", "i8", "u32", "u64", "bool")]
    values += [("select((x[i] < y[i]), f32(inf), f32(nan))", "f32")]
    same_as_interpreted(device, every(values, "f32", len(x)), x, y)


@pytest.mark.parametrize("dtype", ["i32", "i64", "i8", "u8", "u32"])
def test_integer_operations_wrap_and_never_trap(device: OpenCLRunner, dtype: str) -> None:
    limits = BY_NAME[dtype]
    special = [0, 1, 2, 3, 7, 100, limits.min, limits.min + 1, limits.max]
    special += [-1, -2, -7] if limits.is_signed else []
    kind = limits.numpy
    x, y = (np.array(v, kind) for v in zip(*((a, b) for a in special for b in special)))
    pairs = [f"{e})" for e in INTEGER_PAIRS.split("),")[:-1]] + ["bitwise_not(x[i])"]
    values = [(e, dtype) for e in pairs]
    values += [(f"cast(x[i], {t})", t) for t in ("f32", "i64", "i8", "bool") if t != dtype]
    values += [(f"({'x[i]'} {op} y[i])", "bool") for op in ("<", "<=", "==", "!=")]
    same_as_interpreted(device, every(values, dtype, len(x)), x, y)


def test_digit_model(device: OpenCLRunner) -> None:
    module, lowered = digit_model()
    image = RNG.random((3, 1, 8, 8), dtype=np.float32)
    values: dict[Value, np.ndarray] = {module.graph.inputs[0]: image}
    kernels = iter(lowered)

    def value(v: Value) -> np.ndarray:
        """A value of the graph, or a constant inside of a group."""
        constant = v.producer is not None and isinstance(v.producer.op, Constant)
        return module.constants[v.producer.op.data] if constant else values[v]

    for node in module.graph.nodes:
        (result,) = node.results
        shape = [evaluate(d, {"batch": 3}) for d in result.type.shape]
        if isinstance(node.op, Group):
            low = next(kernels)
            arrays = [
                value(v).reshape([evaluate(d, {"n0": 3}) for d in b.shape])
                for v, b in zip(low.arguments, low.kernel.inputs, strict=True)
            ]
            kernel = schedule_kernel(low.kernel, OPENCL).kernel
            values[result] = run(device, kernel, *arrays, n0=3).reshape(shape)
        elif not isinstance(node.op, Constant):
            values[result] = value(node.operands[0]).reshape(shape)
    wanted = interpret_graph(module, [image])["logits"]
    found = values[module.graph.outputs[0]]
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)
