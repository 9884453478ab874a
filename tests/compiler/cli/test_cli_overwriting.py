# SPDX-License-Identifier: Apache-2.0
"""No command writes over a file that it reads, whatever name or link it goes by."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

TEXT = """module {
  graph @main(x: f32[4]) -> (y) {
    %0: f32[4] = neg(x)
    return %0
  }
}
"""

CASES = {
    "compile": ["compile", "pair.onnx", "-o", "pair.onnx"],
    "compile by another name": ["compile", "./pair.onnx", "-o", "../{here}/pair.onnx"],
    "compile to a symbolic link": ["compile", "pair.onnx", "-o", "soft.tw"],
    "compile to a hard link": ["compile", "pair.onnx", "-o", "hard.tw"],
    "compile to the records": ["compile", "pair.onnx", "-o", "r.sqlite", "--records", "r.sqlite"],
    "records in the model": ["compile", "pair.onnx", "-o", "x.tw", "--records", "pair.onnx"],
    "tune": ["tune", "pair.onnx", "--records", "pair.onnx"],
    "opt": ["opt", "x.ir", "-o", "x.ir"],
    "opt to the constants": ["opt", "x.ir", "--constants", "x.npz", "-o", "x.npz"],
    "opt with constants": ["opt", "x.ir", "--save-constants", "x.ir"],
    "opt with both outputs in one": ["opt", "x.ir", "-o", "y", "--save-constants", "./y"],
    "records": ["records", "--records", "r.sqlite", "--export", "r.sqlite"],
}


@pytest.mark.parametrize("case", CASES)
def test_inputs_stay(call: Any, pair_onnx: Path, tmp_path: Path, case: str) -> None:
    (tmp_path / "x.ir").write_text(TEXT)
    np.savez(tmp_path / "x.npz")
    (tmp_path / "r.sqlite").write_bytes(b"")
    (tmp_path / "soft.tw").symlink_to("pair.onnx")
    os.link(pair_onnx, tmp_path / "hard.tw")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    arguments = [word.format(here=tmp_path.name) for word in CASES[case]]
    error = call(*arguments, status=2).stderr
    assert "would be written over" in error or "Both outputs are" in error
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_weights_of_a_model_stay(call: Any, pair: onnx.ModelProto, tmp_path: Path) -> None:
    """A file of weights is known only once the model is read, or compiled before."""
    model = onnx.ModelProto()
    model.CopyFrom(pair)
    model.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(np.float32([2]), "two"))
    onnx.save(
        model, tmp_path / "m.onnx", save_as_external_data=True, location="w.bin", size_threshold=0
    )
    weights = (tmp_path / "w.bin").read_bytes()
    for _ in ("first", "again, from the cache"):
        assert "would be written over" in call("compile", "m.onnx", "-o", "w.bin", status=2).stderr
        assert (tmp_path / "w.bin").read_bytes() == weights
        call("compile", "m.onnx", "-o", "m.tw")
