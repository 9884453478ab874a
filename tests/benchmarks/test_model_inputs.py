# SPDX-License-Identifier: Apache-2.0
"""Input recipes: shapes, types, ranges, and that they are the same every time."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

from benchmarks.archives import ZooError
from benchmarks.inputs import RECIPES, make_inputs, resize
from benchmarks.zoo import InputSpec, Model, Package, load_table

PACKAGE = Package("pack", "pypi", "pack", "MIT", "1.0")
NEEDS_SKIMAGE = pytest.mark.skipif(
    importlib.util.find_spec("skimage") is None, reason="scikit-image is not installed"
)


def model_of(*inputs: InputSpec) -> Model:
    return Model("net", "small", PACKAGE, "test", inputs)


@pytest.mark.parametrize("name", ["magika", "llama_small_kv", "bert_base", "melspectrogram"])
def test_shapes_and_repeatability(name: str) -> None:
    model = load_table().model(name)
    for size in model.sizes:
        once, again = make_inputs(model, size), make_inputs(model, size)
        assert once.keys() == again.keys()
        for key, array in once.items():
            np.testing.assert_array_equal(array, again[key])
        spec = model.inputs[0]
        shape = tuple(size[d] if isinstance(d, str) else d for d in spec.shape)
        assert once[spec.name].shape == shape


def test_seeds_names_and_batch_elements_differ() -> None:
    model = model_of(InputSpec("a", "noise", ("n", 4)), InputSpec("b", "noise", ("n", 4)))
    first, second = make_inputs(model, {"n": 2}), make_inputs(model, {"n": 2}, seed=1)
    assert not np.array_equal(first["a"], first["b"])
    assert not np.array_equal(first["a"], second["a"])
    assert not np.array_equal(first["a"][0], first["a"][1])


def test_one_row_may_stand_for_many_inputs() -> None:
    spec = InputSpec("past_{i}_{p}", "noise", (2,), each={"i": 2, "p": ["k", "v"]})
    names = list(make_inputs(model_of(spec), {}))
    assert names == ["past_0_k", "past_0_v", "past_1_k", "past_1_v"]


def test_an_unknown_recipe_is_named() -> None:
    with pytest.raises(ZooError, match="unknown input recipe 'dice'"):
        make_inputs(model_of(InputSpec("x", "dice", (1,))), {})


def test_tokens_masks_and_segments() -> None:
    rng = np.random.default_rng(0)
    ids = RECIPES["token_ids"]((2, 50), {"vocabulary": 10}, rng)
    assert ids.dtype == np.int64
    assert 1 <= ids.min() <= ids.max() < 10
    mask = RECIPES["token_mask"]((3, 16), {}, rng)
    assert mask.sum(axis=1).tolist() == [16, 14, 12]
    assert RECIPES["token_mask"]((9, 2), {}, rng).sum(axis=1).min() == 1
    assert RECIPES["segments"]((1, 4), {}, rng).tolist() == [[0, 0, 1, 1]]


def test_file_bytes_are_codes_or_padding() -> None:
    rows = RECIPES["file_bytes"]((7, 2048), {}, np.random.default_rng(0))
    assert rows.dtype == np.int32
    assert rows.min() >= 0
    assert rows.max() <= 256
    assert bytes(rows[0, :9].astype(np.uint8)) == b"import os"
    assert len({row.tobytes() for row in rows}) == 7


def test_audio_is_sound_not_silence() -> None:
    wave = RECIPES["audio"]((2, 8000, 1), {"rate": 16000}, np.random.default_rng(0))
    assert wave.shape == (2, 8000, 1)
    assert wave.dtype == np.float32
    assert 0.05 < np.abs(wave).max() < 4.0


def test_resize_keeps_constants_and_means() -> None:
    flat = np.full((5, 7, 3), 0.25, np.float32)
    np.testing.assert_allclose(resize(flat, 11, 4), 0.25, rtol=1e-6)
    ramp = np.linspace(0, 1, 64, dtype=np.float32)[None, :, None].repeat(8, 0)
    assert resize(ramp, 8, 16).mean() == pytest.approx(0.5, abs=1e-3)
    np.testing.assert_allclose(resize(ramp, 8, 64), ramp, atol=1e-6)


@NEEDS_SKIMAGE
def test_images_in_both_layouts() -> None:
    rng = np.random.default_rng(0)
    options = {"image": "astronaut", "scale": 255.0, "mean": [10.0] * 3, "std": [2.0] * 3}
    first = RECIPES["image"]((2, 3, 20, 30), options, rng)
    last = RECIPES["image"]((2, 20, 30, 3), {**options, "layout": "nhwc"}, rng)
    np.testing.assert_array_equal(np.moveaxis(first, 1, 3), last)
    assert first.flags.c_contiguous
    assert first.std() > 10
    grey = RECIPES["image"]((1, 3, 8, 8), {"image": "page", "crop": [10, 0, 30, 120]}, rng)
    assert grey.shape == (1, 3, 8, 8)
    assert 0.0 <= grey.min() <= grey.max() <= 1.0
