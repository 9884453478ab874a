# SPDX-License-Identifier: Apache-2.0
"""``tilewright inspect``."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
from onnx import TensorProto, helper

from tilewright import runtime

DIGITS = Path(runtime.__file__).parent.parent / "data" / "digits.onnx"


def test_artifact(call: Any, ask: Callable[..., Any], digits_file: Path) -> None:
    text = call("inspect", digits_file).stdout
    for line in ("runs here yes", "input     image: float32[batch, 1, 8, 8]", "numerics  default"):
        assert line in text
    facts = ask("inspect", digits_file)
    assert facts["kind"] == "artifact" and facts["runs_here"] and facts["refusal"] is None
    assert facts["bytes"]["file"] == digits_file.stat().st_size
    assert 4 * 40_000 < facts["bytes"]["constants"] < facts["bytes"]["file"]
    manifest = runtime.read_manifest(digits_file)
    assert sum(k["launches"] for k in facts["kernels"]) == len(manifest["kernels"])
    assert [s["name"] for s in facts["symbols"]] == ["batch"]


def test_artifact_of_two_programs(
    call: Any, ask: Callable[..., Any], defaults: onnx.ModelProto, tmp_path: Path
) -> None:
    onnx.save(defaults, tmp_path / "m.onnx")
    compiled = call("compile", "m.onnx", "-o", "both.tw").stdout
    assert "1 kernel of 1 form," in compiled
    assert "calls that replace a default run 1 kernel of 1 form" in compiled
    text = call("inspect", "both.tw").stdout
    assert "kernels   1 launch of 1 form\n" in text
    assert "kernels   1 launch of 1 form in calls that replace a default" in text
    facts, rows = ask("inspect", "both.tw"), runtime.read_manifest(tmp_path / "both.tw")["kernels"]
    kinds = [[k["name"] for k in facts[name]] for name in ("replaced_kernels", "kernels")]
    assert kinds == [[rows[0]["name"]], [rows[1]["name"]]] and kinds[0] != kinds[1]
    call("compile", "m.onnx", "-o", "one.tw", "--constant-defaults")
    facts = ask("inspect", "one.tw")
    assert [row["name"] for row in facts["inputs"]] == ["x"] and "replaced_kernels" not in facts


def test_artifact_for_another_processor(call: Any, foreign_file: Path) -> None:
    text = call("inspect", foreign_file).stdout
    assert "target    aarch64" in text and "runs here no: The artifact is for 'aarch64'" in text


def test_damaged_artifact(call: Any, digits_file: Path, tmp_path: Path) -> None:
    (tmp_path / "half.tw").write_bytes(digits_file.read_bytes()[:100_000])
    assert "it is incomplete" in call("inspect", "half.tw", status=1).stderr
    assert "cannot be read" in call("inspect", "missing.tw", status=1).stderr


def test_model(call: Any, ask: Callable[..., Any]) -> None:
    text = call("inspect", DIGITS).stdout
    assert "supported yes" in text and "weights   42,970 elements" in text
    facts = ask("inspect", DIGITS)
    assert facts["operators"]["Conv"] == 5 and facts["opsets"] == {"ai.onnx": 18}
    assert facts["inputs"] == [{"name": "image", "dtype": "float32", "shape": ["batch", 1, 8, 8]}]
    assert facts["symbols"] == ["batch"] and facts["unsupported"] == {}


def test_unsupported_model(
    call: Any, ask: Callable[..., Any], unsupported: onnx.ModelProto, tmp_path: Path
) -> None:
    onnx.save(unsupported, tmp_path / "u.onnx")
    facts = ask("inspect", "u.onnx")
    assert facts["inputs"] == [{"name": "x", "dtype": "float32", "shape": [2]}]
    assert [port["name"] for port in facts["outputs"]] == ["y"]
    assert len(facts["unsupported"]) == 2 and facts["operators"]["com.example.Zap"] == 1
    assert "supported no: Zap (com.example 1): 1" in call("inspect", "u.onnx").stdout


def test_what_a_refused_model_declares(call: Any, ask: Callable[..., Any], tmp_path: Path) -> None:
    tensor, sequence = helper.make_tensor_value_info, helper.make_tensor_sequence_value_info
    inputs = [
        tensor("x", TensorProto.FLOAT, ["batch", 3, None]),
        tensor("any", TensorProto.INT64, None),
        tensor("odd", TensorProto.UNDEFINED, []),
        sequence("list", TensorProto.FLOAT, None),
        tensor("w", TensorProto.FLOAT, [1]),
    ]
    node = helper.make_node("Zap", ["x", "any", "odd", "list", "w"], ["y"], domain="com.example")
    output = tensor("y", TensorProto.FLOAT, ["batch", "m"])
    weight = helper.make_tensor("w", TensorProto.FLOAT, [1], [0.0])
    graph = helper.make_graph([node], "zap", inputs, [output], [weight])
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("com.example", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), tmp_path / "z.onnx")
    facts = ask("inspect", "z.onnx")
    assert facts["inputs"] == [
        {"name": "x", "dtype": "float32", "shape": ["batch", 3, "?"]},
        {"name": "any", "dtype": "int64", "shape": ["..."]},
        {"name": "odd", "dtype": "unknown", "shape": []},
        {"name": "list", "dtype": "sequence", "shape": ["..."]},
    ]
    assert facts["outputs"] == [{"name": "y", "dtype": "float32", "shape": ["batch", "m"]}]
    assert facts["symbols"] == ["batch", "m"] and facts["refusal"]
    text = call("inspect", "z.onnx").stdout
    assert "input     x: float32[batch, 3, ?]" in text and "symbol    m" in text


def test_shapes_of_inputs(
    call: Any, ask: Callable[..., Any], digits_file: Path, tmp_path: Path
) -> None:
    infos = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in "xy"]
    opsets = [helper.make_opsetid("", 18)]
    for op in ("Relu", "Zap"):
        graph = helper.make_graph([helper.make_node(op, ["x"], ["y"])], op, infos[:1], infos[1:])
        model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
        onnx.save(model, tmp_path / f"{op}.onnx")
    assert (
        "has no shape in the model. Give one, as --shape x="
        in ask("inspect", "Relu.onnx")["refusal"]
    )
    assert "supported no: Zap (ai.onnx 18): 1" in call("inspect", "Zap.onnx").stdout
    facts = ask("inspect", "Relu.onnx", "--shape", "x=n,16")
    assert facts["refusal"] is None and facts["symbols"] == ["n"]
    assert facts["inputs"][0]["shape"] == facts["outputs"][0]["shape"] == ["n", 16]
    assert (
        "Shapes are given for 'z'"
        in call("inspect", "Relu.onnx", "--shape", "z=1", status=2).stderr
    )
    error = call("inspect", digits_file, "--shape", "image=1,1,8,8", status=2).stderr
    assert "An artifact's shapes are fixed: --shape is for models." in error


def test_model_that_contradicts_itself(ask: Callable[..., Any], call: Any, tmp_path: Path) -> None:
    infos = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [2]) for n in "xy"]
    node = helper.make_node("Add", ["x", "nowhere"], ["y"])
    graph = helper.make_graph([node], "broken", infos[:1], infos[1:])
    opsets = [helper.make_opsetid("", 18)]
    onnx.save(
        helper.make_model(graph, opset_imports=opsets, ir_version=10), tmp_path / "broken.onnx"
    )
    assert "'nowhere'" in ask("inspect", "broken.onnx")["refusal"]
    assert "supported no: " in call("inspect", "broken.onnx").stdout


def test_operators_of_sub_graphs_and_functions_count(
    ask: Callable[..., Any], tmp_path: Path
) -> None:
    infos = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [2]) for n in ("x", "y", "b")]
    infos[2] = helper.make_tensor_value_info("c", TensorProto.BOOL, [])
    branches = {
        word: helper.make_graph(
            [helper.make_node(op, ["x"], ["b"])],
            word,
            [],
            [helper.make_tensor_value_info("b", TensorProto.FLOAT, [2])],
        )
        for word, op in (("then_branch", "Neg"), ("else_branch", "Abs"))
    }
    nodes = [
        helper.make_node("If", ["c"], ["h"], **branches),
        helper.make_node("Twice", ["h"], ["y"], domain="own"),
    ]
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("own", 1)]
    function = helper.make_function(
        "own", "Twice", ["p"], ["q"], [helper.make_node("Add", ["p", "p"], ["q"])], opsets[:1]
    )
    graph = helper.make_graph(nodes, "nested", [infos[0], infos[2]], [infos[1]])
    model = helper.make_model(graph, functions=[function], opset_imports=opsets, ir_version=10)
    onnx.save(model, tmp_path / "nested.onnx")
    operators = ask("inspect", "nested.onnx")["operators"]
    assert operators == {"Add": 1, "If": 1, "own.Twice": 1, "Neg": 1, "Abs": 1}


def test_weights_count_wherever_they_are(
    ask: Callable[..., Any], call: Any, tmp_path: Path
) -> None:
    """In initialisers, Constant nodes of graph, branch and function, sparse, and in other files."""
    tensor = helper.make_tensor("t", TensorProto.FLOAT, [2, 3], [0.0] * 6)
    indices = helper.make_tensor("i", TensorProto.INT64, [1], [4])
    sparse = helper.make_sparse_tensor(
        helper.make_tensor("s", TensorProto.FLOAT, [1], [2.0]), indices, [2, 5]
    )
    far = onnx.TensorProto(name="far", data_type=TensorProto.FLOAT, dims=[7])
    far.data_location = TensorProto.EXTERNAL
    far.external_data.add(key="location", value="far.bin")
    (tmp_path / "far.bin").write_bytes(bytes(28))
    infos = [helper.make_tensor_value_info(n, TensorProto.FLOAT, []) for n in ("x", "y", "b")]

    def constant(name: str, **value: Any) -> onnx.NodeProto:
        return helper.make_node("Constant", [], [name], **value)

    branch = helper.make_graph([constant("b", value_float=1.0)], "branch", [], [infos[2]])
    condition = helper.make_tensor("c", TensorProto.BOOL, [], [True])
    nodes = [
        constant("t", value=tensor),
        constant("u", value_floats=[1.0] * 4),
        constant("v", value_ints=[1] * 3),
        constant("w", sparse_value=sparse),
        helper.make_node("If", ["c"], ["h"], then_branch=branch, else_branch=branch),
        helper.make_node("Plus", ["h"], ["y"], domain="own"),
    ]
    body = [constant("k", value_int=1), helper.make_node("Relu", ["p"], ["q"])]
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("own", 1)]
    function = helper.make_function("own", "Plus", ["p"], ["q"], body, opsets[:1])
    graph = helper.make_graph(nodes, "g", infos[:1], infos[1:2], [condition, far])
    graph.sparse_initializer.append(sparse)
    model = helper.make_model(graph, functions=[function], opset_imports=opsets, ir_version=10)
    onnx.save(model, tmp_path / "w.onnx")
    facts = ask("inspect", "w.onnx")
    assert facts["tensors"] == {
        "initializers": 1,
        "sparse initializers": 1,
        "Constant nodes": 7,
        "in other files": 1,
    }
    assert facts["parameters"] == (1 + 10 + 7) + (6 + 4 + 3 + 10) + (1 + 1 + 1)
    text = call("inspect", "w.onnx").stdout
    assert "weights   44 elements, 10 tensors: 1 initializers, 1 sparse initializers, 7 Con" in text
