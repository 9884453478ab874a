# SPDX-License-Identifier: Apache-2.0
"""Sizes that a model computes from the shape of its input in any way: held to ONNX Runtime when the
import is interpreted, and when it is compiled.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import tilewright
from tests.frontends.onnx_running import imported, model_of
from tilewright.errors import InputError
from tilewright.frontends.onnx import import_model
from tilewright.ir.errors import UnsupportedOperatorError
from tilewright.ir.interpreter.graphs import interpret_graph

CONSTANTS = """<int64[1] zero = {0}, int64[1] one = {1}, int64[1] two = {2}, int64[1] three = {3},
    int64[1] four = {4}, int64[1] seven = {7}, int64[1] ten = {10}, int64[1] fifteen = {15},
    int64[1] twenty = {20}, int64[1] down = {-7}, int64 axis = {0}, int64 unit = {1},
    float[1] fraction = {0.7}, float[1] half = {0.5}, float[1] large = {20.5}, float single = {1}>
"""
FLOATS = "f = Cast<to = 1>(d) "
SIZES = (1, 2, 3, 9, 10, 20, 24, 36)
ROWS = {
    "floor": FLOATS + "a = Mul(f, fraction) b = Floor(a) r = Cast<to = 7>(b)",
    "ceil": FLOATS + "a = Div(f, fraction) b = Ceil(a) r = Cast<to = 7>(b)",
    "round": FLOATS + "a = Mul(f, half) b = Round(a) r = Cast<to = 7>(b)",
    "a sum of products": FLOATS + "a = Mul(f, fraction) b = Add(a, half) r = Cast<to = 7>(b)",
    "sqrt": FLOATS + "a = Sqrt(f) r = Cast<to = 7>(a)",
    "exp": FLOATS + "a = Div(f, ten_) b = Exp(a) r = Cast<to = 7>(b)".replace("ten_", "large"),
    "log": FLOATS + "a = Mul(f, f) b = Log(a) r = Cast<to = 7>(b)",
    "pow of floats": FLOATS + "a = Pow(f, half) r = Cast<to = 7>(a)",
    "reciprocal": FLOATS + "a = Reciprocal(f) b = Reciprocal(a) r = Cast<to = 7>(b)",
    "abs of floats": FLOATS + "a = Sub(f, large) b = Abs(a) r = Cast<to = 7>(b)",
    "fmod": FLOATS + "a = Mod<fmod = 1>(f, large) r = Cast<to = 7>(a)",
    "min and max of floats": FLOATS + "a = Min(f, large) b = Max(a, half) r = Cast<to = 7>(b)",
    "a function of the standard": FLOATS + "a = Elu(f) r = Cast<to = 7>(a)",
    "where on floats": FLOATS
    + "c = Less(f, large) a = Mul(f, half) b = Where(c, f, a) r = Cast<to = 7>(b)",
    "double": "f = Cast<to = 11>(d) a = Sqrt(f) r = Cast<to = 7>(a)",
    "half precision": "f = Cast<to = 10>(d) a = Sqrt(f) b = Floor(a) r = Cast<to = 7>(b)",
    "division to zero": "a = Sub(d, twenty) b = Div(a, three) r = Add(b, ten)",
    "division by a negative": "a = Div(d, down) r = Add(a, twenty)",
    "division by a dim": "a = Sub(twenty, d) b = Div(a, d) r = Add(b, ten)",
    "mod": "a = Sub(d, twenty) r = Mod(a, seven)",
    "mod by a negative": "a = Mod(d, down) r = Add(a, seven)",
    "mod with the sign of the dividend": "a = Sub(d, twenty) b = Mod<fmod = 1>(a, seven) "
    "r = Add(b, seven)",
    "mod by a dim": "a = Sub(twenty, d) b = Mod(a, d) r = Add(b, one)",
    "abs": "a = Sub(ten, d) r = Abs(a)",
    "sign": "a = Sub(ten, d) b = Sign(a) r = Add(b, one)",
    "pow": "r = Pow(d, three)",
    "pow of a dim": "a = Div(d, four) r = Pow(two, a)",
    "clip": "low = Squeeze(three) high = Squeeze(twenty) r = Clip(d, low, high)",
    "where": "c = Equal(d, ten) r = Where(c, three, d)",
    "logic": "c = Greater(d, three) e = Less(d, twenty) a = And(c, e) b = Not(a) g = Or(b, c) "
    "x_ = Xor(g, e) r = Where(x_, d, seven)",
    "a condition as a number": "c = Greater(d, ten) a = Cast<to = 6>(c) r = Cast<to = 7>(a)",
    "bits": "a = BitwiseAnd(d, ten) b = BitwiseXor(a, seven) r = BitwiseOr(b, one)",
    "narrow integers": "a = Mul(d, twenty) b = Cast<to = 3>(a) c = Cast<to = 7>(b) r = Abs(c)",
    "prod": "a = Concat<axis = 0>(d, two, d) r = ReduceProd<keepdims = 1>(a)",
    "sum": "a = Concat<axis = 0>(d, two, d) r = ReduceSum<keepdims = 1>(a)",
    "max": "a = Concat<axis = 0>(d, two, fifteen) r = ReduceMax(a)",
    "min": "a = Concat<axis = 0>(d, two, fifteen) r = ReduceMin(a)",
    "mean": FLOATS + "a = Concat<axis = 0>(f, half) b = ReduceMean(a) r = Cast<to = 7>(b)",
    "cumsum": "a = Concat<axis = 0>(d, two, fifteen) r = CumSum(a, axis)",
    "cumsum backwards": "a = Concat<axis = 0>(d, two) r = CumSum<exclusive = 1, reverse = 1>"
    "(a, axis)",
    "argmax": "a = Concat<axis = 0>(d, two, fifteen) r = ArgMax(a)",
    "argmin": "a = Concat<axis = 0>(d, two, two) r = ArgMin<select_last_index = 1>(a)",
    "gather at a dim": "a = Concat<axis = 0>(d, two, fifteen) c = Greater(d, ten) "
    "b = Cast<to = 7>(c) e = Neg(b) r = Gather(a, e)",
    "split": "a = Concat<axis = 0>(d, two) b, c = Split<num_outputs = 2>(a) r = Mul(b, c)",
    "a range from a dim": "a = Squeeze(d) b = Squeeze(ten) c = Add(a, b) r = Range(a, c, unit)",
    "an if": """c = Equal(d, ten) r = If (c) <
        then_branch = t () => (int64[1] u) { u = Identity(three) },
        else_branch = e () => (int64[1] v) { v = Add(d, three) }>""",
}


def model(row: str, last: str) -> onnx.ModelProto:
    """A model that computes ``r`` from the size ``d`` of ``x``, and ``y`` from that."""
    text = f"g (uint8[n] x) => (int64[m] y) {CONSTANTS} {{ d = Shape(x) {row} {last} }}"
    made = model_of(text, 18)
    made.graph.output[0].type.tensor_type.ClearField("shape")
    return made


def by_runtime(made: onnx.ModelProto) -> Callable[[int], Any]:
    """What ONNX Runtime gives for a size of the input."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(made.SerializeToString(), options)
    return lambda size: session.run(None, {"x": np.zeros(size, np.uint8)})[0]


