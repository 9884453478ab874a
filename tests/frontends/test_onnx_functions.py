# SPDX-License-Identifier: Apache-2.0
"""Functions, sub-graphs, limits: bodies walked in place of calls."""

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, parser

from tests.frontends.onnx_running import check_against_runtime, imported, model_of
from tilewright.frontends.onnx import Limits, import_model
from tilewright.frontends.onnx.expansion import expanded_size
from tilewright.frontends.onnx.functions import model_functions
from tilewright.frontends.onnx.importer import Importer
from tilewright.frontends.onnx.ops_experimental import EXPERIMENTAL
from tilewright.frontends.onnx.registry import supported_operators
from tilewright.ir.errors import FrontendError

FUNCTIONS = """
<ir_version: 9, opset_import: ["" : 18, "local" : 1]>
g (float[n, 4] x) => (float[n, 4] y, float[n, 4] z) {
  y = local.scaled<factor = 3.0>(x)
  z = local.twice(x, bias)
}
<domain: "local", opset_import: ["" : 18]>
scaled <factor: float = 2.0> (v) => (r) {
  f = Constant<value_float: float = @factor>()
  r = Mul(v, f)
}
<domain: "local", opset_import: ["" : 18, "local" : 1]>
twice (v, b) => (r) {
  one = local.scaled(v)
  two = local.scaled<factor = 1.5>(one)
  r = Add(two, b)
}
"""


def functions_model(text: str = FUNCTIONS) -> Any:
    model = parser.parse_model(text)
    bias = np.arange(4, dtype=np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(bias, "bias"))
    return model


def test_functions_are_walked_in_place() -> None:
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    check_against_runtime(functions_model(), {"x": x})


def test_origins_name_the_call_and_the_node() -> None:
    module = import_model(functions_model())
    origins = {n.origin for n in module.graph.nodes if n.op.name == "mul"}
    assert origins == {"scaled_0/Mul_1", "twice_1/scaled_0/Mul_1", "twice_1/scaled_1/Mul_1"}


def test_missing_optional_inputs_of_functions() -> None:
    text = FUNCTIONS.replace("z = local.twice(x, bias)", "z = local.maybe(x)")
    text += (
        '<domain: "local", opset_import: ["" : 18]>\nmaybe (v, high) => (r) { r = Clip(v, , high) }'
    )
    x = np.ones((2, 4), np.float32)
    np.testing.assert_array_equal(imported(parser.parse_model(text), {"x": x})["z"], x)


def test_recursive_functions_are_refused() -> None:
    text = FUNCTIONS.replace("one = local.scaled(v)", "one = local.twice(v, b)")
    with pytest.raises(FrontendError, match="Function 'twice' calls itself"):
        import_model(functions_model(text))


def exploding(body: str) -> Any:
    """A model of thirty functions with that body, where ``next`` calls the one before."""
    text = '<ir_version: 9, opset_import: ["" : 18, "l" : 1]>\n'
    text += "g (float[2] x) => (float[2] y) { y = l.f30(x) }\n"
    text += '<domain: "l", opset_import: ["" : 18]>\nf0 (v) => (r) { r = Relu(v) }\n'
    for i in range(1, 31):
        text += '<domain: "l", opset_import: ["" : 18, "l" : 1]>\n'
        text += f"f{i} (v) => (r) {{ {body.replace('next', f'l.f{i - 1}')} }}\n"
    return parser.parse_model(text)


TWICE = "a = next(v) r = next(a)"
BRANCH = """
  c = Constant<value_int: int = 1>()
  r = If (c) < then_branch = t () => (float[2] p) { %s },
               else_branch = e () => (float[2] q) { q = next(v) } >
"""


