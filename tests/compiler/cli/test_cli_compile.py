# SPDX-License-Identifier: Apache-2.0
"""``tilewright compile``."""

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import tilewright
from tilewright.cli.arguments import Numerics
from tilewright.passes.manager import NUMERICS


def test_writes_an_artifact(call: Any, pair_onnx: Path, tmp_path: Path) -> None:
    result = call("compile", pair_onnx)
    assert result.stdout.startswith("Wrote 'pair.tw': ")
    assert "input   b/0: float32[n, 4]" in result.stdout
    assert result.stderr == ""
    a = np.ones((2, 4), np.float32)
    found = tilewright.load(tmp_path / "pair.tw").run({"a": a, "b/0": a})
    np.testing.assert_array_equal(found["total"], a + a)


def test_output_and_quiet(call: Any, pair_onnx: Path, tmp_path: Path) -> None:
    result = call("compile", pair_onnx, "-o", "there.tw", "--quiet")
    assert result.stdout == result.stderr == "" and (tmp_path / "there.tw").exists()
    assert "Show neither progress nor the summary." in call("compile", "--help").stdout


def test_json(ask: Callable[..., Any], pair_onnx: Path, tmp_path: Path) -> None:
    facts = ask("compile", pair_onnx, "-o", "x.tw", "--target", "x86-64-v3,cores=3")
    assert facts["output"] == "x.tw" and facts["bytes"] == (tmp_path / "x.tw").stat().st_size
    assert facts["target"]["cores"] == 3 and "avx2" in facts["target"]["features"]
    assert facts["inputs"][1] == {"name": "b/0", "dtype": "float32", "shape": ["n", 4]}
    assert {phase["name"] for phase in facts["phases"]} >= {"import", "graph passes", "link"}
    assert sum(kernel["launches"] for kernel in facts["kernels"]) >= 1
    assert facts["passes"][0].keys() == {"name", "seconds", "changed", "nodes"}


def test_time_passes(call: Any, pair_onnx: Path) -> None:
    lines = call("compile", pair_onnx, "--time-passes").stdout.splitlines()
    heads = [line.split()[0] for line in lines if line]
    assert {"phase", "pass", "kernel", "canonicalize", "import"} <= set(heads)


def test_dump_ir(call: Any, pair_onnx: Path, tmp_path: Path) -> None:
    call("compile", pair_onnx, "--dump-ir", "ir", "--verify")
    names = sorted(path.name for path in (tmp_path / "ir").iterdir())
    assert "host.ir" in names and any(name.startswith("kernel-001-") for name in names)
    assert any(name.endswith("-fuse.ir") for name in names)


def test_shapes(ask: Callable[..., Any], pair_onnx: Path) -> None:
    facts = ask("compile", pair_onnx, "--shape", "a=2,4", "--shape", "b/0=2,4")
    assert [port["shape"] for port in facts["inputs"]] == [[2, 4], [2, 4]]
    facts = ask("compile", pair_onnx, "--shape", "a=rows,4", "--shape", "b/0=rows,4")
    assert facts["outputs"][0]["shape"] == ["rows", 4]


def test_numerics_and_disabled_passes(call: Any, pair_onnx: Path, tmp_path: Path) -> None:
    call("compile", pair_onnx, "--numerics", "strict", "--disable", "fold-batch-norm")
    assert tilewright.load(tmp_path / "pair.tw").manifest["numerics"] == "strict"
    assert tuple(sorted(Numerics)) == tuple(sorted(NUMERICS))


