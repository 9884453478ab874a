# SPDX-License-Identifier: Apache-2.0
"""What memory gives on this machine: a vector loop in C that reads an array, and a copy.

The C compiler makes them for this processor; they run on one thread and time themselves, so that a
kernel's time can be told as a share of the best there is, measured in the same minute.
"""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.blocks import Took

SOURCE = Path(__file__).with_name("plain_loops.c")
READ_STEP = 128
"""Elements that the reading loop takes at a time."""


@cache
def _library() -> ctypes.CDLL:
    with tempfile.TemporaryDirectory(prefix="tilewright-loops-") as folder:
        path = Path(folder) / "plain_loops.so"
        command = ["cc", "-std=gnu11", "-O3", "-march=native", "-shared", "-fPIC"]
        subprocess.run([*command, str(SOURCE), "-o", str(path)], check=True)
        library = ctypes.CDLL(str(path))
    for function in (library.plain_read, library.plain_copy):
        function.restype = ctypes.c_double
        function.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
    return library


def read(x: NDArray[np.float32]) -> tuple[Took, float]:
    """The seconds that it takes to read an array once, and the sum of its elements.

    The array is contiguous and has a multiple of 128 elements.
    """
    if x.size % READ_STEP or not x.flags.c_contiguous or x.dtype != np.float32:
        raise ValueError(f"The loop reads {READ_STEP} floats at a time, one after the other.")
    total = ctypes.c_float()
    seconds = _library().plain_read(x.ctypes.data, x.size, ctypes.byref(total))
    return Took(seconds), total.value


def copy(x: NDArray[Any], y: NDArray[Any]) -> Took:
    """The seconds that it takes to copy one array to another of as many bytes."""
    if x.nbytes != y.nbytes or not (x.flags.c_contiguous and y.flags.c_contiguous):
        raise ValueError("Arrays that are copied are contiguous and have as many bytes.")
    return Took(_library().plain_copy(x.ctypes.data, x.nbytes, y.ctypes.data))
