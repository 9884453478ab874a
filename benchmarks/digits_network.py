# SPDX-License-Identifier: Apache-2.0
"""A small residual network for 8 x 8 digits, forward and backward, in numpy alone.

Arrays are batch x height x width x channels in float32. A convolution is one matrix product over
unfolded 3 x 3 windows. Each layer keeps what its backward pass needs from the last forward pass.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]
EPSILON = 1e-5


class Parameter:
    """A trained array and its gradient."""

    def __init__(self, value: NDArray[np.floating]) -> None:
        self.value: Array = np.asarray(value, np.float32)
        self.gradient: Array = np.zeros_like(self.value)


class Layer(Protocol):
    """A differentiable step."""

    def forward(self, x: Array, training: bool) -> Array: ...

    def backward(self, slope: Array) -> Array: ...

    def parameters(self) -> Iterator[Parameter]: ...


class Convolution:
    """A 3 x 3 convolution, stride 1, padded to keep the size; weight is [3, 3, in, out]."""

    def __init__(self, inputs: int, outputs: int, rng: np.random.Generator) -> None:
        scale = (2.0 / (9 * inputs)) ** 0.5
        self.weight = Parameter(scale * rng.standard_normal((3, 3, inputs, outputs)))

    def parameters(self) -> Iterator[Parameter]:
        yield self.weight

    def forward(self, x: Array, training: bool) -> Array:
        batch, height, width, channels = x.shape
        padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
        windows = [padded[:, i : i + height, j : j + width] for i in range(3) for j in range(3)]
        self.unfolded = np.concatenate(windows, axis=3).reshape(-1, 9 * channels)
        self.shape = x.shape
        flat = self.weight.value.reshape(9 * channels, -1)
        return (self.unfolded @ flat).reshape(batch, height, width, -1)

    def backward(self, slope: Array) -> Array:
        batch, height, width, channels = self.shape
        flat = slope.reshape(-1, slope.shape[3])
        self.weight.gradient = (self.unfolded.T @ flat).reshape(self.weight.value.shape)
        spread = flat @ self.weight.value.reshape(9 * channels, -1).T
        spread = spread.reshape(batch, height, width, 9, channels)
        padded = np.zeros((batch, height + 2, width + 2, channels), np.float32)
        for k in range(9):
            padded[:, k // 3 : k // 3 + height, k % 3 : k % 3 + width] += spread[:, :, :, k]
        return padded[:, 1:-1, 1:-1]


class BatchNorm:
    """Batch normalisation over all but the channels, with running statistics for inference."""

    def __init__(self, channels: int, momentum: float = 0.9) -> None:
        self.scale = Parameter(np.ones(channels))
        self.shift = Parameter(np.zeros(channels))
        self.mean: Array = np.zeros(channels, np.float32)
        self.variance: Array = np.ones(channels, np.float32)
        self.momentum = np.float32(momentum)

    def parameters(self) -> Iterator[Parameter]:
        yield self.scale
        yield self.shift

    def forward(self, x: Array, training: bool) -> Array:
        mean, variance = self.mean, self.variance
        if training:
            mean, variance = x.mean(axis=(0, 1, 2)), x.var(axis=(0, 1, 2))
            self.mean = self.momentum * self.mean + (1 - self.momentum) * mean
            self.variance = self.momentum * self.variance + (1 - self.momentum) * variance
        self.inverse: Array = 1.0 / np.sqrt(variance + np.float32(EPSILON))
        self.normal: Array = (x - mean) * self.inverse
        result: Array = self.scale.value * self.normal + self.shift.value
        return result

    def backward(self, slope: Array) -> Array:
        axes = (0, 1, 2)
        self.scale.gradient = (slope * self.normal).sum(axis=axes)
        self.shift.gradient = slope.sum(axis=axes)
        slope = slope * self.scale.value
        across = (slope * self.normal).mean(axis=axes)
        result: Array = self.inverse * (slope - slope.mean(axis=axes) - self.normal * across)
        return result


class Relu:
    """max(x, 0)."""

    def parameters(self) -> Iterator[Parameter]:
        return iter(())

    def forward(self, x: Array, training: bool) -> Array:
        self.positive = x > 0
        return x * self.positive

    def backward(self, slope: Array) -> Array:
        return slope * self.positive


class MaxPool:
    """The largest of each 2 x 2 window."""

    def parameters(self) -> Iterator[Parameter]:
        return iter(())

    def forward(self, x: Array, training: bool) -> Array:
        batch, height, width, channels = x.shape
        split = x.reshape(batch, height // 2, 2, width // 2, 2, channels)
        largest: Array = split.max(axis=(2, 4))
        self.hits = split == largest[:, :, None, :, None]
        self.shape = x.shape
        return largest

    def backward(self, slope: Array) -> Array:
        shared = self.hits / self.hits.sum(axis=(2, 4), keepdims=True, dtype=np.float32)
        result: Array = (shared * slope[:, :, None, :, None]).reshape(self.shape)
        return result


class Dense:
    """The mean over the image, then a linear layer; weight is [in, out]."""

    def __init__(self, inputs: int, outputs: int, rng: np.random.Generator) -> None:
        self.weight = Parameter(rng.standard_normal((inputs, outputs)) / inputs**0.5)
        self.bias = Parameter(np.zeros(outputs))

    def parameters(self) -> Iterator[Parameter]:
        yield self.weight
        yield self.bias

    def forward(self, x: Array, training: bool) -> Array:
        self.shape = x.shape
        self.pooled: Array = x.mean(axis=(1, 2))
        result: Array = self.pooled @ self.weight.value + self.bias.value
        return result

    def backward(self, slope: Array) -> Array:
        self.weight.gradient = self.pooled.T @ slope
        self.bias.gradient = slope.sum(axis=0)
        area = self.shape[1] * self.shape[2]
        spread = (slope @ self.weight.value.T / np.float32(area))[:, None, None, :]
        return np.broadcast_to(spread, self.shape)


class Chain:
    """Layers one after another."""

    def __init__(self, layers: Sequence[Layer]) -> None:
        self.layers = tuple(layers)

    def parameters(self) -> Iterator[Parameter]:
        for layer in self.layers:
            yield from layer.parameters()

    def forward(self, x: Array, training: bool) -> Array:
        for layer in self.layers:
            x = layer.forward(x, training)
        return x

    def backward(self, slope: Array) -> Array:
        for layer in reversed(self.layers):
            slope = layer.backward(slope)
        return slope


class Residual(Chain):
    """Layers whose input is added to their output."""

    def forward(self, x: Array, training: bool) -> Array:
        return x + super().forward(x, training)

    def backward(self, slope: Array) -> Array:
        return slope + super().backward(slope)


def digits_network(rng: np.random.Generator) -> Chain:
    """Two convolutions, a residual block, pooling, a convolution, and a linear layer: 10 logits."""

    def block(inputs: int, outputs: int) -> list[Layer]:
        return [Convolution(inputs, outputs, rng), BatchNorm(outputs)]

    inner = Residual([*block(32, 32), Relu(), *block(32, 32)])
    body = [*block(1, 16), Relu(), *block(16, 32), Relu(), inner, Relu(), MaxPool()]
    return Chain([*body, *block(32, 64), Relu(), Dense(64, 10, rng)])
