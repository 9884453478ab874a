# SPDX-License-Identifier: Apache-2.0
"""Comparing outputs, running a comparison in its own process, and reporting."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks import models
from benchmarks.comparison import (
    MismatchError,
    Request,
    Result,
    check_size,
    compare,
    compare_arrays,
    last_line,
)
from benchmarks.engines import EngineError, load_engine
from benchmarks.standalone import ImportBlocker, read_arrays, write_arrays
from benchmarks.zoo import load_table

SQUEEZENET = load_table().model("light_squeezenet")
SELF = Request("light_squeezenet", engine="onnxruntime")


def test_tolerance_is_relative_plus_a_share_of_the_scale() -> None:
    expected = np.array([100.0, 1.0, 0.0], np.float32)
    good = compare_arrays("y", expected + np.float32([0.05, 0.001, 0.0005]), expected)
    assert good.used < 1.0
    assert good.error == pytest.approx(5e-4, rel=1e-3)
    assert compare_arrays("y", expected + np.float32([0, 0, 0.0011]), expected).used > 1.0
    assert compare_arrays("y", expected + np.float32([0.2, 0, 0]), expected).used > 1.0


def test_special_values_must_stand_in_the_same_places() -> None:
    expected = np.array([np.nan, np.inf, -np.inf, 1.0], np.float32)
    assert compare_arrays("y", expected.copy(), expected).used == 0.0
    for index, value in [(0, 1.0), (1, -np.inf), (3, np.nan), (3, np.inf)]:
        wrong = expected.copy()
        wrong[index] = value
        assert math.isinf(compare_arrays("y", wrong, expected).used)
    assert compare_arrays("y", expected[:0], expected[:0]).used == 0.0


def test_integers_must_be_equal() -> None:
    expected = np.array([1, 2, 3])
    assert compare_arrays("y", expected.copy(), expected).used == 0.0
    assert math.isinf(compare_arrays("y", expected + 1, expected).used)


def test_shapes_types_and_names_must_be_the_same() -> None:
    expected = np.zeros((2, 3), np.float32)
    with pytest.raises(MismatchError, match=r"'y' is float32\[3, 2\], but should be float32\[2, 3"):
        compare_arrays("y", expected.reshape(3, 2), expected)
    with pytest.raises(MismatchError, match="'y' is float64"):
        compare_arrays("y", expected.astype(np.float64), expected)
    with pytest.raises(MismatchError, match="'y' is missing"):
        check_size(Result("net"), {}, {"z": expected}, {"y": expected})


def test_the_worst_output_is_named_with_its_size() -> None:
    result = Result("net")
    one = np.ones(3, np.float32)
    check_size(result, {"n": 1}, {"a": one, "b": one}, {"a": one, "b": one})
    check_size(result, {"n": 2}, {"a": one, "b": one * 1.01}, {"a": one, "b": one})
    check_size(result, {"n": 3}, {"a": one, "b": one}, {"a": one, "b": one})
    assert result.worst == "b at n=2"
    assert result.used > 1.0
    assert result.sizes == 3
    lenient = Result("net")
    check_size(lenient, {}, {"b": one * 1.002}, {"b": one}, slack=4.0)
    assert 0.4 < lenient.used < 0.6


def test_onnx_runtime_agrees_with_itself() -> None:
    pytest.importorskip("onnxruntime")
    result = compare(SQUEEZENET, Request("light_squeezenet", "onnxruntime", mode="check"))
    assert not result.failure
    assert (result.sizes, result.error, result.ours) == (1, 0.0, None)


def test_engines_are_named_when_unknown_or_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(EngineError, match="no engine 'abacus'"):
        load_engine("abacus", Path("x.onnx"), 1)
    monkeypatch.setitem(sys.modules, "openvino", None)
    with pytest.raises(EngineError, match="'openvino' is not installed"):
        load_engine("openvino", Path("x.onnx"), 1)


def test_a_failing_model_does_not_stop_the_rest(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def compare_apart(model: models.Model, request: Request, timeout: float) -> Result:
        if model.name == "gpt2":
            return Result("gpt2", failure="The process was ended by SIGSEGV: no message")
        return Result(model.name, sizes=1, ours=1.0, theirs=2.0, kernels=7)

    monkeypatch.setattr(models, "compare_apart", compare_apart)
    report = tmp_path / "report.json"
    chosen = ["--model", "gpt2", "--model", "magika", "--json", str(report)]
    assert models.main(chosen) == 1
    printed = capsys.readouterr().out
    assert "1 of 2 models failed" in printed
    assert "SIGSEGV" in printed
    rows = json.loads(report.read_text())["results"]
    assert [(row["model"], row["ratio"]) for row in rows] == [("gpt2", None), ("magika", 2.0)]
    assert models.main(["--model", "magika"]) == 0
    assert models.main(["--model", "no_such_model"]) == 2


def test_what_is_asked_for_reaches_the_comparison(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[Request, float]] = []

    def compare_apart(model: models.Model, request: Request, timeout: float) -> Result:
        asked.append((request, timeout))
        return Result(model.name, sizes=1, ours=1.0, theirs=2.0, kernels=7)

    monkeypatch.setattr(models, "compare_apart", compare_apart)
    assert models.main(["--model", "magika"]) == 0
    flags = ["--rounds", "3", "--threads", "1", "--timeout", "7.5", "--against", "tilewright"]
    assert models.main(["--model", "magika", *flags]) == 0
    (usual, patience), (chosen, seconds) = asked
    assert (usual.rounds, usual.threads, usual.engine, usual.against) == (
        8, 2, "tilewright", "onnxruntime",
    )  # fmt: skip
    assert patience == 1800.0
    assert (chosen.rounds, chosen.threads, chosen.against, seconds) == (3, 1, "tilewright", 7.5)


def test_a_child_process_reports_back(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("onnxruntime")
    request = Request("light_squeezenet", "onnxruntime", mode="check", threads=1)
    result = models.compare_apart(SQUEEZENET, request, timeout=120.0)
    assert not result.failure
    assert result.sizes == 1
    late = models.compare_apart(SQUEEZENET, request, timeout=0.01)
    assert late.failure.startswith("No result after")


def test_ends_of_child_processes_are_explained() -> None:
    assert models.how_it_ended(-11, "") == "The process was ended by SIGSEGV: no message"
    message = "Traceback\nbenchmarks.engines.EngineError: There is none.\n"
    assert models.how_it_ended(1, message) == "EngineError: There is none."
    assert last_line("  \n") == "no message"


def test_report_has_no_infinities() -> None:
    text = models.as_json([Result("net", error=math.inf, used=math.inf)], SELF)
    assert json.loads(text)["results"][0]["used"] is None
    assert "Infinity" not in text


def test_arrays_survive_with_any_name(tmp_path: Path) -> None:
    arrays = {'{"1": "a/b"}': np.arange(3), "gpu_0/x:0": np.ones((2, 0), np.float32)}
    write_arrays(arrays, tmp_path / "inputs-0")
    again = read_arrays(tmp_path / "inputs-0")
    assert list(again) == list(arrays)
    for name, array in arrays.items():
        np.testing.assert_array_equal(again[name], array)


def test_blocked_packages_cannot_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    blocker = ImportBlocker(["a_blocked_package"])
    monkeypatch.setattr(sys, "meta_path", [blocker, *sys.meta_path])
    with pytest.raises(ImportError, match="'a_blocked_package' is blocked"):
        __import__("a_blocked_package.part")
    assert blocker.find_spec("a_blocked_package_too", None) is None
