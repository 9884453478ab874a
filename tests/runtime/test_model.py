# SPDX-License-Identifier: Apache-2.0
"""Models from Python: feeds of all kinds, outputs, errors, threads, fork."""

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tilewright.codegen.artifact import DefaultInfo, PortInfo, SymbolInfo
from tilewright.runtime import KernelTime, dtypes, load
from tilewright.runtime.errors import (
    ArgumentError,
    IndexFaultError,
    InputError,
    ModelError,
    OutOfMemoryError,
    ReadError,
    RunError,
)

Make = Callable[..., bytes]
F32 = np.float32

SUM = {
    "entry": "host_sum",
    "inputs": (PortInfo("x", "float32", ("rows", 64)),),
    "outputs": (PortInfo("y", "float32", (1,)),),
    "constants": (F32(0.5),),
    "symbols": (SymbolInfo("rows"),),
}
TWO = {
    "entry": "host_two",
    "inputs": (PortInfo("a", "float32", ("n",)), PortInfo("b", "float32", ("n",))),
    "outputs": (PortInfo("y", "float32", ("n",)), PortInfo("z", "float32", ("n",))),
}
UNKNOWN = {"outputs": (PortInfo("y", "float32", ("nonzero(x)",)),), "entry": "host_nonzero"}


def test_ports_and_run(make: Make, tmp_path: Path) -> None:
    path = tmp_path / "model.tw"
    path.write_bytes(make())
    for model in (load(path), load(str(path), threads=1), load(path, check_constants=False)):
        assert [(p.name, p.dtype, p.shape) for p in model.inputs] == [("x", "float32", ("n",))]
        assert model.manifest["kernels"][0]["origin"] == "Copy_0"
        assert repr(model) == "<Model (x: float32['n']) -> (y: float32['n'])>"
        x = np.arange(100, dtype=F32)
        y = model.run({"x": x})["y"]
        assert np.array_equal(x, y) and y.flags.owndata and y.flags.writeable
        assert np.array_equal(model(x), x) and np.array_equal(model(x=x), x)


def test_changing_shapes(make: Make) -> None:
    model = load(make())
    for n in (3, 0, 1000, 1, 3):
        x = np.arange(n, dtype=F32)
        assert np.array_equal(model.run({"x": x})["y"], x)


def test_rank_zero(make: Make) -> None:
    port = PortInfo("x", "float32", ())
    model = load(make(inputs=(port,), outputs=(PortInfo("y", "float32", ()),)))
    assert model(np.array(2.5, F32)) == 2.5 and model(F32(1.5)) == 1.5


class Interface:
    """An object that has only ``__array_interface__``."""

    def __init__(self, array: Any) -> None:
        self.array = array
        self.__array_interface__ = array.__array_interface__


class Capsule:
    """An object that has only DLPack's methods."""

    def __init__(self, array: Any, device: int = 1) -> None:
        self.array, self.device = array, device

    def __repr__(self) -> str:
        return f"Capsule({self.array.shape}, {self.device})"  # in names of tests: without address

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device, 0


def read_only(array: Any) -> Any:
    array.flags.writeable = False
    return array


def unaligned(array: Any) -> Any:
    raw = np.zeros(array.nbytes + 1, np.uint8)[1:]
    raw[:] = array.view(np.uint8)
    return raw.view(array.dtype)


FEEDS: dict[str, Callable[[Any], Any]] = {
    "strided": lambda x: np.repeat(x, 3)[::3],
    "reversed": lambda x: x[::-1].copy()[::-1],
    "read-only": read_only,
    "big-endian": lambda x: x.astype(">f4"),
    "unaligned": unaligned,
    "subclass": lambda x: x.view(np.recarray),
    "interface": Interface,
    "dlpack": Capsule,
    "memoryview": memoryview,
    "bytes of floats": lambda x: memoryview(x.tobytes()).cast("f"),
}


@pytest.mark.parametrize("n", [0, 1, 50])
@pytest.mark.parametrize("kind", FEEDS)
def test_feeds(make: Make, kind: str, n: int) -> None:
    x = np.arange(n, dtype=F32)
    if kind == "bytes of floats" and not n:
        pytest.skip("an empty memoryview cannot be cast")
    assert np.array_equal(load(make())(FEEDS[kind](x.copy())), x)


