# SPDX-License-Identifier: Apache-2.0
"""Models compiled for AArch64 elsewhere, run there by the C runtime, give the results of x86-64.

Code uses only operations that IEEE 754 defines to the bit, so results are equal where the order of
sums is: on a target with fused multiply-add and vectors of the same width.
"""

import platform
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from emulator import Emulator, RunError
from onnx import TensorProto, helper

import tilewright
from benchmarks.archives import ZooError
from benchmarks.zoo import model_path

DATA = Path(tilewright.__file__).parent / "data"
DIGITS = DATA / "digits.onnx"
FEATURES = "aarch64+bf16+dotprod+fullfp16+i8mm"
SAME_WIDTH = "x86-64-v2+fma"

pytestmark = pytest.mark.skipif(
    platform.machine() != "x86_64", reason="compares with code for x86-64"
)

UNARY = (
    "Exp", "Log", "Sqrt", "Sin", "Cos", "Tan", "Asin", "Acos", "Atan", "Sinh", "Cosh", "Tanh",
    "Asinh", "Acosh", "Atanh", "Erf", "Sigmoid", "Ceil", "Floor", "Round", "Abs", "Neg", "Sign",
)  # fmt: skip
BINARY = ("Add", "Sub", "Mul", "Div", "Pow", "Mod", "Max", "Min")
INTEGERS = ("Add", "Sub", "Mul", "Div", "Mod", "Max", "Min")
QUICK = ("Exp", "Tanh", "Round", "Div", "Pow", "FLOAT16", "INT8", "INT64")
CASTS = ("FLOAT", "FLOAT16", "DOUBLE", "BFLOAT16", "INT8", "UINT8", "INT32", "INT64", "BOOL")
SPECIAL = (
    0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 0.5, 2.5, 1e-45, 1.1754944e-38, 3.4e38, -3.4e38,
    88.72283, -87.3, 1e300, 255.5, -200.0, 2147483648.0, -3e9, 9.3e18, -1e19,
)  # fmt: skip


