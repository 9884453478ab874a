# SPDX-License-Identifier: Apache-2.0
"""The table of slow kernels of real models."""

import json
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper

from benchmarks import slow_kernels
from benchmarks.slow_kernels import Case, Outcome, check, main
from benchmarks.zoo import parse_table
from tilewright.kernel_report import KernelWarning
from tilewright.passes.schedule.findings import SlowStage

PACKAGE = '[package.p]\nregistry = "export"\nname = "torch"\nlicence = "MIT"\n'
HEAD = '[[model]]\nname = "m"\nsuite = "small"\npackage = "p"\ntask = "t"\n'


def save_products(path: Path, width: int | str) -> Path:
    """Two products of rows with weights, whose kernels are of one form."""
    info = helper.make_tensor_value_info
    weights = [
        helper.make_tensor(f"w{i}", TensorProto.FLOAT, [64, 64], [0.01 * i] * 64 * 64)
        for i in range(2)
    ]
    nodes = [
        helper.make_node("MatMul", [x, f"w{i}"], [y], name=f"layer{i}")
        for i, (x, y) in enumerate([("x", "h"), ("h", "y")])
    ]
    x, y = (info(name, TensorProto.FLOAT, [width, 64]) for name in "xy")
    graph = helper.make_graph(nodes, "products", [x], [y], weights)
    opsets = [helper.make_opsetid("", 18)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), path)
    return path


@pytest.mark.parametrize(
    ("row", "shapes"),
    [
        (
            '[[model.sizes]]\nn = 3\n[model.input.x]\nrecipe = "noise"\nshape = ["n", 64]\n',
            {"static": {"x": (3, 64)}, "symbolic": None},
        ),
        (
            '[model.input.x]\nrecipe = "noise"\nshape = [1, 64]\n',
            {"static": None, "batch": {"x": ("batch", 64)}},
        ),
    ],
    ids=["symbols", "fixed"],
)
def test_each_model_is_static_and_symbolic(row: str, shapes: dict[str, Any]) -> None:
    model = parse_table(f"{PACKAGE}{HEAD}{row}").model("m")
    found = list(slow_kernels.cases_of(model, Path("m.onnx"), ["x86-64-v3", "aarch64"]))
    assert [(c.form, c.target) for c in found] == [
        (form, target) for form in shapes for target in ("x86-64-v3", "aarch64")
    ]
    assert {c.form: c.shapes for c in found} == shapes


def test_a_slow_kernel_is_one_warning_of_all_its_nodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = Case("m", "static", "x86-64-v3", str(save_products(tmp_path / "m.onnx", 4)), None)
    fast = check(case)
    assert fast.kernels == 1 and fast.warnings == () and not fast.failed
    slow = SlowStage("matmul", 16384, "The reason.")
    monkeypatch.setattr(slow_kernels, "schedule", lambda kernel, target: ("serial", (slow,)))
    (warning,) = check(case).warnings
    assert warning.origins == ("layer0", "layer1") and warning.reason == "The reason."


def test_a_model_for_one_batch_size_is_no_failure(tmp_path: Path) -> None:
    path = save_products(tmp_path / "m.onnx", 4)
    shapes = {"x": (4, 65)}
    assert check(Case("m", "static", "x86-64-v3", str(path), shapes)).failed
    optional = check(Case("m", "batch", "x86-64-v3", str(path), shapes, optional=True))
    assert optional.failure and not optional.failed


def test_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    json_file = tmp_path / "found.json"
    arguments = ["--model", "digits", "--target", "x86-64-v3", "--json", str(json_file)]
    assert main(arguments) == 0
    rows = [line.replace("│", "|") for line in capsys.readouterr().out.splitlines()]
    (total,) = [row for row in rows if "2 cases" in row]
    found = json.loads(json_file.read_text())
    kernels = sum(outcome["kernels"] for outcome in found)
    assert kernels > 8
    assert total.replace("|", " ").split()[2:] == [str(kernels), "0"]
    assert [outcome["case"]["form"] for outcome in found] == ["static", "symbolic"]


def test_the_sum_of_the_table() -> None:
    warning = KernelWarning("k", ("a",), "serial", "s", 5000, "None.")
    case = Case("m", "static", "x86-64-v3", "m.onnx", None)
    table = slow_kernels.as_table(
        [Outcome(case, 7, (warning, warning)), Outcome(case, 5, (warning,)), Outcome(case, 3)]
    )
    assert [list(column.cells)[-1] for column in table.columns] == ["3 cases", "", "", "15", "3"]
