# SPDX-License-Identifier: Apache-2.0
"""Train the digit classifier that ships with the package, and write it as ONNX.

    python -m benchmarks.train_digits

The data are the 1,797 handwritten digits of 8 x 8 pixels in scikit-learn, which come from the UCI
data set "Optical Recognition of Handwritten Digits" (E. Alpaydin and C. Kaynak, CC BY 4.0). A fifth
is held out; the rest trains a small residual network with Adam in about half a minute. Batch norms
stay nodes of their own in the exported graph, as in most models that a compiler meets. The same
numpy on the same machine gives the same weights.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.digits_network import Array, Chain, digits_network
from benchmarks.digits_onnx import as_onnx

DATA = Path(__file__).resolve().parent.parent / "compiler" / "tilewright" / "data"
LEAST_ACCURACY = 0.96
EACH = 2  # sample images of each digit
Labels = NDArray[np.int64]


def load_data(seed: int = 0) -> tuple[Array, Labels, Array, Labels]:
    """Training images and labels, then held-out ones; pixels are in [0, 1], batch x 8 x 8 x 1."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    images = (digits.images / 16.0).astype(np.float32)[..., None]
    labels = digits.target.astype(np.int64)
    order = np.random.default_rng(seed).permutation(len(images))
    held = len(images) // 5
    images, labels = images[order], labels[order]
    return images[held:], labels[held:], images[:held], labels[:held]


def shifted(images: Array, rng: np.random.Generator) -> Array:
    """Each image moved by up to one pixel each way, blank pixels moving in."""
    padded = np.pad(images, ((0, 0), (1, 1), (1, 1), (0, 0)))
    rows, columns = rng.integers(0, 3, (2, len(images)))
    moved = [padded[i, r : r + 8, c : c + 8] for i, (r, c) in enumerate(zip(rows, columns))]
    return np.stack(moved)


def batches(
    images: Array, labels: Labels, size: int, rng: np.random.Generator
) -> Iterator[tuple[Array, Labels]]:
    """Shuffled, shifted batches of one epoch; the last, smaller one is left out."""
    order = rng.permutation(len(images))
    for start in range(0, len(images) - size + 1, size):
        picked = order[start : start + size]
        yield shifted(images[picked], rng), labels[picked]


def loss_slope(logits: Array, labels: Labels) -> tuple[float, Array]:
    """The mean cross entropy and its gradient with respect to the logits."""
    shifted_logits = logits - logits.max(axis=1, keepdims=True)
    weights = np.exp(shifted_logits)
    probabilities = weights / weights.sum(axis=1, keepdims=True)
    rows = np.arange(len(labels))
    loss = -float(np.log(probabilities[rows, labels] + 1e-12).mean())
    slope = probabilities
    slope[rows, labels] -= 1.0
    return loss, slope / np.float32(len(labels))


class Adam:
    """Adam (Kingma and Ba, 2015) with decoupled weight decay."""

    def __init__(self, network: Chain, decay: float = 1e-4) -> None:
        self.parameters = list(network.parameters())
        self.first = [np.zeros_like(p.value) for p in self.parameters]
        self.second = [np.zeros_like(p.value) for p in self.parameters]
        self.decay, self.count = decay, 0

    def step(self, rate: float) -> None:
        """Move every parameter against its gradient."""
        self.count += 1
        bias = (1 - 0.999**self.count) ** 0.5 / (1 - 0.9**self.count)
        for parameter, first, second in zip(self.parameters, self.first, self.second):
            gradient = parameter.gradient
            first += np.float32(0.1) * (gradient - first)
            second += np.float32(0.001) * (gradient * gradient - second)
            change = np.float32(bias) * first / (np.sqrt(second) + np.float32(1e-8))
            parameter.value -= np.float32(rate) * (
                change + np.float32(self.decay) * parameter.value
            )


def accuracy(network: Chain, images: Array, labels: Labels) -> float:
    """The share of images whose largest logit is the label's."""
    return float((network.forward(images, training=False).argmax(axis=1) == labels).mean())


def train(epochs: int, seed: int = 0) -> tuple[Chain, float]:
    """Train from scratch; returns the network and its accuracy on the held-out images."""
    images, labels, held_images, held_labels = load_data()
    rng = np.random.default_rng(seed)
    network = digits_network(rng)
    optimiser = Adam(network)
    for epoch in range(epochs):
        rate = 0.002 * (1 + np.cos(np.pi * epoch / epochs)) / 2
        losses = []
        for batch, wanted in batches(images, labels, 64, rng):
            loss, slope = loss_slope(network.forward(batch, training=True), wanted)
            network.backward(slope)
            optimiser.step(rate)
            losses.append(loss)
        print(f"epoch {epoch + 1:2}: loss {np.mean(losses):.4f}", flush=True)
    return network, accuracy(network, held_images, held_labels)


def main(arguments: Sequence[str] | None = None) -> int:
    """Train, export, and write samples; exit status 1 if the network is not good enough."""
    parser = argparse.ArgumentParser(
        prog="benchmarks.train_digits", description="Train the digit classifier that ships."
    )
    parser.add_argument("--epochs", type=int, default=25)
    parser.add_argument("--folder", type=Path, default=DATA, help="where to write the files")
    options = parser.parse_args(arguments)
    network, reached = train(options.epochs)
    print(f"accuracy on held-out images: {reached:.4f}")
    if reached <= LEAST_ACCURACY:
        print(f"That is not above {LEAST_ACCURACY}; nothing is written.", file=sys.stderr)
        return 1
    options.folder.mkdir(parents=True, exist_ok=True)
    (options.folder / "digits.onnx").write_bytes(as_onnx(network).SerializeToString())
    _, _, images, labels = load_data()
    chosen = [index for digit in range(10) for index in np.flatnonzero(labels == digit)[:EACH]]
    images = np.ascontiguousarray(np.moveaxis(images[chosen], 3, 1))
    np.savez(options.folder / "digits_samples.npz", images=images, labels=labels[chosen])
    return 0


if __name__ == "__main__":
    sys.exit(main())
