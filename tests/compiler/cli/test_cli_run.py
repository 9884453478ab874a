# SPDX-License-Identifier: Apache-2.0
"""``tilewright run``."""

import zipfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest

import tilewright
from tests.compiler.cli.conftest import DAMAGED_HEADER, HUGE_ARRAY, npy_header
from tilewright.cli import run as run_module
from tilewright.cli.random_inputs import random_inputs, random_sizes
from tilewright.cli.run import file_names, values_text
from tilewright.model import CompiledModel
from tilewright.runtime import KernelTime
from tilewright.runtime.context import Port
from tilewright.runtime.errors import ArgumentError

Arrays = dict[str, np.ndarray]


@pytest.mark.parametrize("given", [["a=a.npy", "b/0=b.npy"], ["both.npz"]])
def test_inputs_and_outputs(
    call: Any, pair_file: Path, arrays: Arrays, tmp_path: Path, given: list[str]
) -> None:
    options = [item for text in given for item in ("--input", text)]
    result = call("run", pair_file, *options, "--output", "out")
    assert "total: float32[3, 4]" in result.stdout and "written to 'out/part.npy'" in result.stdout
    total = np.load(tmp_path / "out" / "total.npy")
    np.testing.assert_array_equal(total, arrays["a"] + arrays["b/0"])
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["part.npy", "total.npy"]


def test_a_model_is_compiled_first(
    ask: Callable[..., Any], pair_onnx: Path, arrays: Arrays
) -> None:
    shapes = ["--shape", "a=3,4", "--shape", "b/0=3,4"]
    facts = ask("run", pair_onnx, "-i", "both.npz", *shapes, "--numerics", "strict")
    values = np.float32(facts["outputs"]["part"]["values"]).reshape(3, 4)
    np.testing.assert_array_equal(values, arrays["a"] * 2)


def test_random_inputs_follow_the_seed(ask: Callable[..., Any], pair_file: Path) -> None:
    one, same, other = (
        ask("run", pair_file, "--random", "--size", "n=5", "--seed", seed) for seed in (1, 1, 2)
    )
    assert one["outputs"]["total"]["shape"] == [5, 4]
    assert one == same != other


def test_given_inputs_decide_the_size_of_random_ones(
    ask: Callable[..., Any], pair_file: Path, arrays: Arrays
) -> None:
    facts = ask("run", pair_file, "-i", "a=a.npy", "--random")
    assert facts["outputs"]["total"]["shape"] == [3, 4]
    np.testing.assert_array_equal(
        facts["outputs"]["part"]["values"], (arrays["a"] * 2).reshape(-1).astype(float)
    )


def test_repeat_and_profile(
    call: Any, ask: Callable[..., Any], digits_file: Path, images: np.ndarray, tmp_path: Path
) -> None:
    np.save(tmp_path / "images.npy", images)
    arguments = ["run", digits_file, "-i", "image=images.npy", "--repeat", 5, "--profile"]
    text = call(*arguments, "--threads", 1).stdout
    assert "5 runs: median " in text and "layer0.conv" in text
    facts = ask(*arguments)
    times = facts["times"]
    assert times["runs"] == 5 and times["min_ms"] <= times["median_ms"] <= times["max_ms"]
    assert len(facts["kernels"]) == len(tilewright.load(digits_file).manifest["kernels"])


