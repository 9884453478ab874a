# SPDX-License-Identifier: Apache-2.0
"""Operators on 16-bit floats compute in f32 and are rounded once, whatever they are made of.

Each is held to the same node in float64 on the same numbers: the result is the nearest 16-bit
number to that, up to what f32 loses. Numbers whose squares or sums leave the range of float16 are
among them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import helper

import tilewright
from tests.frontends.onnx_running import imported
from tests.frontends.onnx_running import model_of as parsed
from tilewright.frontends.onnx import import_model
from tilewright.frontends.onnx.functions import has_standard_body
from tilewright.frontends.onnx.registry import NEWEST_OPSET, supported_operators
from tilewright.ir.dtypes import F16, F32
from tilewright.ir.interpreter.graphs import interpret_graph
from tilewright.ir.verify_graph import verify_module

Array = np.ndarray[Any, Any]

OPSET = 24
HALVES = {"float16": np.dtype(np.float16), "bfloat16": np.dtype(ml_dtypes.bfloat16)}
F32_LOSS = 2.0**-19
"""What steps in f32 may lose, relative to the largest number that they meet."""


def normal(*shape: int, scale: float = 1.0, shift: float = 0.0) -> Array:
    return np.random.default_rng(len(shape)).standard_normal(shape) * scale + shift


def full(number: float, *shape: int) -> Array:
    return np.full(shape, float(number))


X, IMAGE, POSITIVE = normal(3, 40), normal(2, 4, 5, 6), np.abs(normal(3, 40)) + 0.1
GREAT, SMALL = full(300, 1, 64), full(1e-4, 1, 64)
VECTOR = normal(4)
AXIS = np.array([1])

# Operator, inputs (integers stay as they are), attributes.
CASES: dict[str, tuple[str, list[Any], dict[str, Any]]] = {
    name: (name.split(",")[0], inputs, attributes)
    for name, inputs, attributes in [
        # reductions
        *((f"Reduce{kind}", [X, AXIS], {}) for kind in ("L1", "L2", "Sum", "SumSquare", "Mean")),
        *((f"Reduce{kind}", [POSITIVE, AXIS], {}) for kind in ("LogSum", "LogSumExp", "Prod")),
        *((f"Reduce{kind}, great", [GREAT], {}) for kind in ("L1", "L2", "Mean", "LogSum")),
        ("ReduceLogSumExp, great", [GREAT], {}),
        ("ReduceL2, small", [SMALL], {}),
        ("ReduceMean, many", [full(300, 1, 70000)], {}),
        ("LpNormalization", [X], {}),
        ("LpNormalization, one", [X], {"p": 1}),
        ("LpNormalization, great", [GREAT], {}),
        ("LpNormalization, small", [SMALL], {}),
        ("LpNormalization, long", [full(300, 1, 4096)], {"p": 1}),
        ("CumSum", [X, np.array(1)], {}),
        ("Sum", [X, X * 0.1, X * 0.01], {}),
        ("Sum, great", [full(60000, 4), full(60000, 4), full(-60000, 4)], {}),
        ("Mean", [X, X * 0.1, X * 0.01], {}),
        ("Mean, great", [full(60000, 4), full(60000, 4)], {}),
        # normalisations
        ("LayerNormalization", [X, normal(40), normal(40)], {}),
        ("LayerNormalization, great", [normal(3, 40, scale=300), normal(40)], {}),
        ("RMSNormalization", [X, normal(40)], {}),
        ("RMSNormalization, great", [GREAT, full(1, 64)], {}),
        ("InstanceNormalization", [IMAGE, VECTOR, VECTOR], {}),
        ("GroupNormalization", [IMAGE, VECTOR, VECTOR], {"num_groups": 2}),
        ("BatchNormalization", [IMAGE, VECTOR, VECTOR, VECTOR, VECTOR**2], {}),
        ("BatchNormalization, flat", [X, *[normal(40)] * 3, normal(40) ** 2], {}),
        ("MeanVarianceNormalization", [IMAGE], {}),
        ("MeanVarianceNormalization, great", [normal(2, 4, 5, 6, scale=300)], {}),
        ("LRN", [IMAGE], {"size": 3, "alpha": 0.1}),
        ("LRN, great", [full(300, 1, 1, 2, 2)], {"size": 1, "alpha": 0.1}),
        ("Softmax", [X], {}),
        ("LogSoftmax", [X], {}),
        # pools
        ("AveragePool", [IMAGE], {"kernel_shape": [3, 3]}),
        ("AveragePool, padded", [IMAGE], {"kernel_shape": [3, 3], "auto_pad": "SAME_UPPER"}),
        ("GlobalAveragePool", [IMAGE], {}),
        ("LpPool", [IMAGE], {"kernel_shape": [2, 2]}),
        ("LpPool, cubes", [IMAGE], {"kernel_shape": [2, 2], "p": 3}),
        ("LpPool, great", [full(300, 1, 1, 8, 8)], {"kernel_shape": [8, 8]}),
        ("LpPool, small", [full(1e-4, 1, 1, 8, 8)], {"kernel_shape": [8, 8]}),
        ("GlobalLpPool", [IMAGE], {}),
        ("GlobalLpPool, great", [full(300, 1, 2, 8, 8)], {}),
        # contractions
        ("MatMul", [X, normal(40, 5)], {}),
        ("Gemm", [X, normal(40, 5), normal(5)], {"alpha": 0.3, "beta": 0.7}),
        ("Gemm, great", [GREAT, full(300, 64, 2), full(1, 2)], {"alpha": 1e-3}),
        ("Conv", [IMAGE, normal(6, 4, 3, 3), normal(6)], {}),
        ("ConvTranspose", [IMAGE, normal(4, 3, 3, 3), normal(3)], {}),
        ("Einsum", [X, normal(40, 5)], {"equation": "ij,jk->ik"}),
        ("Attention", [normal(1, 2, 5, 8), normal(1, 2, 7, 8), normal(1, 2, 7, 8)], {}),
        ("Attention, great", [full(300, 1, 1, 2, 8), *[full(300, 1, 1, 3, 8)] * 2], {}),
        # activations
        *(
            (name, [normal(50, scale=3)], {})
            for name in (
                "Celu", "Elu", "Gelu", "HardSigmoid", "HardSwish", "LeakyRelu", "Mish", "Selu",
                "Shrink", "Sigmoid", "Softplus", "Softsign", "Swish", "Tanh", "ThresholdedRelu",
                "Erf", "Exp", "Sin", "Cos", "Sinh", "Cosh", "Asinh", "Atan", "Tan",
            )
        ),
        ("Gelu, tanh", [normal(50, scale=3)], {"approximate": "tanh"}),
        ("Gelu, great", [full(300, 4)], {"approximate": "tanh"}),
        ("Elu, steep", [normal(50)], {"alpha": 0.3}),
        ("Celu, steep", [normal(50)], {"alpha": 0.3}),
        ("PRelu", [X, normal(40)], {}),
        *((name, [normal(50) / 4], {}) for name in ("Asin", "Acos", "Atanh")),
        ("Acosh", [POSITIVE + 1], {}),
        *((name, [POSITIVE], {}) for name in ("Log", "Sqrt", "Reciprocal")),
        # elementwise
        *((name, [X, normal(40)], {}) for name in ("Add", "Sub", "Mul", "Div")),
        ("Pow", [POSITIVE, normal(40)], {}),
        ("Pow, integer", [POSITIVE, np.array(3)], {}),
        ("Resize", [IMAGE, None, np.array([1, 1, 1.7, 2.3], np.float32)], {"mode": "linear"}),
        ("Resize, cubic", [IMAGE, None, np.array([1, 1, 1.7, 2.3], np.float32)], {"mode": "cubic"}),
        ("RotaryEmbedding", [normal(2, 3, 4, 8), normal(9, 4), normal(9, 4),
                             np.arange(8).reshape(2, 4) % 9], {}),
        ("AffineGrid", [normal(2, 2, 3), np.array([2, 3, 4, 5])], {}),
        ("NegativeLogLikelihoodLoss", [X, np.array([1, 5, 7]), POSITIVE[0]], {}),
        ("SoftmaxCrossEntropyLoss", [X, np.array([1, 5, 7]), POSITIVE[0]], {}),
    ]
}  # fmt: skip

# What chooses, moves, compares or counts: nothing is rounded, or not to the type of an operand.
EXACT = """
Abs ArgMax ArgMin Bernoulli BlackmanWindow Cast CastLike Ceil CenterCropPad Clip Compress Concat
Constant ConstantOfShape DepthToSpace Dropout Equal Expand EyeLike Flatten Floor Gather
GatherElements GatherND GlobalMaxPool Greater GreaterOrEqual HammingWindow HannWindow Hardmax
Identity If IsInf IsNaN Less LessOrEqual Max MaxPool Min Mod Neg OneHot Pad Range ReduceMax
ReduceMin Relu Reshape Round Scatter ScatterElements ScatterND Shape Sign Size Slice SpaceToDepth
Split Squeeze Tile Transpose Trilu Unsqueeze Upsample Where
"""
# Newer than the operator set of the cases.
NEWER = {"CausalConvWithState", "LinearAttention", "SequenceMap", "SwiGLU"}


def model_of(op: str, inputs: list[Any], attributes: dict[str, Any], dtype: Any) -> tuple[Any, Any]:
    """The node on numbers of a type, and its feeds; integers and float32 are not converted."""
    feeds = {
        f"x{i}": x.astype(dtype) if x.dtype == np.float64 else x
        for i, x in enumerate(inputs)
        if x is not None
    }
    names = ["" if x is None else f"x{i}" for i, x in enumerate(inputs)]
    constant = {n for n, x in feeds.items() if x.dtype.kind == "i" and op != "RotaryEmbedding"}
    constant |= {n for n, x in feeds.items() if op == "Resize" and x.dtype == np.float32}
    infos = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
        for n, x in feeds.items()
        if n not in constant
    ]
    graph = helper.make_graph(
        [helper.make_node(op, names, ["y"], **attributes)],
        "g",
        infos,
        [helper.make_empty_tensor_value_info("y")],
        [onnx.numpy_helper.from_array(feeds[n], n) for n in sorted(constant)],
    )
    opsets = [helper.make_opsetid("", OPSET)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    return model, {n: x for n, x in feeds.items() if n not in constant}


def both(name: str, half: str, run: Callable[[Any, Any], Array]) -> tuple[Array, Array]:
    """What the case gives in the 16-bit type, and in float64 on the same numbers."""
    op, inputs, attributes = CASES[name]
    dtype = HALVES[half]
    rounded = [
        x.astype(dtype).astype(np.float64) if x is not None and x.dtype == np.float64 else x
        for x in inputs
    ]
    return (
        run(*model_of(op, rounded, attributes, dtype)),
        run(*model_of(op, rounded, attributes, np.dtype(np.float64))),
    )


def check(found: Array, wanted: Array, half: str) -> None:
    """The nearest number of the type, up to what steps in f32 lose of the largest."""
    dtype = HALVES[half]
    assert found.dtype == dtype and found.shape == wanted.shape
    info = ml_dtypes.finfo(dtype)
    size = np.maximum(np.abs(wanted), float(info.smallest_normal))
    spacing = 2.0 ** np.floor(np.log2(size)) * float(info.eps)
    loss = F32_LOSS * max(1.0, float(np.abs(wanted).max()))
    assert np.isfinite(found.astype(np.float64)).all()
    error = np.abs(found.astype(np.float64) - wanted)
    worst = float(((error - loss) / spacing).max())
    assert worst <= 0.5, f"{worst:.3f} units in the last place"


def interpreted(model: Any, feeds: Any) -> Array:
    module = import_model(model)
    verify_module(module)
    (found,) = interpret_graph(module, feeds).values()
    return found


def compiled(model: Any, feeds: Any) -> Array:
    (found,) = tilewright.compile(model).run(feeds).values()
    return np.asarray(found)


@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize("name", CASES)
def test_operators_are_rounded_once(name: str, half: str) -> None:
    check(*both(name, half, interpreted), half)


def test_every_operator_is_looked_at() -> None:
    """An operator that is new here has a case, or rounds nothing."""
    known = {op for op, _, _ in CASES.values()} | set(EXACT.split()) | NEWER
    standard = {s.name for s in onnx.defs.get_all_schemas() if not s.domain}
    handled = {name for domain, name in supported_operators() if not domain} & standard
    by_body = {name for name in standard if has_standard_body("", name, NEWEST_OPSET)}
    for name in sorted(handled | by_body):
        types = {
            t for c in onnx.defs.get_schema(name).type_constraints for t in c.allowed_type_strs
        }
        assert "tensor(float16)" not in types or name in known, name


def test_one_step_stays_in_its_type() -> None:
    """A matrix product has one rounding anyway, and its weights need not be converted."""
    module = import_model(model_of("MatMul", [X, normal(40, 5)], {}, np.dtype(np.float16))[0])
    assert [node.op.name for node in module.graph.nodes] == ["matmul"]


def test_weights_of_gemm_keep_their_size() -> None:
    x, w, c = (a.astype(np.float16) for a in (X, normal(40, 5), normal(5)))
    module = import_model(model_of("Gemm", [x, w, c], {"alpha": 0.3}, np.dtype(np.float16))[0])
    (product,) = [n for n in module.graph.nodes if n.op.name == "matmul"]
    assert [v.type.dtype for v in (*product.operands, product.result)] == [F16, F16, F32]


@pytest.mark.parametrize("half", [np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize(("left", "right"), [(0, 1), (1, 0), (1, 1)])
def test_a_product_of_what_is_transposed_is_rounded_once(half: Any, left: int, right: int) -> None:
    """The product that reads its operands as they lie is of the type of the one before."""
    a, b = (np.full(shape, 1 + 2.0**-7).astype(half) for shape in ((5, 3), (3, 4)))
    inputs = [a.T if left else a, b.T if right else b]
    attributes = {"transA": left, "transB": right, "alpha": 0.3}
    model = model_of("Gemm", inputs, attributes, np.dtype(half))[0]
    compiled = tilewright.compile(model, options=tilewright.CompileOptions(cache=False))
    found = compiled(*(np.ascontiguousarray(x) for x in inputs))
    exact = np.float32(0.3) * (a.astype(np.float64) @ b.astype(np.float64))
    np.testing.assert_array_equal(found, exact.astype(half))


def test_a_number_of_the_node_is_not_rounded_first() -> None:
    module = import_model(model_of("LeakyRelu", [X], {}, np.dtype(np.float16))[0])
    assert [n.op.name for n in module.graph.nodes if n.op.name == "cast"] == ["cast", "cast"]
    exact = import_model(model_of("LeakyRelu", [X], {"alpha": 0.25}, np.dtype(np.float16))[0])
    assert "cast" not in [n.op.name for n in exact.graph.nodes]


def test_results_of_other_types_stay() -> None:
    inputs = [X.astype(np.float16), normal(40).astype(np.float16)]
    names = {"x": inputs[0], "s": inputs[1]}
    model = parsed(
        "g (float16[3,40] x, float16[40] s) => (float16[3,40] y, float[3,1] m)"
        "{ y, m = LayerNormalization(x, s) }"
    )
    found = imported(model, names)
    assert found["y"].dtype == np.float16 and found["m"].dtype == np.float32
    mean = inputs[0].astype(np.float64).mean(axis=1, keepdims=True)
    np.testing.assert_allclose(found["m"], mean, rtol=1e-6)


def test_a_models_own_function_rounds_where_it_says() -> None:
    """Its nodes have types of their own: the product is infinite."""
    model = parsed("g (float16[2] x) => (float16[2] y) { y = Abs(x) }")
    model.opset_import.append(helper.make_opsetid("own", 1))
    nodes = [helper.make_node("Mul", ["a", "a"], ["b"]), helper.make_node("Sqrt", ["b"], ["c"])]
    opsets = [helper.make_opsetid("", 18)]
    model.functions.append(helper.make_function("own", "Twice", ["a"], ["c"], nodes, opsets))
    (node,) = model.graph.node
    node.domain, node.op_type = "own", "Twice"
    found = imported(model, {"x": np.array([300, 3], np.float16)})["y"]
    assert found.tolist() == [np.inf, 3]


def test_constants_that_were_made_for_the_first_try_are_made_again() -> None:
    """An initialiser that two nodes use, one of which takes several steps."""
    model = parsed(
        "g (float16[2,8] x) => (float16[2,8] y, float16[2,8] z)"
        "{ y = RMSNormalization(x, w) z = Mul(x, w) }",
        opset=23,
        initializers={"w": np.full(8, 3, np.float16)},
    )
    x = np.full((2, 8), 300, np.float16)
    found = imported(model, {"x": x})
    assert (found["y"] == 3).all() and (found["z"] == 900).all()
    verify_module(import_model(model))


COMPILED = (
    "ReduceL2, great", "ReduceLogSum, great", "ReduceMean, many", "LpNormalization, small", "LRN",
    "LpPool, great", "BatchNormalization", "LayerNormalization, great", "Gemm, great",
    "Mean, great", "Gelu, great", "Mish", "Attention", "MeanVarianceNormalization, great", "Conv",
    "CumSum", "Resize", "Softmax", "ReduceProd",
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize("name", COMPILED)
def test_compiled_operators_are_rounded_once(name: str, half: str) -> None:
    check(*both(name, half, compiled), half)
