# SPDX-License-Identifier: Apache-2.0
"""What is told of a model that cannot be imported: every unsupported operator at once, whatever
else is wrong, and why a value is not known.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tests.frontends.onnx_running import model_of
from tilewright.frontends.onnx import Limits, import_model
from tilewright.frontends.sizes import dims_text
from tilewright.ir.errors import FrontendError, UnsupportedOperatorError


def listed(model: onnx.ModelProto, **options: Any) -> tuple[Mapping[str, int], str]:
    """The operators that a refusal lists, and all that it says."""
    with pytest.raises(UnsupportedOperatorError) as caught:
        import_model(model, **options)
    return caught.value.operators, str(caught.value)


def info(name: str, kind: int = TensorProto.FLOAT, shape: Any = (2,)) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def branch(*nodes: onnx.NodeProto) -> onnx.GraphProto:
    return helper.make_graph(list(nodes), "branch", [], [info(nodes[-1].output[0])])


def model_with(nodes: list[onnx.NodeProto], *inputs: onnx.ValueInfoProto) -> onnx.ModelProto:
    graph = helper.make_graph(nodes, "g", list(inputs), [info(nodes[-1].output[0])])
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("own", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def test_operators_in_branches_that_are_not_taken_up_are_listed() -> None:
    """Both branches of an If whose condition is not known, and what they hold in turn."""
    inner = helper.make_node(
        "If",
        ["c"],
        ["b"],
        "inner",
        then_branch=branch(helper.make_node("Zap", ["x"], ["b"], "deep")),
        else_branch=branch(helper.make_node("Relu", ["x"], ["b"])),
    )
    outer = helper.make_node(
        "If",
        ["c"],
        ["y"],
        "outer",
        then_branch=branch(helper.make_node("Zip", ["x"], ["b"], domain="own")),
        else_branch=branch(inner),
    )
    operators, text = listed(model_with([outer], info("x"), info("c", TensorProto.BOOL, ())))
    reason = "since its condition ('c') is computed at run time from the input 'c'"
    assert operators == {f"If (ai.onnx 18), {reason}": 1, "Zip (own 1)": 1, "Zap (ai.onnx 18)": 1}
    assert "Zap (ai.onnx 18): 1 node, 'outer/inner/deep'" in text


def test_operators_in_functions_behind_a_refusal_are_listed() -> None:
    opset = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    body = [helper.make_node("Zip", ["p"], ["t"], "in"), helper.make_node("Zap", ["t"], ["q"])]
    call = helper.make_node("Inner", ["p"], ["q"], "i", domain="own")
    functions = [
        helper.make_function("own", "Inner", ["p"], ["q"], body, opset),
        helper.make_function("own", "Outer", ["p"], ["q"], [call], opset),
    ]
    nodes = [
        helper.make_node("Zop", ["x"], ["a"], "first"),
        helper.make_node("Outer", ["a"], ["y"], "call", domain="own"),
    ]
    model = model_with(nodes, info("x"))
    model.functions.extend(functions)
    operators, text = listed(model)
    assert operators == {"Zop (ai.onnx 18)": 1, "Zip (ai.onnx 17)": 1, "Zap (ai.onnx 17)": 1}
    assert "Zip (ai.onnx 17): 1 node, 'call/i/in'" in text


CONCAT = "bad = Concat<axis = 7>(x, x)"
FAULTS = {
    "invalid node": f"{CONCAT} a = Zap(bad)",
    "wrong types": "i = Cast<to = 7>(x) bad = Add(x, i) a = Zap(bad)",
    "unknown attribute": "bad = Relu<depth = 3>(x) a = Zap(bad)",
}


@pytest.mark.parametrize("name", FAULTS)
def test_operators_behind_a_faulty_node_are_listed(name: str) -> None:
    model = model_of(f"g (float[2, 3] x) => (float[n] y) {{ {FAULTS[name]} y = Zop(a) }}")
    operators, text = listed(model)
    assert operators == {"Zap (ai.onnx 18)": 1, "Zop (ai.onnx 18)": 1}
    assert "Besides: " in text and ("bad" in text or "'Concat_0'" in text or "_" in text)


def test_a_faulty_node_alone_is_its_own_error() -> None:
    model = model_of(f"g (float[2, 3] x) => (float[n] y) {{ {CONCAT} y = Relu(bad) }}")
    with pytest.raises(FrontendError, match=r"^Node 'Concat_0' \(Concat\) .*Axis 7") as caught:
        import_model(model)
    assert not isinstance(caught.value, UnsupportedOperatorError)


def test_operators_behind_faults_of_the_graph_and_its_data_are_listed() -> None:
    """A cycle, weights that are missing, an input that is a sequence."""
    cycle = [helper.make_node("Zap", ["y"], ["a"]), helper.make_node("Relu", ["a"], ["y"])]
    operators, text = listed(model_with(cycle, info("x")))
    assert operators == {"Zap (ai.onnx 18)": 1} and "cycle" in text
    nodes = [helper.make_node("Zap", ["w", "s"], ["y"])]
    sequence = helper.make_tensor_sequence_value_info("s", TensorProto.FLOAT, None)
    model = model_with(nodes, sequence)
    weight = model.graph.initializer.add(name="w", data_type=TensorProto.FLOAT, dims=[7])
    weight.data_location = TensorProto.EXTERNAL
    weight.external_data.add(key="location", value="nowhere.bin")
    operators, text = listed(model)
    assert operators == {"Zap (ai.onnx 18)": 1} and "'w'" in text.partition("Besides: ")[2]


def test_an_operator_is_named_as_it_stands_in_the_file() -> None:
    """Bernoulli is defined by operators that do not stand there."""
    model = model_of("g (float[2] x) => (float[2] y) { y = Bernoulli(x) }")
    operators, text = listed(model)
    (entry,) = operators
    assert entry.startswith("Bernoulli (ai.onnx 18), since its definition uses RandomUniformLike")
    assert "1 node, 'Bernoulli_0'" in text


# --- why a value is not known ---------------------------------------------------------------------


def test_only_what_inputs_decide_is_computed_at_run_time() -> None:
    model = model_of("g (float[6] x, int64[2] t) => (float[n] y) { s = Neg(t) y = Reshape(x, s) }")
    (entry,), text = listed(model)
    assert "its shape ('s') is computed at run time from the input 't'" in entry
    assert "Make constants of what is computed at run time there" in text
    assert "Export it with other operators" not in text
    assert "--shape" not in text


def test_what_dims_decide_says_which_to_fix() -> None:
    """The sizes in the message make the model one that is imported."""
    model = model_of(
        """
        g (float[batch, length, 4] x, float[length] z) => (float[m] y) {
          s = Shape<start = 1, end = 2>(x)
          f = Cast<to = 1>(s)
          odd = LpNormalization(f)
          none = Sub(odd, odd)
          h = Cast<to = 7>(none)
          k = Add(h, s)
          y = Expand(z, k)
        }
        """
    )
    (entry,), text = listed(model)
    assert "computed from the symbolic dim 'length' in a way that is not followed" in entry
    assert "at run time" not in text and "Export it with" not in text
    assert "Fix the symbolic dim 'length', as --shape x=batch,128,4 --shape z=128 on the" in text
    shapes = {"x": ("batch", 128, 4), "z": (128,)}
    assert f"shapes={shapes!r} in Python." in text
    import_model(model, shapes)


def test_large_constants_are_told_as_such() -> None:
    model = model_of(
        "g (float[n] x) => (float[n] y) { y = Tile(x, many) }",
        initializers={"many": np.ones(9, np.int64)},
    )
    (entry,), _ = listed(model, limits=Limits(contents=8))
    assert "are a constant of more than 8 elements" in entry


def test_dims_are_listed() -> None:
    assert dims_text(["n"]) == "the symbolic dim 'n'"
    assert dims_text(list("abcdefg")) == "the symbolic dims 'a', 'b', 'c', 'd' and 3 more"
