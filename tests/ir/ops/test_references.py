# SPDX-License-Identifier: Apache-2.0
"""The numpy references of ops against ONNX Runtime, which knows nothing of them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

from tilewright.ir.dtypes import F32, I64
from tilewright.ir.expr import index
from tilewright.ir.op import Array, Op
from tilewright.ir.ops.arg_reduce import Argmax, Argmin
from tilewright.ir.ops.binary import Div, Mod, Pow
from tilewright.ir.ops.cast import Cast
from tilewright.ir.ops.channel_norm import BatchNorm, GroupNorm, InstanceNorm
from tilewright.ir.ops.conv import Conv
from tilewright.ir.ops.conv_transpose import ConvTranspose
from tilewright.ir.ops.cumsum import Cumsum
from tilewright.ir.ops.einsum import Einsum
from tilewright.ir.ops.gather import Gather, GatherElements
from tilewright.ir.ops.gather_nd import GatherNd
from tilewright.ir.ops.layer_norm import LayerNorm
from tilewright.ir.ops.pad import Pad
from tilewright.ir.ops.pool import AvgPool, MaxPool, SumPool
from tilewright.ir.ops.reduce import ReduceMean, ReduceProd
from tilewright.ir.ops.resize import Resize
from tilewright.ir.ops.scatter import ScatterElements, ScatterNd
from tilewright.ir.ops.softmax import LogSoftmax, Softmax
from tilewright.ir.ops.unary import Round
from tilewright.ir.types import tensor


@dataclass
class Case:
    """An op and the ONNX node that should compute the same from the first operands; ``extra`` are
    further inputs.
    """

    op: Op
    node: str
    operands: Sequence[Array]
    attributes: dict[str, Any] = field(default_factory=dict)
    extra: Sequence[Array | None] = ()
    opset: int = 21

    def __str__(self) -> str:
        shapes = "-".join("x".join(map(str, a.shape)) for a in self.operands)
        return f"{self.node}-{shapes}-{self.op}"


def random(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed + len(shape)).standard_normal(shape).astype(np.float32)


def indices(limit: int, *shape: int) -> Array:
    return np.random.default_rng(3).integers(-limit, limit, shape)


def convolutions() -> Iterator[Case]:
    x = random(2, 4, 7, 6)
    for strides, pads, dilations, groups in (
        ((1, 1), (1, 1, 1, 1), (1, 1), 1),
        ((2, 1), (0, 1, 2, 3), (1, 2), 2),
        ((1, 2), (0, 0, 0, 0), (2, 1), 4),
    ):
        attributes = {"strides": strides, "pads": pads, "dilations": dilations, "group": groups}
        w, bias = random(4, 4 // groups, 3, 2), random(4)
        yield Case(Conv(strides, pads, dilations, groups), "Conv", (x, w, bias), attributes)
        w = random(4, 2, 3, 4)
        for extra in {(0, 0), (strides[0] - 1, strides[1] - 1)}:
            op = ConvTranspose(strides, pads, dilations, groups, extra)
            given = {**attributes, "output_padding": extra}
            yield Case(op, "ConvTranspose", (x, w, random(2 * groups)), given)


def pools() -> Iterator[Case]:
    x = random(1, 2, 7, 9)
    for kernel, strides, pads, dilations, ceil in (
        ((2, 2), (2, 2), (0, 0, 0, 0), (1, 1), False),
        ((3, 3), (2, 2), (1, 1, 1, 1), (1, 1), False),
        ((3, 2), (2, 3), (1, 0, 2, 1), (1, 2), False),
        ((2, 2), (2, 2), (0, 0, 0, 0), (1, 1), True),
        ((3, 3), (3, 2), (1, 1, 0, 1), (1, 1), True),
    ):
        given: dict[str, Any] = {
            "kernel_shape": kernel,
            "strides": strides,
            "pads": pads,
            "dilations": dilations,
            "ceil_mode": int(ceil),
        }
        yield Case(MaxPool(kernel, strides, pads, dilations, ceil), "MaxPool", (x,), given)
        for include in (False, True):
            op = AvgPool(kernel, strides, pads, dilations, ceil, include)
            counted = {**given, "count_include_pad": int(include)}
            yield Case(op, "AveragePool", (x,), counted)
        sums = SumPool(kernel, strides, pads, dilations, ceil)
        yield Case(sums, "LpPool", (abs(x),), {**given, "p": 1})


def resizes() -> Iterator[Case]:
    x = random(1, 1, 4, 5)
    for coordinate in (
        "half_pixel",
        "pytorch_half_pixel",
        "align_corners",
        "asymmetric",
        "half_pixel_symmetric",
    ):
        for sizes in ((1, 1, 8, 10), (1, 1, 3, 7), (1, 1, 1, 2)):
            for mode in ("nearest", "linear", "cubic"):
                shape = tuple(map(index, sizes))
                op = Resize(shape, mode, coordinate)
                given = {"mode": mode, "coordinate_transformation_mode": coordinate}
                extra = (None, None, np.array(sizes))
                yield Case(op, "Resize", (x,), given, extra)
    for rounding in ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"):
        op = Resize(tuple(map(index, (1, 1, 8, 3))), "nearest", "asymmetric", rounding)
        given = {
            "mode": "nearest",
            "coordinate_transformation_mode": "asymmetric",
            "nearest_mode": rounding,
        }
        yield Case(op, "Resize", (x,), given, (None, None, np.array((1, 1, 8, 3))))
    scales = np.array((1, 1, 0.6, 1 / 3), np.float32)
    for mode in ("nearest", "linear", "cubic"):
        shape = tuple(map(index, (1, 1, 2, 1)))
        op = Resize(shape, mode, scales=tuple(map(float, scales)))
        yield Case(op, "Resize", (x,), {"mode": mode}, (None, scales))
    exclude = Resize(
        tuple(map(index, (1, 1, 8, 9))), "cubic", cubic_coeff=-0.5, exclude_outside=True
    )
    given = {"mode": "cubic", "exclude_outside": 1, "cubic_coeff_a": -0.5}
    yield Case(exclude, "Resize", (x,), given, (None, None, np.array((1, 1, 8, 9))))
    roi = (0.0, 0.0, 0.2, -0.25, 1.0, 1.0, 0.7, 1.25)
    for mode in ("nearest", "linear"):
        crop = Resize(
            tuple(map(index, (1, 1, 3, 4))), mode, "tf_crop_and_resize", roi=roi, extrapolation=9.0
        )
        given = {
            "mode": mode,
            "coordinate_transformation_mode": "tf_crop_and_resize",
            "extrapolation_value": 9.0,
        }
        extra = (np.array(roi, np.float32), None, np.array((1, 1, 3, 4)))
        yield Case(crop, "Resize", (x,), given, extra)


def norms() -> Iterator[Case]:
    x, row, channels = random(2, 4, 3, 5), random(5, seed=1), random(4, seed=2)
    yield Case(LayerNorm(3, 1e-3), "LayerNormalization", (x, row, row + 1), {"epsilon": 1e-3})
    epsilon = {"epsilon": 1e-2}
    yield Case(InstanceNorm(1e-2), "InstanceNormalization", (x, channels, channels + 1), epsilon)
    yield Case(
        GroupNorm(2, 1e-2),
        "GroupNormalization",
        (x, channels, channels + 1),
        {"num_groups": 2, "epsilon": 1e-2},
    )
    moments = channels + 1, channels * 2, np.abs(channels)
    yield Case(BatchNorm(1e-2), "BatchNormalization", (x, channels, *moments), epsilon)
    yield Case(Softmax(1), "Softmax", (x,), {"axis": 1})
    yield Case(LogSoftmax(2), "LogSoftmax", (x,), {"axis": 2})


def movements() -> Iterator[Case]:
    x = random(4, 5)
    for mode in ("constant", "edge", "reflect", "wrap"):
        begins, ends = (2, 1), (3, 2)
        op = Pad(tuple(map(index, begins)), tuple(map(index, ends)), mode)  # type: ignore[arg-type]
        yield Case(op, "Pad", (x,), {"mode": mode}, (np.array((*begins, *ends)),))
    crop = Pad((index(-1), index(2)), (index(1), index(-2)))
    yield Case(crop, "Pad", (x,), {}, (np.array((-1, 2, 1, -2)),))
    yield Case(Gather(1), "Gather", (x, indices(5, 2, 3)), {"axis": 1})
    yield Case(GatherElements(0), "GatherElements", (x, indices(4, 3, 5)), {"axis": 0})
    yield Case(GatherNd(), "GatherND", (x, indices(4, 6, 2)))
    batched = GatherNd(1)
    yield Case(batched, "GatherND", (random(2, 3, 4), indices(3, 2, 5, 1)), {"batch_dims": 1})
    for reduction in ("none", "add", "mul", "min", "max"):
        place = np.array([[0, -1, 2], [3, 1, -4]])
        operands = x, place, random(2, 3, seed=5)
        op = ScatterElements(0, reduction)  # type: ignore[arg-type]
        yield Case(op, "ScatterElements", operands, {"axis": 0, "reduction": reduction})
        operands = x, np.array([[1], [-1]]), random(2, 5, seed=5)
        nd = ScatterNd(reduction)  # type: ignore[arg-type]
        yield Case(nd, "ScatterND", operands, {"reduction": reduction})


def others() -> Iterator[Case]:
    x = random(3, 4)
    special = np.array([np.nan, np.inf, -np.inf, -0.0, 0.5, 1.5, -2.5, 1e-40], np.float32)
    yield Case(Einsum("ij,kj->ik"), "Einsum", (x, random(2, 4)), {"equation": "ij,kj->ik"})
    equation = "...ij,...jk"
    yield Case(
        Einsum(equation), "Einsum", (random(2, 3, 4), random(1, 4, 2)), {"equation": equation}
    )
    for exclusive in (False, True):
        for reverse in (False, True):
            attributes = {"exclusive": int(exclusive), "reverse": int(reverse)}
            axis = (np.array(1),)
            yield Case(Cumsum(1, exclusive, reverse), "CumSum", (x,), attributes, axis)
    ties = np.array([[1, 3, 3, 0], [2, 2, 1, 2]], np.float32)
    for last in (False, True):
        attributes = {"axis": 1, "keepdims": 0, "select_last_index": int(last)}
        yield Case(Argmax(1, False, last), "ArgMax", (ties,), attributes)
        yield Case(Argmin(1, False, last), "ArgMin", (ties,), attributes)
    yield Case(Round(), "Round", (special,))
    for dtype, code in ((F32, TensorProto.FLOAT), (I64, TensorProto.INT64)):
        yield Case(Cast(dtype), "Cast", (x * 3,), {"to": code})
    a, b = np.array([7, -7, 7, -7, -(2**31)]), np.array([2, 2, -2, -2, 3])
    small = a.astype(np.int32), b.astype(np.int32)
    yield Case(Div(), "Div", small)
    yield Case(Mod(), "Mod", small)
    yield Case(Pow(), "Pow", (a[:4].astype(np.int32), np.array([3, 2, 1, 0], np.int32)))
    yield Case(ReduceMean((1,), True), "ReduceMean", (x,), {}, (np.array([1]),))
    yield Case(ReduceProd((0, 1), False), "ReduceProd", (x,), {"keepdims": 0}, (np.array([0, 1]),))


CASES = [
    case for table in (convolutions, pools, resizes, norms, movements, others) for case in table()
]


def run_node(case: Case) -> Array:
    """What ONNX Runtime computes."""
    given = [*case.operands, *case.extra]
    names = ["" if a is None else f"i{n}" for n, a in enumerate(given)]
    feeds = {n: a for n, a in zip(names, given, strict=True) if a is not None}
    inputs = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for n, a in feeds.items()
    ]
    node = helper.make_node(case.node, names, ["y"], **case.attributes)
    graph = helper.make_graph([node], "g", inputs, [onnx.ValueInfoProto(name="y")])
    opset = helper.make_opsetid("", case.opset)
    model = helper.make_model(graph, opset_imports=[opset], ir_version=10)
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    session = ort.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
    return np.asarray(session.run(None, feeds)[0])


@pytest.mark.parametrize("case", CASES, ids=str)
def test_reference_agrees_with_onnx_runtime(case: Case) -> None:
    expected = run_node(case)
    types = [tensor(F32 if a.dtype == np.float32 else I64, a.shape) for a in case.operands]
    if all(a.dtype in (np.float32, np.int64) for a in case.operands):
        assert case.op.infer(types)[0].static_shape == expected.shape
    (actual,) = case.op.reference(*case.operands)
    assert actual.dtype == expected.dtype
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)
