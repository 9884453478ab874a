# SPDX-License-Identifier: Apache-2.0
"""Loading and running compiled models from Python.

    model = load("model.tw")
    result = model.run({"x": array})["y"]

A model may be used from many threads at once: each run takes a context that is free, or makes one.
"""

import ctypes
import json
import os
from collections.abc import Mapping
from ctypes import POINTER, c_char_p, c_size_t, c_void_p
from dataclasses import dataclass
from mmap import mmap
from typing import Any, NoReturn, SupportsIndex

import numpy as np

from tilewright.runtime import library
from tilewright.runtime.arrays import Array, address
from tilewright.runtime.artifact import of_file
from tilewright.runtime.context import Context, Port
from tilewright.runtime.dtypes import BY_CODE, DType
from tilewright.runtime.errors import ArgumentError, ArtifactError, CopyError, InputError

_MAX_THREADS = 256


@dataclass(frozen=True)
class KernelTime:
    """One kernel of a profiled run: symbol, origin in the model, monotonic times, tasks."""

    name: str
    origin: str
    begin_ns: int
    end_ns: int
    tasks: int


def _read_ports(count: int, get: Any, model: int) -> tuple[list[Port], list[DType]]:
    ports, dtypes = [], []
    for index in range(count):
        pointer = POINTER(library.PortStruct)()
        library.check(get(model, index, ctypes.byref(pointer)))
        port = pointer.contents
        shape = tuple(
            port.extents[axis] if port.extents[axis] >= 0 else port.dims[axis].decode()
            for axis in range(port.rank)
        )
        dtypes.append(BY_CODE[port.dtype])
        default = tuple(port.default_extents[: port.rank]) if port.default_extents else None
        ports.append(Port(port.name.decode(), dtypes[-1].name, shape, default))
    return ports, dtypes


def _check_names(ports: list[Port], what: str) -> None:
    names = [port.name for port in ports]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"The model has more than one {what} '{name}'.")


class Model:
    """A loaded model; made by :func:`load`.

    ``inputs`` and ``outputs`` list its ports, each with ``name``, ``dtype`` and ``shape``.
    """

    _handle: int | None = None  # before it is opened, and once it is closed

    def __init__(self, handle: int, threads: int, memory: Any = None) -> None:
        self._handle = handle
        lib = library.open_library()
        self._memory = memory  # holds the constants that the model uses in place
        self._close = lib.tw_model_close
        self._threads = threads
        self._free: list[Context] = []  # contexts that no thread is using
        self._contexts: list[Context] = []  # all of them
        inputs, input_dtypes = _read_ports(
            lib.tw_model_input_count(handle), lib.tw_model_input, handle
        )
        outputs, output_dtypes = _read_ports(
            lib.tw_model_output_count(handle), lib.tw_model_output, handle
        )
        _check_names(inputs, "input")
        _check_names(outputs, "output")
        self.inputs: list[Port] = inputs
        self.outputs: list[Port] = outputs
        self._dtypes = (input_dtypes, output_dtypes)

    def __del__(self) -> None:
        handle, self._handle = self._handle, None
        if handle:
            self._close(handle)

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise CopyError("A loaded model is neither copied nor pickled: load it where it is needed.")

    def __repr__(self) -> str:
        def text(ports: list[Port]) -> str:
            return ", ".join(f"{p.name}: {p.dtype}{list(p.shape)}" for p in ports)

        return f"<Model ({text(self.inputs)}) -> ({text(self.outputs)})>"

    @property
    def manifest(self) -> dict[str, Any]:
        """The artifact's manifest as decoded JSON."""
        text, size = c_void_p(), c_size_t()
        lib = library.open_library()
        library.check(lib.tw_model_manifest(self._handle, ctypes.byref(text), ctypes.byref(size)))
        decoded: dict[str, Any] = json.loads(ctypes.string_at(text.value or 0, size.value))
        return decoded

    def _take_context(self) -> Context:
        """A context that nobody uses; the caller puts it back into ``_free``."""
        try:
            return self._free.pop()
        except IndexError:
            assert self._handle is not None
            context = Context(self._handle, self.inputs, self.outputs, self._dtypes, self._threads)
            self._contexts.append(context)
            return context

    def cancel(self) -> None:
        """Ends all runs in progress, from any thread: they raise CancelledError."""
        for context in list(self._contexts):
            context.cancel()

    def run(
        self, feeds: Mapping[str, Any], out: Mapping[str, Array] | None = None
    ) -> dict[str, Array]:
        """Runs the model once and returns its outputs by name.

        ``feeds`` holds one array for each input (those with a default may be left out): numpy,
        ``__array_interface__``, DLPack or a buffer, of the input's dtype and shape. Contiguous
        arrays are read in place, others copied. The results own their memory; ``out`` may supply
        arrays to write outputs to instead, which must not overlap inputs. Signals are handled
        meanwhile: what a handler raises, as Ctrl-C does, ends the run. Raises InputError for feeds
        or ``out`` that do not fit, ModelError and OutOfMemoryError for a run that fails,
        CancelledError for one that is cancelled.
        """
        context = self._take_context()
        try:
            return context.run(feeds, out)
        finally:
            self._free.append(context)

    def __call__(self, *arrays: Any, **named: Any) -> Any:
        """Runs the model on arrays in the order of its inputs, or by name.

        Returns the output, or a tuple of them if there is not exactly one.
        """
        if len(arrays) > len(self.inputs):
            count = len(self.inputs)
            raise InputError(
                f"The call has {len(arrays)} arrays, but the model has {count} "
                f"input{'' if count == 1 else 's'}."
            )
        feeds = {port.name: array for port, array in zip(self.inputs, arrays)}
        for name, array in named.items():
            if name in feeds:
                raise InputError(f"Input '{name}' is given twice.")
            feeds[name] = array
        results = tuple(self.run(feeds).values())
        return results[0] if len(results) == 1 else results

    def run_profiled(self, feeds: Mapping[str, Any]) -> tuple[dict[str, Array], list[KernelTime]]:
        """Runs once and tells how long each kernel took, in the order of their launches.

        Every kernel goes through the runtime's launch then, so small models run slower than usual.
        """
        times: list[tuple[int, int, int, int]] = []
        context = self._take_context()
        try:
            context.profile(lambda *row: times.append(row))
            results = context.run(feeds, None)
        finally:
            context.profile(None)
            self._free.append(context)
        return results, [self._kernel_time(*row) for row in times]

    def _kernel_time(self, kernel: int, begin: int, end: int, tasks: int) -> KernelTime:
        name, origin = c_char_p(), c_char_p()
        lib = library.open_library()
        library.check(
            lib.tw_model_kernel(self._handle, kernel, ctypes.byref(name), ctypes.byref(origin))
        )
        return KernelTime(
            (name.value or b"").decode(), (origin.value or b"").decode(), begin, end, tasks
        )


