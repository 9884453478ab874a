# SPDX-License-Identifier: Apache-2.0
"""Every engine gets the threads that were asked for: none is held back, none has more."""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tilewright
from benchmarks.engines import ENGINES, EngineError, load_engine

DIGITS = Path(tilewright.__file__).parent / "data" / "digits.onnx"
IMAGE = {"image": np.zeros((2, 1, 8, 8), np.float32)}


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_onnxruntime(threads: int) -> None:
    engine = load_engine("onnxruntime", DIGITS, threads)
    options = engine.session.get_session_options()  # type: ignore[attr-defined]
    assert options.intra_op_num_threads == threads
    assert options.inter_op_num_threads == 1
    level = type(options.graph_optimization_level)
    assert options.graph_optimization_level == level.ORT_ENABLE_ALL
    assert engine.run(IMAGE)["logits"].shape == (2, 10)


@pytest.mark.parametrize("threads", [1, 3])
def test_tilewright(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_NUM_THREADS", "7")
    engine = load_engine("tilewright", DIGITS, threads)
    assert engine.model._runnable._threads == threads  # type: ignore[attr-defined]
    assert list(engine.outputs) == ["logits"] and (engine.kernels or 0) > 3
    assert engine.run(IMAGE)["logits"].shape == (2, 10)


@pytest.mark.parametrize("threads", [1, 3])
def test_openvino(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a module in its place that notes how it is asked."""
    asked: list[Any] = []

    class Core:
        def read_model(self, path: str) -> str:
            return path

        def compile_model(self, model: str, device: str, options: dict[str, Any]) -> Any:
            asked.append((model, device, options))
            return SimpleNamespace(create_infer_request=lambda: None, outputs=[])

    monkeypatch.setitem(sys.modules, "openvino", SimpleNamespace(Core=Core))
    load_engine("openvino", DIGITS, threads)
    ((model, device, options),) = asked
    assert (model, device) == (str(DIGITS), "CPU")
    assert options["INFERENCE_NUM_THREADS"] == threads
    assert options["PERFORMANCE_HINT"] == "LATENCY"
    assert options["INFERENCE_PRECISION_HINT"] == "f32"


def test_unknown_and_missing_engines(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(EngineError, match=f"choose one of {', '.join(ENGINES)}"):
        load_engine("tensorrt", DIGITS, 1)
    monkeypatch.setitem(sys.modules, "openvino", None)
    with pytest.raises(EngineError, match="'openvino' is not installed"):
        load_engine("openvino", DIGITS, 1)
