# SPDX-License-Identifier: Apache-2.0
"""Slow kernels are told of wherever a model is compiled, fetched or looked at, and what was refused
where that is asked for.
"""

import json
import logging
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper
from typer.testing import CliRunner, Result

import tilewright
from tilewright.autotune.records import Record, ScheduleRecords, now
from tilewright.cli.main import app
from tilewright.cli.terminal import settings
from tilewright.driver import Build, CompileOptions, build
from tilewright.ir.target import parse_target
from tilewright.kernel_report import KernelWarning, brief, noted_warnings
from tilewright.passes.schedule.loops import loop_names
from tilewright.tuning import kernel_tasks
from tilewright.version import VERSION

TARGET = "x86-64-v3,cores=2"
SLOW = "is scheduled by 'tuned' and does not run on full vectors. No loop of it runs on vectors: "


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Two sums over rows, which are kernels of one form."""
    sums = {"a": "first", "b": "second"}
    axes = helper.make_tensor("axes", TensorProto.INT64, [1], [1])
    nodes = [
        helper.make_node("ReduceSum", [x, "axes"], [f"{x}_sum"], name=name, keepdims=0)
        for x, name in sums.items()
    ]
    info = helper.make_tensor_value_info
    inputs = [info(x, TensorProto.FLOAT, [64, 256]) for x in sums]
    outputs = [info(f"{x}_sum", TensorProto.FLOAT, [64]) for x in sums]
    graph = helper.make_graph(nodes, "sums", inputs, outputs, [axes])
    path = tmp_path / "sums.onnx"
    opsets = [helper.make_opsetid("", 18)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), path)
    return path


def record(model: Path, path: Path, schedule: str) -> Path:
    """A database with a schedule for the model's one form of kernel; '{}' is its innermost loop."""
    (task,) = kernel_tasks(str(model), parse_target(TARGET))
    text = schedule.format(loop_names(task.kernel.body)[-1])
    with ScheduleRecords(path) as records:
        target = str(parse_target(TARGET))
        records.keep(Record(str(task.kernel), target, VERSION, text, 1.0, 2.0, now()))
    return path


@pytest.fixture
def records(model: Path, tmp_path: Path) -> Path:
    """A schedule that holds, but uses no vectors: what the templates do well stays slow with it."""
    return record(model, tmp_path / "records.sqlite", "split({}, 4)")


def built(model: Path, records: Path, cache_dir: Path) -> Build:
    options = CompileOptions(cache_dir=cache_dir, records=records)
    return build(str(model), parse_target(TARGET), options=options)


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TILEWRIGHT_LOG", raising=False)

    def run(*arguments: object) -> Result:
        result = CliRunner().invoke(app, [str(a) for a in arguments], prog_name="tilewright")
        assert result.exit_code == 0, (result.stdout, result.stderr, result.exception)
        return result

    yield run
    settings.debug = False
    logging.getLogger("tilewright").setLevel(logging.WARNING)


def test_a_build_warns_once_for_each_form_also_from_the_cache(
    model: Path, records: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "tilewright")
    for cached in (False, True):
        caplog.clear()
        done = built(model, records, tmp_path / "cache")
        assert [row.cached for row in done.report.kernels] == [cached]
        (warning,) = done.report.warnings
        assert warning.origins == ("first", "second") and warning.steps == 64 * 256
        (told,) = [r for r in caplog.records if r.levelno == logging.WARNING]
        assert told.getMessage() == str(warning)
        assert f"of 'first', 'second' is slow: '{warning.stage}', of 16,384 steps" in str(warning)
        assert SLOW in str(warning)


def test_an_artifact_keeps_its_warnings(
    model: Path, records: Path, pair: onnx.ModelProto, tmp_path: Path
) -> None:
    done = built(model, records, tmp_path / "cache")
    loaded = tilewright.load(done.to_bytes())
    assert noted_warnings(loaded.manifest) == done.report.warnings
    fast = build(pair, parse_target(TARGET))
    assert fast.report.warnings == [] and fast.manifest.notes == {}


