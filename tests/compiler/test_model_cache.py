# SPDX-License-Identifier: Apache-2.0
"""The cache of whole artifacts: what is found again, and what is not."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilewright
from tilewright.autotune.records import Record, ScheduleRecords
from tilewright.ir.target import parse_target
from tilewright.model_cache import ModelCache

NATIVE = parse_target("native")


def save_model(path: Path, factor: float, external: bool = False) -> Path:
    """A model that multiplies by a factor, its weight in the file or beside it."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n"])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n"])
    weight = numpy_helper.from_array(np.full(1, factor, np.float32), "w")
    graph = helper.make_graph([helper.make_node("Mul", ["x", "w"], ["y"])], "g", [x], [y], [weight])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    where = {"save_as_external_data": True, "size_threshold": 0, "location": "w.bin"}
    onnx.save_model(model, path, **(where if external else {}))
    return path


def compile_model(model: Path, output: Path, cache: Path, *options: str) -> str:
    """The log of ``tilewright compile`` in a process of its own."""
    command = [sys.executable, "-m", "tilewright", "compile", str(model), "-o", str(output)]
    command += ["--cache-dir", str(cache), *options]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return done.stdout + done.stderr


def entries(cache: Path) -> list[Path]:
    return list(cache.with_name(f"{cache.name}-models").rglob("*.tw"))


def test_an_artifact_is_found_again(tmp_path: Path) -> None:
    model, cache = save_model(tmp_path / "m.onnx", 3.0), tmp_path / "cache"
    compile_model(model, tmp_path / "a.tw", cache)
    (entry,) = entries(cache)
    before = entry.stat().st_ino
    assert "Wrote" in compile_model(model, tmp_path / "b.tw", cache)
    assert (tmp_path / "a.tw").read_bytes() == (tmp_path / "b.tw").read_bytes()
    assert entry.stat().st_ino == before
    result = tilewright.load(tmp_path / "b.tw").run({"x": np.ones(2, np.float32)})
    assert result["y"].tolist() == [3.0, 3.0]


def test_a_damaged_entry_is_made_anew(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    cache = ModelCache(tmp_path / "cache")
    model = save_model(tmp_path / "m.onnx", 2.0)
    compile_model(model, tmp_path / "a.tw", tmp_path / "cache")
    (entry,) = entries(tmp_path / "cache")
    data = bytearray(entry.read_bytes())
    data[-10] ^= 1  # within the manifest, which comes last
    entry.write_bytes(data)
    key = entry.parent.name + entry.stem
    assert not cache.fetch(key, tmp_path / "b.tw")
    assert "damaged" in caplog.text and not entry.exists()
    assert not (tmp_path / "b.tw").exists()
    compile_model(model, tmp_path / "b.tw", tmp_path / "cache")
    assert (tmp_path / "a.tw").read_bytes() == (tmp_path / "b.tw").read_bytes()


def test_everything_that_decides_is_in_the_key(tmp_path: Path) -> None:
    cache = ModelCache(tmp_path / "cache")
    model, other = save_model(tmp_path / "m.onnx", 2.0), save_model(tmp_path / "n.onnx", 2.5)
    records = tmp_path / "schedules.sqlite"
    keys = [
        cache.key(model, NATIVE, None, {}),
        cache.key(other, NATIVE, None, {}),
        cache.key(model, parse_target("x86-64-v3"), None, {}),
        cache.key(model, NATIVE, {"x": [4]}, {}),
        cache.key(model, NATIVE, None, {"numerics": "strict"}),
    ]
    assert cache.key(model, NATIVE, None, {}, records) == keys[0]
    records.write_bytes(b"new")
    keys.append(cache.key(model, NATIVE, None, {}, records))
    assert len(set(keys)) == len(keys) and None not in keys
    assert cache.key(model, NATIVE, None, {}) == keys[0]


def test_models_with_other_files_are_not_kept(tmp_path: Path) -> None:
    model, cache = save_model(tmp_path / "m.onnx", 2.0, external=True), tmp_path / "cache"
    assert ModelCache(cache).key(model, NATIVE, None, {}) is None
    compile_model(model, tmp_path / "a.tw", cache)
    assert not entries(cache)


def test_no_cache_and_reports_go_past_it(tmp_path: Path) -> None:
    model, cache = save_model(tmp_path / "m.onnx", 2.0), tmp_path / "cache"
    compile_model(model, tmp_path / "a.tw", cache, "--no-cache")
    compile_model(model, tmp_path / "a.tw", cache, "--dump-ir", str(tmp_path / "ir"))
    assert not entries(cache)
    assert list((tmp_path / "ir").iterdir())


def test_a_missing_or_empty_model_has_no_key(tmp_path: Path) -> None:
    cache = ModelCache(tmp_path / "cache")
    assert cache.key(tmp_path / "none.onnx", NATIVE, None, {}) is None
    (tmp_path / "empty.onnx").touch()
    assert cache.key(tmp_path / "empty.onnx", NATIVE, None, {}) is None


def test_a_folder_that_cannot_be_written_costs_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "cache-models").write_text("a file")
    artifact = tmp_path / "a.tw"
    artifact.write_bytes(b"anything")
    ModelCache(tmp_path / "cache").keep("ab" * 32, artifact)
    assert "not kept" in caplog.text


def test_records_that_were_just_written_are_in_the_key(tmp_path: Path) -> None:
    """They are in the database's log as long as somebody has it open."""
    cache, model = ModelCache(tmp_path / "cache"), save_model(tmp_path / "m.onnx", 2.0)
    path = tmp_path / "schedules.sqlite"

    def key() -> str | None:
        return cache.key(model, NATIVE, None, {}, path)

    first = Record("kernel @k", "x86-64,cores=2", "1.0", "unroll(i)", 1.0, 2.0, "now")
    with ScheduleRecords(path) as records:
        records.keep(first)
    closed = key()
    with ScheduleRecords(path) as records:
        assert records.find(first.kernel, first.target, first.version) == first
        assert key() == closed  # readers change nothing
        records.keep(replace(first, kernel="kernel @l"))
        assert key() != closed
