# SPDX-License-Identifier: Apache-2.0
"""Transpositions of whole tiles are turned in registers, and say what numpy says."""

from typing import Any

import numpy as np
import onnx
import pytest

import tilewright
from tests.targets import runnable_targets
from tilewright.codegen.llvm.kernel import emit_kernel
from tilewright.codegen.llvm.transposition import as_transposition
from tilewright.driver import CompileOptions, Report, lower_groups, optimize
from tilewright.frontends import import_model
from tilewright.ir.loop import For, walk
from tilewright.ir.loop_parser import parse_kernel
from tilewright.ir.target import parse_target
from tilewright.passes.schedule.schedule import apply, parse_schedule
from tilewright.passes.schedule.select import schedule_kernel

COPY = """
kernel @k(x: {x}) -> (y: f32[32,32]) {{
  stage map t(i in 32, j in 32) -> y[i, j] = {value}
  for i in 32 serial {{
    for j in 32 serial {{
      block t.map(i, j) {{
        y[i, j] = {value}
      }}
    }}
  }}
}}
"""
SQUARES = "split(i, 16); split(j, 8); reorder(i_o, j_o, i_i, j_i); unroll(i_i); vectorize(j_i)"


def turns(value: str, schedule: str = SQUARES, x: str = "f32[32,32]") -> bool:
    """Whether a loop of a scheduled copy is seen to be a transposition."""
    kernel = apply(parse_kernel(COPY.format(x=x, value=value)), parse_schedule(schedule))
    loops = [n for n in walk(kernel.body) if isinstance(n, For) and n.kind == "unrolled"]
    found = any(as_transposition(loop) is not None for loop in loops)
    text = emit_kernel(kernel, parse_target("x86-64-v3"))
    assert found == ("insertelement" not in text and "shufflevector" in text)
    return found


def test_what_is_a_transposition() -> None:
    assert turns("x[j, i]")
    assert turns("x[i, j]", x="f32[32,32]{1,0}")
    assert turns("x[2*j, i]", x="f32[64,32]")  # lines need not be neighbours
    assert not turns("x[j, 2*i]", x="f32[32,64]")
    assert not turns("neg(x[j, i])")
    assert not turns("cast(x[j, i], f32)", x="i32[32,32]")
    assert not turns("x[j, i]", SQUARES.replace("split(i, 16)", "split(i, 4)"))


def model(dtype: int, dims: tuple[Any, ...], perm: tuple[int, ...]) -> onnx.ModelProto:
    node = onnx.helper.make_node("Transpose", ["x"], ["y"], perm=perm)
    x = onnx.helper.make_tensor_value_info("x", dtype, dims)
    y = onnx.helper.make_tensor_value_info("y", dtype, [dims[p] for p in perm])
    graph = onnx.helper.make_graph([node], "g", [x], [y])
    return onnx.helper.make_model(graph, ir_version=8)


@pytest.mark.parametrize("target", runnable_targets())
@pytest.mark.parametrize("dtype", [np.uint8, np.float16, np.int16, np.float32, np.int64])
def test_transpositions_of_any_size(dtype: Any, target: str) -> None:
    kind = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    rng = np.random.default_rng(5)
    for shape in ((64, 64), (16, 16), (8, 300), (300, 9), (65, 129), (3, 70, 17)):
        perm = (*range(len(shape) - 2), len(shape) - 1, len(shape) - 2)
        x = rng.integers(0, 100, shape).astype(dtype)
        (y,) = tilewright.compile(model(kind, shape, perm), target).run({"x": x}).values()
        np.testing.assert_array_equal(y, x.transpose(perm))


@pytest.mark.parametrize("target", runnable_targets())
def test_transpositions_of_symbolic_sizes(target: str) -> None:
    compiled = tilewright.compile(model(onnx.TensorProto.FLOAT, ("a", "b"), (1, 0)), target)
    for shape in ((64, 64), (1, 1), (8, 300), (15, 16), (16, 15), (17, 33), (0, 5), (130, 70)):
        x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
        (y,) = compiled.run({"x": x}).values()
        np.testing.assert_array_equal(y, x.T)


@pytest.mark.parametrize("target", ["x86-64-v3", "x86-64-v4"])
def test_the_proof_of_a_transposition_around_a_long_odd_axis_ends(target: str) -> None:
    """Tasks of a product of a symbolic number of tiles with a prime one are whole tiles."""
    module = import_model(model(onnx.TensorProto.FLOAT, ("n", 257, "m"), (2, 1, 0)))
    optimize(module, parse_target(target), CompileOptions(cache=False), Report())
    (lowered,) = lower_groups(module)
    assert schedule_kernel(lowered.kernel, parse_target(target)).template == "elementwise"
