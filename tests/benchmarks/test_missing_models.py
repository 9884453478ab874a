# SPDX-License-Identifier: Apache-2.0
"""Benchmarks of models that nobody has exported yet."""

from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks import compile_time, proofs, slow_kernels


@pytest.mark.parametrize(
    ("run", "arguments"),
    [
        (compile_time.main, ["gpt2"]),
        (proofs.main, ["--model", "gpt2"]),
        (slow_kernels.main, ["--model", "gpt2"]),
    ],
)
def test_a_missing_model_is_a_sentence(
    run: Callable[[list[str]], int],
    arguments: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path))
    assert run(arguments) == 2
    told = " ".join(capsys.readouterr().err.split())
    assert told.startswith("Model 'gpt2' has not been exported yet;") and "export_torch" in told
