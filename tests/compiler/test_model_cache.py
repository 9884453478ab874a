# SPDX-License-Identifier: Apache-2.0
"""The cache of whole artifacts: what is found again, and what is not."""

import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilewright
from tilewright import model_cache
from tilewright.autotune.records import Record, ScheduleRecords
from tilewright.model_cache import ModelCache, Request


def save_model(path: Path, factor: float, external: bool = False) -> Path:
    """A model that multiplies by a factor, its weight in the file or beside it."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n"])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n"])
    weight = numpy_helper.from_array(np.full(1, factor, np.float32), "w")
    graph = helper.make_graph([helper.make_node("Mul", ["x", "w"], ["y"])], "g", [x], [y], [weight])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    (path.parent / "w.bin").unlink(missing_ok=True)  # else data is appended
    where = {"save_as_external_data": True, "size_threshold": 0, "location": "w.bin"}
    onnx.save_model(model, path, **(where if external else {}))
    return path


def command(model: Path, output: Path, cache: Path, *options: str) -> list[str]:
    name = [sys.executable, "-m", "tilewright", "compile", str(model), "-o", str(output)]
    return [*name, "--cache-dir", str(cache), *options]


def compile_model(model: Path, output: Path, cache: Path, *options: str) -> str:
    """The log of ``tilewright compile`` in a process of its own."""
    done = subprocess.run(
        command(model, output, cache, *options), check=True, capture_output=True, text=True
    )
    return done.stdout + done.stderr


def factor_of(artifact: Path) -> float:
    return float(tilewright.load(artifact).run({"x": np.ones(1, np.float32)})["y"][0])


def entries(cache: Path) -> list[Path]:
    return list(cache.with_name(f"{cache.name}-models").rglob("*.tw"))


def request(cache: ModelCache, model: Path, target: str = "native") -> Request:
    found = cache.request(model, target, None, {})
    assert found is not None
    return found


def kept(cache: ModelCache, model: Path, artifact: Path, *files: str) -> Request:
    """A request whose artifact is kept; the files were written before it by more than a tick."""
    time.sleep(0.05)
    made = request(cache, model)
    made.keep(artifact, files)
    return made


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An artifact, of which model does not matter."""
    folder = tmp_path_factory.mktemp("artifact")
    compile_model(save_model(folder / "m.onnx", 2.0), folder / "m.tw", folder / "cache")
    return folder / "m.tw"


def test_an_artifact_is_found_again(tmp_path: Path) -> None:
    model, cache = save_model(tmp_path / "m.onnx", 3.0), tmp_path / "cache"
    compile_model(model, tmp_path / "a.tw", cache)
    (entry,) = entries(cache)
    before = entry.stat().st_ino
    assert "Wrote" in compile_model(model, tmp_path / "b.tw", cache)
    assert (tmp_path / "a.tw").read_bytes() == (tmp_path / "b.tw").read_bytes()
    assert entry.stat().st_ino == before
    assert factor_of(tmp_path / "b.tw") == 3.0


def test_a_hit_imports_nothing_heavy(tmp_path: Path) -> None:
    model, cache = save_model(tmp_path / "m.onnx", 3.0), tmp_path / "cache"
    compile_model(model, tmp_path / "a.tw", cache)
    code = (
        "import sys\nfor name in ('onnx', 'islpy', 'llvmlite', 'networkx', 'numpy'):\n"
        "    sys.modules[name] = None\n"
        "from tilewright.cli.main import run\nrun()"
    )
    found = command(model, tmp_path / "b.tw", cache, "--quiet")
    subprocess.run([sys.executable, "-c", code, *found[3:]], check=True)
    assert factor_of(tmp_path / "b.tw") == 3.0


def test_a_generic_target_is_warned_of_each_time(tmp_path: Path) -> None:
    model, cache = save_model(tmp_path / "m.onnx", 3.0), tmp_path / "cache"
    for _ in range(2):
        assert "generic" in compile_model(
            model, tmp_path / "a.tw", cache, "--target", "x86-64,cores=2"
        )
    assert len(entries(cache)) == 1


@pytest.mark.parametrize("position", [-10, 20, 4096])  # the manifest, the header, the constants
def test_a_damaged_entry_is_removed(
    tmp_path: Path, artifact: Path, position: int, caplog: pytest.LogCaptureFixture
) -> None:
    made = kept(ModelCache(tmp_path / "cache"), save_model(tmp_path / "m.onnx", 2.0), artifact)
    (entry,) = entries(tmp_path / "cache")
    data = bytearray(entry.read_bytes())
    data[position] ^= 1
    entry.write_bytes(data)
    assert not made.fetch(tmp_path / "b.tw")
    assert "damaged" in caplog.text and not entry.exists()
    assert not (tmp_path / "b.tw").exists()


