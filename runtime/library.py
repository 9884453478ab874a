# SPDX-License-Identifier: Apache-2.0
"""The C runtime as ctypes sees it: its structs, and the shared library beside this module.

The library is opened on first use. ``open_library()`` returns one object whose attributes are the
functions of ``include/tilewright.h`` with their argument types.
"""

import ctypes
from ctypes import CFUNCTYPE, POINTER, Structure, c_char_p, c_int32, c_int64, c_size_t, c_void_p
from functools import cache
from pathlib import Path

from tilewright.runtime.errors import ArgumentError, LibraryError, from_status

VERSION = 100  # TW_VERSION of the header that these declarations follow

KIND_NONE, KIND_TENSOR = 0, 1
SKIP_CONSTANTS_CHECK, BORROW_CONSTANTS, COPY_CONSTANTS = 1, 2, 4
DEVICE_CPU = 1

ALLOCATE = CFUNCTYPE(c_void_p, c_void_p, c_int32, c_int32, POINTER(c_int64))
PROFILE = CFUNCTYPE(None, c_void_p, c_int64, c_int64, c_int64, c_int64)


class Value(Structure):
    """``tw_value`` with its tensor's members (DLPack's ``DLTensor``) laid out flat: 72 bytes."""

    _fields_ = [
        ("kind", c_int32),
        ("reserved", c_int32),
        ("data", c_void_p),
        ("device_type", c_int32),
        ("device_id", c_int32),
        ("rank", c_int32),
        ("dtype_code", ctypes.c_uint8),
        ("dtype_bits", ctypes.c_uint8),
        ("dtype_lanes", ctypes.c_uint16),
        ("shape", c_void_p),
        ("strides", c_void_p),
        ("byte_offset", ctypes.c_uint64),
        ("padding", c_int64 * 2),
    ]


class OpenOptions(Structure):
    """``tw_open_options``."""

    _fields_ = [("size", c_int64), ("flags", c_int64)]


class ContextOptions(Structure):
    """``tw_context_options``."""

    _fields_ = [
        ("size", c_int64),
        ("threads", c_int64),
        ("parallel_for", c_void_p),
        ("parallel_user", c_void_p),
        ("allocate", ALLOCATE),
        ("allocate_user", c_void_p),
        ("profile", PROFILE),
        ("profile_user", c_void_p),
    ]


class PortStruct(Structure):
    """``tw_port``."""

    _fields_ = [
        ("name", c_char_p),
        ("dtype", c_int32),
        ("rank", c_int32),
        ("extents", POINTER(c_int64)),
        ("dims", POINTER(c_char_p)),
        ("default_extents", POINTER(c_int64)),
    ]


_SIGNATURES = {
    "tw_model_open": [c_char_p, POINTER(OpenOptions), POINTER(c_void_p)],
    "tw_model_open_memory": [c_void_p, c_size_t, POINTER(OpenOptions), POINTER(c_void_p)],
    "tw_model_close": [c_void_p],
    "tw_model_input_count": [c_void_p],
    "tw_model_output_count": [c_void_p],
    "tw_model_input": [c_void_p, c_int32, POINTER(POINTER(PortStruct))],
    "tw_model_output": [c_void_p, c_int32, POINTER(POINTER(PortStruct))],
    "tw_model_kernel": [c_void_p, c_int64, POINTER(c_char_p), POINTER(c_char_p)],
    "tw_model_manifest": [c_void_p, POINTER(c_void_p), POINTER(c_size_t)],
    "tw_context_create": [c_void_p, POINTER(ContextOptions), POINTER(c_void_p)],
    "tw_context_close": [c_void_p],
    "tw_context_profile": [c_void_p, PROFILE, c_void_p],
    "tw_context_cancel": [c_void_p],
    "tw_context_run": [c_void_p, c_void_p, c_int32, c_void_p, c_int32],
    "tw_default_threads": [],
    "tw_version": [],
    "tw_last_error": [],
}


def library_path() -> Path:
    """Where the shared library lies: beside this module."""
    return Path(__file__).with_name("libtilewright.so")


@cache
def open_library() -> ctypes.CDLL:
    """Opens the shared library; raises LibraryError if it is missing or of another version."""
    path = library_path()
    if not path.exists():
        raise LibraryError(
            f"The C runtime '{path}' is missing: install the package ('pip install -e .' builds "
            "it in a source tree)."
        )
    try:
        library = ctypes.CDLL(str(path))
        for name, arguments in _SIGNATURES.items():
            function = getattr(library, name)
            function.argtypes = arguments
            function.restype = None if name.endswith(("_close", "_cancel")) else c_int32
        library.tw_last_error.restype = c_char_p
    except (OSError, AttributeError) as error:
        raise LibraryError(f"The C runtime '{path}' cannot be loaded: {error}.") from error
    if library.tw_version() != VERSION:
        raise LibraryError(
            f"The C runtime '{path}' has version {library.tw_version()}, but {VERSION} is needed: "
            "install the package again."
        )
    return library


def check(status: int) -> None:
    """Raises the error of a failed call of this thread; does nothing for status 0."""
    if status:
        message = open_library().tw_last_error() or b""
        raise from_status(status, message.decode("utf-8", "replace"))


def default_threads() -> int:
    """How many threads a run uses unless told otherwise.

    ``TILEWRIGHT_NUM_THREADS`` if set, else ``OMP_NUM_THREADS``, else the processors that the
    affinity and a container's quota grant. ArgumentError if the first is no number from 1 on.
    """
    library = open_library()
    threads = int(library.tw_default_threads())
    if not threads:
        raise ArgumentError((library.tw_last_error() or b"").decode("utf-8", "replace"))
    return threads
