# SPDX-License-Identifier: Apache-2.0
"""One context of the C runtime, with the ctypes structs that its runs reuse.

A call must cost little: the ``tw_value`` structs, their shapes and the arguments of the C call are
made once; a run looks each input up, stores its address, and makes the output arrays. An address is
taken by exporting the array's buffer, which also keeps the array from being resized meanwhile.
Output shapes that follow from the inputs' are computed here, when an input's shape changes; for the
others the host program asks back for memory.
"""

import ctypes
import difflib
from collections.abc import Callable, Collection, Mapping, Sequence, Set
from ctypes import addressof, c_char, c_int32, c_int64, c_void_p
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tilewright.runtime import library
from tilewright.runtime.arrays import Array, address, check_supplied, out_of_memory, prepare
from tilewright.runtime.dtypes import DType
from tilewright.runtime.errors import InputError, StateError
from tilewright.runtime.interruptible import QuickCalls, interruptibly

_export: Callable[[Any], c_char] = c_char.from_buffer
_addressof = addressof
_ndarray = np.ndarray
_empty = np.empty


@dataclass(frozen=True)
class Port:
    """An input or output: ``shape`` has an integer or the text of an expression for each dim. An
    input that is ``optional`` has a default, of the shape ``default``.
    """

    name: str
    dtype: str
    shape: tuple[int | str, ...]
    default: tuple[int, ...] | None = None

    @property
    def optional(self) -> bool:
        """True for an input that a call may leave out."""
        return self.default is not None


@dataclass(slots=True)
class _Slot:
    """An input or output in the context: its C struct, and the shape that the struct has now."""

    name: str
    row: DType
    dtype: "np.dtype[Any]"
    storage: "np.dtype[Any]"
    value: library.Value
    extents: Any  # c_int64 array of the rank's length
    rank: int
    default: tuple[int, ...] | None
    shape: tuple[int, ...] | None = None

    def set_shape(self, shape: tuple[int, ...], what: str) -> None:
        if len(shape) != self.rank:
            raise InputError(
                f"{what} '{self.name}' has rank {len(shape)}, but the model expects rank "
                f"{self.rank}."
            )
        self.extents[:] = shape
        self.shape = shape

    def describe(self, kind: int) -> None:
        """Points the struct at the slot's own shape; a run may have set it to another."""
        self.value.kind = kind
        self.value.shape = addressof(self.extents)
        self.value.strides = None


@dataclass(slots=True)
class _Allocated:
    """Output arrays that a run asked for, for the allocator callback (which must not refer to the
    context: the two would keep each other alive)."""

    names: list[str]
    dtypes: list["np.dtype[Any]"]
    arrays: dict[int, Array] = field(default_factory=dict)
    error: BaseException | None = None

    def allocate(self, _user: Any, index: int, rank: int, shape: Any) -> int:
        try:
            dims = tuple(shape[axis] for axis in range(rank))
            try:
                array = np.empty(dims, self.dtypes[index])
            except (MemoryError, ValueError):
                what = f"output '{self.names[index]}'"
                raise out_of_memory(what, dims, self.dtypes[index].itemsize) from None
            self.arrays[index] = array
            return address(array)
        except BaseException as error:  # nothing may pass through C; run raises it again
            self.error = error
            return 0


def _make_slots(ports: list[Port], dtypes: list[DType], values: Any) -> list[_Slot]:
    slots = []
    for index, (port, dtype) in enumerate(zip(ports, dtypes, strict=True)):
        value = values[index]
        extents = (c_int64 * len(port.shape))()
        value.kind = library.KIND_TENSOR
        value.device_type = library.DEVICE_CPU
        value.rank = len(port.shape)
        value.dtype_code, value.dtype_bits, value.dtype_lanes = dtype.dlpack_code, dtype.bits, 1
        value.shape = addressof(extents)
        slots.append(
            _Slot(
                port.name,
                dtype,
                dtype.numpy,
                dtype.storage,
                value,
                extents,
                len(port.shape),
                port.default,
            )
        )
    return slots


def _dim_sources(inputs: list[Port], port: Port) -> list[int | tuple[int, int]] | None:
    """For each dim of an output its extent, or the input and axis to read it from.

    None if a dim is an expression that is no dim of an input.
    """
    found = {
        dim: (index, axis)
        for index, other in reversed(list(enumerate(inputs)))
        for axis, dim in enumerate(other.shape)
        if isinstance(dim, str) and dim.isidentifier()
    }
    sources: list[int | tuple[int, int]] = []
    for dim in port.shape:
        source = dim if isinstance(dim, int) else found.get(dim)
        if source is None:
            return None
        sources.append(source)
    return sources