def test_the_command_line_tells_of_slow_kernels(
    call: Any, model: Path, records: Path, pair_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A model that was written a moment ago is not kept; here it is.
    monkeypatch.setattr("tilewright.model_cache._CLOCK_NS", -1_000_000_000)
    known = ["--target", TARGET, "--records", records, "--cache-dir", "kept"]
    arguments = ["compile", model, *known, "-o", "sums.tw"]
    first = call(*arguments, "--quiet")
    assert first.stderr.startswith("Warning: Kernel 'k") and SLOW in first.stderr
    again = call("--log", "info", *arguments, "--quiet")
    assert "The artifact is in the cache: nothing is compiled." in again.stderr
    assert again.stderr.endswith(first.stderr)
    assert call("--log", "error", *arguments, "--quiet").stderr == ""

    facts = json.loads(call(*arguments, "--json").stdout)
    (warning,) = facts["warnings"]
    assert warning["origins"] == ["first", "second"] and warning["template"] == "tuned"
    assert warning["kernel"] == facts["kernels"][0]["name"]
    assert json.loads(call("inspect", "sums.tw", "--json").stdout)["warnings"] == [warning]
    row = f"{warning['kernel']}  {warning['stage']}"
    for shown in (call(*arguments, "--time-passes"), call("inspect", "sums.tw")):
        (line,) = [x for x in shown.stdout.splitlines() if x.startswith(row)]
        assert line.split()[2:4] == ["16,384", "tuned"] and "'first', 'second'" in line
    assert "slow kernel" not in call("inspect", pair_file).stdout


def test_debug_shows_what_was_refused(
    call: Any, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tilewright.model_cache._CLOCK_NS", -1_000_000_000)
    records = record(model, tmp_path / "wrong.sqlite", "split(no_such_loop, 4)")
    known = ["--target", TARGET, "--records", records, "--cache-dir", "kept"]
    told = "of 'first': Template 'tuned' is refused: Step 'split(no_such_loop, 4)' does not apply"
    arguments = ["compile", model, *known, "-o", "sums.tw"]
    assert told not in call("--log", "info", *arguments).stderr
    # Kept by now as a whole, and each kernel.
    for line in ([*arguments, "--debug"], ["--debug", *arguments]):
        assert told in call(*line).stderr
        assert settings.debug
    (kernel,) = json.loads(call(*arguments, "--json").stdout)["kernels"]
    (refusal,) = [r for r in kernel["refused"] if r["template"] == "tuned"]
    assert "There is no loop 'no_such_loop'" in refusal["reason"]


@pytest.mark.parametrize("command", ["compile", "run", "tune"])
def test_commands_that_compile_take_debug(call: Any, command: str) -> None:
    assert "--debug" in call(command, "--help").stdout


def test_run_tells_of_slow_kernels_and_refusals(
    call: Any, model: Path, records: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tilewright.api.choose_target", lambda text: parse_target(TARGET))
    monkeypatch.setattr("tilewright.autotune.records.default_path", lambda: records)
    result = call("run", model, "--random", "--quiet", "--debug")
    assert SLOW in result.stderr and "is scheduled by 'tuned': split(" in result.stderr


def test_origins_are_told_in_brief() -> None:
    assert brief(["a"]) == "'a'"
    assert brief(["a", "b", "c", "a"]) == "'a', 'b', 'c'"
    assert brief(["a", "b", "c", "d"]) == "'a', 'b', 'c' and 1 other"
    assert brief(list("abcdef")) == "'a', 'b', 'c' and 3 others"


def test_manifests_without_notes_have_no_warnings() -> None:
    assert noted_warnings({"kernels": []}) == []
    rows = [{"name": "k", "origin": "a"}, {"name": "k", "origin": "b"}]
    note = {"kernel": "k", "template": "t", "stage": "s", "steps": 5000, "reason": "None."}
    found = noted_warnings({"kernels": rows, "notes": {"warnings": [note]}})
    assert found == [KernelWarning("k", ("a", "b"), "t", "s", 5000, "None.")]
