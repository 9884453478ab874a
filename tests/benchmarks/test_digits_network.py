# SPDX-License-Identifier: Apache-2.0
"""The numpy network: gradients against differences, and the ONNX file that ships."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from benchmarks.digits_network import (
    BatchNorm,
    Chain,
    Convolution,
    Dense,
    Layer,
    MaxPool,
    Relu,
    Residual,
    digits_network,
)
from benchmarks.digits_onnx import as_onnx
from benchmarks.train_digits import DATA, loss_slope, shifted

RNG = np.random.default_rng(7)
LAYERS: dict[str, Layer] = {
    "convolution": Convolution(3, 4, RNG),
    "batch-norm": BatchNorm(3),
    "relu": Relu(),
    "max-pool": MaxPool(),
    "dense": Dense(3, 5, RNG),
    "residual": Residual([Convolution(3, 3, RNG), BatchNorm(3), Relu()]),
}


@pytest.mark.parametrize("name", LAYERS)
def test_gradient_matches_differences(name: str) -> None:
    layer = LAYERS[name]
    rng = np.random.default_rng(1)
    x = rng.standard_normal((2, 4, 4, 3)).astype(np.float32)
    weight = rng.standard_normal(layer.forward(x, True).shape).astype(np.float32)
    slope = layer.backward(weight)
    direction = rng.standard_normal(x.shape).astype(np.float32)
    step = np.float32(1e-3)  # small, since some layers have kinks

    def value(at: np.ndarray) -> float:
        return float((layer.forward(at, True).astype(np.float64) * weight).sum())

    measured = (value(x + step * direction) - value(x - step * direction)) / (2 * step)
    assert float((slope * direction).sum()) == pytest.approx(measured, rel=0.05, abs=0.05)


@pytest.mark.parametrize("name", ["convolution", "batch-norm", "dense"])
def test_parameter_gradients_match_differences(name: str) -> None:
    layer = LAYERS[name]
    rng = np.random.default_rng(2)
    x = rng.standard_normal((2, 4, 4, 3)).astype(np.float32)
    weight = rng.standard_normal(layer.forward(x, True).shape).astype(np.float32)
    layer.backward(weight)
    for parameter in layer.parameters():
        gradient, kept = parameter.gradient.copy(), parameter.value.copy()
        direction = rng.standard_normal(kept.shape).astype(np.float32)
        values = []
        for sign in (1, -1):
            parameter.value = kept + np.float32(sign * 1e-2) * direction
            values.append(float((layer.forward(x, True).astype(np.float64) * weight).sum()))
        parameter.value = kept
        measured = (values[0] - values[1]) / 2e-2
        assert float((gradient * direction).sum()) == pytest.approx(measured, rel=0.02, abs=0.02)


def test_loss_of_even_logits_is_the_log_of_the_classes() -> None:
    loss, slope = loss_slope(np.zeros((4, 10), np.float32), np.arange(4))
    assert loss == pytest.approx(np.log(10.0), rel=1e-5)
    np.testing.assert_allclose(slope.sum(axis=1), 0.0, atol=1e-6)


def test_shifts_keep_the_ink_inside() -> None:
    images = np.zeros((50, 8, 8, 1), np.float32)
    images[:, 3:5, 3:5] = 1.0
    moved = shifted(images, np.random.default_rng(0))
    assert moved.shape == images.shape
    np.testing.assert_allclose(moved.sum(axis=(1, 2, 3)), 4.0)
    assert len({image.tobytes() for image in moved}) == 9


def test_exported_graph_computes_the_network() -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    network: Chain = digits_network(np.random.default_rng(0))
    images = np.random.default_rng(1).random((3, 8, 8, 1), np.float32)
    network.forward(images, training=True)  # moves the running statistics
    session = onnxruntime.InferenceSession(as_onnx(network).SerializeToString())
    found = session.run(None, {"image": np.moveaxis(images, 3, 1)})[0]
    expected = network.forward(images, training=False)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_the_shipped_model_reads_the_shipped_samples() -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    path = Path(DATA) / "digits.onnx"
    assert path.stat().st_size < 1 << 20
    model = onnx.load(path)
    assert [opset.version for opset in model.opset_import] == [18]
    kinds = [node.op_type for node in model.graph.node]
    assert kinds.count("BatchNormalization") == 5
    samples = np.load(Path(DATA) / "digits_samples.npz")
    assert sorted(set(samples["labels"].tolist())) == list(range(10))
    session = onnxruntime.InferenceSession(str(path))
    logits = session.run(["logits"], {"image": samples["images"]})[0]
    assert (logits.argmax(axis=1) == samples["labels"]).mean() >= 0.95