@pytest.mark.parametrize("case", ROWS)
def test_the_interpreter_agrees_with_the_runtime(case: str) -> None:
    made = model(ROWS[case], "y = Identity(r)")
    runtime, symbolic = by_runtime(made), import_model(made)
    for size in SIZES:
        feeds, expected = {"x": np.zeros(size, np.uint8)}, runtime(size)
        np.testing.assert_array_equal(interpret_graph(symbolic, feeds)["y"], expected)
        np.testing.assert_array_equal(imported(made, feeds, shapes={"x": (size,)})["y"], expected)


@pytest.mark.parametrize("case", ["floor", "half precision", "division to zero", "an if", "pow"])
def test_a_length_of_a_compiled_model(case: str) -> None:
    made = model(ROWS[case], "s = Squeeze(r) zero_ = Squeeze(zero) y = Range(zero_, s, unit)")
    compiled, runtime = tilewright.compile(made), by_runtime(made)
    for size in SIZES:
        np.testing.assert_array_equal(compiled(np.zeros(size, np.uint8)), runtime(size))


NONSENSE = {
    "negative": ("r = Sub(d, ten)", 9, "A result would have size -1 .n - 10.", 10),
    "not a number": (
        FLOATS + "a = Sub(f, large) b = Sqrt(a) r = Cast<to = 7>(b)",
        9,
        "A size would follow from a number that is no integer of 64 bits",
        30,
    ),
    "infinite": (
        "f = Cast<to = 10>(d) r = Cast<to = 7>(f)",
        70_000,
        "A size would follow from a number that is no integer of 64 bits",
        10,
    ),
    "divided by 0": ("a = Sub(d, ten) r = Div(twenty, a)", 10, "A size would be divided by 0", 12),
    "divided by a size of 0": (
        "a = Sub(d, ten) b = Max(a, zero) r = Div(twenty, b)",
        9,
        "A size would be divided by 0 .max.0, n - 10..",
        12,
    ),
    "a remainder by 0": ("a = Sub(d, ten) r = Mod(d, a)", 10, "A size would be divided by 0", 12),
}


