# SPDX-License-Identifier: Apache-2.0
"""Loading model files that are damaged, unsafe or odd: each ends in one typed sentence."""

import os
import random
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from tests.frontends.onnx_running import add_model, imported, model_of, node_model, refused
from tests.targets import NARROW
from tilewright.frontends import import_model as import_any
from tilewright.frontends.onnx import Limits, import_model
from tilewright.ir.errors import FrontendError, UnsupportedOperatorError
from tilewright.passes.graph.fold_constants import FoldConstants
from tilewright.passes.manager import PassContext, run_passes
from tilewright.runtime.artifact import MAX_RANK

ADD = "g (float[2] x) => (float[2] y) { y = Add(x, w) }"
WEIGHT = np.array([1, 2], np.float32)


# --- files ----------------------------------------------------------------------------------------


def test_paths_bytes_and_messages_give_the_same(tmp_path: Path) -> None:
    model = add_model()
    path = tmp_path / "model.onnx"
    path.write_bytes(model.SerializeToString())
    for source in (path, str(path), path.read_bytes(), model):
        results = imported(source, {"x": WEIGHT})
        np.testing.assert_array_equal(results["y"], [2, 4])
    assert import_any(path).output_names == ["y"]


def test_unreadable_files(tmp_path: Path) -> None:
    refused(tmp_path / "none.onnx", "cannot be read: No such file")
    refused(tmp_path, r"cannot be read|not a regular file")
    os.mkfifo(tmp_path / "pipe.onnx")
    refused(tmp_path / "pipe.onnx", "is not a regular file")
    refused("nul\0.onnx", "cannot be read")
    refused(b"", "not a complete ONNX model")
    refused(
        3, "is given as a path, as bytes or as an onnx.ModelProto, not as something of type 'int'"
    )
    with pytest.raises(FrontendError, match="The given bytes are not a model, or are damaged"):
        import_any(b"abc")
    with pytest.raises(FrontendError, match="not a model in a known format"):
        import_any(tmp_path / "model.xyz")
    with pytest.raises(FrontendError, match=r"Format 'caffe' is unknown. Use one of: onnx"):
        import_any(tmp_path / "model.onnx", format="caffe")