@pytest.mark.parametrize("size", [0, 100, 200])
def test_an_entry_cut_short_is_removed(tmp_path: Path, artifact: Path, size: int) -> None:
    made = kept(ModelCache(tmp_path / "cache"), save_model(tmp_path / "m.onnx", 2.0), artifact)
    (entry,) = entries(tmp_path / "cache")
    os.truncate(entry, size)
    assert not made.fetch(tmp_path / "b.tw")
    assert not entry.exists()


def test_a_damaged_entry_is_made_anew(tmp_path: Path) -> None:
    model, cache = save_model(tmp_path / "m.onnx", 2.0), tmp_path / "cache"
    compile_model(model, tmp_path / "a.tw", cache)
    (entry,) = entries(cache)
    entry.write_bytes(b"noise")
    assert "damaged" in compile_model(model, tmp_path / "b.tw", cache)
    assert (tmp_path / "a.tw").read_bytes() == (tmp_path / "b.tw").read_bytes()
    assert entry.read_bytes() == (tmp_path / "a.tw").read_bytes()


def test_everything_that_decides_is_in_the_key(tmp_path: Path) -> None:
    cache = ModelCache(tmp_path / "cache")
    model, other = save_model(tmp_path / "m.onnx", 2.0), save_model(tmp_path / "n.onnx", 2.5)
    records = tmp_path / "schedules.sqlite"
    requests = [
        cache.request(model, "native", None, {}),
        cache.request(other, "native", None, {}),
        cache.request(model, "native,cores=7", None, {}),
        cache.request(model, "x86-64-v3", None, {}),
        cache.request(model, "native", {"x": [4]}, {}),
        cache.request(model, "native", None, {"numerics": "strict"}),
        cache.request(model, "native", None, {}, records),
    ]
    records.write_bytes(b"new")
    requests.append(cache.request(model, "native", None, {}, records))
    keys = [r.key for r in requests if r is not None]
    assert keys[6] == keys[0]  # there was no such file
    del keys[6]
    assert len(set(keys)) == len(keys) == 7
    assert request(cache, model).key == keys[0]


def test_another_machine_has_other_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache, model = ModelCache(tmp_path / "cache"), save_model(tmp_path / "m.onnx", 2.0)
    keys = [request(cache, model, target).key for target in ("native", "x86-64-v3")]
    monkeypatch.setattr(model_cache, "machine_identity", lambda: "another processor")
    assert request(cache, model, "native").key != keys[0]
    assert request(cache, model, "x86-64-v3").key == keys[1]


def test_external_data_is_in_the_key(tmp_path: Path) -> None:
    model, cache = save_model(tmp_path / "m.onnx", 2.0, external=True), tmp_path / "cache"
    before = model.read_bytes()
    compile_model(model, tmp_path / "a.tw", cache)
    save_model(model, 5.0, external=True)
    assert model.read_bytes() == before  # only the other file has changed
    compile_model(model, tmp_path / "b.tw", cache)
    assert len(entries(cache)) == 2
    assert (factor_of(tmp_path / "a.tw"), factor_of(tmp_path / "b.tw")) == (2.0, 5.0)
    for factor in (2.0, 5.0):  # both are found again
        made = request(ModelCache(cache), save_model(model, factor, external=True))
        facts = {"numerics": "default", "disable": "", "tuned": "True"}
        facts["unchecked_indices"] = facts["constant_defaults"] = "False"
        found = ModelCache(cache).request(model, "native", None, facts, Path("none"))
        assert found is not None and found.fetch(tmp_path / "c.tw")
        assert factor_of(tmp_path / "c.tw") == factor
        assert not made.fetch(tmp_path / "d.tw")  # with other options


def test_external_data_that_is_gone(tmp_path: Path, artifact: Path) -> None:
    model = save_model(tmp_path / "m.onnx", 2.0, external=True)
    made = kept(ModelCache(tmp_path / "cache"), model, artifact, "w.bin")
    assert made.fetch(tmp_path / "a.tw")
    (tmp_path / "w.bin").unlink()
    assert not made.fetch(tmp_path / "a.tw")


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b"\xff", b"3", b'["other"]'])
def test_a_damaged_list_of_files(tmp_path: Path, artifact: Path, content: bytes) -> None:
    """Whatever it holds, the artifact of other data is never taken."""
    cache = ModelCache(tmp_path / "cache")
    model = save_model(tmp_path / "m.onnx", 2.0, external=True)
    made = kept(cache, model, artifact, "w.bin")
    (names,) = cache.folder.rglob("*.files")
    names.write_bytes(content)
    assert not made.fetch(tmp_path / "a.tw")
    made.keep(artifact, ["w.bin"])
    assert made.fetch(tmp_path / "a.tw")