@pytest.mark.parametrize("case", NONSENSE)
def test_sizes_that_make_no_sense_name_the_node(case: str) -> None:
    row, size, message, sensible = NONSENSE[case]
    made = model(row, "")
    node = onnx.helper.make_node("Expand", ["unit", "r"], ["y"], name="the_node")
    made.graph.node.append(node)
    compiled = tilewright.compile(made)
    with pytest.raises(InputError, match=f"^Node 'the_node': {message}"):
        compiled(np.zeros(size, np.uint8))
    assert compiled(np.zeros(sensible, np.uint8)).ndim == 1


def test_a_step_of_0_is_no_length() -> None:
    made = model("a = Sub(d, ten) s = Squeeze(a) t = Squeeze(twenty)", "y = Range(axis, t, s)")
    compiled, runtime = tilewright.compile(made), by_runtime(made)
    for size in (1, 9, 11, 15):
        np.testing.assert_array_equal(compiled(np.zeros(size, np.uint8)), runtime(size))
    with pytest.raises(InputError, match="A result would have size -1"):
        compiled(np.zeros(10, np.uint8))


@pytest.mark.parametrize(
    ("row", "sizes"),
    [
        ("r = Max(d, one)", (0, 1, 5)),
        ("c = Equal(d, zero) r = Where(c, one, d)", (0, 1, 5)),
        ("c = Equal(d, zero) a = Max(d, one) b = Div(ten, a) r = Where(c, three, b)", (0, 1, 5)),
    ],
)
def test_an_empty_input_that_the_model_provides_for(row: str, sizes: tuple[int, ...]) -> None:
    made = model(row, "y = Expand(unit, r)")
    compiled, runtime = tilewright.compile(made), by_runtime(made)
    for size in sizes:
        assert compiled(np.zeros(size, np.uint8)).shape == runtime(size).shape


def test_floats_that_follow_from_shapes_are_computed_by_ordinary_nodes() -> None:
    """Not by a choice of one of many expressions: a vector may be long."""
    text = """
    g (uint8[n] x) => (float16[32] y) {
      d = Shape(x)
      f = Cast<to = 10>(d)
      a = Mul(f, c)
      y = Sqrt(a)
    }"""
    c = (1e4 ** (-np.arange(32) / 32)).astype(np.float16)
    made = model_of(text, 18, {"c": c})
    assert [n.op.name for n in import_model(made).graph.nodes if n.op.name != "constant"] == [
        "dim_values",
        "cast",
        "mul",
        "sqrt",
    ]
    for size in (1, 32, 300):
        found = imported(made, {"x": np.zeros(size, np.uint8)})["y"]
        np.testing.assert_allclose(found, np.sqrt(np.float16(size) * c), rtol=1e-3)