def test_size_limit(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(add_model().SerializeToString())
    refused(path, "more than the limit of 10. Raise it with Limits", limits=Limits(model_bytes=10))
    refused(path.read_bytes(), "more than the limit of 10", limits=Limits(model_bytes=10))


def test_truncated_and_flipped_bytes_never_escape() -> None:
    """Whatever the damage, the import succeeds or ends in a FrontendError."""
    data = model_of(
        """
        g (float[b, 4, 6] x, int64[2] i) => (float[b, n, 3] y) {
          s = Shape(x)
          z = Gather<axis = 0>(s, i)
          r = Reshape(x, target)
          c = Slice(r, zero, two, zero)
          m = MatMul(r, w)
          y = Softmax<axis = 1>(m)
        }
        """,
        initializers={
            "target": np.array([0, -1, 8]),
            "zero": np.array([0]),
            "two": np.array([2]),
            "w": np.ones((8, 3), np.float32),
        },
    ).SerializeToString()
    chance = random.Random(5)
    outcomes = {"imported": 0, "refused": 0}
    for round_ in range(400):
        damaged = bytearray(data)
        if round_ % 4 == 0:
            damaged = damaged[: chance.randrange(len(data))]
        else:
            for _ in range(chance.randrange(1, 6)):
                damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        try:
            import_model(bytes(damaged))
            outcomes["imported"] += 1
        except FrontendError as error:
            assert str(error)
            outcomes["refused"] += 1
    assert outcomes["imported"] > 10
    assert outcomes["refused"] > 100


EXTREMES = [0, -1, 1, 7, -2, 255, 1 << 31, -(1 << 31), 1 << 62, -(1 << 63), (1 << 63) - 1]


def test_extreme_integers_never_escape() -> None:
    """Attributes, shapes, starts, pads and dims of extreme sizes are refused or imported."""
    model = model_of(
        """
        g (float[b, 4, 6] x) => (float[n] y) {
          s = Shape(x)
          part = Slice(s, zero, two, zero)
          size = ReduceProd<keepdims = 1>(part)
          total = Size(x)
          tail = Div(total, size)
          target = Concat<axis = 0>(part, tail, one)
          r = Reshape(x, target)
          t = Tile(r, repeats)
          p = Pad<mode = "edge">(t, pads)
          u = Unsqueeze(p, two)
          m = MaxPool<kernel_shape = [1, 2, 2], strides = [1, 2, 1], pads = [0, 1, 0, 0, 0, 1]>(u)
          h, k = Split<axis = 1>(m, halves)
          e = Expand(h, ones)
          g1 = Gather<axis = 1>(e, two)
          y = Flatten<axis = 2>(g1)
        }
        """,
        initializers={
            "zero": np.array([0]),
            "two": np.array([2]),
            "one": np.array([1]),
            "ones": np.array([1, 1, 1, 1, 1]),
            "repeats": np.array([1, 2, 1, 2]),
            "pads": np.array([0, 0, 1, 1, 0, 2, 0, 0]),
            "halves": np.array([4, 6]),
        },
    )
    assert import_model(model).output_names == ["y"]
    chance = random.Random(11)
    refusals = 0
    for _ in range(150):
        changed = onnx.ModelProto()
        changed.CopyFrom(model)
        for _ in range(chance.randrange(1, 4)):
            tensor = chance.choice(changed.graph.initializer)
            array = numpy_helper.to_array(tensor).copy()
            array[chance.randrange(array.size)] = chance.choice(EXTREMES)
            tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
            attribute = chance.choice([a for n in changed.graph.node for a in n.attribute])
            if chance.random() < 0.5 and attribute.ints:
                attribute.ints[chance.randrange(len(attribute.ints))] = chance.choice(EXTREMES)
            elif attribute.type == onnx.AttributeProto.INT:
                attribute.i = chance.choice(EXTREMES)
        try:
            import_model(changed)
        except FrontendError:
            refusals += 1
    assert refusals > 50


def test_random_bytes() -> None:
    chance = random.Random(1)
    for size in (1, 10, 100, 1000):
        with pytest.raises(FrontendError):
            import_model(chance.randbytes(size))


def test_operator_sets() -> None:
    refused(model_of(ADD, 0), "uses operator set 0; 1 to")
    refused(model_of(ADD, 999), "uses operator set 999")
    model = add_model()
    model.opset_import.append(helper.make_opsetid("ai.onnx", 13))
    refused(model, "at versions 18 and 13")
    model = add_model()
    del model.opset_import[:]
    refused(model, "'Add' uses the standard operators, but the model imports no version of them")
    model.ir_version = 2
    assert import_model(model).output_names == ["y"]
    model = add_model()
    model.opset_import.append(helper.make_opsetid("private.unused", 1))
    assert import_model(model).output_names == ["y"]


# --- graphs ---------------------------------------------------------------------------------------


def test_all_unsupported_operators_are_listed_at_once() -> None:
    model = model_of(
        """
        g (float[n] x) => (float[n] y) {
          a = Frobnicate(x)
          b = Relu(a)
          c = Frobnicate(b)
          d = TfIdfVectorizer(c)
          y = Add(b, d)
        }
        """
    )
    model.graph.node[3].domain = "com.acme"
    with pytest.raises(UnsupportedOperatorError) as caught:
        import_model(model)
    assert "Frobnicate (ai.onnx 18): 2 nodes" in str(caught.value)
    assert "TfIdfVectorizer (com.acme 1): 1 node" in str(caught.value)


def test_unsupported_forms_are_listed_with_operators() -> None:
    model = model_of(
        """
        g (float[1, 1, 4] x, int64[1] axes) => (float[n] y, float[n] z) {
          a = ReduceSum(x, axes)
          y = Relu(a)
          b, z = MaxPool<kernel_shape = [2]>(x)
        }
        """
    )
    message = r"MaxPool \(.*positions.*ReduceSum \(ai.onnx 18\), since its axes \('axes'\)"
    refused(model, message)


def test_dead_nodes_are_left_out() -> None:
    model = model_of("g (float[2] x) => (float[2] y) { z = NoSuchThing(x) y = Relu(x) }")
    assert [n.op.name for n in import_model(model).graph.nodes] == ["constant", "maximum"]


def test_nodes_out_of_order_are_sorted() -> None:
    model = model_of("g (float[2] x) => (float[2] y) { a = Exp(x) b = Neg(a) y = Abs(b) }")
    nodes = list(model.graph.node)[::-1]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    assert [n.op.name for n in import_model(model).graph.nodes] == ["exp", "neg", "abs"]


GRAPHS: list[tuple[str, str]] = [
    (
        "{ a = Relu(b) b = Abs(a) y = Add(a, x) }",
        "has a cycle of length 2 through 'Abs' .Abs., 'Relu' .Relu.",
    ),
    ("{ y = Relu(y) }", "has a cycle of length 1"),
    ("{ y = Relu(nowhere) }", "'nowhere' is used by node 'Relu' .Relu. but is neither"),
    ("{ z = Relu(x) }", "'y' is used as a graph output but is neither"),
    ("{ y = Relu(x) y = Abs(x) }", "'y' is defined twice"),
    ("{ x = Abs(x) y = Relu(x) }", "'x' is defined twice"),
    ("{ y = Add(x) }", "has 1 inputs; version 14 of the operator takes 2 to 2"),
    ("{ y = Relu(x, x) }", "has 2 inputs"),
    ('{ y = LeakyRelu<alpha = "a">(x) }', "'alpha' of node .* is of type STRING, not FLOAT"),
    ("{ y = Relu<beta = 1>(x) }", "has the attribute 'beta', which version 14"),
    ("{ y = Cast<to = 99>(x) }", "has element type 99, which is not supported"),
    ("{ y = Transpose<perm = [0, 1]>(x) }", "perm .0, 1. is not an order of 1 axes"),
    (
        "{ y = Concat<axis = 4>(x, x) }",
        "Axis 4 is out of range for rank 1: it must be from -1 to 0.",
    ),
    ("{ y = MatMul(x, w3) }", "does not fit its inputs: 'matmul'"),
    ("{ y = Conv(x, w3) }", "Its weight has rank 1; at least 3"),
    ("{ y = Reshape(x, w3) }", "must be a list of integers but are of type f32"),
    ("{ y = Slice(x, i0, i0, i0, i0) }", "One of its steps is 0"),
    ("{ y = CumSum(x, none) }", "Node 'CumSum_0' .CumSum. .* Its axis must be one number, not 0"),
    ("{ y = CumSum(x, two) }", "Its axis must be one number, not 2"),
    ("{ r = Range(none, i0, i0) y = Cast<to = 1>(r) }", "Its start must be one number, not 0"),
    ("{ y = OneHot(x, none, w3) }", "Its depth must be one number, not 0"),
    ("{ y = Constant<value_int = 1, value_float = 1.0>() }", "has 2 values where one is needed"),
]


@pytest.mark.parametrize(("body", "message"), GRAPHS)
def test_wrong_graphs(body: str, message: str) -> None:
    text = f"g (float[2] x) => (float[2] y) {body}"
    initializers = {
        "w3": np.zeros(3, np.float32),
        "i0": np.zeros(1, np.int64),
        "none": np.zeros(0, np.int64),
        "two": np.zeros(2, np.int64),
    }
    refused(model_of(text, initializers=initializers), message)


WINDOWS: list[tuple[dict[str, Any], str]] = [
    ({"strides": [0, 1]}, "strides .0, 1. must be 2 numbers from 1 to 2147483647"),
    ({"strides": [1 << 62, 1]}, "strides .4611686018427387904, 1. must be 2 numbers from 1 to 21"),
    ({"pads": [0, 0, 0, 1 << 40]}, "must be 4 numbers from -2147483647 to 2147483647"),
    ({"group": 1 << 40}, "group is 1099511627776, but must be from 1 to 2147483647"),
    ({"strides": [1]}, "strides .1. must be 2 numbers"),
    ({"dilations": [1, -1]}, "dilations"),
    ({"pads": [1, 1]}, "pads .1, 1. must be 4 numbers"),
    ({"pads": [1 << 40, 0, 0, 0]}, "pads"),
    ({"pads": [-9, 0, 0, 0]}, "crop|fit"),
    ({"group": 0}, "group is 0"),
    ({"group": 3}, "channels"),
    ({"kernel_shape": [5, 5]}, "kernel_shape is .5, 5. but its weight"),
    ({"auto_pad": "SOMEHOW"}, "'auto_pad' of node .* is 'SOMEHOW'; it must be one of"),
]


@pytest.mark.parametrize(("attributes", "message"), WINDOWS, ids=str)
def test_wrong_windows(attributes: dict[str, Any], message: str) -> None:
    x, weight = np.zeros((1, 2, 4, 4), np.float32), np.zeros((2, 2, 3, 3), np.float32)
    model, _ = node_model("Conv", [x, weight], 13, (1,), **attributes)
    refused(model, message)


@pytest.mark.parametrize("attribute", ["output_padding", "output_shape"])
def test_wrong_windows_of_a_transposed_convolution(attribute: str) -> None:
    x, weight = np.zeros((1, 2, 4, 4), np.float32), np.zeros((2, 2, 3, 3), np.float32)
    model, _ = node_model("ConvTranspose", [x, weight], 13, (1,), **{attribute: [1 << 40, 1]})
    refused(model, f"{attribute} .1099511627776, 1. must be 2 numbers from . to 2147483647")


@pytest.mark.parametrize(
    ("op", "attribute", "largest"),
    [
        ("LRN", "size", (1 << 31) - 1),
        ("DepthToSpace", "blocksize", (1 << 16) - 1),
        ("GroupNormalization", "num_groups", (1 << 31) - 1),
    ],
)
@pytest.mark.parametrize("given", [0, 1 << 40])
def test_wrong_sizes(op: str, attribute: str, largest: int, given: int) -> None:
    inputs = [np.zeros((1, 4, 4, 4), np.float32)]
    inputs += [np.zeros(4, np.float32)] * 2 if op == "GroupNormalization" else []
    model, _ = node_model(op, inputs, 21, range(1, len(inputs)), **{attribute: given})
    refused(model, f"Its {attribute} is {given}, but must be from 1 to {largest}")


def test_kernel_larger_than_the_input() -> None:
    model, _ = node_model("MaxPool", [np.zeros((1, 1, 3), np.float32)], 12, kernel_shape=[1 << 62])
    refused(model, "kernel .4611686018427387904. must have dims from 1 to 2147483647")
    model, _ = node_model("MaxPool", [np.zeros((1, 1, 3), np.float32)], 12, kernel_shape=[7])
    refused(model, "does not fit")


@pytest.mark.parametrize(
    ("op", "inputs"),
    [
        ("Expand", [np.zeros(1, np.float32), np.array([1 << 40, 1 << 20])]),
        ("Tile", [np.zeros(4, np.float32), np.array([1 << 60])]),
        ("ConstantOfShape", [np.array([1 << 62, 1 << 62])]),
        ("Range", [np.int64(0), np.int64(1 << 60), np.int64(1)]),
    ],
)
def test_results_of_terabytes(op: str, inputs: list[Any]) -> None:
    model, _ = node_model(op, inputs, 13, range(len(inputs)))
    refused(model, "more than|too large|elements")


@pytest.mark.parametrize(
    "name", ["a" * 100_000, "q'uo\"te", "new\nline", "#include <x>", "é🙂", ";drop"]
)
def test_names_are_only_names(name: str) -> None:
    model = add_model()
    for value in (model.graph.input[0], model.graph.output[0]):
        value.name = value.name + name
    node = model.graph.node[0]
    node.name, node.input[0], node.output[0] = name, "x" + name, "y" + name
    module = import_model(model)
    assert (module.input_names, module.output_names) == (["x" + name], ["y" + name])
    origin = module.graph.nodes[-1].origin
    assert origin.isprintable()
    assert len(origin) <= 200
    assert str(module)
    node.input[0] = "gone" + name
    refused(model, "gone")


@pytest.mark.parametrize(("what", "old"), [("Input", "x"), ("Output", "y")])
def test_names_of_inputs_and_outputs_hold_no_nul(what: str, old: str) -> None:
    model = add_model()
    node = model.graph.node[0]
    for values in (model.graph.input, model.graph.output, node.input, node.output):
        for position, value in enumerate(values):
            if value == old:
                values[position] = "a\0b"
            elif not isinstance(value, str) and value.name == old:
                value.name = "a\0b"
    refused(model, f"{what} 'a.*b' has a NUL character in its name")


ONES = [1] * 40
RANKS: dict[str, tuple[str, list[Any]]] = {
    "Unsqueeze": ("Unsqueeze", [np.zeros(ONES, np.float32), np.arange(25)]),
    "Unsqueeze of integers": ("Unsqueeze", [np.array([3]), np.arange(64)]),
    "Reshape": ("Reshape", [np.zeros(1, np.float32), np.ones(65, np.int64)]),
    "Expand": ("Expand", [np.zeros(1, np.float32), np.ones(65, np.int64)]),
    "Expand of integers": ("Expand", [np.array([3]), np.ones(65, np.int64)]),
    "ConstantOfShape": ("ConstantOfShape", [np.ones(65, np.int64)]),
}


@pytest.mark.parametrize("case", RANKS)
@pytest.mark.parametrize("constant", [True, False])
def test_results_of_too_many_dims(case: str, constant: bool) -> None:
    op, inputs = RANKS[case]
    fixed = range(0 if constant or len(inputs) == 1 else 1, len(inputs))
    model, _ = node_model(op, inputs, 13, fixed)
    refused(model, "[Rr]esult .*node .* has rank 65; 64 is the most")


def test_inputs_of_too_many_dims() -> None:
    model = model_of(f"g (float[{','.join('1' * 65)}] x) => (float[n] y) {{ y = Relu(x) }}")
    refused(model, "Input 'x' has rank 65; 64 is the most")


def test_the_most_dims_are_those_of_the_runtime() -> None:
    header = Path(__file__).parents[2] / "runtime" / "src" / "core.h"
    assert f"TW_MAX_RANK = {MAX_RANK}," in header.read_text(encoding="utf-8")


def test_steps_between_may_have_more_dims_than_numpy() -> None:
    """A Tile of a constant splits each of 33 dims in two."""
    model, _ = node_model("Tile", [np.zeros([1] * 33, np.float32), np.full(33, 2)], 13, (0, 1))
    module = import_model(model)
    run_passes(module, [FoldConstants()], PassContext(NARROW))
    assert module.graph.outputs[0].type.static_shape == (2,) * 33


def test_inputs_that_are_no_tensors() -> None:
    model = add_model()
    model.graph.input[0].type.Clear()
    model.graph.input[0].type.sequence_type.elem_type.tensor_type.elem_type = 1
    refused(model, "Input 'x' is of kind 'sequence_type'; only tensors")
    model = add_model()
    model.graph.input[0].type.tensor_type.elem_type = 0
    refused(model, "Input 'x' has element type UNDEFINED")
