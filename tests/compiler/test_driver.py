# SPDX-License-Identifier: Apache-2.0
"""The driver: what it reports, what it dumps, and what its options change."""

import logging
import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import tilewright
from tilewright.driver import Build, CompileOptions, build
from tilewright.ir.errors import CodegenError, PassError, SymbolicDimError
from tilewright.ir.graph import Node
from tilewright.ir.loop_parser import parse_host, parse_kernel
from tilewright.ir.target import parse_target
from tilewright.passes.schedule.schedule import apply, parse_schedule
from tilewright.pipeline import GRAPH_PASSES

V3 = parse_target("x86-64-v3,cores=2")
PHASES = ["import", "graph passes", "lower", "kernels", "host program", "link"]


@pytest.fixture(scope="module")
def layers() -> onnx.ModelProto:
    """Three products of one form, one after the other, and a softmax."""
    rng = np.random.default_rng(0)
    weights = [
        helper.make_tensor(f"w{i}", TensorProto.FLOAT, [8, 8], rng.standard_normal(64).tolist())
        for i in range(3)
    ]
    nodes = [
        helper.make_node("MatMul", [f"h{i}", f"w{i}"], [f"h{i + 1}"], name=f"layer{i}")
        for i in range(3)
    ]
    nodes.append(helper.make_node("Softmax", ["h3"], ["y"], name="last", axis=1))
    x = helper.make_tensor_value_info("h0", TensorProto.FLOAT, ["n", 8])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 8])
    graph = helper.make_graph(nodes, "layers", [x], [y], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A compile cache that the first build of this module fills."""
    return tmp_path_factory.mktemp("driver")


@pytest.fixture(scope="module")
def dumped(folder: Path) -> Path:
    return folder / "ir"


@pytest.fixture(scope="module")
def first(layers: onnx.ModelProto, folder: Path, dumped: Path) -> Build:
    options = CompileOptions(cache_dir=folder / "cache", dump_ir=dumped, verify=True)
    return build(layers, V3, options=options)


# --- the report ---


def test_phases_and_passes_are_reported_in_order(first: Build) -> None:
    assert [name for name, _ in first.report.phases] == PHASES
    assert all(seconds >= 0 for _, seconds in first.report.phases)
    assert [row.name for row in first.report.passes] == list(GRAPH_PASSES)
    assert first.report.passes[-1].changed
    assert all(row.nodes > 0 for row in first.report.passes)


def test_one_row_for_each_form(first: Build) -> None:
    rows = first.report.kernels
    assert len({row.name for row in rows}) == len(rows) == 2
    product, softmax = rows
    assert (product.launches, softmax.launches) == (3, 1)
    assert "layer0" in product.origin and "last" in softmax.origin
    assert (product.template, softmax.template) == ("tiled", "shortrows")
    for row in rows:
        assert parse_schedule(row.schedule) and row.proof_ms > 0 and not row.cached
    assert [call.name for call in first.manifest.kernels] == [product.name] * 3 + [softmax.name]


def test_rows_from_the_cache_say_so(first: Build, layers: onnx.ModelProto, folder: Path) -> None:
    again = build(layers, V3, options=CompileOptions(cache_dir=folder / "cache"))
    assert all(row.cached for row in again.report.kernels)
    for old, new in zip(first.report.kernels, again.report.kernels, strict=True):
        assert (new.name, new.launches, new.schedule) == (old.name, old.launches, old.schedule)
    assert again.to_bytes() == first.to_bytes()


def test_progress_counts_the_forms(layers: onnx.ModelProto, folder: Path, first: Build) -> None:
    told: list[tuple[str, int, int]] = []
    options = CompileOptions(cache_dir=folder / "cache")
    build(layers, V3, options=options, progress=lambda *step: told.append(step))
    assert told[-1] == ("kernels", 2, 2)


# --- dumps ---


def test_a_graph_after_each_pass_is_dumped(first: Build, dumped: Path) -> None:
    graphs = sorted(p.name for p in dumped.glob("[0-9][0-9]-*.ir"))
    assert graphs == [f"{i:02d}-{name}.ir" for i, name in enumerate(GRAPH_PASSES, 1)]
    last = (dumped / graphs[-1]).read_text()
    assert last.startswith("// after fuse") and last.count("group(") == 4
    for name, row in zip(graphs, first.report.passes, strict=True):
        head = (dumped / name).read_text().split("\n", 1)[0]
        assert head.endswith("(unchanged)") is not row.changed


def test_kernels_and_their_schedules_are_dumped(first: Build, dumped: Path) -> None:
    files = sorted(dumped.glob("kernel-*.ir"))
    assert [p.stem for p in files] == [
        f"kernel-{i:03d}-{row.name}" for i, row in enumerate(first.report.kernels, 1)
    ]
    for path, row in zip(files, first.report.kernels, strict=True):
        text = path.read_text()
        assert text.startswith(f"// {row.origin}\n")
        plain, schedule, scheduled = re.split(r"\n// schedule: (.*)\n", text.split("\n", 1)[1])
        assert schedule == row.schedule
        assert apply(parse_kernel(plain), parse_schedule(schedule)) is parse_kernel(scheduled)


def test_the_host_program_is_dumped(first: Build, dumped: Path) -> None:
    text = (dumped / "host.ir").read_text()
    assert str(parse_host(text)) == text.strip()
    for row in first.report.kernels:
        assert len(re.findall(rf"\b{row.name}\b", text)) >= row.launches
    assert {p.name for p in dumped.iterdir() if not p.match("[0-9k]*")} == {"host.ir"}


def test_a_kernel_that_fails(
    layers: onnx.ModelProto, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its node, the reason and a way out are told, none of its loops; those are in the dump."""
    monkeypatch.setattr("tilewright.codegen.kernels.TIMEOUT", 1e-4)
    said = (
        r"^Node '[\w+]+' cannot be compiled: Compiling took longer than 0\.0001 s\. Its sizes are "
        r"symbolic\. Fix the symbolic dim 'n', as --shape \w+=1,[\d,]+ on .* --dump-ir writes"
    )
    with pytest.raises(CodegenError, match=said) as caught:
        build(layers, V3, options=CompileOptions(cache=False, dump_ir=tmp_path))
    (path,) = tmp_path.glob(f"kernel-*-{caught.value.subject}.ir")
    origin, text = path.read_text().split("\n", 1)
    assert f"Node '{origin.removeprefix('// ')}' cannot" in str(caught.value)
    assert caught.value.subject not in str(caught.value)
    assert parse_kernel(text).name == caught.value.subject


def test_a_dump_takes_the_place_of_an_earlier_one(
    layers: onnx.ModelProto, folder: Path, first: Build, dumped: Path, tmp_path: Path
) -> None:
    old = ["99-fuse.ir", "03-some-old-pass.ir", "kernel-007-k0123456789abcdef.ir", "host.ir"]
    own = ["notes.ir", "01-fuse.txt", "1-fuse.ir", "kernel-001-mine.ir", "kernel.ir", "my-host.ir"]
    for name in (*old, *own):
        (tmp_path / name).write_text("before")
    (tmp_path / "98-folder.ir").mkdir()
    options = CompileOptions(cache_dir=folder / "cache", dump_ir=tmp_path, verify=True)
    build(layers, V3, options=options)
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {path.name for path in dumped.iterdir()} | {*own, "98-folder.ir"}
    assert all((tmp_path / name).read_text() == "before" for name in own)
    assert (tmp_path / "host.ir").read_text() == (dumped / "host.ir").read_text()


def test_nothing_is_dumped_unless_asked(
    layers: onnx.ModelProto, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    build(layers, V3, options=CompileOptions(cache_dir=folder / "cache"))
    assert list(tmp_path.iterdir()) == []


# --- options ---


def test_disabled_passes_do_not_run(pair: onnx.ModelProto, folder: Path, tmp_path: Path) -> None:
    off = frozenset({"assign-layout", "canonicalize"})
    options = CompileOptions(disabled=off, cache_dir=folder / "cache", dump_ir=tmp_path / "ir")
    done = build(pair, V3, options=options)
    assert [r.name for r in done.report.passes] == [n for n in GRAPH_PASSES if n not in off]
    assert not list((tmp_path / "ir").glob("*canonicalize*"))


def test_the_model_is_right_whatever_is_disabled(layers: onnx.ModelProto, folder: Path) -> None:
    needed = {"decompose", "materialize-outputs", "check-indices", "fuse"}
    optional = frozenset(GRAPH_PASSES) - needed
    x = np.random.default_rng(1).standard_normal((5, 8)).astype(np.float32)
    options = CompileOptions(disabled=optional, cache_dir=folder / "cache")
    plain = tilewright.compile(layers, options=options)
    full = tilewright.compile(layers, options=CompileOptions(cache_dir=folder / "cache"))
    np.testing.assert_allclose(plain(x), full(x), rtol=1e-5, atol=1e-6)


def test_fusion_cannot_be_left_out(layers: onnx.ModelProto) -> None:
    told = r"^Pass 'fuse' cannot be left out\. Those that can are 'assign-layout', 'canonicalize', "
    with pytest.raises(PassError, match=told):
        build(layers, V3, options=CompileOptions(disabled=frozenset({"fuse"})))


def test_without_a_cache_all_is_compiled_again(
    layers: onnx.ModelProto, first: Build, tmp_path: Path
) -> None:
    options = CompileOptions(cache=False, cache_dir=tmp_path / "cache")
    for _ in range(2):
        done = build(layers, V3, options=options)
        assert not any(row.cached for row in done.report.kernels)
    assert not (tmp_path / "cache").exists()
    assert done.to_bytes() == first.to_bytes()


def test_the_artifact_says_how_it_was_built(
    layers: onnx.ModelProto, folder: Path, tmp_path: Path
) -> None:
    options = CompileOptions("strict", cache_dir=folder / "cache")
    done = build(layers, V3, {"h0": (3, 8)}, options)
    done.save(tmp_path / "layers.tw")
    assert (tmp_path / "layers.tw").read_bytes() == done.to_bytes()
    assert done.manifest.numerics == "strict" and done.manifest.target.cores == 2
    assert [p.shape for p in (*done.manifest.inputs, *done.manifest.outputs)] == [(3, 8)] * 2


def failing_with(error: CodegenError, model: onnx.ModelProto, patch: pytest.MonkeyPatch) -> str:
    """What is told where the kernel of the first group fails with an error."""

    def fail(kernels: Any, *rest: object) -> None:
        error.subject = next(iter(kernels))
        raise error

    patch.setattr("tilewright.driver.compile_kernels", fail)
    with pytest.raises(CodegenError) as caught:
        build(model, V3, options=CompileOptions(cache=False))
    return str(caught.value)


def test_no_error_of_a_kernel_shows_loops(
    layers: onnx.ModelProto, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What the proof or LLVM says is in the log; a reason that is meant for users is told."""
    loops = "Block 'mm.update(3, 0, n0 - 1)' at io=0 computes 't3[n0]' where stage 'mm' says 'x'."
    with caplog.at_level(logging.DEBUG, "tilewright"):
        told = failing_with(CodegenError(loops, "", ""), layers, monkeypatch)
    assert re.match(r"Node '[\w+]+' cannot be compiled: No code could be generated for it\. ", told)
    assert "n0" not in told and "block" not in told.lower() and loops in caplog.text
    reason = "Values of type 'c64' cannot be computed by generated code."
    told = failing_with(CodegenError(f"Kernel 'k1': {reason}", "", reason), layers, monkeypatch)
    assert reason in told and "'k1'" not in told


def test_a_fault_around_the_kernels_shows_no_code(
    layers: onnx.ModelProto, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise CodegenError("Compiling 'tw_host' failed: %v1 = add i64 %v0, ptr", "tw_host")

    monkeypatch.setattr("tilewright.driver.compile_many", fail)
    with pytest.raises(CodegenError, match=r"^The model cannot be compiled: No code ") as caught:
        build(layers, V3, options=CompileOptions(cache=False))
    assert "%v1" not in str(caught.value)


def test_a_kernel_that_needs_a_number_says_which_dim_to_fix(
    layers: onnx.ModelProto, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(node: Node, _: object) -> None:
        raise SymbolicDimError(f"Node '{node.origin}' has no kernel.", ["n"])

    monkeypatch.setattr("tilewright.passes.lower.forms.lower_group", refuse)
    said = r"^Node 'layer0' has no kernel\. Fix the symbolic dim 'n', as --shape h0=1,8 on the com"
    with pytest.raises(SymbolicDimError, match=said):
        build(layers, V3)
