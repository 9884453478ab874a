# SPDX-License-Identifier: Apache-2.0
"""Whatever callers feed, as an array that compiled code can read in place.

Accepted: numpy arrays, objects with ``__array_interface__``, DLPack objects in the CPU's memory,
and buffers. A contiguous, aligned array in native byte order is used as it is; all others are
copied. Values are never converted: a wrong dtype is an error.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.runtime.dtypes import DType
from tilewright.runtime.errors import InputError, OutOfMemoryError
from tilewright.runtime.library import DEVICE_CPU

Array = np.ndarray[Any, np.dtype[Any]]


# What objects raise, or numpy for them, that say of themselves something wrong.
_BROKEN = (
    AttributeError,
    BufferError,
    IndexError,
    KeyError,
    OverflowError,
    RuntimeError,
    TypeError,
    ValueError,
)


def _reason(error: Exception) -> str:
    """The first sentence of an error, without its full stop."""
    return (str(error) or type(error).__name__).split(". ")[0].rstrip(".")


def _from_interface(name: str, value: Any) -> Array:
    try:
        return np.asarray(value)
    except _BROKEN as error:
        raise InputError(
            f"Input '{name}' cannot be read through its __array_interface__: {_reason(error)}."
        ) from error


def _from_dlpack(name: str, value: Any) -> Array:
    try:
        device = int(value.__dlpack_device__()[0])
    except _BROKEN as error:
        raise InputError(
            f"Input '{name}' cannot be read through DLPack: {_reason(error)}."
        ) from error
    if device != DEVICE_CPU:
        raise InputError(
            f"Input '{name}' is on DLPack device type {device}, but must be in the CPU's memory."
        )
    try:
        return np.from_dlpack(value)
    except _BROKEN as error:
        raise InputError(
            f"Input '{name}' cannot be read through DLPack: {_reason(error)}."
        ) from error


def _as_array(name: str, value: Any) -> Array:
    """Any array-like object as a numpy array that shares its memory."""
    if isinstance(value, np.ndarray):
        if isinstance(value, np.ma.MaskedArray):
            raise InputError(f"Input '{name}' is a masked array: fill it first.")
        return np.asarray(value)
    if hasattr(value, "__array_interface__"):
        return _from_interface(name, value)
    if hasattr(value, "__dlpack__") and hasattr(value, "__dlpack_device__"):
        return _from_dlpack(name, value)
    try:
        view = memoryview(value)
    except (TypeError, ValueError, BufferError):
        raise InputError(
            f"Input '{name}' is of type '{type(value).__name__}', but must be an array."
        ) from None
    try:
        return np.asarray(view)
    except _BROKEN as error:
        raise InputError(f"Input '{name}' cannot be read as a buffer: {_reason(error)}.") from error


def out_of_memory(what: str, shape: Sequence[int], itemsize: int) -> OutOfMemoryError:
    """The error for an array that the system has no memory for; more than any has, maybe."""
    size = itemsize * math.prod(extent for extent in shape if extent)
    return OutOfMemoryError(
        f"Out of memory: {what} has the shape {tuple(shape)}, which takes {size} bytes."
    )


def prepare(name: str, value: Any, dtype: DType) -> Array:
    """An aligned, C-contiguous array of exactly ``dtype`` with the values of ``value``.

    Raises InputError for what is no array and for another dtype.
    """
    array = _as_array(name, value)
    expected = dtype.numpy
    if array.dtype != expected and array.dtype.newbyteorder("=") != expected:
        raise InputError(f"Input '{name}' is {array.dtype}, but the model expects {dtype.name}.")
    if array.dtype == expected and array.flags.c_contiguous and array.flags.aligned:
        return array
    try:
        return np.array(array, dtype=expected, order="C", copy=True)
    except (MemoryError, ValueError):  # numpy has another word for far too much
        what = f"a contiguous copy of input '{name}'"
        raise out_of_memory(what, array.shape, expected.itemsize) from None


def check_supplied(name: str, array: Any, dtype: DType) -> Array:
    """Memory that the caller supplies for output ``name``; raises InputError if it cannot be."""
    if not isinstance(array, np.ndarray):
        raise InputError(
            f"Output '{name}' is to be written to something of type '{type(array).__name__}', but "
            "must be to an array."
        )
    if array.dtype != dtype.numpy:
        raise InputError(f"Output '{name}' is {dtype.name}, but its array is {array.dtype}.")
    if not (array.flags.c_contiguous and array.flags.aligned and array.flags.writeable):
        raise InputError(f"The array for output '{name}' must be contiguous, aligned and writable.")
    return array


def address(array: Array) -> int:
    """The address of an array's first byte, by the way that also works for read-only arrays."""
    return int(array.__array_interface__["data"][0])
