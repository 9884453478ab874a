# SPDX-License-Identifier: Apache-2.0
"""Recipes that make model inputs: deterministic, and real where noise would hide a fault.

A detector or classifier answers nearly a constant to noise, so that a wrong result would pass.
Such models get the photographs and page scans that scikit-image ships, synthetic notes, or file
contents. A recipe takes the shape, the options from the model table and a seeded generator.
Elements of a batch differ.
"""

from __future__ import annotations

import itertools
import json
import zlib
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib import resources
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.archives import ZooError
from benchmarks.zoo import Dim, InputSpec, Model

Array = NDArray[Any]
Options = Mapping[str, Any]
Recipe = Callable[[tuple[int, ...], Options, np.random.Generator], Array]


def noise(shape: tuple[int, ...], options: Options, rng: np.random.Generator) -> Array:
    """Normal noise, float32. Options: mean (0), scale (1)."""
    values = rng.standard_normal(shape, dtype=np.float32)
    return values * np.float32(options.get("scale", 1.0)) + np.float32(options.get("mean", 0.0))


@cache
def _photograph(name: str) -> Array:
    """An image of scikit-image as float32 in [0, 1], height x width x 3."""
    from skimage import data

    pixels = np.asarray(getattr(data, name)(), np.float32) / np.float32(255.0)
    return pixels if pixels.ndim == 3 else np.repeat(pixels[..., None], 3, axis=2)


def resize(pixels: Array, height: int, width: int) -> Array:
    """Resample height x width x channels to another size, linearly, averaging where it shrinks."""
    for axis, size in enumerate((height, width)):
        pixels = np.tensordot(_resampling(pixels.shape[axis], size), pixels, axes=(1, axis))
        pixels = np.moveaxis(pixels, 0, axis)
    return pixels.astype(np.float32)


def _resampling(source: int, target: int) -> Array:
    """The target x source matrix of triangle filter weights; each row adds up to 1."""
    step = source / target
    centres = (np.arange(target) + 0.5) * step - 0.5
    support = max(step, 1.0)
    distance = np.abs(centres[:, None] - np.arange(source)[None, :]) / support
    weights = np.maximum(0.0, 1.0 - distance)
    normed: Array = weights / weights.sum(axis=1, keepdims=True)
    return normed


def image(shape: tuple[int, ...], options: Options, rng: np.random.Generator) -> Array:
    """A photograph or page scan, float32, resized to the shape; later batch elements are shifted.

    Options: image (a name in skimage.data), crop [top, left, bottom, right], scale (of white, 1),
    mean and std per channel (0, 1), layout (nchw or nhwc).
    """
    batch = shape[0]
    channels_last = options.get("layout", "nchw") == "nhwc"
    height, width = shape[1:3] if channels_last else shape[2:4]
    pixels = _photograph(options["image"])
    if "crop" in options:
        top, left, bottom, right = options["crop"]
        pixels = pixels[top:bottom, left:right]
    pixels = resize(pixels, height, width) * np.float32(options.get("scale", 1.0))
    mean = np.asarray(options.get("mean", (0.0,) * 3), np.float32)
    std = np.asarray(options.get("std", (1.0,) * 3), np.float32)
    pixels = (pixels - mean) / std
    stack = np.stack([np.roll(pixels, (3 * i, 5 * i), axis=(0, 1)) for i in range(batch)])
    return np.ascontiguousarray(stack if channels_last else np.moveaxis(stack, 3, 1))


def digits(shape: tuple[int, ...], options: Options, rng: np.random.Generator) -> Array:
    """Handwritten digits of 8 x 8 pixels in [0, 1], float32: the samples that the package ships,
    over and over.
    """
    source = resources.files("tilewright") / "data" / "digits_samples.npz"
    with source.open("rb") as file, np.load(file) as samples:
        images = samples["images"]
    return np.resize(images, shape)


def token_ids(shape: tuple[int, ...], options: Options, rng: np.random.Generator) -> Array:
    """Random token numbers, int64, below the option `vocabulary`."""
    return rng.integers(1, options["vocabulary"], shape, dtype=np.int64)


