# SPDX-License-Identifier: Apache-2.0
"""What all commands share: help, versions, completion, errors, colours; and the demo."""

import json
import logging
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright
from tilewright.cli import terminal
from tilewright.cli.demo import pictures
from tilewright.version import llvm_version, package_version

COMMANDS = ("compile", "run", "inspect", "opt", "tune", "records", "demo")


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_examples(call: Any, command: str) -> None:
    text = call(command, "--help").stdout
    assert "Examples:" in text and f"tilewright {command}" in text
    for line in text.splitlines():
        assert len(line) <= 80
    assert not re.search(r"\{MODEL\}|<path>| range>", text)
    assert (" MODEL\n" in text) == (command in ("compile", "run", "inspect", "tune"))


def test_help_lists_the_commands(call: Any) -> None:
    text = call("--help").stdout
    lines = text.partition("Commands:")[2].splitlines()
    listed = {line.split()[0]: line for line in lines if line.startswith("  ") and line.strip()}
    assert set(COMMANDS) <= set(listed)
    assert not [line for line in listed.values() if line.endswith("...")]  # none is cut off


def test_version(call: Any) -> None:
    lines = call("--version").stdout.splitlines()
    assert lines[0] == f"tilewright {tilewright.__version__}"
    assert lines[1] == f"LLVM {llvm_version()} (llvmlite {package_version('llvmlite')})"
    assert lines[2] == f"onnx {package_version('onnx')}"
    assert package_version("no-such-package") == "not installed"