def check_threads(threads: int | None) -> None:
    """ArgumentError unless this bounds the threads of a run."""
    if threads is None:
        return
    whole = isinstance(threads, int | np.integer) and not isinstance(threads, bool)
    if not whole or not 1 <= threads <= _MAX_THREADS:
        raise ArgumentError(
            f"The number of threads is {threads!r}, but must be an integer from 1 to "
            f"{_MAX_THREADS}."
        )


def load(
    source: str | os.PathLike[str] | bytes | bytearray | memoryview | mmap,
    threads: int | None = None,
    check_constants: bool = True,
    copy: bool = False,
) -> Model:
    """Loads an artifact from a file, or from its bytes.

    ``threads`` bounds the threads of a run (None: ``default_threads()``). ``check_constants=False``
    skips the checksum of the constants, and so their reading. The constants of an ``mmap`` are used
    in place, as are large ones of a file unless ``copy`` is set: neither may change while the model
    lives, and a run whose file has changed is an ArtifactError; those of other bytes are copied. An
    artifact is code: load only what you would run. Raises ArtifactError for a damaged one,
    TargetMismatchError for one that is for another processor, ReadError for a file that cannot be
    read.
    """
    check_threads(threads)
    if threads is None:
        library.default_threads()  # a wrong environment fails now, and not at the first run
    lib = library.open_library()
    flags = 0 if check_constants else library.SKIP_CONSTANTS_CHECK
    flags |= library.COPY_CONSTANTS if copy else 0
    options = library.OpenOptions(ctypes.sizeof(library.OpenOptions), flags)
    handle = c_void_p()
    memory = None
    if isinstance(source, mmap):
        memory = np.frombuffer(source, np.uint8)  # an export: the map cannot be closed meanwhile
        options.flags |= library.BORROW_CONSTANTS
        status = lib.tw_model_open_memory(
            address(memory), len(memory), ctypes.byref(options), ctypes.byref(handle)
        )
    elif isinstance(source, bytes | bytearray | memoryview):
        data = bytes(source)
        status = lib.tw_model_open_memory(
            data, len(data), ctypes.byref(options), ctypes.byref(handle)
        )
    else:
        path = os.fsencode(source)
        if b"\0" in path:
            raise ArgumentError("The path holds a NUL character.")
        status = lib.tw_model_open(path, ctypes.byref(options), ctypes.byref(handle))
    try:
        library.check(status)
    except ArtifactError as error:
        if not isinstance(source, str | os.PathLike):
            raise
        raise of_file(error, source) from None
    assert handle.value is not None
    return Model(handle.value, int(threads or 0), memory)
