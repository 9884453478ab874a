# SPDX-License-Identifier: Apache-2.0
"""Caches that others may have written into: the compiler works without them, and says so once."""

import logging
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilewright
from tilewright.autotune.records import Record, ScheduleRecords, stored_schedules
from tilewright.codegen import private_folder
from tilewright.errors import CacheError, TilewrightError
from tilewright.ir.target import parse_target

RECORD = Record("kernel @k", "x86-64,cores=2", "1.0", "unroll(i)", 50.0, 100.0, "2026-01-01")


def scaled(factor: float) -> onnx.ModelProto:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n"])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n"])
    weight = numpy_helper.from_array(np.full(1, factor, np.float32), "w")
    graph = helper.make_graph([helper.make_node("Mul", ["x", "w"], ["y"])], "g", [x], [y], [weight])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path / "cache"))
    private_folder._told.clear()
    yield tmp_path / "cache"


def all_of(folder: Path) -> list[Path]:
    return [folder, *folder.rglob("*")]


def compile_file(model: Path, output: Path) -> str:
    command = [sys.executable, "-m", "tilewright", "compile", str(model), "-o", str(output), "-q"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert not done.stdout
    return done.stderr


def factor_of(artifact: Path) -> float:
    return float(tilewright.load(artifact)(np.ones(1, np.float32))[0])


def test_kernels_are_compiled_anew(cache: Path, caplog: pytest.LogCaptureFixture) -> None:
    def cached() -> list[bool]:
        report = tilewright.compile(scaled(2)).report
        assert report is not None
        return [kernel.cached for kernel in report.kernels]

    assert cached() == [False] and cached() == [True]
    for path in all_of(cache):
        path.chmod(0o777)
    before = {path: path.stat().st_mtime_ns for path in all_of(cache)}
    with caplog.at_level(logging.WARNING, "tilewright"):
        assert cached() == [False]
    (warning,) = caplog.messages
    assert f"'{cache}' may be written by other users (its mode is 777)" in warning
    assert "TILEWRIGHT_CACHE_DIR" in warning
    assert {path: path.stat().st_mtime_ns for path in all_of(cache)} == before


def test_a_planted_artifact_is_not_delivered(cache: Path, tmp_path: Path) -> None:
    model, other = tmp_path / "one.onnx", tmp_path / "other.tw"
    onnx.save(scaled(1), model)
    tilewright.compile(scaled(2)).save(other)
    assert not compile_file(model, tmp_path / "a.tw")
    (entry,) = cache.rglob("*.tw")
    shutil.copyfile(other, entry)
    assert factor_of(tmp_path / "a.tw") == 1
    compile_file(model, tmp_path / "b.tw")
    assert factor_of(tmp_path / "b.tw") == 2  # from a cache of our own, as it is there
    for path in all_of(cache):
        path.chmod(0o777)
    told = compile_file(model, tmp_path / "b.tw")
    assert factor_of(tmp_path / "b.tw") == 1
    assert told.count("Warning: ") == 1 and str(cache) in told


def test_an_entry_alone_that_others_may_write(cache: Path, tmp_path: Path) -> None:
    model = tmp_path / "one.onnx"
    onnx.save(scaled(1), model)
    compile_file(model, tmp_path / "a.tw")
    (entry,) = cache.rglob("*.tw")
    entry.chmod(0o622)
    told = compile_file(model, tmp_path / "a.tw")
    assert told.count("Warning: ") == 1 and f"'{entry}' may be written" in told
    assert not compile_file(model, tmp_path / "a.tw")  # it has been replaced


def test_data_of_a_model_that_is_a_pipe_now(cache: Path, tmp_path: Path) -> None:
    """The list of a model's files is in the cache; what they are by now is looked at first."""
    model = tmp_path / "m.onnx"
    where = {"save_as_external_data": True, "size_threshold": 0, "location": "w.bin"}
    onnx.save_model(scaled(2), model, **where)
    compile_file(model, tmp_path / "a.tw")
    (tmp_path / "w.bin").unlink()
    os.mkfifo(tmp_path / "w.bin")
    command = [sys.executable, "-m", "tilewright", "compile", str(model), "-o", "b.tw"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=100)
    assert done.returncode == 1 and "w.bin" in done.stderr


def keep(cache: Path) -> Path:
    with ScheduleRecords() as records:
        records.keep(RECORD)
        return records.path


@pytest.mark.parametrize("suffix", ["", "-wal", "-journal"])
def test_records_that_others_may_write(
    cache: Path, suffix: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = keep(cache)
    beside = path.with_name(path.name + suffix)
    beside.touch()
    beside.chmod(0o666)
    with pytest.raises(CacheError, match="may be written by other users"), ScheduleRecords() as r:
        list(r)
    with pytest.raises(CacheError, match="may be written by other users"):
        keep(cache)
    with caplog.at_level(logging.WARNING, "tilewright"):
        target = parse_target("x86-64,cores=2")
        assert stored_schedules({"k": None}, target, "1.0") == {}  # type: ignore[dict-item]
    assert len(caplog.messages) == 1 and str(beside) in caplog.text
    with ScheduleRecords(path.with_name("named.sqlite")) as named:
        assert named.keep(RECORD) == 1  # whoever names a file answers for it


@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize("use", [list, lambda records: records.keep(RECORD)])
def test_records_that_are_a_pipe(cache: Path, own: bool, use: Callable[..., object]) -> None:
    path = keep(cache) if own else cache.with_name("named.sqlite")
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    reason = "is no regular file" if own else "is not a file of schedule records"
    with pytest.raises(CacheError, match=reason), ScheduleRecords(None if own else path) as records:
        use(records)


@pytest.mark.parametrize("most", [0, 512, 4096])
def test_a_limit_on_files(cache: Path, tmp_path: Path, most: int) -> None:
    """Compiling in memory needs no file but the cache's, and goes on without those."""
    code = f"""
import resource, sys
import numpy as np, onnx, tilewright
resource.setrlimit(resource.RLIMIT_FSIZE, ({most}, {most}))
model = tilewright.compile(sys.argv[1])
assert model(np.ones(3, np.float32)).tolist() == [2.0] * 3
try:
    model.save("saved.tw")
except tilewright.errors.WriteError as error:
    print(error.strerror)
"""
    onnx.save(scaled(2), tmp_path / "m.onnx")
    done = subprocess.run(
        [sys.executable, "-c", code, "m.onnx"], cwd=tmp_path, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (0, "File too large\n"), done.stderr
    assert not list(tmp_path.glob("*saved.tw*"))


@pytest.mark.parametrize(
    ("raised", "told"),
    [
        (MemoryError(), "There is not enough memory to compile the model."),
        (OSError(24, "Too many open files"), "compile the model: Too many open files. See to"),
        (FileNotFoundError(2, "No such file", "/x"), "No such file (file '/x')."),
        (OSError("no number"), "no number"),
    ],
)
def test_what_the_system_refuses_is_typed(
    cache: Path, raised: Exception, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise raised

    monkeypatch.setattr("tilewright.api.build", refuse)
    builtin = MemoryError if isinstance(raised, MemoryError) else OSError
    with pytest.raises(TilewrightError, match=re.escape(told)) as caught:
        tilewright.compile(scaled(2))
    assert isinstance(caught.value, builtin) and caught.value.__cause__ is raised
    assert getattr(caught.value, "errno", None) == getattr(raised, "errno", None)