def test_completion_is_shown(call: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for shell in ("bash", "zsh", "fish", "powershell"):
        assert "_TILEWRIGHT_COMPLETE" in call("--show-completion", shell).stdout
    call("--show-completion", "csh", status=2)
    call("--install-completion", "bash", status=2)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("arguments", [["nothing"], ["--nothing"], ["run"], ["--log", "loud"]])
def test_wrong_usage(call: Any, arguments: list[str]) -> None:
    assert "Usage: tilewright" in call(*arguments, status=2).stderr


PLAIN = {
    "choice": (["run", "x", "--numerics", "loose"], "'loose' is not one of 'strict', 'default'"),
    "least": (["run", "x", "--seed", "-1"], "'--seed': It must be at least 0."),
    "most": (["run", "x", "--threads", "999"], "'--threads': It must be at most 256."),
    "integer": (["tune", "x", "--trials", "ten"], "'--trials': It must be a valid integer."),
}


@pytest.mark.parametrize("case", PLAIN)
def test_wrong_values_are_told_plainly(call: Any, case: str) -> None:
    arguments, sentence = PLAIN[case]
    error = call(*arguments, status=2).stderr
    assert sentence in error and "Value error" not in error and "Input should" not in error


ERROR_OBJECTS = {
    "file": (["inspect", "missing.onnx"], 1, "FrontendError", "'missing.onnx' cannot be read"),
    "artifact": (["run", "missing.tw", "--random"], 1, "ReadError", "no such file"),
    "target": (["compile", "x.onnx", "--target", "arm"], 2, "TargetError", "'arm' is not under"),
    "our usage": (["compile", "x.onnx", "--shape", "x"], 2, "UsageError", "'x' is not understood"),
    "folder": (["compile", "x.onnx", "-o", "no/x.tw"], 1, "Failed", "Folder 'no' does not exist."),
    "option": (["run", "x.tw", "--nothing"], 2, "UsageError", "No such option"),
    "value": (["run", "x.tw", "--seed", "-1"], 2, "UsageError", "It must be at least 0."),
    "argument": (["compile"], 2, "UsageError", "Missing argument 'MODEL'"),
    "command": (["nothing"], 2, "UsageError", "No such command 'nothing'"),
    "before the command": (["--log", "loud", "demo"], 2, "UsageError", "'loud' is not one of"),
}


@pytest.mark.parametrize("case", ERROR_OBJECTS)
def test_errors_as_json(call: Any, case: str) -> None:
    arguments, status, kind, message = ERROR_OBJECTS[case]
    result = call(*arguments, "--json", status=status)
    error = json.loads(result.stdout)["error"]
    assert error.keys() == {"kind", "message"} and error["kind"] == kind
    assert message in error["message"] and message in result.stderr
    assert call(*arguments, status=status).stdout == ""


class Broken(Exception):
    pass


def broken(*arguments: object, **options: object) -> None:
    raise Broken("the reason")


def test_unexpected_errors(call: Any, pair_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tilewright.runtime.read_manifest", broken)
    monkeypatch.setattr("tilewright.runtime.artifact.read_manifest", broken)
    result = call("inspect", pair_file, status=1)
    assert result.stderr.startswith("Error: Internal fault, Broken: the reason. Please report it")
    assert "Traceback" not in result.stderr
    result = call("--debug", "inspect", pair_file, status=1)
    assert "Traceback" in result.stderr and "Broken: the reason" in result.stderr
    result = call("inspect", pair_file, "--json", status=1)
    assert json.loads(result.stdout)["error"]["kind"] == "InternalError"


ERRORS = {
    "memory": (MemoryError(), "There is not enough memory."),
    "file": (PermissionError(13, "Permission denied", "x"), "File 'x' cannot be used: Permission"),
    "nameless": (OSError(28, "No space left on device"), "A file cannot be used: No space left"),
    "numberless": (OSError("No usable folder."), "A file cannot be used: No usable folder."),
    "ours": (tilewright.errors.FrontendError("Oh no."), "Oh no."),
    "running": (tilewright.errors.ModelError("Oh no."), "Oh no."),
    "empty": (tilewright.errors.FrontendError(), "FrontendError"),
}


@pytest.mark.parametrize("case", ERRORS)
def test_sentences(case: str) -> None:
    error, sentence = ERRORS[case]
    assert terminal.explain(error).startswith(sentence)


def test_notes_of_errors_are_told() -> None:
    error = tilewright.errors.VerifyError("Broken.")
    error.add_note("The pass 'fuse' ran last.")
    assert terminal.explain(error) == "Broken. The pass 'fuse' ran last."


def test_an_interrupt_ends_with_130(
    call: Any, pair_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("tilewright.runtime.read_manifest", interrupt)
    monkeypatch.setattr("tilewright.runtime.artifact.read_manifest", interrupt)
    assert call("inspect", pair_file, status=130).stderr == "Error: Interrupted.\n"


def test_colours(call: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def text(**variables: str) -> str:
        with monkeypatch.context() as patch:
            for name, value in variables.items():
                patch.setenv(name, value)
            return str(call("run", "missing.tw", "--random", status=1).stderr)

    assert "\x1b[" not in text()
    assert "\x1b[" in text(FORCE_COLOR="1")
    assert "\x1b[" not in text(FORCE_COLOR="1", TERM="dumb")
    assert "\x1b[31m" not in text(FORCE_COLOR="1", NO_COLOR="1")


def test_log_level_from_the_environment(
    call: Any, pair_onnx: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TILEWRIGHT_LOG", "error")
    assert call("compile", pair_onnx, "--target", "x86-64").stderr == ""
    assert logging.getLogger("tilewright").level == logging.ERROR


def test_progress_without_a_terminal(
    call: Any, pair_onnx: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lines for what takes long, here anything; they can be switched off."""
    monkeypatch.setattr("tilewright.cli.progress._SECONDS_BETWEEN_LINES", 0.0)
    lines = call("compile", pair_onnx, "--no-cache").stderr.splitlines()
    assert lines[0] == "kernels: 0 of 2" and lines[-1] == "kernels: 2 of 2"
    assert call("compile", pair_onnx, "--no-cache", "--quiet").stderr == ""


def test_tables_line_up(capsys: pytest.CaptureFixture[str]) -> None:
    terminal.say_table(("name", "ms"), [("a long name", "1"), ("x\x1b", "1000")], right="ms")
    assert capsys.readouterr().out.splitlines() == [
        "name           ms",
        "a long name     1",
        "x\\x1b        1000",
    ]


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (999, "999 B"), (1234, "1.23 kB"), (5e6, "5 MB"), (7e12, "7e+03 GB")],
)
def test_sizes(count: int, text: str) -> None:
    assert terminal.size_text(count) == text


def test_counted() -> None:
    assert terminal.counted(1, "record") == "1 record"
    assert terminal.counted(1234, "record") == "1,234 records"
    assert terminal.counted(0, "launch", "launches") == "0 launches"


def test_demo(call: Any, tmp_path: Path) -> None:
    text = call("demo", "--quiet").stdout
    assert "this is a 0" in text and " of 20 images read right." in text
    facts = json.loads(call("demo", "--json").stdout)
    assert facts["right"] >= 19 and len(facts["read"]) == 20
    files = json.loads(call("demo", "--export", "there", "--json").stdout)["files"]
    assert files == call("demo", "--export", "there").stdout.splitlines()
    names = sorted(path.name for path in (tmp_path / "there").iterdir())
    assert names == ["digits.onnx", "images.npy", "labels.npy"]
    assert "is no folder" in call("demo", "--export", "there/labels.npy", status=1).stderr


def test_pictures() -> None:
    images = np.array([[[0.0, 1.0], [0.5, 0.0]]] * 2, np.float32)
    assert pictures(images, [3, 4]) == "  @@    @@\n==    ==\nthis is a 3  this is a 4\n"
