# SPDX-License-Identifier: Apache-2.0
"""Symbolic shape arithmetic: what chains of Shape, Gather, Concat and the like become."""

from typing import Any

import numpy as np
import pytest

from tests.frontends.onnx_running import check_against_runtime, expected, imported, model_of
from tests.targets import NARROW
from tilewright.frontends.onnx import import_model
from tilewright.ir.errors import FrontendError, UnsupportedOperatorError
from tilewright.ir.graph import Module
from tilewright.passes.graph.narrow_symbols import NarrowSymbols
from tilewright.passes.manager import PassContext, run_passes


def types(module: Module) -> list[str]:
    return [str(v.type) for v in module.graph.outputs]


def ops(module: Module) -> list[str]:
    return [n.op.name for n in module.graph.nodes]


# --- chains ---------------------------------------------------------------------------------------

SPLIT_HEADS = """
g (float[batch, seq, 768] x) => (float[a, b, c, d] y) {
  shape = Shape(x)
  zero = Constant<value = int64 {0}>()
  one = Constant<value = int64 {1}>()
  b0 = Gather<axis = 0>(shape, zero)
  s0 = Gather<axis = 0>(shape, one)
  axes = Constant<value = int64[1] {0}>()
  b1 = Unsqueeze(b0, axes)
  s1 = Unsqueeze(s0, axes)
  rest = Constant<value = int64[2] {12, -1}>()
  target = Concat<axis = 0>(b1, s1, rest)
  heads = Reshape(x, target)
  y = Transpose<perm = [0, 2, 1, 3]>(heads)
}
"""


def test_heads_are_split_without_run_time_shapes() -> None:
    module = import_model(model_of(SPLIT_HEADS))
    assert types(module) == ["f32[batch,12,seq,64]"]
    assert ops(module) == ["reshape", "transpose"]


def test_given_shapes_replace_declared_ones() -> None:
    module = import_model(model_of(SPLIT_HEADS), {"x": (1, "length", 768)})
    assert types(module) == ["f32[1,12,length,64]"]
    assert list(module.symbols) == ["length"]


EXPAND_TO_SHAPE = """
g (float[n, m] x, float[1, m] z) => (float[a, b] y) {
  shape = Shape(x)
  minus = Constant<value = int64[2] {-1, -1}>()
  ones = ConstantOfShape<value = int64[1] {1}>(two)
  same = Equal(shape, minus)
  wanted = Where(same, ones, shape)
  y = Expand(z, wanted)
}
"""


def test_where_on_shapes_is_decided() -> None:
    module = import_model(model_of(EXPAND_TO_SHAPE, initializers={"two": np.array([2])}))
    assert types(module) == ["f32[n,m]"]
    assert ops(module) == ["broadcast_to"]


SCALED = """
g (float[1, 3, h, w] x) => (float[a, b, c, d] y) {
  shape = Shape(x)
  floats = Cast<to = 1>(shape)
  scaled = Mul(floats, factors)
  down = Floor(scaled)
  sizes = Cast<to = 7>(down)
  y = Resize<mode = "nearest">(x, , , sizes)
}
"""


def test_sizes_computed_in_floats() -> None:
    factors = np.array([1, 1, 2, 0.5], np.float32)
    model = model_of(SCALED, initializers={"factors": factors})
    h, w = ("cast((cast(h, f32) * f32(2.0)), index)", "cast((cast(w, f32) * f32(0.5)), index)")
    assert types(import_model(model)) == [f"f32[1,3,{h},{w}]"]
    assert types(import_model(model, {"x": (1, 3, 5, 7)})) == ["f32[1,3,10,3]"]


MASK = """
g (int64[batch, seq] ids) => (bool[a, b] mask, int64[c] length) {
  shape = Shape(ids)
  one = Constant<value = int64 {1}>()
  zero = Constant<value = int64 {0}>()
  n = Gather(shape, one)
  positions = Range(zero, n, one)
  axis0 = Constant<value = int64[1] {0}>()
  axis1 = Constant<value = int64[1] {1}>()
  row = Unsqueeze(positions, axis0)
  column = Unsqueeze(positions, axis1)
  mask = LessOrEqual(row, column)
  doubled = Mul(shape, shape)
  length = Identity(doubled)
}
"""


def test_shapes_as_data() -> None:
    model = model_of(MASK)
    module = import_model(model)
    assert types(module) == ["bool[seq,seq]", "i64[2]"]
    assert "dim_values" in ops(module)
    check_against_runtime(model, {"ids": np.zeros((2, 5), np.int64)})