def operators(dtype: str, names: tuple[str, ...]) -> onnx.ModelProto:
    """A model with an output for each operator, and each dtype to cast to, of the names."""
    kind = TensorProto.DataType.Value(dtype)
    inputs = [helper.make_tensor_value_info(name, kind, ["n"]) for name in ("x", "y")]
    nodes, outputs = [], []
    for name in names:
        result = kind
        if name in CASTS:
            result = TensorProto.DataType.Value(name)
            nodes.append(helper.make_node("Cast", ["x"], [name], to=result))
        else:
            given = ["x", "y"] if name in BINARY else ["x"]
            node = helper.make_node(name, given, [name])
            if name == "Mod" and "INT" not in dtype:
                node.attribute.append(helper.make_attribute("fmod", 1))
            nodes.append(node)
        outputs.append(helper.make_tensor_value_info(name, result, ["n"]))
    graph = helper.make_graph(nodes, "operators", inputs, outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def operands(dtype: np.dtype) -> tuple[np.ndarray, np.ndarray]:
    """Pairs of all representations at random, of usual numbers, and of special values."""
    rng = np.random.default_rng(5)
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        x = rng.integers(limits.min, limits.max, 2000, dtype, endpoint=True)
        y = rng.integers(limits.min, limits.max, 2000, dtype, endpoint=True)
        y[::2] = rng.integers(1, 9, 1000)
        return x, np.where(y == 0, 1, y).astype(dtype)  # division by zero is undefined
    bits = rng.integers(0, 2 ** (8 * dtype.itemsize) - 1, (2, 2000), f"u{dtype.itemsize}")
    usual = rng.uniform(-90, 90, (2, 2000))
    special = np.stack([np.repeat(SPECIAL, len(SPECIAL)), np.tile(SPECIAL, len(SPECIAL))])
    with np.errstate(all="ignore"):
        x, y = np.concatenate([bits.view(dtype), usual, special], axis=1).astype(dtype)
    return x, y


def same_bits(found: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Where two arrays have equal bits, or are both no number, whose bits are free."""
    kind = f"u{found.dtype.itemsize}"
    equal: np.ndarray = found.view(kind) == wanted.view(kind)
    if found.dtype.kind not in "biu":
        with np.errstate(invalid="ignore"):  # signalling ones
            equal |= np.isnan(found.astype(np.float64)) & np.isnan(wanted.astype(np.float64))
    return equal


def check_operators(
    emulator: Emulator, folder: Path, dtype: str, names: tuple[str, ...], target: str
) -> None:
    model = operators(dtype, names)
    x, y = operands(np.dtype(helper.tensor_dtype_to_np_dtype(TensorProto.DataType.Value(dtype))))
    tilewright.compile(model, target).save(folder / "m.tw")
    found = emulator.run(folder / "m.tw", {"x": x, "y": y})
    wanted = tilewright.compile(model, SAME_WIDTH).run({"x": x, "y": y})
    assert found.keys() == wanted.keys()
    for name, value in found.items():
        (wrong,) = np.nonzero(~same_bits(value, wanted[name]))
        assert not len(wrong), (name, x[wrong[:3]], y[wrong[:3]], value[wrong[:3]])


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The digit model, compiled by the command line."""
    output: Path = tmp_path_factory.mktemp("digits") / "digits.tw"
    command = [sys.executable, "-m", "tilewright", "compile", str(DIGITS), "--quiet"]
    subprocess.run([*command, "--target", "aarch64", "-o", str(output)], check=True)
    return output


def test_digits(emulator: Emulator, digits: Path) -> None:
    with np.load(DATA / "digits_samples.npz") as samples:
        images, labels = samples["images"], samples["labels"]
    same, native = (tilewright.compile(DIGITS, t) for t in (SAME_WIDTH, "native"))
    for count in (1, 3, len(images)):
        feeds = {"image": images[:count]}
        logits = emulator.run(digits, feeds)["logits"]
        np.testing.assert_array_equal(logits, same.run(feeds)["logits"])
        np.testing.assert_allclose(logits, native.run(feeds)["logits"], rtol=1e-5, atol=1e-5)
    assert (logits.argmax(axis=1) == labels).mean() > 0.9


def test_threads_do_not_change_results(emulator: Emulator, digits: Path) -> None:
    feeds = {"image": np.random.default_rng(1).random((65, 1, 8, 8), np.float32)}
    one, many = (emulator.run(digits, feeds, threads=n)["logits"] for n in (1, 4))
    np.testing.assert_array_equal(one, many)


def test_an_input_that_does_not_fit(emulator: Emulator, digits: Path) -> None:
    with pytest.raises(RunError, match=r"2: .*'image'"):
        emulator.run(digits, {"image": np.zeros((2, 1, 8, 9), np.float32)})


def test_features_are_required(emulator: Emulator, tmp_path: Path) -> None:
    tilewright.compile(DIGITS, FEATURES).save(tmp_path / "digits.tw")
    feeds = {"image": np.ones((2, 1, 8, 8), np.float32)}
    logits = emulator.run(tmp_path / "digits.tw", feeds)["logits"]
    np.testing.assert_array_equal(logits, tilewright.compile(DIGITS, SAME_WIDTH)(**feeds))
    with pytest.raises(RunError, match=r"4: .*'(bf16|dotprod|fullfp16|i8mm)'"):
        emulator.run(tmp_path / "digits.tw", feeds, cpu="cortex-a53")


def test_refused_on_this_machine(digits: Path) -> None:
    with pytest.raises(tilewright.errors.TargetMismatchError, match="'aarch64'"):
        tilewright.load(digits)


def test_operators(emulator: Emulator, tmp_path: Path) -> None:
    check_operators(emulator, tmp_path, "FLOAT", QUICK, "aarch64")


@pytest.mark.slow
@pytest.mark.parametrize("target", ["aarch64", FEATURES])
@pytest.mark.parametrize("dtype", ["FLOAT", "FLOAT16", "DOUBLE", "INT8", "INT64", "UINT32"])
def test_all_operators(emulator: Emulator, tmp_path: Path, dtype: str, target: str) -> None:
    every = (*INTEGERS, "Abs", "Sign") if "INT" in dtype else (*UNARY, *BINARY)
    names = tuple(n for n in every if not (dtype.startswith("U") and n in ("Abs", "Sign")))
    check_operators(emulator, tmp_path, dtype, (*names, *CASTS), target)


def check_zoo_model(
    emulator: Emulator, folder: Path, name: str, runs: list[dict[str, np.ndarray]]
) -> None:
    """A model for every Arm processor gives on an early one, for each run, what it gives here."""
    try:
        path = model_path(name)
    except ZooError as error:
        pytest.skip(str(error))
    tilewright.compile(path, "aarch64").save(folder / "m.tw")
    same, native = (tilewright.compile(path, t) for t in (SAME_WIDTH, "native"))
    for feeds in runs:
        found = emulator.run(folder / "m.tw", feeds, cpu="cortex-a53")
        alike, wanted = same.run(feeds), native.run(feeds)
        assert found.keys() == wanted.keys()
        for output, value in found.items():
            np.testing.assert_array_equal(value, alike[output])
            scale = np.abs(wanted[output]).max()
            np.testing.assert_allclose(value, wanted[output], rtol=0, atol=1e-5 * scale)


@pytest.mark.slow
@pytest.mark.zoo
def test_mobilenet(emulator: Emulator, tmp_path: Path) -> None:
    image = np.random.default_rng(3).standard_normal((1, 3, 224, 224)).astype(np.float32)
    check_zoo_model(emulator, tmp_path, "mobilenetv2_100", [{"x": image}])


@pytest.mark.slow
@pytest.mark.zoo
def test_minilm(emulator: Emulator, tmp_path: Path) -> None:
    """Symbolic dims, attention and gathered rows: two sizes with one compilation."""
    rng = np.random.default_rng(4)
    runs: list[dict[str, np.ndarray]] = []
    for batch, seq in ((2, 17), (1, 5)):
        mask = np.ones((batch, seq), np.int64)
        mask[0, -2:] = 0  # padding
        ids, kinds = rng.integers(1000, 30000, (batch, seq)), np.zeros_like(mask)
        runs.append({"input_ids": ids, "attention_mask": mask, "token_type_ids": kinds})
    check_zoo_model(emulator, tmp_path, "minilm_l6_v2_trained", runs)