@pytest.mark.parametrize("body", [TWICE, BRANCH % "a = next(v) p = next(a)"])
def test_functions_that_explode_are_refused_at_once(
    body: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A billion nodes: none is walked."""
    monkeypatch.setattr(Importer, "walk", None)
    with pytest.raises(FrontendError, match=r"number of nodes, inlined .* is [0-9]{10}, more than"):
        import_model(exploding(body))


def test_of_two_branches_the_larger_counts() -> None:
    model = exploding(BRANCH % "p = next(v)")
    assert expanded_size(model.graph, model_functions(model)) == 1 + 1 + 30 * 3


def test_the_size_of_functions_that_call_each_other_ends() -> None:
    model = exploding(TWICE)
    model.functions[0].node[0].op_type, model.functions[0].node[0].domain = "f30", "l"
    model.functions[0].opset_import.append(helper.make_opsetid("l", 1))
    with pytest.raises(FrontendError, match="number of nodes, inlined functions included"):
        import_model(model)
    short = functions_model(FUNCTIONS.replace("one = local.scaled(v)", "one = local.twice(v, b)"))
    assert expanded_size(short.graph, model_functions(short)) == 2 + 2 + 3 + 2


def test_nodes_are_counted_where_they_are_walked() -> None:
    """Bodies of the standard are in no call graph of the model."""
    text = """
    g (float[12] x) => (float[12] y) {
      n = Constant<value_int = 12>()
      w = HannWindow(n)
      y = Add(x, w)
    }
    """
    with pytest.raises(FrontendError, match="number of nodes, inlined functions included"):
        import_model(model_of(text), limits=Limits(nodes=5))


def test_functions_of_one_name_and_wrong_calls() -> None:
    model = functions_model()
    model.functions.append(model.functions[0])
    with pytest.raises(FrontendError, match="defines the function 'scaled' twice"):
        import_model(model)
    model = functions_model()
    model.graph.node[0].input.extend(["x", "x"])
    with pytest.raises(FrontendError, match="The function takes 1 inputs, not 3"):
        import_model(model)


STANDARD = {
    "MeanVarianceNormalization": (13, {"axes": [0, 2]}),
    "Celu": (12, {"alpha": 1.5}),
    "Gelu": (20, {}),
}


@pytest.mark.parametrize("op", sorted(STANDARD))
def test_bodies_of_the_standard(op: str) -> None:
    opset, attributes = STANDARD[op]
    node = helper.make_node(op, ["x"], ["y"], **attributes)
    info = [helper.make_tensor_value_info(n, 1, ["n", 3, 4]) for n in "xy"]
    graph = helper.make_graph([node], "g", info[:1], info[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)
    x = np.random.default_rng(3).standard_normal((2, 3, 4)).astype(np.float32)
    check_against_runtime(model, {"x": x})


# --- sub-graphs -----------------------------------------------------------------------------------

BRANCHES = """
g (float[n] x) => (float[n] y) {
  shared = Neg(x)
  y = If (condition) <
    then_branch = a () => (float[n] p) { p = Add(shared, x) },
    else_branch = b () => (float[n] q) { t = Exp(x) q = Mul(t, shared) }
  >
}
"""


@pytest.mark.parametrize("condition", [True, False])
def test_branches_see_the_names_around_them(condition: bool) -> None:
    model = model_of(BRANCHES, initializers={"condition": np.array(condition)})
    check_against_runtime(model, {"x": np.array([1, 2], np.float32)})


def test_an_undecided_branch_is_listed() -> None:
    text = BRANCHES.replace("(float[n] x)", "(float[n] x, bool condition)")
    with pytest.raises(
        FrontendError, match=r"If \(ai.onnx 18\), since its condition .* is computed"
    ):
        import_model(model_of(text))


def test_deep_nesting_is_bounded() -> None:
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y0"])],
        "g",
        [],
        [helper.make_empty_tensor_value_info("y0")],
    )
    for i in range(1, 20):
        other = helper.make_graph([], "o", [], [helper.make_empty_tensor_value_info("x")])
        node = helper.make_node("If", ["c"], [f"y{i}"], then_branch=graph, else_branch=other)
        result = helper.make_empty_tensor_value_info(f"y{i}")
        graph = helper.make_graph([node], "g", [], [result])
    model = model_of("g (float[2] x) => (float[2] y) { y = Relu(x) }")
    model.graph.CopyFrom(graph)
    model.graph.input.append(helper.make_tensor_value_info("x", 1, [2]))
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array(True), "c"))
    assert import_model(model).output_names == ["y19"]
    with pytest.raises(FrontendError, match=r"nesting of sub-graphs.* is .* limit of 10"):
        import_model(model, limits=Limits(nesting=10))


def test_long_chains_do_not_recurse() -> None:
    nodes = [helper.make_node("Neg", [f"v{i}"], [f"v{i + 1}"]) for i in range(5_000)]
    info = [helper.make_tensor_value_info(n, 1, [2]) for n in ("v0", "v5000")]
    graph = helper.make_graph(nodes[::-1], "g", info[:1], info[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    assert len(import_model(model).graph.nodes) == 5_000


def test_chains_on_symbolic_dims_stay_bounded() -> None:
    """Each pooling halves a symbolic dim; the expression is refused before it is a burden."""
    nodes = [
        helper.make_node(
            "MaxPool", [f"v{i}"], [f"v{i + 1}"], kernel_shape=[3], strides=[2], pads=[1, 1]
        )
        for i in range(3000)
    ]
    info = [helper.make_tensor_value_info(n, 1, [1, 1, "n"]) for n in ("v0", "v3000")]
    graph = helper.make_graph(nodes, "g", info[:1], info[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    with pytest.raises(FrontendError, match="expressions of unreasonable size"):
        import_model(model)


def test_handlers_name_operators_of_the_standard() -> None:
    """A misspelt row would never be found."""
    known = {(s.domain, s.name) for s in onnx.defs.get_all_schemas_with_history()}
    known |= {("", name) for name in EXPERIMENTAL}
    unknown = [key for key in supported_operators() if key not in known]
    assert unknown == []
    assert len(supported_operators()) > 130
