# SPDX-License-Identifier: Apache-2.0
"""A table of tokens that is also the weight of the last product is in the artifact once."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilewright
from tilewright.driver import Build, CompileOptions, build
from tilewright.ir.target import parse_target

TARGET = parse_target("x86-64-v3,cores=2")
TOKENS, WIDTH = 3001, 48
TABLE = np.random.default_rng(0).standard_normal((TOKENS, WIDTH)).astype(np.float32)

# How exporters write ``tanh(table[ids]) @ table.T``: the nodes, and whether they store a transposed
# copy themselves.
FORMS = {
    "transposed in the graph": (
        [
            helper.make_node("Transpose", ["table"], ["turned"], perm=[1, 0]),
            helper.make_node("MatMul", ["hidden", "turned"], ["scores"], "head"),
        ],
        False,
    ),
    "a product that transposes": (
        [helper.make_node("Gemm", ["hidden", "table"], ["scores"], "head", transB=1)],
        False,
    ),
    "stored twice": ([helper.make_node("MatMul", ["hidden", "turned"], ["scores"], "head")], True),
}


def tied(
    form: str,
    dims: list[int | str],
    more: Sequence[onnx.NodeProto] = (),
    turned: npt.NDArray[np.float32] | None = None,
) -> Build:
    """The build of a small language model of that form with ``dims`` tokens, and ``more`` nodes
    whose results are outputs.
    """
    nodes, stored = FORMS[form]
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["rows"], "embed"),
        helper.make_node("Tanh", ["rows"], ["hidden"], "hide"),
        *nodes,
        *more,
    ]
    data = [numpy_helper.from_array(TABLE, "table")]
    if stored:
        copy = np.ascontiguousarray(TABLE.T) if turned is None else turned
        data.append(numpy_helper.from_array(copy, "turned"))
    graph = helper.make_graph(
        nodes,
        "tied",
        [helper.make_tensor_value_info("ids", TensorProto.INT64, dims)],
        [
            helper.make_tensor_value_info(n, TensorProto.FLOAT, None)
            for n in ("scores", *(o for node in more for o in node.output))
        ],
        data,
    )
    opsets = [helper.make_opsetid("", 18)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    return build(model, TARGET, options=CompileOptions())


def constant_bytes(built: Build) -> int:
    """The bytes of the file less those of code and manifest, about."""
    return len(built.to_bytes()) - len(built.image)


@pytest.mark.parametrize("form", FORMS)
def test_the_table_is_stored_once_and_read_by_both(form: str, tmp_path: Path) -> None:
    built = tied(form, ["n"])
    assert constant_bytes(built) < 1.2 * TABLE.nbytes
    head = next(row for row in built.report.kernels if row.origin == "head")
    assert head.template == "tiled"  # the product keeps its packed weight
    built.save(tmp_path / "tied.tw")
    model = tilewright.load(tmp_path / "tied.tw")
    ids = np.array([0, TOKENS - 1, 17, 15, 16, -1, -TOKENS])
    expected = np.tanh(TABLE[ids]) @ TABLE.T
    np.testing.assert_allclose(model.run({"ids": ids})["scores"], expected, rtol=2e-4, atol=2e-4)


def test_a_table_of_which_much_is_read_is_stored_twice() -> None:
    """Each run would fetch a line for each element: more bytes than a second copy has."""
    rows = TABLE.nbytes // (WIDTH * 60)
    assert constant_bytes(tied("stored twice", [2 * rows])) > 2 * TABLE.nbytes
    assert constant_bytes(tied("stored twice", [rows // 2])) < 1.2 * TABLE.nbytes


def test_a_table_that_others_read_is_stored_twice() -> None:
    """It is there in its own order anyway."""
    more = [
        helper.make_node("ReduceMax", ["scores"], ["most"], keepdims=0),
        helper.make_node("Mul", ["table", "most"], ["scaled"]),
    ]
    assert constant_bytes(tied("stored twice", ["n"], more)) > 2 * TABLE.nbytes


def test_a_weight_that_differs_in_one_number_is_another() -> None:
    """It lies between the samples that tell most tables apart."""
    turned = np.ascontiguousarray(TABLE.T)
    turned[3, TOKENS // 2] += 1
    assert constant_bytes(tied("stored twice", ["n"], turned=turned)) > 2 * TABLE.nbytes