def test_times_are_those_of_the_runs(
    ask: Callable[..., Any], call: Any, pair_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock stands still but in a run of the model."""
    now, real_run = [50.0], CompiledModel.run
    millis = iter([999.0, 7.0, 1.0, 100.0, 2.0, 5.0] * 2)  # the first run is not timed

    def run(self: Any, *arguments: Any, **options: Any) -> Any:
        now[0] += next(millis) / 1e3
        return real_run(self, *arguments, **options)

    monkeypatch.setattr(CompiledModel, "run", run)
    monkeypatch.setattr(run_module, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    times = ask("run", pair_file, "--random", "--repeat", 5)["times"]
    wanted = {"runs": 5, "median_ms": 5, "min_ms": 1, "max_ms": 100, "mean_ms": 23}
    assert times == pytest.approx(wanted)
    text = call("run", pair_file, "--random", "--repeat", 5).stdout
    assert "5 runs: median 5 ms, min 1 ms, max 100 ms, mean 23 ms" in text


def test_profile_is_the_median_of_the_runs(
    ask: Callable[..., Any], call: Any, pair_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def profiled(self: Any, feeds: Any) -> Any:
        begin = 1_000_000
        return {}, [KernelTime("k", "node", begin, begin + 1000 * micros.pop(), 4)]

    monkeypatch.setattr(CompiledModel, "run_profiled", profiled)
    micros = [900, 10, 30, 20, 40]
    facts = ask("run", pair_file, "--random", "--repeat", 5, "--profile")
    assert micros == [] and facts["profiled_runs"] == 5
    row = {"name": "k", "origin": "node", "microseconds": 30.0, "tasks": 4}
    assert facts["kernels"] == [row]
    micros = [900, 10, 30, 20, 40]
    text = call("run", pair_file, "--random", "--repeat", 5, "--profile").stdout
    assert "1 launch takes 0.03 ms: medians of 5 profiled runs" in text
    micros = [7]
    text = call("run", pair_file, "--random", "--profile").stdout
    assert "1 launch takes 0.007 ms: one profiled run" in text


def test_values_that_json_lacks(
    ask: Callable[..., Any], call: Any, pair_file: Path, tmp_path: Path
) -> None:
    a = np.zeros((1, 4), np.float32)
    a[0, :3] = np.nan, np.inf, -np.inf
    np.save(tmp_path / "a.npy", a)
    facts = ask("run", pair_file, "-i", "a=a.npy", "-i", "b/0=a.npy")
    assert facts["outputs"]["part"]["values"] == ["nan", "inf", "-inf", 0.0]
    assert "[[nan, inf, -inf, 0.0]]" in call("run", pair_file, "-i", "a=a.npy", "--random").stdout


def test_no_rows_are_as_good_as_some(
    ask: Callable[..., Any], pair_file: Path, tmp_path: Path
) -> None:
    np.save(tmp_path / "a.npy", np.zeros((0, 4), np.float32))
    facts = ask("run", pair_file, "-i", "a=a.npy", "-i", "b/0=a.npy")
    assert facts["outputs"]["part"]["shape"] == [0, 4]


def test_random_inputs_of_every_kind() -> None:
    kinds = ["BOOL", "INT8", "UINT8", "INT32", "INT64", "FLOAT16", "FLOAT", "DOUBLE"]
    numbers = [getattr(onnx.TensorProto, kind) for kind in kinds]
    infos = [
        [onnx.helper.make_tensor_value_info(f"{x}{n}", n, ["n", 50]) for n in numbers] for x in "xy"
    ]
    nodes = [onnx.helper.make_node("Identity", [f"x{n}"], [f"y{n}"]) for n in numbers]
    graph = onnx.helper.make_graph(nodes, "kinds", *infos)
    opsets = [onnx.helper.make_opsetid("", 18)]
    model = tilewright.compile(onnx.helper.make_model(graph, opset_imports=opsets, ir_version=10))
    found = random_inputs(model, {}, random_sizes(model, {}, {"n": 3}), 0)
    assert [array.shape for array in found.values()] == [(3, 50)] * len(kinds)
    for array in found.values():
        assert len(np.unique(array)) > 1
        if array.dtype.kind in "iu":
            assert array.min() == 0 and array.max() == 1
    for name, array in model.run(found).items():
        np.testing.assert_array_equal(array, found[name.replace("y", "x")])


def test_random_inputs_that_cannot_be(
    call: Any, pair_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    symbols = [{"name": "n", "lo": 0, "hi": 100, "multiple": 1}]
    ports = [Port("x", "float32", ("n - 4", 2))]
    model: Any = SimpleNamespace(manifest={"symbols": symbols}, inputs=ports)
    sizes = random_sizes(model, {}, {"n": 100})
    assert random_inputs(model, {}, sizes, 0)["x"].shape == (96, 2)
    with pytest.raises(ArgumentError, match=r"'n' is 101, but may be at most 100\."):
        random_sizes(model, {}, {"n": 101})
    with pytest.raises(ArgumentError, match=r"'x' would have the shape \[-1, 2\]\. Give larger"):
        random_inputs(model, {}, random_sizes(model, {}, {"n": 3}), 0)

    def exhausted(*arguments: object) -> None:
        raise MemoryError

    monkeypatch.setattr("tilewright.cli.random_inputs._random", exhausted)
    error = call("run", pair_file, "--random", "--size", "n=2147483648", status=1).stderr
    assert "not enough memory for a random input 'a' of shape [2147483648, 4]. Give s" in error


def test_values_have_the_digits_of_their_dtype(call: Any, pair_file: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.float32([[0.1, -1e-7, 16777216, 2]]))
    text = call("run", pair_file, "-i", "a=a.npy", "-i", "b/0=a.npy").stdout
    assert "\n  [[0.2, -2e-07, 3.3554432e+07, 4.0]]\n" in text
    assert values_text(np.array([True, False])) == "[True, False]"
    assert values_text(np.float16(0.1).reshape(())) == "0.1"
    assert values_text(np.array([0.1, 2]).astype(ml_dtypes.bfloat16)) == "[0.100098, 2]"
    assert values_text(np.array([[1 + 2j]], np.complex64)) == "[[(1+2j)]]"


def test_empty_outputs_have_no_line_of_values(call: Any, pair_file: Path) -> None:
    lines = call("run", pair_file, "--random", "--size", "n=0").stdout.splitlines()
    assert lines == ["random inputs of n=0", "total: float32[0, 4]", "part: float32[0, 4]"]


def test_sizes_of_random_inputs_are_told(
    call: Any, ask: Callable[..., Any], pair_file: Path, tmp_path: Path
) -> None:
    """A size that nobody chose is also warned of, with the option that chooses it."""
    guessed = call("run", pair_file, "--random")
    assert guessed.stdout.startswith("random inputs of n=1\n")
    assert "No size is given for 'n': n=1 is taken" in guessed.stderr
    assert "choose with --size n=N." in guessed.stderr
    chosen = call("run", pair_file, "--random", "--size", "n=1")
    assert chosen.stdout.startswith("random inputs of n=1\n") and "Warning" not in chosen.stderr
    assert ask("run", pair_file, "--random", "--size", "n=6")["sizes"] == {"n": 6}
    np.save(tmp_path / "a.npy", np.ones((3, 4), np.float32))
    given = call("run", pair_file, "-i", "a=a.npy", "--random")
    assert "Warning" not in given.stderr and given.stdout.startswith("random inputs of n=3\n")


BAD = {
    "no input": ([], 2, "There is no array for 'a', 'b/0'."),
    "some input": (["-i", "a=a.npy"], 2, "There is no array for 'b/0'."),
    "name": (["-i", "c=a.npy"], 2, "'c' is no input: the model's inputs are 'a', 'b/0'."),
    "rank": (["-i", "both.npz", "-i", "b/0=rank.npy"], 2, "Input 'b/0' is given twice."),
    "wrong rank": (["-i", "a=rank.npy", "--random"], 1, "Input 'a' has rank 1"),
    "wrong extent": (["-i", "a=extent.npy", "--random"], 1, "'a'"),
    "dtype": (["-i", "a=double.npy", "--random"], 1, "Input 'a' is float64"),
    "pickle": (["-i", "a=pickle.npy", "--random"], 1, "is no .npy file of plain arrays"),
    "truncated": (["-i", "a=truncated.npy", "--random"], 1, "is no .npy file of plain arrays"),
    "npz as npy": (["-i", "a=both.npz", "--random"], 1, "is an archive of several arrays"),
    "no npz": (["-i", "text.npz"], 1, "is no .npz file of plain arrays"),
    "header": (["-i", "a=header.npy", "--random"], 1, "is no .npy file of plain arrays"),
    "nesting": (["-i", "a=nesting.npy", "--random"], 1, "is no .npy file of plain arrays"),
    "header in npz": (["-i", "header.npz"], 1, "is no .npz file of plain arrays"),
    "huge": (["-i", "a=huge.npy", "--random"], 1, "'huge.npy' does not fit into the memory"),
    "missing": (["-i", "a=missing.npy"], 1, "'missing.npy' cannot be read: No such file"),
    "form": (["-i", "a.npy"], 2, "Input 'a.npy' is not understood."),
    "size": (["--random", "--size", "n"], 2, "Size 'n' is not understood."),
    "size of given inputs": (["-i", "both.npz", "--size", "n=3"], 2, "or no --size."),
    "size and nothing random": (
        ["-i", "both.npz", "--random", "--size", "n=3"],
        2,
        "--random makes, but all are given.",
    ),
    "too large": (
        ["--random", "--size", "n=3000000000"],
        2,
        "The size of 'n' is 3000000000, but may be at most 2147483648.",
    ),
    "sizes": (["--random", "--size", "n=2,m=3"], 2, "the option once for each dim."),
    "symbol": (["--random", "--size", "m=1"], 2, "'m' is no symbolic dim: the model's are 'n'."),
    "threads": (["--random", "--threads", "0"], 2, "--threads"),
    "shape": (["--random", "--shape", "a=1,4"], 2, "An artifact's shapes are fixed"),
    "size as shape": (
        ["--random", "--shape", "a=1,4"],
        2,
        "of random inputs are set as --size n=1",
    ),
    "nameless dim": (["--shape", "a=?,4"], 2, "a word, as in x=n,16, keeps a dim symbolic."),
    "near name": (["-i", "b0=a.npy"], 2, "are 'a', 'b/0'. Did you mean 'b/0'?"),
    "output": (["--random", "--output", "a.npy"], 1, "'a.npy' is no folder."),
    "unwritable": (["--random", "--output", "/proc/x/y"], 1, "'/proc"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_usage(call: Any, pair_file: Path, arrays: Arrays, tmp_path: Path, case: str) -> None:
    np.save(tmp_path / "rank.npy", np.zeros(4, np.float32))
    np.save(tmp_path / "extent.npy", np.zeros((2, 5), np.float32))
    np.save(tmp_path / "double.npy", np.zeros((2, 4)))
    np.save(tmp_path / "pickle.npy", np.array([{}], object))
    (tmp_path / "truncated.npy").write_bytes((tmp_path / "a.npy").read_bytes()[:-1])
    (tmp_path / "text.npz").write_text("hello")
    (tmp_path / "header.npy").write_bytes(DAMAGED_HEADER)
    (tmp_path / "nesting.npy").write_bytes(npy_header("-" * 60 + "1"))
    (tmp_path / "huge.npy").write_bytes(HUGE_ARRAY)
    with zipfile.ZipFile(tmp_path / "header.npz", "w") as archive:
        archive.writestr("a.npy", DAMAGED_HEADER)
    options, status, message = BAD[case]
    result = call("run", pair_file, *options, status=status)
    assert message in result.stderr and "Traceback" not in result.stderr


def test_bad_artifacts(call: Any, pair_file: Path, foreign_file: Path, tmp_path: Path) -> None:
    whole = pair_file.read_bytes()
    for name, content in {
        "empty": b"",
        "random": bytes(range(256)) * 8,
        "truncated": whole[:-10],
        "flipped": whole[:5000] + bytes([whole[5000] ^ 1]) + whole[5001:],
    }.items():
        (tmp_path / f"{name}.tw").write_bytes(content)
    cases = {
        "empty.tw": ".tw' is not a Tilewright artifact.",
        "random.tw": ".tw' is not a Tilewright artifact.",
        "truncated.tw": "it is incomplete.",
        "flipped.tw": "is damaged",
        "missing.tw": "there is no such file.",
        str(foreign_file): "is for 'aarch64', but this machine is",
    }
    for name, message in cases.items():
        result = call("run", name, "--random", status=1)
        assert message in result.stderr and len(result.stderr.splitlines()) == 1


def test_output_names_stay_in_the_folder() -> None:
    names = ["y", "../../etc/passwd", "/abs", "..", "", "a/b", "a:b", "x\n", "é", "n" * 5000]
    found = file_names(names)
    assert list(found) == names and len(set(found.values())) == len(names)
    for file in found.values():
        assert "/" not in file and not file.startswith(".") and len(file) < 120
    assert found["y"] == "y.npy"


def test_an_index_out_of_range_is_a_failure(call: Any, tmp_path: Path) -> None:
    """Unless it is clamped; the cache of artifacts keeps the two ways apart."""
    text = (
        '<ir_version: 8, opset_import: ["" : 18]> g (float[n] x, int64[m] i) => (float[m] y) '
        "{ [pick] y = Gather(x, i) }"
    )
    onnx.save(onnx.parser.parse_model(text), tmp_path / "pick.onnx")
    np.savez(tmp_path / "in.npz", x=np.float32([4, 5, 6]), i=np.array([1, 3]))
    for options in ([], ["--unchecked-indices"], []):
        call("compile", "pick.onnx", *options)
        done = call("run", "pick.tw", "-i", "in.npz", status=int(not options))
        assert ("[5.0, 6.0]" if options else "'pick': Index 3 (element 1 of") in done.output
        shown = call("inspect", "pick.tw").stdout
        assert f"indices   {'clamped' if options else 'checked'}" in shown
    assert "[5.0, 6.0]" in call("run", "pick.onnx", "-i", "in.npz", "--unchecked-indices").output
