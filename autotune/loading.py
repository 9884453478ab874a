# SPDX-License-Identifier: Apache-2.0
"""Kernels in this process: code that can be called, and memory as the kernel ABI wants it.

Only worker processes do this: code under test may crash.
"""

import ctypes
import mmap
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.codegen.link import link_image
from tilewright.ir.buffer import Buffer
from tilewright.ir.dtypes import DType
from tilewright.ir.layout_data import pack, packed_bytes, unpack
from tilewright.ir.loop import Kernel
from tilewright.ir.op import Array
from tilewright.ir.rewrite import evaluate

ALIGNMENT = 64
_UNWRITTEN = 0xA5

REPEAT = """
define i32 @repeat(ptr %kernel, ptr %args, i64 %tasks, ptr %workspace, i64 %times) {
entry:
  br label %again
again:
  %done = phi i64 [ 0, %entry ], [ %next, %again ]
  %status = call i32 %kernel(ptr %args, i64 0, i64 %tasks, ptr %workspace)
  %next = add i64 %done, 1
  %more = icmp slt i64 %next, %times
  br i1 %more, label %again, label %end
end:
  ret i32 %status
}
"""
"""Runs all tasks of a kernel some times: calls from Python would take longer than small kernels."""

_REPEAT_TYPE = ctypes.CFUNCTYPE(
    ctypes.c_int32,
    ctypes.c_void_p,
    ctypes.c_void_p,
    ctypes.c_int64,
    ctypes.c_void_p,
    ctypes.c_int64,
)


class Code:
    """The function ``symbol`` of an object, in memory that is executable and never writable."""

    def __init__(self, code: bytes, symbol: str) -> None:
        image = link_image([code], symbol)
        handle = os.memfd_create("tilewright", os.MFD_CLOEXEC)
        try:
            with os.fdopen(handle, "wb", closefd=False) as stream:
                stream.write(image.code)
            self._memory = mmap.mmap(
                handle, len(image.code), mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_EXEC
            )
        finally:
            os.close(handle)
        self._view = np.frombuffer(self._memory, np.uint8)
        self.address = int(self._view.ctypes.data) + image.symbols[symbol]


@dataclass(frozen=True)
class Call:
    """A kernel with its arguments: what runs all its tasks on this thread.

    ``arrays`` is the memory that the arguments point to, so that it lives as long as the call.
    """

    repeat: Code
    code: Code
    arguments: "ctypes.Array[ctypes.c_uint64]"
    arrays: tuple[Array, ...]
    tasks: int
    workspace: Array

    def __call__(self, times: int = 1) -> int:
        """Run the kernel some times; returns its status."""
        function = _REPEAT_TYPE(self.repeat.address)
        status: int = function(
            self.code.address, self.arguments, self.tasks, self.workspace.ctypes.data, times
        )
        return status


def prepare(
    kernel: Kernel,
    repeat: Code,
    code: bytes,
    arrays: Sequence[Array],
    sizes: Mapping[str, int],
    tasks: int,
    workspace_bytes: int,
) -> Call:
    """The call of a kernel's object on memory for its inputs and outputs."""
    running = np.ones(1, np.int32)  # the state of the run, which nobody cancels
    words = [a.ctypes.data for a in arrays]
    words += [sizes[s.name] & (2**64 - 1) for s in kernel.symbols]
    arguments = (ctypes.c_uint64 * (1 + len(words)))(*words, running.ctypes.data)
    scratch = aligned(workspace_bytes)
    return Call(repeat, Code(code, kernel.name), arguments, (*arrays, running), tasks, scratch)


def aligned(count: int) -> Array:
    """Bytes that begin at a cache line; there is always one to point at."""
    memory = np.full(max(1, count) + ALIGNMENT, _UNWRITTEN, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + max(1, count)]


def shape_of(b: Buffer, sizes: Mapping[str, int]) -> tuple[int, ...]:
    """The shape of a buffer with its symbols at the given sizes."""
    return tuple(evaluate(d, sizes) for d in b.shape)


def input_memory(b: Buffer, sizes: Mapping[str, int], generator: np.random.Generator) -> Array:
    """Random values in the memory order of the buffer's layout."""
    values = random_array(b.dtype, shape_of(b, sizes), generator)
    memory = aligned(packed_bytes(values.shape, values.dtype, b.layout))
    flat = pack(values, b.layout).view(np.uint8)
    memory[: flat.size] = flat
    return memory


def output_memory(b: Buffer, sizes: Mapping[str, int]) -> Array:
    """Memory that holds no result yet."""
    return aligned(packed_bytes(shape_of(b, sizes), b.dtype.numpy, b.layout))


def values_of(b: Buffer, memory: Array, sizes: Mapping[str, int]) -> Array:
    """The array that the memory of a buffer holds, padding left out."""
    shape = shape_of(b, sizes)
    count = packed_bytes(shape, b.dtype.numpy, b.layout)
    return unpack(memory[:count].view(b.dtype.numpy), shape, b.layout)


def random_array(dtype: DType, shape: tuple[int, ...], generator: np.random.Generator) -> Array:
    """Normal floats, small integers."""
    if dtype.is_bool:
        return generator.integers(0, 2, shape).astype(np.bool_)
    if dtype.is_integer:
        most = min(9, int(dtype.max))
        return generator.integers(0, most, shape, endpoint=True).astype(dtype.numpy)
    values = generator.standard_normal(shape)
    return np.asarray(values).astype(dtype.numpy)