@pytest.mark.parametrize("name", ["m.onnx", "w.bin"])
def test_what_changes_meanwhile_is_not_kept(tmp_path: Path, artifact: Path, name: str) -> None:
    cache = ModelCache(tmp_path / "cache")
    model = save_model(tmp_path / "m.onnx", 2.0, external=True)
    time.sleep(0.05)
    made = request(cache, model)
    (tmp_path / name).touch()
    made.keep(artifact, ["w.bin"])
    assert not entries(tmp_path / "cache")


def test_concurrent_compilations(tmp_path: Path) -> None:
    """Several at once write the same entry; each gets a whole artifact, and so do later ones."""
    model, cache = save_model(tmp_path / "m.onnx", 4.0, external=True), tmp_path / "cache"
    outputs = [tmp_path / f"{i}.tw" for i in range(3)]
    running = [subprocess.Popen(command(model, o, cache, "--quiet")) for o in outputs]
    assert [process.wait() for process in running] == [0] * len(running)
    compile_model(model, tmp_path / "later.tw", cache)
    assert len(entries(cache)) == 1
    assert len({path.read_bytes() for path in [*outputs, tmp_path / "later.tw"]}) == 1


def test_no_cache_and_reports_go_past_it(tmp_path: Path) -> None:
    model, cache = save_model(tmp_path / "m.onnx", 2.0), tmp_path / "cache"
    compile_model(model, tmp_path / "a.tw", cache, "--no-cache")
    compile_model(model, tmp_path / "a.tw", cache, "--dump-ir", str(tmp_path / "ir"))
    assert not entries(cache)
    assert list((tmp_path / "ir").iterdir())


def test_a_missing_model_has_no_place(tmp_path: Path) -> None:
    cache = ModelCache(tmp_path / "cache")
    assert cache.request(tmp_path / "none.onnx", "native", None, {}) is None
    assert cache.request(tmp_path, "native", None, {}) is None
    (tmp_path / "empty.onnx").touch()
    assert not request(cache, tmp_path / "empty.onnx").fetch(tmp_path / "a.tw")


def test_a_folder_that_cannot_be_written_costs_a_warning(
    tmp_path: Path, artifact: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "cache-models").write_text("a file")
    made = kept(ModelCache(tmp_path / "cache"), save_model(tmp_path / "m.onnx", 2.0), artifact)
    assert "not kept" in caplog.text
    assert not made.fetch(tmp_path / "a.tw")


def test_an_output_that_cannot_be_written(tmp_path: Path, artifact: Path) -> None:
    made = kept(ModelCache(tmp_path / "cache"), save_model(tmp_path / "m.onnx", 2.0), artifact)
    with pytest.raises(OSError, match="No such file"):
        made.fetch(tmp_path / "nowhere" / "a.tw")


def test_a_huge_artifact_is_not_kept(
    tmp_path: Path, artifact: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_cache, "LARGEST", artifact.stat().st_size - 1)
    kept(ModelCache(tmp_path / "cache"), save_model(tmp_path / "m.onnx", 2.0), artifact)
    assert not entries(tmp_path / "cache")


def test_the_least_recently_used_go_first(
    tmp_path: Path, artifact: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_cache, "CAPACITY", artifact.stat().st_size * 3 - 1)
    cache = ModelCache(tmp_path / "cache")
    models = [save_model(tmp_path / f"{i}.onnx", float(i)) for i in range(3)]
    for number, model in enumerate(models[:2]):
        made = kept(cache, model, artifact)
        os.utime(cache.folder / made._entry(()), ns=(number, number))
    assert request(cache, models[0]).fetch(tmp_path / "a.tw")  # used again
    kept(cache, models[2], artifact)
    found = [request(cache, m).fetch(tmp_path / "a.tw") is not None for m in models]
    assert found == [True, False, True]


def test_records_that_were_just_written_are_in_the_key(tmp_path: Path) -> None:
    """They are in the database's log as long as somebody has it open."""
    cache, model = ModelCache(tmp_path / "cache"), save_model(tmp_path / "m.onnx", 2.0)
    path = tmp_path / "schedules.sqlite"

    def key() -> str:
        found = cache.request(model, "native", None, {}, path)
        assert found is not None
        return found.key

    first = Record("kernel @k", "x86-64,cores=2", "1.0", "unroll(i)", 1.0, 2.0, "now")
    with ScheduleRecords(path) as records:
        records.keep(first)
    closed = key()
    with ScheduleRecords(path) as records:
        assert records.find(first.kernel, first.target, first.version) == first
        assert key() == closed  # readers change nothing
        records.keep(replace(first, kernel="kernel @l"))
        assert key() != closed
