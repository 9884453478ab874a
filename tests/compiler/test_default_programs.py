# SPDX-License-Identifier: Apache-2.0
"""Models whose initialisers may be replaced: two programs in one image, the one for calls that
replace none as fast as if the initialisers were constants.
"""

import logging
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import tilewright
from tests.compiler.conftest import SCALE
from tilewright import errors
from tilewright.driver import CompileOptions, Report, build, optimized
from tilewright.frontends import import_model
from tilewright.ir.target import parse_target
from tilewright.kernel_report import kernel_warnings, split_launches
from tilewright.passes.schedule.findings import SlowStage
from tilewright.tuning import kernel_tasks

DEFAULTS = ("kernel", "bias", "scale")
X = np.random.default_rng(0).standard_normal((2, 8, 9, 9), np.float32)


def network(replaceable: bool = True) -> onnx.ModelProto:
    """A convolution with a scale, which folds into its weights, over a symbolic batch."""
    draw = np.random.default_rng(1).standard_normal
    arrays = {
        "kernel": draw((32, 8, 3, 3), np.float32),
        "bias": draw((32,), np.float32),
        "scale": draw((32, 1, 1), np.float32),
    }
    nodes = [
        helper.make_node("Conv", ["x", "kernel", "bias"], ["c"], name="conv"),
        helper.make_node("Mul", ["c", "scale"], ["s"], name="scaled"),
        helper.make_node("Relu", ["s"], ["y"], name="relu"),
    ]
    inputs = [helper.make_tensor_value_info("x", 1, ["n", 8, 9, 9])]
    if replaceable:
        inputs += [helper.make_tensor_value_info(k, 1, v.shape) for k, v in arrays.items()]
    graph = helper.make_graph(
        nodes,
        "network",
        inputs,
        [helper.make_tensor_value_info("y", 1, ["n", 32, 7, 7])],
        [numpy_helper.from_array(v, k) for k, v in arrays.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


@pytest.fixture(scope="module", params=["x86-64-v3", "native"])
def compiled(request: pytest.FixtureRequest) -> tilewright.CompiledModel:
    return tilewright.compile(network(), request.param)


def forms(model: tilewright.CompiledModel, feeds: dict[str, Any]) -> list[str]:
    return [launch.name for launch in model.run_profiled(feeds)[1]]


def test_every_choice_of_feeds_computes_what_the_model_says(
    compiled: tilewright.CompiledModel,
) -> None:
    reference = pytest.importorskip("onnxruntime").InferenceSession(network().SerializeToString())
    arrays = {t.name: numpy_helper.to_array(t) * 2 + 1 for t in network().graph.initializer}
    for chosen in (*product([False, True], repeat=3), (False,) * 3):
        feeds = {"x": X} | {n: arrays[n] for n, c in zip(DEFAULTS, chosen, strict=True) if c}
        (expected,) = reference.run(None, feeds)
        np.testing.assert_allclose(compiled.run(feeds)["y"], expected, rtol=1e-4, atol=1e-4)


def test_calls_that_replace_nothing_run_the_kernels_of_constants(
    compiled: tilewright.CompiledModel,
) -> None:
    target = compiled.manifest["target"]
    assert target["arch"] == "x86_64"
    usual, others = split_launches(compiled.manifest)
    scale = np.ones((32, 1, 1), np.float32)
    assert forms(compiled, {"x": X}) == [row["name"] for row in usual]
    given = forms(compiled, {"x": X, "scale": scale})
    assert given == [row["name"] for row in others] != [row["name"] for row in usual]


@pytest.mark.parametrize("target", ["x86-64-v3", "native"])
def test_constant_defaults_are_those_of_a_model_of_constants(target: str) -> None:
    options = CompileOptions(constant_defaults=True)
    fixed = tilewright.compile(network(), target, options=options)
    plain = tilewright.compile(network(replaceable=False), target)
    both = tilewright.compile(network(), target)
    names = [row["name"] for row in plain.manifest["kernels"]]
    assert [row["name"] for row in fixed.manifest["kernels"]] == names
    assert [row["name"] for row in split_launches(both.manifest)[0]] == names
    assert [port.name for port in fixed.inputs] == ["x"]
    assert "defaults_entry" not in fixed.manifest
    for x in (X, X[:1]):
        expected = plain.run({"x": x})["y"]
        for model in (fixed, both):
            np.testing.assert_array_equal(model.run({"x": x})["y"], expected)
    with pytest.raises(errors.InputError, match="'bias' is no input"):
        fixed.run({"x": X, "bias": np.zeros(32, np.float32)})


def test_constants_are_there_once() -> None:
    target = parse_target("x86-64-v3,cores=2")
    both = build(network(), target)
    kinds = [(a.nbytes, bytes(a)) for a in both.constants]
    assert len(set(kinds)) == len(kinds)
    fixed = build(network(), target, options=CompileOptions(constant_defaults=True))
    assert {bytes(a) for a in fixed.constants} <= {content for _, content in kinds}
    assert len(fixed.to_bytes()) < len(both.to_bytes())
    assert both.to_bytes() == build(network(), target).to_bytes()


def test_models_without_defaults_have_one_program() -> None:
    target = parse_target("x86-64-v3,cores=2")
    model = network(replaceable=False)
    assert optimized(import_model(model), target, CompileOptions(), Report())[1] is None
    usual, fixed = (
        build(model, target, options=CompileOptions(constant_defaults=flag)).to_bytes()
        for flag in (False, True)
    )
    assert usual == fixed and b"defaults_entry" not in usual


def test_a_saved_file_runs_in_threads_that_feed_and_do_not(tmp_path: Path) -> None:
    tilewright.compile(network()).save(tmp_path / "model.tw")
    model = tilewright.load(tmp_path / "model.tw", threads=1)
    bias = np.full(32, 3, np.float32)
    choices: list[dict[str, Any]] = [{"x": X}, {"x": X, "bias": bias}]
    expected = [model.run(feeds)["y"] for feeds in choices]
    assert not np.array_equal(*expected)

    def alternate(first: int) -> None:
        for step in range(first, first + 40):
            np.testing.assert_array_equal(model.run(choices[step % 2])["y"], expected[step % 2])

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(alternate, range(4)))


def test_sizes_that_defaults_have_are_held_to(defaults: onnx.ModelProto) -> None:
    """The dims of the inputs that are left are told as ever, though a program knows them."""
    model = tilewright.compile(defaults)
    assert "defaults_entry" in model.manifest
    assert model.inputs[0].shape == ("n", 3)
    with pytest.raises(errors.InputError, match="Dim 0 of input 'shift' is 2, but 'n' is 3"):
        model.run({"x": np.ones((3, 3), np.float32)})


def test_defaults_of_which_one_must_be_replaced(caplog: pytest.LogCaptureFixture) -> None:
    nodes = [helper.make_node("Add", ["a", "b"], ["y"])]
    ports = [helper.make_tensor_value_info(name, 1, ["n"]) for name in "aby"]
    graph = helper.make_graph(
        nodes,
        "apart",
        ports[:2],
        ports[2:],
        [numpy_helper.from_array(SCALE[:size], name) for name, size in (("a", 2), ("b", 3))],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    model = tilewright.compile(proto)
    assert "Each call must replace some initialiser" in caplog.text
    assert "defaults_entry" not in model.manifest
    np.testing.assert_array_equal(model.run({"a": SCALE})["y"], SCALE * 2)
    with pytest.raises(errors.InputError, match="'n' is 2 elsewhere"):
        model.run({})
    with pytest.raises(errors.PassError, match="'b' has a dim of 3 where the model expects 2"):
        tilewright.compile(proto, options={"constant_defaults": True})


def test_the_cost_of_defaults_is_told(caplog: pytest.LogCaptureFixture) -> None:
    def large(rows: int) -> onnx.ModelProto:
        w = np.ones((rows, 256), np.float32)
        graph = helper.make_graph(
            [helper.make_node("MatMul", ["x", "w"], ["y"])],
            "large",
            [
                helper.make_tensor_value_info("x", 1, ["n", rows]),
                helper.make_tensor_value_info("w", 1, w.shape),
            ],
            [helper.make_tensor_value_info("y", 1, ["n", 256])],
            [numpy_helper.from_array(w, "w")],
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)

    with caplog.at_level(logging.WARNING, "tilewright"):
        tilewright.compile(large(4))
        assert not caplog.records
        tilewright.compile(large(256))
    assert "'w' are inputs of the graph too, so that a call may replace them" in caplog.text
    assert "262,144 bytes of constants more. With --constant-defaults" in caplog.text


def test_tuning_takes_the_kernels_of_both_programs() -> None:
    target = parse_target("x86-64-v3,cores=2")
    usual, others = split_launches(tilewright.compile(network(), target).manifest)
    tasks = [task.kernel.name for task in kernel_tasks(network(), target)]
    assert tasks == list(dict.fromkeys(row["name"] for row in (*usual, *others)))


def test_dumps_of_both_programs(tmp_path: Path) -> None:
    target = parse_target("x86-64-v3,cores=2")
    build(network(), target, options=CompileOptions(dump_ir=tmp_path))
    first, second = ((tmp_path / name).read_text() for name in ("host.ir", "defaults/host.ir"))
    assert "kernel: f32" in first and "kernel: f32[32,8,3,3]," not in second
    build(network(replaceable=False), target, options=CompileOptions(dump_ir=tmp_path))
    assert not list((tmp_path / "defaults").iterdir())


def test_programs_that_are_cut_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The parts of the second program find its constants by the numbers of the shared table."""
    monkeypatch.setattr("tilewright.codegen.llvm.host.PART_SLOTS", 2)
    cut = tilewright.compile(network())
    monkeypatch.undo()
    whole = tilewright.compile(network())
    assert cut.manifest["kernels"] == whole.manifest["kernels"]
    for feeds in ({"x": X}, {"x": X, "bias": np.ones(32, np.float32)}):
        np.testing.assert_array_equal(cut.run(feeds)["y"], whole.run(feeds)["y"])


def test_a_slow_node_is_told_of_once() -> None:
    """What is slow in both programs is told of the usual one, what is in the other alone, of it."""
    slow = SlowStage("sum", 5000, "because")
    kernel: Any = SimpleNamespace(template="rows", slow=(slow,))
    origins = {"k1": ["a"], "k2": ["a"], "k3": ["b"]}
    kernels = dict.fromkeys(origins, kernel)
    assert [w.kernel for w in kernel_warnings(origins, kernels, {"k1"})] == ["k1", "k3"]
    assert [w.kernel for w in kernel_warnings(origins, kernels, origins)] == ["k1", "k2", "k3"]
