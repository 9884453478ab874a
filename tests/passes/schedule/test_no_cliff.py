# SPDX-License-Identifier: Apache-2.0
"""Sizes that a common schedule does not fit are not left to the last resort, nor to scalar code."""

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest

from tilewright.codegen.llvm.transposition import as_transposition
from tilewright.driver import Report, import_model, lower_groups, optimize
from tilewright.ir.loop import For, Kernel, walk
from tilewright.ir.target import Target, parse_target
from tilewright.options import CompileOptions
from tilewright.passes.schedule.defaults import default_candidates
from tilewright.passes.schedule.legality import prove
from tilewright.passes.schedule.slow_stages import slow_stages

TARGETS = ("x86-64-v3", "x86-64-v4")


def kernels(
    text: str, dims: tuple[Any, ...], weights: tuple[int, ...], target: Target
) -> list[Kernel]:
    """The kernels of a model of one node on ``x`` and constant weights ``w``."""
    model = onnx.parser.parse_model(f"""
    <ir_version: 8, opset_import: ["" : 18]>
    g (float[{", ".join(map(str, dims))}] x) => (float[m] y) {{ {text} }}""")
    model.graph.output[0].type.tensor_type.ClearField("shape")
    if "Arg" in text:
        model.graph.output[0].type.tensor_type.elem_type = onnx.TensorProto.INT64
    if weights:
        w = np.ones(weights, np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(w, "w"))
    module = import_model(model, None)
    optimize(module, target, CompileOptions(), Report())
    return [low.kernel for low in lower_groups(module)]


def check(text: str, dims: tuple[Any, ...], weights: tuple[int, ...], wanted: str) -> None:
    for name in TARGETS:
        target = parse_target(f"{name},cores=2")
        reducing = [
            k
            for k in kernels(text, dims, weights, target)
            if any(s.kind == "reduce" for s in k.stages)
        ]
        assert reducing
        for kernel in reducing:
            first = next(default_candidates(kernel, target))
            prove(first.kernel)
            assert first.template == wanted, name
            kinds = {n.kind for n in walk(first.kernel.body) if isinstance(n, For)}
            assert "vectorized" in kinds
            assert not slow_stages(kernel, first.kernel, target), name


def case(text: str, *shapes: tuple[Any, ...], by: str) -> Callable[[], None]:
    return lambda: check(text, shapes[0], shapes[1] if len(shapes) > 1 else (), by)


FORMS = {
    **{
        f"product of {n} columns": case("y = MatMul(x, w)", ("m", 256), (256, n), by="tiled")
        for n in (8, 15, 16, 17, 31, 32, 33, 64)
    },
    **{
        f"mean over the middle, {c} inside": case(
            "axes = Constant<value_ints = [1]>() y = ReduceMean(x, axes)", ("n", 64, c), by=by
        )
        for c, by in ((3, "columns"), (8, "columns"), (16, "columns"), (58, "columns"))
    },
    **{
        f"{g} groups": case(
            f"y = Conv<group = {g}, pads = [1, 1, 1, 1]>(x, w)",
            ("n", 5 * g, "h", "w"), (c * g, 5, 3, 3), by="tiled",
        )
        for g, c in ((3, 3), (4, 17), (8, 16))
    },
    "one output, of channels that lie innermost, no padding": case(
        "t = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(x) y = Conv(t, w)",
        (1, 9, 80, 80), (1, 9, 3, 3), by="tiled",
    ),
    "transposed, groups of 16": case(
        "y = ConvTranspose<group = 2, strides = [2, 2]>(x, w)", (1, 20, 30, 30), (20, 16, 3, 3),
        by="tiled",
    ),
    **{
        f"depthwise, {c} channels": case(
            f"y = Conv<group = {c}, pads = [1, 1, 1, 1]>(x, w)",
            ("n", c, "h", "w"), (c, 1, 3, 3), by="tiled",
        )
        for c in (17, 24, 58)
    },
    **{
        f"depthwise, {c} channels, {w} columns": case(
            f"r = Relu(x) y = Conv<group = {c}, pads = [1, 1, 1, 1], strides = [2, 1]>(r, w)",
            (1, c, 41, w), (c, 1, 3, 3), by="tiled",
        )
        for c, w in ((4, 16), (8, 24), (8, 31), (10, 20), (16, 16), (8, "w"))
    },
    **{
        f"one output, steps of {step}": case(
            f"y = Conv<strides = [{step}]>(x, w)", ("n", 1, 20000), (1, 1, 64), by="tiled"
        )
        for step in (1, 2, 3)
    },
    "one output, of channels that lie innermost": case(
        "t = MaxPool<kernel_shape = [2, 2]>(x) y = Conv<pads = [2, 2, 2, 2]>(t, w)",
        ("n", 9, 40, 40), (1, 9, 5, 5), by="tiled",
    ),
    "transposed, each output element from one input element": case(
        "y = ConvTranspose<strides = [2, 2]>(x, w)", ("n", 24, "h", "w"), (24, 32, 2, 2),
        by="tiled",
    ),
    "one row, weights [N, K]": case(
        "t = Transpose<perm = [1, 0]>(x) y = MatMul(w, t)", (300, 512), (1, 512), by="rows"
    ),
    "sigmoid of sums": case(
        "axes = Constant<value_ints = [1]>() s = ReduceSum<keepdims = 0>(x, axes) y = Sigmoid(s)",
        ("n", 40), by="rows",
    ),
    "sum of all": case("y = ReduceSum<keepdims = 0>(x)", ("n", 9), by="rows"),
    **{
        f"softmax of {k}": case("y = Softmax<axis = -1>(x)", ("n", 300, k), by=by)
        for k, by in ((2, "shortrows"), (3, "shortrows"), (15, "shortrows"), (24, "rows"))
    },
    "sum of pairs": case(
        "axes = Constant<value_ints = [1]>() y = ReduceSum(x, axes)", ("n", 2), by="shortrows"
    ),
    "softmax of few rows": case("y = Softmax<axis = -1>(x)", (7, 10), by="rows"),
    **{
        f"greatest of {axis}": case(f"y = ArgMax<axis = {axis}>(x)", ("n", 300, 200), by=by)
        for axis, by in ((1, "columns"), (2, "rows"))
    },
    "softmax of channels": case("y = Softmax<axis = 1>(x)", ("n", 21, "h"), by="columns"),
}  # fmt: skip


@pytest.mark.parametrize("name", FORMS)
def test_form(name: str) -> None:
    FORMS[name]()


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dims", [(2048, 2048), ("a", "b"), (3, 40, 50)])
def test_a_transposition_goes_in_tiles(dims: tuple[Any, ...], target: str) -> None:
    perm = [*range(len(dims) - 2), len(dims) - 1, len(dims) - 2]
    chosen = parse_target(f"{target},cores=2")
    (kernel,) = kernels(f"y = Transpose<perm = {perm}>(x)", dims, (), chosen)
    first = next(default_candidates(kernel, chosen))
    prove(first.kernel)
    # Squares, in tiles of a few cache lines by as many.
    chunks = [str(step) for step in first.schedule if step.name == "chunk"]
    assert len(chunks) >= 2
    assert chunks[0].endswith(" 64)")
    assert chunks[1].endswith(" 64)")
    loops = [n for n in walk(first.kernel.body) if isinstance(n, For) and n.kind == "unrolled"]
    assert any(as_transposition(loop) is not None for loop in loops)