def test_cache_folder(ask: Callable[..., Any], pair_onnx: Path, tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    for cached in (False, True):
        facts = ask("compile", pair_onnx, "--cache-dir", folder)
        assert {kernel["cached"] for kernel in facts["kernels"]} == {cached}
    entries = sorted(path for path in folder.rglob("*") if path.is_file())
    entries[0].write_bytes(b"damaged")
    entries[1].write_bytes(entries[1].read_bytes()[:-1])
    facts = ask("compile", pair_onnx, "--cache-dir", folder)
    assert not all(kernel["cached"] for kernel in facts["kernels"])
    facts = ask("compile", pair_onnx, "--no-cache", "--cache-dir", folder)
    assert {kernel["cached"] for kernel in facts["kernels"]} == {False}


def test_cache_that_cannot_be_written(call: Any, pair_onnx: Path, tmp_path: Path) -> None:
    blocker = tmp_path / "file"
    blocker.write_text("")
    result = call("compile", pair_onnx, "--cache-dir", blocker / "cache")
    assert result.stdout.startswith("Wrote ")
    assert result.stderr.startswith("Warning: ") and "cache" in result.stderr


def test_generic_target_warns(call: Any, pair_onnx: Path) -> None:
    result = call("compile", pair_onnx, "--target", "x86-64")
    assert result.stderr.startswith("Warning: Target 'x86-64' is generic")
    assert call("compile", pair_onnx, "--target", "x86-64-v3").stderr == ""
    assert call("--log", "error", "compile", pair_onnx, "--target", "x86-64").stderr == ""


def test_log(call: Any, pair_onnx: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A model that was written a moment ago is not kept; here it is.
    monkeypatch.setattr("tilewright.model_cache._CLOCK_NS", -1_000_000_000)
    arguments = ["compile", pair_onnx, "--target", "x86-64-v3,cores=3", "--cache-dir", "kept"]
    lines = call("--log", "debug", *arguments).stderr.splitlines()
    assert lines[0] == "Info: The artifact is not in the cache of whole models."
    assert lines[1].startswith("Info: The target is 'x86-64+avx+avx2+")
    assert lines[2] == "Info: Kernels: 2 launches, 2 forms, 0 of them from the cache."
    assert len(lines) == 5 and all(" is scheduled by '" in line for line in lines[3:])
    lines = call("--log", "info", *arguments).stderr.splitlines()
    assert lines == ["Info: The artifact is in the cache: nothing is compiled."]
    lines = call("--log", "info", *arguments, "--json").stderr.splitlines()
    assert lines[1:] == ["Info: Kernels: 2 launches, 2 forms, 2 of them from the cache."]
    assert call(*arguments).stderr == ""


BAD = {
    "target": (["--target", "z80"], 2, "Target 'z80' is not understood"),
    "feature": (["--target", "x86-64-v3+avx9"], 2, "Did you mean 'avx' or 'avx2'?"),
    "cores": (["--target", "native,cores=0"], 2, "must have from 1 to 4096 cores."),
    "OpenCL": (
        ["--target", "opencl"],
        2,
        "artifacts are made for processors only. Choose 'native'",
    ),
    "CUDA": (["--target", "cuda-sm80"], 2, "Models cannot be compiled for 'cuda-sm80' yet"),
    "pass": (["--disable", "hoist-slice"], 2, "Did you mean 'hoist-slices'?"),
    "needed pass": (["--disable", "fuse"], 2, "Pass 'fuse' cannot be left out. Those that can"),
    "shape of no input": (["--shape", "c=1"], 2, "Shapes are given for 'c'"),
    "shape of another rank": (["--shape", "a=1"], 2, "rank"),
    "shape without dims": (["--shape", "a"], 2, "Shape 'a' is not understood"),
    "negative dim": (["--shape", "a=-1,4"], 2, "Shape 'a=-1,4' is not understood"),
    "shape twice": (["--shape", "a=1,4", "--shape", "a=1,4"], 2, "given twice"),
    "numerics": (["--numerics", "fast"], 2, "fast"),
    "missing folder": (["-o", "missing/x.tw"], 1, "Folder 'missing' does not exist."),
    "standard output": (["-o", "-"], 2, "The output is a file, not standard output."),
    "folder": (["-o", "."], 1, "'.' is a folder."),
    "unwritable": (["-o", "/proc/x.tw"], 1, "'/proc"),
    "option": (["--fast"], 2, "No such option"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_usage(call: Any, pair_onnx: Path, tmp_path: Path, case: str) -> None:
    options, status, message = BAD[case]
    result = call("compile", pair_onnx, *options, status=status)
    assert message in result.stderr and "Traceback" not in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["pair.onnx"]


def test_read_only_folder(call: Any, pair_onnx: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.access", lambda path, mode: str(path) != ".")  # as for no root
    result = call("compile", pair_onnx, status=1)
    assert "Folder '.' cannot be written to." in result.stderr


def test_bad_models(call: Any, tmp_path: Path, unsupported: onnx.ModelProto) -> None:
    onnx.save(unsupported, tmp_path / "unsupported.onnx")
    (tmp_path / "random.onnx").write_bytes(bytes(range(256)))
    (tmp_path / "empty.onnx").write_bytes(b"")
    (tmp_path / "notes.txt").write_text("hello")
    (tmp_path / "folder.onnx").mkdir()
    cases = {
        "unsupported.onnx": "Zap (com.example 1): 1 node, 'Zap_0'; Zip (com.example 1): 1 node",
        "random.onnx": "is not an ONNX model or is damaged",
        "empty.onnx": "is not a complete ONNX model",
        "missing.onnx": "cannot be read: No such file",
        "notes.txt": "'notes.txt' is not a model in a known format",
        "folder.onnx": "cannot be read",
    }
    for name, message in cases.items():
        result = call("compile", name, "-o", "out.tw", status=1)
        assert message in result.stderr, name
        assert result.stderr.startswith("Error: ") and len(result.stderr.splitlines()) == 1
    assert not (tmp_path / "out.tw").exists()


def test_messages_name_the_way_out(call: Any, pair_file: Path, tmp_path: Path) -> None:
    info = onnx.helper.make_tensor_value_info
    ports = [info(name, onnx.TensorProto.FLOAT, None) for name in "xy"]
    opsets = [onnx.helper.make_opsetid("", 18)]
    for op in ("Rellu", "Relu"):
        node = onnx.helper.make_node(op, ["x"], ["y"], name="act1")
        inputs = [info("x", onnx.TensorProto.FLOAT, [2])] if op == "Rellu" else ports[:1]
        graph = onnx.helper.make_graph([node, node][:1], op, inputs, ports[1:])
        model = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=10)
        onnx.save(model, tmp_path / f"{op}.onnx")
    error = call("compile", "Rellu.onnx", status=1).stderr
    assert "Rellu (ai.onnx 18): 1 node, 'act1'. Did you mean 'Relu'? Export it with" in error
    error = call("compile", "Relu.onnx", status=2).stderr
    assert "as --shape x=n,4 on the command line or shapes={'x': ('n', 4)} in Python" in error
    for command in ("compile", "tune", "opt"):
        error = call(command, pair_file, status=2).stderr
        assert "is an artifact: it is compiled already. 'tilewright run' runs it" in error


def test_names_cannot_write_to_the_terminal(call: Any, tmp_path: Path) -> None:
    name = "x\x1b[31m\x07"
    info = [onnx.helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [2]) for n in (name, "y")]
    node = onnx.helper.make_node("Neg", [name], ["y"])
    graph = onnx.helper.make_graph([node], "escape", info[:1], info[1:])
    opsets = [onnx.helper.make_opsetid("", 18)]
    onnx.save(
        onnx.helper.make_model(graph, opset_imports=opsets, ir_version=10), tmp_path / "e.onnx"
    )
    for arguments in (["compile", "e.onnx"], ["inspect", "e.onnx"], ["inspect", "e.tw"]):
        text = call(*arguments).stdout
        assert "\x1b" not in text and "\x07" not in text and "x\\x1b[31m" in text


def test_to_a_pipe(call: Any, pair_onnx: Path, tmp_path: Path) -> None:
    """It is written once, and is not read again to be kept."""
    pipe, read = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()), daemon=True)
    reader.start()
    call("compile", pair_onnx, "-o", pipe)
    reader.join(20)
    assert tilewright.load(read[0]).inputs[0].name == "a"