def test_conditions_and_choices_of_floats_as_tensors() -> None:
    text = """
    g (float[n] x) => (float[1] y, bool[1] c) <int64[1] ten = {10}, float[1] half = {0.5}> {
      d = Shape(x)
      c = Less(d, ten)
      f = Cast<to = 1>(d)
      y = If (c) <
        then_branch = t () => (float[1] u) { u = Mul(f, half) },
        else_branch = e () => (float[1] v) { v = Sqrt(f) }>
    }"""
    made = model_of(text, 18)
    for size in (1, 9, 10, 25):
        found = imported(made, {"x": np.zeros(size, np.float32)})
        assert found["c"] == [size < 10]
        np.testing.assert_allclose(found["y"], [size / 2 if size < 10 else size**0.5], rtol=1e-6)


def test_a_long_chain_is_followed_and_made_a_tensor() -> None:
    steps = "\n".join(f"a{i + 1} = Identity(a{i})" for i in range(3000))
    text = f"g (float[n] x) => (float[1] y) {{ d = Shape(x) a0 = Cast<to = 1>(d) {steps}"
    made = model_of(f"{text} y = Exp(a3000) }}", 18)
    found = imported(made, {"x": np.zeros(2, np.float32)})["y"]
    np.testing.assert_allclose(found, np.exp(np.float32([2])), rtol=1e-6)


def test_branches_that_compute_tensors_say_which_dims_to_fix() -> None:
    text = """
    g (float[n] x) => (float[m] y) <int64[1] ten = {10}> {
      d = Shape(x)
      c = Less(d, ten)
      y = If (c) <
        then_branch = t () => (float[m] u) { u = Neg(x) },
        else_branch = e () => (float[m] v) { v = Exp(x) }>
    }"""
    made = model_of(text, 18)
    with pytest.raises(UnsupportedOperatorError, match="its condition depends on the symbolic dim"):
        import_model(made)
    import_model(made, {"x": (5,)})


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("step", [0.1, 0.7, -0.3])
def test_lengths_of_ranges_are_computed_in_their_type(dtype: Any, step: float) -> None:
    """Also where the numbers of the range are computed in a wider one."""
    text = """
    g (uint8[n] x) => (int64 length, double first) {
      d = Shape(x)
      s = Squeeze(d)
      n = CastLike(s, k)
      y = Range(%s, k)
      length = Size(y)
      a = Cast<to = 11>(y)
      first = ReduceMax<keepdims = 0>(a)
    }"""
    ends, k = ("zero, n" if step > 0 else "n, zero"), dtype(step)
    made = model_of(text % ends, 20, {"k": np.asarray(k), "zero": np.asarray(dtype(0))})
    symbolic = import_model(made)
    for size in (1, 3, 7, 10, 21, 50):
        quotient = dtype(size) / abs(k)
        feeds = {"x": np.zeros(size, np.uint8)}
        for found in (
            interpret_graph(symbolic, feeds),
            imported(made, feeds, shapes={"x": [size]}),
        ):
            assert found["length"] == math.ceil(quotient)
            assert abs(found["first"] - (size if step < 0 else size - abs(k))) <= abs(k)


def test_half_precision_numbers_of_shapes_in_an_operator_of_several_steps() -> None:
    """It is made again in float32: not so what it was given, which stays rounded."""
    text = """
    g (float16[n] x) => (float16[n] y) {
      d = Shape(x)
      a = Cast<to = 10>(d)
      b = Mul(a, third)
      c = Sqrt(b)
      e = Concat<axis = 0>(c, third)
      f = LpNormalization<axis = 0>(e)
      g = Slice(f, zero, one)
      y = Mul(x, g)
    }"""
    third = np.array([1 / 3], np.float16)
    constants = {"third": third, "zero": np.array([0]), "one": np.array([1])}
    made = model_of(text, 18, constants)
    compiled = tilewright.compile(made)
    for size in (1, 10, 1001):
        root = np.sqrt(np.float16(size) * third)
        pair = np.concatenate([root, third]).astype(np.float32)
        expected = pair[0] / np.sqrt((pair * pair).sum())
        found = compiled(np.ones(size, np.float16))
        np.testing.assert_allclose(found, np.full(size, expected), rtol=1e-3)