def check_known(given: Collection[str], names: Sequence[str]) -> None:
    """Raises InputError if a name that is given is not an input's."""
    extra = [name for name in given if name not in names]
    if not extra:
        return
    missing = [name for name in names if name not in given]
    known = ", ".join(f"'{name}'" for name in names) or "none"
    near = difflib.get_close_matches(str(extra[0]), missing or names, 1)
    hint = f" Did you mean '{near[0]}'?" if near else ""
    raise InputError(f"'{extra[0]}' is no input: the model's inputs are {known}.{hint}")


class Context:
    """Runs a model; one run at a time. Closed when it is collected."""

    _handle: int | None = None  # before it is opened, and once it is closed

    def __init__(
        self,
        model: int,
        inputs: list[Port],
        outputs: list[Port],
        dtypes: tuple[list[DType], list[DType]],
        threads: int,
    ) -> None:
        lib = library.open_library()
        self._close = lib.tw_context_close
        self._cancel = lib.tw_context_cancel
        self._inputs_c = (library.Value * max(len(inputs), 1))()
        self._outputs_c = (library.Value * max(len(outputs), 1))()
        self._inputs = _make_slots(inputs, dtypes[0], self._inputs_c)
        self._outputs = _make_slots(outputs, dtypes[1], self._outputs_c)
        self._sources = [_dim_sources(inputs, port) for port in outputs]
        self._input_rows = [
            (slot, slot.name, slot.dtype, slot.value, slot.row.alignment - 1)
            for slot in self._inputs
        ]
        self._optional = {s.name: s for s in self._inputs if s.default is not None}
        self._all_rows = self._input_rows
        self._replaced: Set[str] | None = None  # the optional inputs that the last run was given
        self._output_rows: list[tuple[str, tuple[int, ...], Any, Any, library.Value]] = []
        self._open: list[_Slot] = []  # outputs of unknown shape
        self._quick = QuickCalls()
        self._is_quick = False
        self._stale = True  # the output rows do not belong to the slots' input shapes
        self._allocated = _Allocated(
            [slot.name for slot in self._outputs], [slot.dtype for slot in self._outputs]
        )
        self._allocate = library.ALLOCATE(self._allocated.allocate)
        self._profile = library.PROFILE()
        options = library.ContextOptions(
            ctypes.sizeof(library.ContextOptions), threads, allocate=self._allocate
        )
        handle = c_void_p()
        library.check(lib.tw_context_create(model, ctypes.byref(options), ctypes.byref(handle)))
        self._handle = handle.value
        # A second view of the function, without argtypes: prepared arguments pass faster.
        self._run = lib["tw_context_run"]
        self._arguments = (
            handle,
            c_void_p(addressof(self._inputs_c)),
            c_int32(len(inputs)),
            c_void_p(addressof(self._outputs_c)),
            c_int32(len(outputs)),
        )

    def __del__(self) -> None:
        handle, self._handle = self._handle, None
        if handle:
            self._close(handle)

    def run(self, feeds: Mapping[str, Any], out: Mapping[str, Any] | None) -> dict[str, Array]:
        """Runs the model; see :meth:`tilewright.runtime.model.Model.run`."""
        exports: list[Any] = []  # keeps the arrays' memory where it is
        if type(feeds) is not dict and not isinstance(feeds, Mapping):
            raise InputError(
                "The inputs are given as a mapping from names to arrays, not as something of type "
                f"'{type(feeds).__name__}'."
            )
        if self._optional:
            self._set_kinds(feeds)
        elif len(feeds) != len(self._inputs):
            self._check_names(feeds)
        for slot, name, dtype, value, misalignment in self._input_rows:
            try:
                array = feeds[name]
            except KeyError:
                self._check_names(feeds)
                raise
            if type(array) is not _ndarray or array.dtype is not dtype:
                array = prepare(name, array, slot.row)
            if array.shape != slot.shape:
                self._stale = True
                slot.shape = None
                slot.set_shape(array.shape, "Input")
            try:
                export = _export(array)
                place = _addressof(export)
                if place & misalignment:
                    raise BufferError
                exports.append(export)
            except (TypeError, ValueError, BufferError):  # empty, read-only, strided, ml_dtypes
                if not (array.flags.c_contiguous and array.flags.aligned):
                    array = prepare(name, array, slot.row)
                place = address(array)
                exports.append(array)
            value.data = place
        if self._stale:
            self._find_shapes()
        for slot in self._open:
            slot.describe(library.KIND_NONE)  # the last run has filled it in
        results = {} if out is None else self._supply(out)
        for name, shape, storage, dtype, value in self._output_rows:
            if name in results:
                continue
            try:
                array = _empty(shape, storage)
            except (MemoryError, ValueError):  # numpy has another word for far too much
                raise out_of_memory(f"output '{name}'", shape, storage.itemsize) from None
            try:
                export = _export(array)
                exports.append(export)
                value.data = _addressof(export)
            except ValueError:  # empty
                value.data = None
            results[name] = array if storage is dtype else array.view(dtype)
        if self._is_quick:
            status = self._run(*self._arguments)
            if status:
                self._raise(status)
        else:
            self._run_long()
        return results if out is None and not self._open else self._collect(results)

    def _invoke(self) -> None:
        status = self._run(*self._arguments)
        if status:
            self._raise(status)

    def _run_long(self) -> None:
        """A run that may take long, so that signals must reach this thread meanwhile."""
        seconds = interruptibly(self._invoke, self.cancel)
        self._is_quick = self._quick.note(self._all_extents(), seconds)

    def cancel(self) -> None:
        """Ends the run in progress, if there is one, from any thread: it raises CancelledError."""
        if self._handle is not None:
            self._cancel(self._handle)

    def _all_extents(self) -> list[int]:
        return [extent for slot in self._inputs for extent in slot.extents]

    def _set_kinds(self, feeds: Mapping[str, Any]) -> None:
        """Tells which of the inputs with a default have it in this run, unless that is so already:
        there may be hundreds.
        """
        replaced = self._optional.keys() & feeds.keys()
        if len(feeds) - len(replaced) != len(self._inputs) - len(self._optional):
            self._check_names(feeds)
        if replaced == self._replaced:
            return
        self._check_names(feeds)
        self._replaced = None  # in case that a default's shape is refused
        for name, slot in self._optional.items():
            slot.value.kind = library.KIND_TENSOR if name in replaced else library.KIND_NONE
            if name in replaced or slot.default is None:
                continue
            if slot.default != slot.shape:
                self._stale = True
                slot.set_shape(slot.default, "Input")
        self._input_rows = [
            row for row in self._all_rows if row[1] in replaced or row[1] not in self._optional
        ]
        self._replaced = replaced

    def _supply(self, out: Mapping[str, Any]) -> dict[str, Array]:
        """Sets the memory that the caller supplies for outputs."""
        if not isinstance(out, Mapping):
            raise InputError(
                "The memory for outputs is given as a mapping from names to arrays, not as "
                f"something of type '{type(out).__name__}'."
            )
        results: dict[str, Array] = {}
        for name in out:
            slot = next((slot for slot in self._outputs if slot.name == name), None)
            if slot is None:
                raise InputError(f"'{name}' is no output.")
            array = check_supplied(name, out[name], slot.row)
            self._stale = True  # the next run finds its own shapes again
            slot.set_shape(array.shape, "The array for output")
            slot.describe(library.KIND_TENSOR)
            slot.value.data = address(array)
            results[name] = array
        return results

    def _collect(self, results: dict[str, Array]) -> dict[str, Array]:
        """Adds the arrays that the host program asked for, and puts all in the model's order."""
        for index, array in self._allocated.arrays.items():
            results[self._outputs[index].name] = array
        self._allocated.arrays.clear()
        return {slot.name: results[slot.name] for slot in self._outputs}

    def _find_shapes(self) -> None:
        """Computes the output shapes that follow from the input shapes in the slots."""
        self._output_rows.clear()
        self._open.clear()
        for slot, sources in zip(self._outputs, self._sources, strict=True):
            if sources is None:
                self._open.append(slot)
                continue
            shape = tuple(
                source if isinstance(source, int) else self._inputs[source[0]].extents[source[1]]
                for source in sources
            )
            slot.set_shape(shape, "Output")
            slot.describe(library.KIND_TENSOR)
            self._output_rows.append((slot.name, shape, slot.storage, slot.dtype, slot.value))
        self._is_quick = self._quick.include(self._all_extents())
        self._stale = False

    def _check_names(self, feeds: Mapping[str, Any]) -> None:
        """Raises InputError if an input is missing, or a name is not an input's."""
        names = [slot.name for slot in self._inputs]
        check_known(feeds, names)
        missing = [s.name for s in self._inputs if s.default is None and s.name not in feeds]
        if missing:
            listed = ", ".join(f"'{name}'" for name in missing)
            raise InputError(
                f"The inputs {listed} are missing."
                if missing[1:]
                else f"Input {listed} is missing."
            )

    def _raise(self, status: int) -> None:
        self._allocated.arrays.clear()
        error, self._allocated.error = self._allocated.error, None
        if error is not None:
            raise error
        library.check(status)

    def profile(self, callback: Callable[[int, int, int, int], None] | None) -> None:
        """Sets what hears of each kernel: its number, begin and end in ns, tasks; None: nothing."""
        if callback is None:
            hook = library.PROFILE()
        else:
            hook = library.PROFILE(lambda _user, *times: callback(*times))
        if self._handle is None:
            raise StateError("The context is closed.")
        lib = library.open_library()
        library.check(lib.tw_context_profile(self._handle, hook, None))
        self._profile = hook