SLICES = """
g (float[n, 8] x) => (float[a, b] first, float[c, d] last, float[e, f] rest, float[g, h] back) {
  zero = Constant<value = int64[1] {0}>()
  one = Constant<value = int64[1] {1}>()
  minus = Constant<value = int64[1] {-1}>()
  three = Constant<value = int64[1] {3}>()
  lots = Constant<value = int64[1] {9223372036854775807}>()
  least = Constant<value = int64[1] {-9223372036854775807}>()
  first = Slice(x, zero, three, zero)
  last = Slice(x, minus, lots, zero)
  rest = Slice(x, one, lots, zero)
  back = Slice(x, minus, least, zero, minus)
}
"""


@pytest.mark.parametrize("n", [0, 1, 2, 3, 7])
def test_slices_of_symbolic_dims(n: int) -> None:
    model = model_of(SLICES)
    dims = ["f32[min(3, n),8]", "f32[min(1, n),8]", "f32[-min(1, n) + n,8]", "f32[n,8]"]
    module = import_model(model)
    run_passes(module, [NarrowSymbols()], PassContext(NARROW))
    assert types(module) == dims
    check_against_runtime(model, {"x": np.arange(n * 8, dtype=np.float32).reshape(n, 8)})


UNKNOWN_SIGN = """
g (float[n] x, float[m] z) => (float[a] y) {
  nx = Shape(x)
  nz = Shape(z)
  start = Sub(nx, nz)
  zero = Constant<value = int64[1] {0}>()
  y = Slice(x, start, nx, zero)
}
"""


@pytest.mark.parametrize("m", [1, 3, 5, 7, 12])
def test_slice_from_a_start_of_unknown_sign(m: int) -> None:
    feeds = {"x": np.arange(5, dtype=np.float32), "z": np.zeros(m, np.float32)}
    check_against_runtime(model_of(UNKNOWN_SIGN), feeds)


SAME = """
g (float[1, 1, h, w] x) => (float[a, b, c, d] y, float[e, f, i, j] z) {
  y = Conv<auto_pad = "SAME_UPPER", strides = [2, 3]>(x, weight)
  z = MaxPool<auto_pad = "SAME_LOWER", kernel_shape = [3, 3], strides = [2, 2]>(x)
}
"""


@pytest.mark.parametrize(("h", "w"), [(5, 6), (8, 9), (7, 7), (1, 2)])
def test_same_padding_of_symbolic_dims(h: int, w: int) -> None:
    weight = np.arange(9, dtype=np.float32).reshape(1, 1, 3, 3)
    x = np.random.default_rng(0).standard_normal((1, 1, h, w)).astype(np.float32)
    check_against_runtime(model_of(SAME, initializers={"weight": weight}), {"x": x}, atol=1e-5)


SPLIT = """
g (float[2, n] x) => (float[a, b] p, float[c, d] q, float[e, f] r) {
  p, q, r = Split<axis = 1, num_outputs = 3>(x)
}
"""


@pytest.mark.parametrize("n", [6, 7, 8, 9])
def test_uneven_split_of_a_symbolic_dim(n: int) -> None:
    check_against_runtime(model_of(SPLIT), {"x": np.arange(2 * n, dtype=np.float32).reshape(2, n)})


TILE = """
g (float[n, 2] x) => (float[a, b] y) {
  shape = Shape(x)
  y = Tile(x, shape)
}
"""


def test_tile_by_symbolic_repeats() -> None:
    module = import_model(model_of(TILE))
    assert types(module) == ["f32[n*n,4]"]
    check_against_runtime(model_of(TILE), {"x": np.arange(6, dtype=np.float32).reshape(3, 2)})


BRANCH = """
g (float[n, 4] x) => (float[a, b] y) {
  rank_shape = Shape(x)
  rank = Size(rank_shape)
  two = Constant<value = int64 {2}>()
  is_matrix = Equal(rank, two)
  y = If (is_matrix) <
    then_branch = then () => (float[c, d] t) { t = Relu(x) },
    else_branch = other () => (float[e, f] e0) { e0 = NoSuchOperator(x) }
  >
}
"""


def test_if_with_a_known_condition_is_its_branch() -> None:
    module = import_model(model_of(BRANCH))
    assert ops(module) == ["constant", "maximum"]
    assert module.graph.nodes[-1].origin.startswith("If_")


COMPUTED = """
g (float[6] x) => (float[a, b] y) {
  scaled = Exp(zeros)
  counts = Cast<to = 7>(scaled)
  six = Constant<value = int64[2] {2, 3}>()
  target = Mul(counts, six)
  y = Reshape(x, target)
}
"""


def test_shapes_computed_from_constants() -> None:
    """Exp has no evaluator: its constant chain is run through the references."""
    module = import_model(model_of(COMPUTED, initializers={"zeros": np.zeros(2, np.float32)}))
    assert types(module) == ["f32[2,3]"]


def test_one_element_computed_from_constants() -> None:
    """An index that is out of range has no evaluator; numpy makes a scalar of the result."""
    text = "g (float[2] x) => (int64[n] y) { limit = Gather(three, far) y = Range(i0, limit, i1) }"
    numbers = {"three": np.array([3]), "far": np.array(5), "i0": np.array(0), "i1": np.array(1)}
    assert types(import_model(model_of(text, initializers=numbers))) == ["i64[3]"]