def test_the_program_of_a_call_is_by_what_it_replaces(make: Make) -> None:
    """The second program fails in its kernel: it runs if no default is replaced, and only then."""
    x = PortInfo("x", "float32", ("n",), DefaultInfo(0, (8,)))
    data = np.ones(8, F32)
    for entry, other, given in (
        ("host_copy", "host_kernel_fails", True),
        ("host_kernel_fails", "host_copy", False),
    ):
        made = make(entry, inputs=(x,), constants=(data.tobytes(),), defaults_entry=other)
        model = load(made)
        for _ in range(2):
            np.testing.assert_array_equal(model.run({"x": data} if given else {})["y"], data)
            with pytest.raises(RunError):
                model.run({} if given else {"x": data})


def test_two_dimensional_orders(make: Make) -> None:
    shape = ("n", 3)
    ports = (PortInfo("x", "float32", shape),), (PortInfo("y", "float32", shape),)
    model = load(make(inputs=ports[0], outputs=ports[1]))
    x = np.arange(12, dtype=F32).reshape(4, 3)
    assert np.array_equal(model(np.asfortranarray(x)), x)
    assert np.array_equal(model(x.T.copy().T), x)


DTYPES = "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 complex64"
EXTENSIONS = "bfloat16 float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz int4 uint4"


@pytest.mark.parametrize("name", f"{DTYPES} complex128 {EXTENSIONS}".split())
def test_dtypes(make: Make, name: str) -> None:
    if name in EXTENSIONS.split():
        dtype = np.dtype(getattr(pytest.importorskip("ml_dtypes"), name))
    else:
        dtype = np.dtype(name)
    ports = (PortInfo("x", name, ("n",)),), (PortInfo("y", name, ("n",)),)
    size = np.int64(dtype.itemsize)
    model = load(make("host_bytes", inputs=ports[0], outputs=ports[1], constants=(size,)))
    for values in ([], [1], [0, 1, 1, 0, 1]):
        x = np.array(values).astype(dtype)
        y = model(x)
        assert y.dtype == dtype and np.array_equal(x, y)


def test_sizes_of_dtypes_are_those_of_numpy() -> None:
    pytest.importorskip("ml_dtypes")
    for row in dtypes.DTYPES:
        assert (row.itemsize, row.alignment) == (row.numpy.itemsize, row.numpy.alignment)


ERRORS: list[tuple[dict[str, Any], str]] = [
    ({}, "Input 'x' is missing."),
    ({"y": 1}, "'y' is no input: the model's inputs are 'x'."),
    ({"x": np.zeros(2, F32), "z": 1}, "'z' is no input: the model's inputs are 'x'."),
    ({"x": np.zeros(2)}, "Input 'x' is float64, but the model expects float32."),
    ({"x": np.zeros(2, ">f8")}, "Input 'x' is >f8, but the model expects float32."),
    ({"x": np.zeros((2, 2), F32)}, "Input 'x' has rank 2, but the model expects rank 1."),
    ({"x": F32(1)}, "Input 'x' has rank 0, but the model expects rank 1."),
    ({"x": np.zeros(9, F32)}, "Dim 0 of input 'x' is 9, but 'n' must be from 2 to 8."),
    ({"x": np.zeros(5, F32)}, "Dim 0 of input 'x' is 5, but 'n' must be a multiple of 2."),
    ({"x": [1.0]}, "Input 'x' is of type 'list', but must be an array."),
    ({"x": None}, "Input 'x' is of type 'NoneType', but must be an array."),
    ({"x": np.array(["a"], object)}, "Input 'x' is object, but the model expects float32."),
    ({"x": np.ma.zeros(2)}, "Input 'x' is a masked array: fill it first."),
    ({"x": Capsule(np.zeros(2, F32), 2)}, "Input 'x' is on DLPack device type 2, but must be in "
     "the CPU's memory."),
]  # fmt: skip


@pytest.mark.parametrize(("feeds", "message"), ERRORS, ids=lambda value: str(value)[:40])
def test_feed_errors(make: Make, feeds: dict[str, Any], message: str) -> None:
    model = load(make(symbols=(SymbolInfo("n", 2, 8, 2),)))
    with pytest.raises(InputError) as caught:
        model.run(feeds)
    assert str(caught.value) == message
    x = np.arange(4, dtype=F32)  # the context is as good as before
    assert np.array_equal(model(x), x)


def test_symbol_bound_twice(make: Make) -> None:
    model = load(make(**TWO))
    with pytest.raises(InputError, match=r"^Dim 0 of input 'b' is 3, but 'n' is 2 elsewhere in "):
        model(np.zeros(2, F32), np.zeros(3, F32))
    with pytest.raises(InputError, match="The inputs 'a', 'b' are missing"):
        model()
    with pytest.raises(InputError, match="has 3 arrays, but the model has 2 inputs"):
        model(1, 2, 3)


