# SPDX-License-Identifier: Apache-2.0
"""Inputs with a default on the command line."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import tilewright
from tests.compiler.cli.conftest import Call
from tests.compiler.conftest import SCALE, SHIFT

X = np.ones((2, 3), np.float32)


@pytest.fixture
def files(defaults: onnx.ModelProto, call: Call) -> None:
    """The model, compiled too, and arrays for it, in the folder that ``call`` chose."""
    onnx.save(defaults, "m.onnx")
    tilewright.compile(defaults).save("m.tw")
    np.save("x.npy", X)
    np.save("scale.npy", SCALE * 0)


@pytest.mark.parametrize("file", ["m.tw", "m.onnx"])
def test_inspect_tells_of_defaults(
    files: None, call: Call, ask: Callable[..., Any], file: str
) -> None:
    shown = call("inspect", file).stdout
    assert "input     x: float32[n, 3]\n" in shown
    assert "input     scale: float32[3], with a default\n" in shown
    rows = {row["name"]: row for row in ask("inspect", file)["inputs"]}
    assert "default" not in rows["x"]
    assert rows["shift"]["default"]["shape"] == [2, 3]


@pytest.mark.parametrize("file", ["m.tw", "m.onnx"])
def test_run_takes_them_or_leaves_them(files: None, call: Call, file: str) -> None:
    for given, want in (([], X * SCALE + SHIFT), (["--input", "scale=scale.npy"], SHIFT)):
        call("run", file, "--input", "x=x.npy", *given, "--output", "out")
        np.testing.assert_array_equal(np.load(Path("out") / "y.npy"), want)


def test_random_inputs_have_the_sizes_of_defaults(files: None, call: Call) -> None:
    assert "y: float32[2, 3]" in call("run", "m.tw", "--random").stdout
    call("run", "m.tw", status=2)


def test_compile_tells_of_them(files: None, ask: Callable[..., Any]) -> None:
    rows = ask("compile", "m.onnx", "-o", "n.tw")["inputs"]
    assert rows[2] == {
        "name": "scale",
        "dtype": "float32",
        "shape": [3],
        "default": {"shape": [3]},
    }


@pytest.mark.parametrize("command", ["compile", "run", "tune", "opt"])
def test_they_may_be_constants(files: None, call: Call, command: str) -> None:
    arguments = {
        "compile": ["-o", "one.tw"],
        "run": ["--input", "x=x.npy", "--input", "scale=scale.npy"],
        "tune": ["--trials", "0", "--records", "found.db", "--json"],
        "opt": ["-p", ""],
    }[command]
    status = 2 if command == "run" else 0  # 'scale' is no input then
    done = call(command, "m.onnx", *arguments, "--constant-defaults", status=status)
    if command == "compile":
        assert "defaults_entry" not in tilewright.load("one.tw").manifest
    elif command == "run":
        assert "'scale' is no input" in done.stderr
    elif command == "tune":
        assert len(json.loads(done.stdout)["kernels"]) == 1
    else:
        assert "graph @main(x: f32[2,3]) -> (y)" in done.stdout
