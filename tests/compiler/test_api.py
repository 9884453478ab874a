# SPDX-License-Identifier: Apache-2.0
"""Compiling, running, saving and loading from Python."""

import copy
import gc
import logging
import mmap
import pickle
import threading
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import tilewright
from tilewright import errors

DIGITS = Path(tilewright.__file__).parent / "data" / "digits.onnx"


def feeds(n: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(n)
    return {name: rng.standard_normal((n, 4)).astype(np.float32) for name in ("a", "b/0")}


def test_ports(pair_model: tilewright.CompiledModel) -> None:
    found = [(p.name, p.dtype, p.shape) for p in pair_model.inputs]
    assert found == [("a", "float32", ("n", 4)), ("b/0", "float32", ("n", 4))]
    assert [p.name for p in pair_model.outputs] == ["total", "part"]
    assert repr(pair_model).startswith("<CompiledModel (a: float32['n', 4], b/0: ")
    assert pair_model.manifest["inputs"][0]["name"] == "a"


@pytest.mark.parametrize("n", [0, 1, 3, 1000])
def test_run_at_several_sizes(pair_model: tilewright.CompiledModel, n: int) -> None:
    given = feeds(n)
    found = pair_model.run(given)
    assert list(found) == ["total", "part"]
    np.testing.assert_array_equal(found["total"], given["a"] + given["b/0"])
    np.testing.assert_array_equal(found["part"], given["a"] * 2)


def test_call_by_position_and_by_name(
    pair_model: tilewright.CompiledModel, digits: tilewright.CompiledModel, images: np.ndarray
) -> None:
    given = feeds(2)
    total, part = pair_model(given["a"], **{"b/0": given["b/0"]})
    np.testing.assert_array_equal(total, given["a"] + given["b/0"])
    np.testing.assert_array_equal(part, given["a"] * 2)
    assert isinstance(digits(images), np.ndarray)  # a single output comes alone


def test_out_and_dlpack(pair_model: tilewright.CompiledModel) -> None:
    class Capsule:
        def __init__(self, array: np.ndarray) -> None:
            self.__dlpack__, self.__dlpack_device__ = array.__dlpack__, array.__dlpack_device__

    given = feeds(5)
    total = np.empty((5, 4), np.float32)
    found = pair_model.run({k: Capsule(v) for k, v in given.items()}, out={"total": total})
    assert found["total"] is total
    np.testing.assert_array_equal(total, given["a"] + given["b/0"])


def test_digits_reads_its_samples(
    digits: tilewright.CompiledModel, images: np.ndarray, labels: np.ndarray
) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    logits = digits.run({"image": images})["logits"]
    session = onnxruntime.InferenceSession(str(DIGITS), providers=["CPUExecutionProvider"])
    expected = session.run(None, {"image": images})[0]
    np.testing.assert_allclose(logits, expected, rtol=1e-3, atol=1e-4)
    assert (logits.argmax(axis=1) == labels).mean() >= 0.95


def test_sources_give_equal_artifacts(
    pair: onnx.ModelProto, pair_file: Path, tmp_path: Path
) -> None:
    path = tmp_path / "pair.onnx"
    onnx.save(pair, path)
    for source in (path, str(path), path.read_bytes(), pair):
        tilewright.compile(source).save(tmp_path / "again.tw")
        assert (tmp_path / "again.tw").read_bytes() == pair_file.read_bytes()


def test_save_and_load(
    pair_model: tilewright.CompiledModel, pair_file: Path, tmp_path: Path
) -> None:
    given = feeds(7)
    expected = pair_model.run(given)
    for source in (pair_file, str(pair_file), pair_file.read_bytes()):
        loaded = tilewright.load(source)
        assert loaded.inputs == pair_model.inputs and loaded.report is None
        found = loaded.run(given)
        for name, array in expected.items():
            np.testing.assert_array_equal(found[name], array)
        loaded.save(tmp_path / "copy.tw")
        assert (tmp_path / "copy.tw").read_bytes() == pair_file.read_bytes()
        assert [p.name for p in tmp_path.iterdir()] == ["copy.tw"]  # no temporary file


def test_save_over_the_file_that_is_in_use(pair_file: Path, tmp_path: Path) -> None:
    path = tmp_path / "own.tw"
    path.write_bytes(pair_file.read_bytes())
    loaded = tilewright.load(path)
    loaded.save(path)
    assert path.read_bytes() == pair_file.read_bytes()
    assert len(loaded.run(feeds(3))) == 2


def test_save_of_a_changed_file(pair_file: Path, digits_file: Path, tmp_path: Path) -> None:
    path = tmp_path / "changing.tw"
    path.write_bytes(pair_file.read_bytes())
    loaded = tilewright.load(path)
    other = tmp_path / "other.tw"
    other.write_bytes(digits_file.read_bytes())
    other.replace(path)
    with pytest.raises(errors.ArtifactError, match="has changed since the model was loaded"):
        loaded.save(tmp_path / "copy.tw")
    assert not (tmp_path / "copy.tw").exists()


def test_unwritable_output(pair_model: tilewright.CompiledModel, tmp_path: Path) -> None:
    missing = tmp_path / "missing" / "x.tw"
    with pytest.raises(errors.WriteError) as caught:
        pair_model.save(missing)
    expected = f"File '{missing}' cannot be written: No such file or directory."
    assert (str(caught.value), caught.value.strerror) == (expected, "No such file or directory")
    (tmp_path / "folder.tw").mkdir()
    with pytest.raises(errors.WriteError, match=r"folder.tw' cannot be written: Is a directory"):
        pair_model.save(tmp_path / "folder.tw")
    assert [p.name for p in tmp_path.iterdir()] == ["folder.tw"]


def test_weights_are_used_in_place(digits: tilewright.CompiledModel) -> None:
    """A compiled model holds one copy of its constants: the runtime borrows the artifact's."""
    assert isinstance(digits._artifact, mmap.mmap)
    with pytest.raises(BufferError):
        digits._artifact.close()


def test_a_model_outlives_what_made_it(digits_file: Path, images: np.ndarray) -> None:
    run = tilewright.load(digits_file).run
    assert run({"image": images})["logits"].shape == (20, 10)


def test_shapes_fix_and_name_dims(pair: onnx.ModelProto) -> None:
    shapes: dict[str, list[int | str]] = {"a": [6, 4], "b/0": [6, 4]}
    fixed = tilewright.compile(pair, shapes=shapes)
    assert fixed.inputs[0].shape == (6, 4)
    with pytest.raises(errors.InputError):
        fixed.run(feeds(3))
    renamed = tilewright.compile(pair, shapes={"a": ["rows", 4], "b/0": ["rows", 4]})
    assert renamed.outputs[0].shape == ("rows", 4)


@pytest.mark.parametrize("size", [np.int64(6), np.uint8(6), np.array(6)])
def test_sizes_of_any_type_of_integer(pair: onnx.ModelProto, size: Any) -> None:
    shapes = {"a": [size, 4], "b/0": np.array([6, 4])}
    assert tilewright.compile(pair, shapes=shapes).inputs[0].shape == (6, 4)  # type: ignore[arg-type]


BAD_SHAPES: dict[str, tuple[Any, str]] = {
    "number": (5, r"such as \{'x': \[1, 'n'\]\}, not something of type 'int'"),
    "text": ("a=6,4", "not something of type 'str'"),
    "key": ({5: [6, 4]}, "by the names of inputs, not by something of type 'int'"),
    "dims": ({"a": 5}, "The shape given for 'a' is of type 'int'. Give a list of dims"),
    "dims as text": ({"a": "n4"}, "The shape given for 'a' is of type 'str'"),
    "dims as scalar": ({"a": np.array(5)}, "The shape given for 'a' is of type 'ndarray'"),
    "dims as set": ({"a": {6, 4}}, "The shape given for 'a' is of type 'set'"),
    "fraction": ({"a": [1.5, 4]}, "1.5, given for dim 0 of input 'a', is neither a size from 0 to"),
    "truth": ({"a": [True, 4]}, "True, given for dim 0 of input 'a'"),
    "negative": ({"a": [-1, 4]}, "-1, given for dim 0 of input 'a',"),
    "huge": ({"a": [1 << 63, 4]}, "a size from 0 to 4611686018427387904"),
    "nothing": ({"a": [None, 4]}, "None, given for dim 0 of input 'a',"),
}


@pytest.mark.parametrize("case", BAD_SHAPES)
def test_bad_shapes(pair: onnx.ModelProto, case: str) -> None:
    shapes, message = BAD_SHAPES[case]
    with pytest.raises(errors.ShapesError, match=message):
        tilewright.compile(pair, shapes=shapes)


def test_another_target_is_saved_but_not_run(pair: onnx.ModelProto, tmp_path: Path) -> None:
    foreign = tilewright.compile(pair, target="aarch64")
    assert foreign.inputs[0].name == "a" and foreign.manifest["target"]["arch"] == "aarch64"
    with pytest.raises(errors.TargetMismatchError, match="is for 'aarch64'"):
        foreign.run(feeds(2))
    foreign.save(tmp_path / "foreign.tw")
    with pytest.raises(errors.TargetMismatchError):
        tilewright.load(tmp_path / "foreign.tw")


def test_generic_target_warns(pair: onnx.ModelProto, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "tilewright"):
        model = tilewright.compile(pair, target="x86-64")
    assert "Target 'x86-64' is generic" in caplog.text
    assert model.manifest["target"]["features"] == []


@pytest.mark.parametrize("target", ["x86", "x86-64-v9", "aarch64-v2", "native+avx", ""])
def test_unknown_target(pair: onnx.ModelProto, target: str) -> None:
    with pytest.raises(errors.TargetError, match="is not understood"):
        tilewright.compile(pair, target=target)


def test_options(pair: onnx.ModelProto, tmp_path: Path) -> None:
    options = tilewright.CompileOptions("strict", verify=True, dump_ir=tmp_path / "ir", cache=False)
    phases: list[str] = []
    model = tilewright.compile(
        pair, options=options, progress=lambda phase, done, of: phases.append(phase)
    )
    assert model.manifest["numerics"] == "strict"
    assert phases and (tmp_path / "ir" / "host.ir").exists()
    assert model.report is not None and {name for name, _ in model.report.phases} >= {"import"}
    with pytest.raises(errors.PassError, match="'sloppy' is unknown"):
        tilewright.compile(pair, options=tilewright.CompileOptions("sloppy"))
    with pytest.raises(errors.PassError, match="There is no pass called 'no-such'"):
        tilewright.compile(pair, options=tilewright.CompileOptions(disabled=frozenset({"no-such"})))


def test_unsupported_operators_are_listed(unsupported: onnx.ModelProto) -> None:
    with pytest.raises(errors.UnsupportedOperatorError, match=r"Zap .*Zip ") as caught:
        tilewright.compile(unsupported)
    assert len(caught.value.operators) == 2


@pytest.mark.parametrize("source", [b"", b"\x08\x07not a model", 3, None, "missing.onnx"])
def test_what_is_no_model(source: object) -> None:
    with pytest.raises(errors.FrontendError):
        tilewright.compile(source)  # type: ignore[arg-type]


def test_a_model_that_is_not_compiled_yet(tmp_path: Path, pair: onnx.ModelProto) -> None:
    for name, hint in (("x.onnx", True), ("x.tw", True), ("y.tw", False)):
        path = tmp_path / name
        path.write_bytes(pair.SerializeToString() if hint else b"text")
        for read in (tilewright.load, tilewright.model.read_manifest):
            with pytest.raises(errors.ArtifactError) as caught:
                read(path)
            text = str(caught.value)
            assert text.startswith(f"File '{path}' is not a Tilewright artifact.")
            assert ("compile it first" in text) == hint


def test_what_is_accepted_is_said(pair: onnx.ModelProto) -> None:
    with pytest.raises(errors.FrontendError, match=r"as a path, as bytes .* of type 'NoneType'"):
        tilewright.compile(None)  # type: ignore[arg-type]
    with pytest.raises(errors.TargetError, match="of type 'int', but must be a text such"):
        tilewright.compile(pair, target=3)  # type: ignore[arg-type]
    with pytest.raises(errors.OptionError, match="of type 'str', but must be CompileOptions, or"):
        tilewright.compile(pair, options="strict")  # type: ignore[arg-type]
    with pytest.raises(errors.OptionError, match=r"'numeric' is no .* Did you mean 'numerics'\?"):
        tilewright.compile(pair, options={"numeric": "strict"})


def test_options_as_a_mapping(pair: onnx.ModelProto) -> None:
    model = tilewright.compile(pair, options={"numerics": "strict"})
    assert model.manifest["numerics"] == "strict"


def test_options_that_are_paths_may_be_texts(
    pair: onnx.ModelProto, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    options = {"dump_ir": "ir", "cache_dir": "kept", "records": tmp_path / "r", "disabled": []}
    tilewright.compile(pair, options=options)
    assert (tmp_path / "ir" / "host.ir").exists() and (tmp_path / "kept").exists()
    made = tilewright.CompileOptions(**options)  # type: ignore[arg-type]
    assert made.dump_ir == Path("ir") and made.disabled == frozenset()


BAD_OPTIONS = {
    "path": ({"dump_ir": 3}, "Option 'dump_ir' has a value of type 'int', but must be a path."),
    "bytes": ({"records": b"r"}, "'records' has a value of type 'bytes', but must be a path."),
    "flag": ({"verify": "yes"}, "'verify' has a value of type 'str', but must be True or False."),
    "text": ({"numerics": None}, "'numerics' has a value of type 'NoneType', but must be a text."),
    "name": ({"disabled": "fuse"}, "type 'str', but must be a collection of texts."),
    "names": ({"disabled": [1]}, "type 'int', but must be a collection of texts."),
}


@pytest.mark.parametrize("case", BAD_OPTIONS)
def test_options_of_another_type(pair: onnx.ModelProto, case: str) -> None:
    given, message = BAD_OPTIONS[case]
    with pytest.raises(errors.OptionError, match=message):
        tilewright.compile(pair, options=given)


def test_what_is_no_artifact(tmp_path: Path, pair_file: Path) -> None:
    whole = pair_file.read_bytes()
    for content in (b"", b"x" * 500, whole[: len(whole) // 2], whole[:-1], whole + b"x"):
        with pytest.raises(errors.ArtifactError):
            tilewright.load(content)
        path = tmp_path / "damaged.tw"
        path.write_bytes(content)
        with pytest.raises(errors.ArtifactError):
            tilewright.load(path)
    with pytest.raises(errors.ReadError, match="no such file"):
        tilewright.load(tmp_path / "missing.tw")
    with pytest.raises(errors.InputError, match="not from something of type 'int'"):
        tilewright.load(3)  # type: ignore[arg-type]


KIND = {"shape": (2, 4), "typestr": "<f4", "version": 3}


class Interface:
    """Something that is an array by its own word only."""

    def __init__(self, **fields: Any) -> None:
        self.__array_interface__ = fields


class BrokenCapsule:
    """DLPack's methods, of a wrong kind."""

    __dlpack__ = __dlpack_device__ = None


def released() -> memoryview:
    view = memoryview(bytes(32))
    view.release()
    return view


@pytest.mark.parametrize("path", [None, 5, "a\0b"])
def test_what_is_no_path(pair_model: tilewright.CompiledModel, pair_file: Path, path: Any) -> None:
    for model in (pair_model, tilewright.load(pair_file)):
        with pytest.raises(errors.ArgumentError, match=r"named by a path|NUL character"):
            model.save(path)


def test_models_are_neither_copied_nor_pickled(
    pair_file: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    session = tilewright.InferenceSession(pair_file)
    for model in (session, session.model, session.model._model):
        for way in (copy.copy, copy.deepcopy, pickle.dumps):
            if model is session and way is copy.copy:
                continue  # which shares the model
            with pytest.raises(errors.CopyError, match=r"neither copied nor pickled.* load it"):
                way(model)
            with pytest.raises(TypeError):
                way(model)
    gc.collect()
    assert capfd.readouterr().err == ""
    session.model.run(feeds(2))


BAD_FEEDS = {
    "renamed": ({"a": np.zeros((2, 4), np.float32), "b_0": np.zeros(1)}, r"'b_0' is no .*'b/0'\?"),
    "no mapping": (
        np.zeros((2, 4), np.float32),
        "from names to arrays, not as something of type 'ndarray'",
    ),
    "missing": ({"a": np.zeros((2, 4), np.float32)}, "Input 'b/0' is missing"),
    "extra": (feeds(2) | {"c": np.zeros(1)}, "'c' is no input"),
    "dtype": (feeds(2) | {"a": np.zeros((2, 4))}, "Input 'a' is float64"),
    "rank": (feeds(2) | {"a": np.zeros((8,), np.float32)}, "Input 'a' has rank 1"),
    "extent": (feeds(2) | {"a": np.zeros((2, 5), np.float32)}, "'a'"),
    "unequal": (feeds(2) | {"a": np.zeros((3, 4), np.float32)}, "'b/0'"),
    "object": (feeds(2) | {"a": np.zeros((2, 4), object)}, "Input 'a' is object"),
    "interface": (feeds(2) | {"a": Interface(shape=(2, 4))}, "'a' .* through its __array_interf"),
    "null": (feeds(2) | {"a": Interface(data=(0, False), **KIND)}, "'a' .* its __array_interface"),
    "dlpack": (feeds(2) | {"a": BrokenCapsule()}, "Input 'a' cannot be read through DLPack"),
    "released": (feeds(2) | {"a": released()}, "Input 'a' is of type 'memoryview'"),
    "list": (feeds(2) | {"a": [[0.0] * 4] * 2}, "of type 'list'"),
}


@pytest.mark.parametrize("case", BAD_FEEDS)
def test_bad_feeds(pair_model: tilewright.CompiledModel, case: str) -> None:
    given, message = BAD_FEEDS[case]
    with pytest.raises(errors.InputError, match=message):
        pair_model.run(given)
    pair_model.run(feeds(2))  # the model still works


@pytest.mark.parametrize("threads", [1, 256, np.int64(3)])
def test_threads_within_the_range(pair_file: Path, threads: int) -> None:
    assert [p.name for p in tilewright.load(pair_file, threads=threads).inputs] == ["a", "b/0"]


@pytest.mark.parametrize("threads", [0, -1, 257, 1000, "2", 1.5, True])
def test_threads_out_of_range(pair_file: Path, pair: onnx.ModelProto, threads: int) -> None:
    for make in (tilewright.load, tilewright.compile):
        with pytest.raises(errors.ArgumentError, match=f"The number of threads is {threads!r}, "):
            make(pair_file if make is tilewright.load else pair, threads=threads)


def test_same_bits_from_many_threads(digits_file: Path, images: np.ndarray) -> None:
    expected = tilewright.load(digits_file, threads=1)(images)
    model = tilewright.load(digits_file, threads=2)
    wrong: list[int] = []

    def work() -> None:
        for turn in range(20):
            if not np.array_equal(model(images), expected):
                wrong.append(turn)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_profile_names_the_origins(
    pair_model: tilewright.CompiledModel, digits: tilewright.CompiledModel, images: np.ndarray
) -> None:
    outputs, kernels = digits.run_profiled({"image": images})
    assert outputs["logits"].shape == (20, 10)
    assert len(kernels) == len(digits.manifest["kernels"])
    assert any("layer0.conv" in kernel.origin for kernel in kernels)
    assert all(kernel.end_ns >= kernel.begin_ns for kernel in kernels)