def test_shapes_fed_at_run_time_are_one_clear_error() -> None:
    text = "g (float[6] x, int64[2] target) => (float[a, b] y) { y = Reshape(x, target) }"
    with pytest.raises(UnsupportedOperatorError, match=r"its shape .'target'. is computed at run"):
        import_model(model_of(text))


# --- dims of inputs -------------------------------------------------------------------------------


def test_dims_without_names_are_fresh_symbols() -> None:
    model = model_of("g (float[1, 2, 3] x) => (float[a] y) { y = Relu(x) }")
    dims = model.graph.input[0].type.tensor_type.shape.dim
    dims[0].Clear()
    dims[1].dim_param = "?"
    dims[2].dim_value = -1
    module = import_model(model)
    assert types(module) == ["f32[x_d0,x_d1,x_d2]"]
    assert all(s.lo == 0 for s in module.symbols.values())


def test_one_name_is_one_symbol_and_sums_are_understood() -> None:
    model = model_of("g (float[n, m, k] x, float[n] z) => (float[a] y) { y = Identity(x) }")
    dims = model.graph.input[0].type.tensor_type.shape.dim
    dims[1].dim_param = "n + 3"
    dims[2].dim_param = "2*n*other"
    module = import_model(model)
    assert types(module) == ["f32[n,n + 3,dim_2_n_other]"]


def test_names_of_symbols_are_cleaned_and_unique() -> None:
    model = model_of("g (float[a, b, c, d] x) => (float[e] y) { y = Identity(x) }")
    for dim, name in zip(
        model.graph.input[0].type.tensor_type.shape.dim, ("a b", "a.b", "min", "1;DROP")
    ):
        dim.dim_param = name
    assert types(import_model(model)) == ["f32[a_b_1,a_b,min_dim,dim_1_DROP]"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"z": (1,)}, "Shapes are given for 'z', but the inputs are 'x'."),
        ({"x": (1, 2)}, "rank 1 but the shape given for it"),
        ({"x": (-1,)}, "neither a size from 0 to"),
        ({"x": (2.5,)}, "neither a size from 0 to"),
    ],
)
def test_wrong_given_shapes(given: Any, message: str) -> None:
    with pytest.raises(FrontendError, match=message):
        import_model(model_of("g (float[n] x) => (float[n] y) { y = Relu(x) }"), given)


def test_input_without_a_shape_asks_for_one() -> None:
    model = model_of("g (float[n] x) => (float[n] y) { y = Relu(x) }")
    model.graph.input[0].type.tensor_type.ClearField("shape")
    with pytest.raises(
        FrontendError, match=r"Input 'x' has no shape in the model. Give one, as --shape x=n,4"
    ):
        import_model(model)
    assert types(import_model(model, {"x": (2, "m")})) == ["f32[2,m]"]


def test_unsupported_operators_are_told_before_a_missing_shape() -> None:
    model = model_of("g (float[n] x, float[n] z) => (float[n] y) { w = Relu(x) y = Zap(w, z) }")
    model.graph.input[0].type.tensor_type.ClearField("shape")
    with pytest.raises(UnsupportedOperatorError, match="Zap") as caught:
        import_model(model)
    assert list(caught.value.operators.values()) == [1]


def test_outputs_match_the_runtime_for_a_graph_of_shapes() -> None:
    model = model_of(SPLIT_HEADS)
    feeds = {"x": np.random.default_rng(1).standard_normal((2, 3, 768)).astype(np.float32)}
    (theirs,) = expected(model, feeds)
    np.testing.assert_array_equal(imported(model, feeds)["y"], theirs)


@pytest.mark.parametrize(
    ("output", "told"),
    [
        ("float[4] y", ""),
        ("float[n] y", ""),
        ("float[] y", ""),
        ("float[3] y", "'y' is declared with the shape [3], but the graph computes f32[4]."),
        ("float[m, 4] y", "'y' is declared with the shape [?, 4], but the graph computes f32[4]."),
    ],
)
def test_declared_shapes_of_outputs(
    output: str, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    model = model_of(f"g (float[4] x) => ({output}) {{ y = Relu(x) }}")
    assert types(import_model(model)) == ["f32[4]"]
    assert caplog.messages == ([f"Output {told}"] if told else [])
    caplog.clear()
    import_model(model, shapes={"x": (5,)})
    assert caplog.messages == []


def test_declared_dtypes_of_outputs() -> None:
    model = model_of("g (float[4] x) => (int64[4] y) { y = Relu(x) }")
    with pytest.raises(FrontendError, match="'y' is declared as i64, but the graph computes f32"):
        import_model(model)
