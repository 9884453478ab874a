# SPDX-License-Identifier: Apache-2.0
"""``tilewright opt``."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from tests.compiler.cli.conftest import DAMAGED_HEADER
from tilewright.cli.main import app
from tilewright.passes.manager import Pass

TEXT = """module {
  symbol n in [1, 1024]
  graph @main(x: f32[n,4]) -> (y) {
    %0: f32[n,4] = neg(x)
    %1: f32[n,4] = neg(x)
    %2: f32[n,4] = add(%0, %1)
    return %2
  }
}
"""
MERGED = """module {
  symbol n in [1, 1024]
  graph @main(x: f32[n,4]) -> (y) {
    %0: f32[n,4] = neg(x)
    %1: f32[n,4] = add(%0, %0)
    return %1
  }
}
"""


@pytest.fixture
def text_file(tmp_path: Path) -> Path:
    path = tmp_path / "x.ir"
    path.write_text(TEXT)
    return path


def test_passes_run_on_text(call: Any, text_file: Path, tmp_path: Path) -> None:
    assert call("opt", text_file, "-p", "").stdout == TEXT
    result = call("opt", "x.ir", "-p", "eliminate-common-subexpressions", "--time-passes")
    assert result.stdout == MERGED
    assert "eliminate-common-subexpressions" in result.stderr
    call("opt", "x.ir", "-p", "eliminate-common-subexpressions", "-o", "y.ir")
    assert (tmp_path / "y.ir").read_text() == MERGED


def test_standard_input() -> None:
    arguments = ["opt", "-", "-p", "eliminate-common-subexpressions"]
    result = CliRunner().invoke(app, arguments, input=TEXT)
    assert result.exit_code == 0 and result.stdout == MERGED


def test_the_whole_pipeline_is_the_default(call: Any, text_file: Path) -> None:
    assert "group" in call("opt", text_file).stdout


def test_models_and_their_constants(call: Any, pair_onnx: Path, tmp_path: Path) -> None:
    whole = call("opt", pair_onnx, "-p", "canonicalize").stdout
    call("opt", pair_onnx, "-p", "", "-o", "pair.ir", "--save-constants", "pair.npz")
    again = call("opt", "pair.ir", "-p", "canonicalize", "--constants", "pair.npz").stdout
    assert again == whole and "constant()" in whole
    assert "Give the text's --constants FILE" in call("opt", "pair.ir", status=2).stderr
    assert call("opt", "pair.ir", "-p", "", "--no-verify").stdout
    result = call("opt", "pair.ir", "--no-verify", status=2)
    assert "A pass needs the constant '#" in result.stderr


def test_list_has_every_pass(call: Any) -> None:
    lines = call("opt", "--list").stdout.splitlines()
    listed = {line.split()[0] for line in lines[1:]}
    assert listed == set(Pass.registry) and {"canonicalize", "fuse"} <= listed
    fold = next(line for line in lines if line.startswith("fold-constants"))
    assert "cap=" in fold
    for line in lines[1:]:
        assert line.endswith(".") and "`" not in line and "  Before" not in line


BAD = {
    "pass": (["-p", "canonicalise"], 2, "Did you mean 'canonicalize'?"),
    "option": (["-p", "fold-constants{size=1}"], 2, "size"),
    "value": (["-p", "fold-constants{cap=big}"], 2, "Write an integer."),
    "form": (["-p", "a b"], 2, "is not understood"),
    "target": (["--target", "z80"], 2, "Target 'z80' is not understood"),
    "damaged": (["--constants", "text.npz"], 1, "'text.npz' holds no constants of a module"),
    "array": (["--constants", "array.npz"], 1, "'array.npz' holds no constants of a module"),
    "header": (["--constants", "header.npz"], 1, "'header.npz' holds no constants of a module"),
    "constants": (["--constants", "missing.npz"], 1, "'missing.npz' cannot be used"),
    "output": (["-o", "missing/y.ir"], 1, "Folder 'missing' does not exist."),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_usage(call: Any, text_file: Path, tmp_path: Path, case: str) -> None:
    (tmp_path / "text.npz").write_text("hello")
    (tmp_path / "header.npz").write_bytes(DAMAGED_HEADER)
    with open(tmp_path / "array.npz", "wb") as file:
        np.save(file, np.zeros(4))
    options, status, message = BAD[case]
    assert message in call("opt", text_file, *options, status=status).stderr


def test_bad_texts(call: Any, tmp_path: Path) -> None:
    (tmp_path / "syntax.ir").write_text("module {")
    (tmp_path / "op.ir").write_text(TEXT.replace("neg(", "nag("))
    (tmp_path / "type.ir").write_text(TEXT.replace("%2: f32[n,4]", "%2: f32[n,5]"))
    (tmp_path / "bytes.ir").write_bytes(b"\xff\xfe")
    for name in ("syntax.ir", "op.ir", "type.ir", "bytes.ir", "missing.ir"):
        result = call("opt", name, "-p", "", status=1)
        assert result.stderr.startswith("Error: ") and "Internal" not in result.stderr, name
    assert "There is no SOURCE." in call("opt", status=2).stderr


def test_checks_of_indices_can_be_left_out(call: Any, tmp_path: Path) -> None:
    text = """module {
  graph @main(x: f32[4], i: i64[3]) -> (y) {
    %0: f32[3] = gather(x, i) {axis=0}
    return %0
  }
}
"""
    (tmp_path / "g.ir").write_text(text)
    assert "index_fault(i) {dims=(4,)}" in call("opt", "g.ir", "-p", "check-indices").stdout
    assert call("opt", "g.ir", "-p", "check-indices", "--unchecked-indices").stdout == text