def test_fixed_extent(make: Make) -> None:
    ports = (PortInfo("x", "float32", (4,)),), (PortInfo("y", "float32", (4,)),)
    model = load(make(inputs=ports[0], outputs=ports[1]))
    with pytest.raises(InputError, match="Dim 0 of input 'x' is 3, but the model expects 4"):
        model(np.zeros(3, F32))


def test_outputs_of_unknown_size(make: Make) -> None:
    model = load(make(**UNKNOWN))
    for values in ([0, 1, 0, 2], [1, 1, 1, 1], [0, 0, 0, 3], [], [0, 0], [5.5] * 999):
        x = np.array(values, F32)
        y = model(x)
        assert np.array_equal(y, x[x != 0]) and y.flags.owndata


def test_an_output_of_unknown_size_for_which_there_is_no_memory(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, x = load(make(**UNKNOWN)), np.ones(9, F32)

    def refuse(shape: tuple[int, ...], dtype: Any) -> None:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr("tilewright.runtime.context.np.empty", refuse)
        with pytest.raises(OutOfMemoryError, match=r"output 'y' .* shape \(9,\).* takes 36 bytes"):
            model(x)
    assert np.array_equal(model(x), x)


def test_supplied_outputs(make: Make) -> None:
    model = load(make(**TWO))
    a, b, y = np.arange(5, dtype=F32), np.ones(5, F32), np.empty(5, F32)
    for out in ({"y": y}, {}, {"y": y}):
        results = model.run({"a": a, "b": b}, out=out)
        assert list(results) == ["y", "z"]
        assert np.array_equal(results["y"], a + b) and np.array_equal(results["z"], a - b)
        assert (results["y"] is y) == bool(out)
    assert list(model.run({"a": a, "b": b}, out={"z": y})) == ["y", "z"]
    unknown = load(make(**UNKNOWN))
    assert unknown.run({"x": a}, out={"y": y[:4]})["y"].base is y
    assert np.array_equal(y[:4], a[1:]) and np.array_equal(unknown(a), a[1:])


@pytest.mark.parametrize(
    ("out", "message"),
    [
        (np.zeros(4, F32), "Output 'y' has the shape [5], but the memory supplied for it has the "
         "shape [4]."),
        (np.zeros((5, 1), F32), "The array for output 'y' has rank 2, but the model expects rank "
         "1."),
        (np.zeros(5), "Output 'y' is float32, but its array is float64."),
        (np.zeros(10, F32)[::2], "The array for output 'y' must be contiguous, aligned and "
         "writable."),
        (read_only(np.zeros(5, F32)), "The array for output 'y' must be contiguous, aligned and "
         "writable."),
        ([0.0], "Output 'y' is to be written to something of type 'list', but must be to an "
         "array."),
    ],
)  # fmt: skip
def test_supplied_output_errors(make: Make, out: Any, message: str) -> None:
    model = load(make(**TWO))
    a = np.arange(5, dtype=F32)
    with pytest.raises(InputError) as caught:
        model.run({"a": a, "b": a}, out={"y": out})
    assert str(caught.value) == message
    assert np.array_equal(model(a, a)[0], a + a)


def test_supplied_outputs_are_a_mapping(make: Make) -> None:
    model = load(make(**TWO))
    a = np.arange(5, dtype=F32)
    for out in ([a.copy()], a.copy(), "y"):
        message = f"from names to arrays, not as something of type '{type(out).__name__}'"
        with pytest.raises(InputError, match=message):
            model.run({"a": a, "b": a}, out=out)
    assert np.array_equal(model(a, a)[0], a + a)


def test_overlapping_outputs(make: Make) -> None:
    model = load(make(**TWO))
    both = np.zeros(9, F32)
    a = np.arange(5, dtype=F32)
    with pytest.raises(InputError, match="The memory of output 'y' overlaps input 'a'"):
        model.run({"a": a, "b": a.copy()}, out={"y": a})
    with pytest.raises(InputError, match="The memory of output 'z' overlaps output 'y'"):
        model.run({"a": a, "b": a}, out={"y": both[:5], "z": both[4:]})
    with pytest.raises(InputError, match="'w' is no output"):
        model.run({"a": a, "b": a}, out={"w": both})


def test_kernel_failure(make: Make) -> None:
    for threads in (1, 2):
        model = load(make("host_kernel_fails"), threads=threads)
        with pytest.raises(ModelError) as caught:
            model(np.zeros(64, F32))
        assert str(caught.value) == "Kernel 'k_fails' of 'Broken_1' failed with status 7."
        model(np.zeros(2, F32))


def test_failure_messages(make: Make) -> None:
    model = load(make("host_fails"))
    with pytest.raises(ModelError) as model_error:
        model(F32([0]))
    assert str(model_error.value) == "Value 42 is not -7, says '42', {2}."
    with pytest.raises(InputError) as input_error:
        model(F32([1]))
    assert str(input_error.value) == "Only -7."
    with pytest.raises(IndexFaultError, match=r"^Only -7\.$") as index_error:
        model(F32([-1]))
    assert isinstance(index_error.value, IndexError)
    with pytest.raises(ModelError, match="The model stopped with status 5"):
        model(F32([2]))
    with pytest.raises(InputError, match="The model stopped with message number 3"):
        model(F32([3]))


BAD_OUTPUTS = [
    (0, ModelError, "The model asked for output 1 of 1."),
    (1, ModelError, "The model asked for output -1 of 1."),
    (2, ModelError, "output 'y' has the shape [1, 1, 1], which is not possible."),
    (3, ModelError, "output 'y' has the shape [-4], which is not possible."),
    (4, ModelError, "output 'y' has the shape [4611686018427387903], which is not possible."),
    (5, ModelError, "which is not possible."),
    (6, OutOfMemoryError, "Out of memory: the model needs -1 bytes of arena."),
    (7, OutOfMemoryError, "Out of memory: the model needs 9223372036854775807 bytes of arena."),
    (8, ModelError, "The model launched kernel 0 with -3 tasks."),
    (9, ModelError, "The model did not provide its output 'y'."),
    (
        10,
        OutOfMemoryError,
        "kernel 'k_copy' needs 9223372036854775807 bytes of workspace a thread.",
    ),
]


@pytest.mark.parametrize(("choice", "error", "message"), BAD_OUTPUTS)
def test_services_refuse(make: Make, choice: int, error: type[RunError], message: str) -> None:
    model = load(make("host_bad_output", outputs=(PortInfo("y", "float32", ("m",)),)))
    with pytest.raises(error) as caught:
        model(F32([choice]))
    assert str(caught.value).endswith(message)


def test_same_bits_for_all_thread_counts(make: Make) -> None:
    x = np.random.default_rng(0).standard_normal((333, 64)).astype(F32)
    results = {
        load(make(**SUM), threads=threads)(x).tobytes()
        for threads in (1, 2, 3, 8)
        for _ in range(20)
    }
    assert len(results) == 1
    assert np.frombuffer(results.pop(), F32)[0] == pytest.approx((x**2).sum() / 2, rel=1e-5)


def test_concurrent_runs(make: Make) -> None:
    model = load(make(**SUM), threads=2)
    feeds = [np.full((50 + i, 64), i, F32) for i in range(8)]
    expected = [model(x).tobytes() for x in feeds]
    wrong: list[int] = []

    def work(index: int) -> None:
        for _ in range(200):
            if model(feeds[index]).tobytes() != expected[index]:
                wrong.append(index)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_fork(make: Make) -> None:
    model = load(make(**SUM), threads=2)
    x = np.ones((200, 64), F32)
    expected = model(x)
    child = os.fork()
    if not child:  # the pool's threads are gone here, and come anew
        good = all(np.array_equal(model(x), expected) for _ in range(50))
        os._exit(0 if good else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert np.array_equal(model(x), expected)


def test_profile(make: Make) -> None:
    model = load(make())
    x = np.arange(3, dtype=F32)
    results, times = model.run_profiled({"x": x})
    assert np.array_equal(results["y"], x)
    assert [(t.name, t.origin, t.tasks) for t in times] == [("k_copy", "Copy_0", 3)]
    assert isinstance(times[0], KernelTime) and times[0].end_ns >= times[0].begin_ns


def test_reentrant_run(make: Make) -> None:
    """A run during a run on the same thread (as from a signal handler) takes another context."""
    model = load(make())

    class Nested(dict[str, Any]):
        def __getitem__(self, key: str) -> Any:
            assert model(np.zeros(7, F32)).shape == (7,)
            return super().__getitem__(key)

    assert np.array_equal(model.run(Nested(x=np.ones(3, F32)))["y"], np.ones(3, F32))


def test_load_errors(make: Make, tmp_path: Path) -> None:
    with pytest.raises(ReadError, match=r"cannot be opened: there is no such file\.$"):
        load(tmp_path / "none.tw")
    with pytest.raises(ReadError, match=r"it is not a regular file\.$"):
        load(tmp_path)
    with pytest.raises(ArgumentError, match="NUL"):
        load("a\0b")
    for threads in (0, -1, 257):
        with pytest.raises(ArgumentError, match="must be an integer from 1 to 256"):
            load(make(), threads=threads)


def test_model_may_go_before_its_results(make: Make) -> None:
    y = load(make())(np.arange(1000, dtype=F32))
    assert y[-1] == 999