def token_mask(shape: tuple[int, ...], options: Options, rng: np.random.Generator) -> Array:
    """An attention mask, int64: each batch element is an eighth shorter than the one before."""
    batch, length = shape
    kept = np.maximum(1, length - np.arange(batch) * max(1, length // 8))
    return (np.arange(length)[None, :] < kept[:, None]).astype(np.int64)


def segments(shape: tuple[int, ...], options: Options, rng: np.random.Generator) -> Array:
    """Token types, int64: 0 in the first half of each sequence, 1 in the second."""
    return np.broadcast_to(np.arange(shape[1]) * 2 >= shape[1], shape).astype(np.int64)


def audio(shape: tuple[int, ...], options: Options, rng: np.random.Generator) -> Array:
    """Plucked notes over faint noise, float32. Options: rate (Hz), scale (of full volume, 1).

    The samples run along axis 1; each batch element plays other notes.
    """
    batch, samples = shape[:2]
    time = np.arange(samples) / options["rate"]
    wave = 0.01 * rng.standard_normal((batch, samples))
    for row, _ in itertools.product(range(batch), range(8)):
        pitch = 110.0 * 2.0 ** (rng.integers(0, 36) / 12.0)
        since = time - rng.uniform(0.0, max(time[-1], 1e-3))
        decay = np.where(since >= 0.0, np.exp(-4.0 * np.maximum(since, 0.0)), 0.0)
        for harmonic in range(1, 5):
            wave[row] += 0.1 / harmonic * decay * np.sin(2 * np.pi * pitch * harmonic * since)
    scaled: Array = wave * float(options.get("scale", 1.0))
    return scaled.astype(np.float32).reshape(shape)


def _file_contents(rng: np.random.Generator) -> Iterator[bytes]:
    """Short files of different kinds, over and over."""
    words = ["tile", "loop", "kernel", "graph", "value", "layout", "shape", "index"]
    while True:
        picked = [words[i] for i in rng.integers(0, len(words), 400)]
        code = "\n".join(
            f"def {a}_{b}(x: int) -> int:\n    return x + {len(a)}\n"
            for a, b in itertools.pairwise(picked)
        )
        yield ("import os\nimport sys\n\n\n" + code).encode()
        yield json.dumps([{"name": w, "size": len(w)} for w in picked], indent=1).encode()
        yield (
            "<!DOCTYPE html>\n<html><head><title>Page</title></head><body>\n"
            + "".join(f"<p class='{w}'>{w}</p>\n" for w in picked)
            + "</body></html>\n"
        ).encode()
        yield b"\x1f\x8b\x08\x00" + zlib.compress(" ".join(picked).encode())
        yield b"\x7fELF\x02\x01\x01" + rng.integers(0, 256, 4000, dtype=np.uint8).tobytes()
        yield ("name,length\n" + "".join(f"{w},{len(w)}\n" for w in picked)).encode()


def file_bytes(shape: tuple[int, ...], options: Options, rng: np.random.Generator) -> Array:
    """First and last bytes of small files, int32: half of a row each, padded with 256."""
    batch, length = shape
    half = length // 2
    rows = np.full(shape, 256, np.int32)
    for row, content in zip(range(batch), _file_contents(rng)):
        codes = np.frombuffer(content.strip(), np.uint8)
        first, last = codes[:half], codes[-half:]
        rows[row, : len(first)] = first
        rows[row, length - len(last) :] = last
    return rows


RECIPES: Mapping[str, Recipe] = {
    function.__name__: function
    for function in (noise, image, digits, token_ids, token_mask, segments, audio, file_bytes)
}


def _expanded(spec: InputSpec) -> Iterator[str]:
    """The names that an input row stands for: several where it has `each`."""
    if not spec.each:
        yield spec.name
        return
    choices = [range(v) if isinstance(v, int) else v for v in spec.each.values()]
    for combination in itertools.product(*choices):
        yield spec.name.format(**dict(zip(spec.each, combination)))


def input_shapes(model: Model, size: Mapping[str, int]) -> dict[str, tuple[Dim, ...]]:
    """The shapes of all inputs of `model`; symbols that `size` does not give stay symbols."""
    return {
        name: tuple(size.get(d, d) if isinstance(d, str) else d for d in spec.shape)
        for spec in model.inputs
        for name in _expanded(spec)
    }


def make_inputs(model: Model, size: Mapping[str, int], seed: int = 0) -> dict[str, Array]:
    """All inputs of `model` at one size: the same arrays for the same seed, on every machine."""
    arrays: dict[str, Array] = {}
    for spec in model.inputs:
        if spec.recipe not in RECIPES:
            raise ZooError(f"Model '{model.name}' names an unknown input recipe '{spec.recipe}'.")
        shape = tuple(size[d] if isinstance(d, str) else d for d in spec.shape)
        for name in _expanded(spec):
            rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
            arrays[name] = RECIPES[spec.recipe](shape, spec.options, rng)
    return arrays
