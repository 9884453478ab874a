# SPDX-License-Identifier: Apache-2.0
"""A host program with its kernels as machine code, with services made in Python."""

import ctypes
from collections.abc import Sequence
from typing import Any

import llvmlite.binding as llvm
import numpy as np

from tilewright.codegen.llvm.compile import compile_many
from tilewright.codegen.llvm.host import EmittedHost, emit_host
from tilewright.codegen.llvm.kernel import emit_kernel
from tilewright.ir.loop import HostProgram, Kernel
from tilewright.ir.target import parse_target

NATIVE = parse_target("native")
P, I32, I64 = ctypes.c_void_p, ctypes.c_int32, ctypes.c_int64
KERNEL = ctypes.CFUNCTYPE(I32, P, I64, I64, P)
HOST = ctypes.CFUNCTYPE(I32, P, P, P, P)
LAUNCH = ctypes.CFUNCTYPE(I32, P, P, P, I64, I64, I64)
MEMORY = ctypes.CFUNCTYPE(P, P, I64)
OUTPUT = ctypes.CFUNCTYPE(P, P, I32, I32, ctypes.POINTER(I64))
FAIL = ctypes.CFUNCTYPE(I32, P, I32, I32, ctypes.POINTER(I64), I32)


class Services(ctypes.Structure):
    """``tw_services`` of the runtime's ABI."""

    _fields_ = (
        ("size", I64), ("direct", I64), ("launch", LAUNCH), ("arena", MEMORY),
        ("workspace", MEMORY), ("output", OUTPUT), ("fail", FAIL), ("state", P),
    )  # fmt: skip


class Tensor(ctypes.Structure):
    """``tw_tensor`` of the runtime's ABI."""

    _fields_ = (("data", P), ("shape", P), ("rank", I32), ("dtype", I32))


class Machine:
    """A host program with its kernels, loaded, and services that note what they are asked for."""

    def __init__(
        self, program: HostProgram, kernels: Sequence[Kernel], direct: bool = True
    ) -> None:
        self.emitted: EmittedHost = emit_host(program, NATIVE, "tw_host")
        names = [k.name for k in kernels]
        texts = [self.emitted.text, *(emit_kernel(k, NATIVE) for k in kernels)]
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        library = llvm.JITLibraryBuilder().export_symbol("tw_host")
        for obj in compile_many(texts, NATIVE, external=names):
            library = library.add_object_img(obj)
        self._jit = llvm.create_lljit_compiler()
        self._library = library.link(self._jit, "host")
        self.entry = HOST(self._library["tw_host"])
        self.log: list[tuple[Any, ...]] = []
        self.arena = np.full(1 << 16, 0xA5, np.uint8)
        self.outputs: dict[int, np.ndarray] = {}
        self.refuse = ""
        self.kernel_status = 0
        self.state = np.ones(1, np.int32)
        self.services = Services(
            ctypes.sizeof(Services), int(direct), LAUNCH(self._launch), MEMORY(self._arena),
            MEMORY(self._workspace), OUTPUT(self._output), FAIL(self._fail),
            self.state.ctypes.data,
        )  # fmt: skip

    def _launch(self, _: int, fn: int, args: int, tasks: int, scratch: int, call: int) -> int:
        self.log.append(("launch", tasks, scratch, call))
        for task in reversed(range(tasks)):
            KERNEL(fn)(args, task, task + 1, self.arena.ctypes.data + 32768)
        return self.kernel_status

    def _arena(self, _: int, size: int) -> int | None:
        self.log.append(("arena", size))
        return None if self.refuse == "arena" else self.arena.ctypes.data

    def _workspace(self, _: int, size: int) -> int | None:
        self.log.append(("workspace", size))
        return None if self.refuse == "workspace" else self.arena.ctypes.data + 32768

    def _output(self, _: int, number: int, rank: int, shape: Any) -> int | None:
        self.log.append(("output", number, shape[:rank]))
        self.outputs[number] = np.zeros(shape[:rank], np.float32)
        return None if self.refuse == "output" else int(self.outputs[number].ctypes.data)

    def _fail(self, _: int, status: int, message: int, values: Any, count: int) -> int:
        self.log.append(("fail", status, self.emitted.messages[message], values[:count]))
        return status

    def run_shape(self, shape: Sequence[int]) -> int:
        """The status of a run on one empty input of this shape, which may be one of no array."""
        self.log.clear()
        sizes = np.array(shape, np.int64)
        tensors = (Tensor * 1)(Tensor(self.arena.ctypes.data, sizes.ctypes.data, len(shape), 12))
        return int(self.entry(None, ctypes.addressof(self.services), tensors, None))

    def __call__(self, *inputs: np.ndarray, constants: Sequence[np.ndarray] = ()) -> int:
        self.log.clear()
        shapes = [np.array(x.shape, np.int64) for x in inputs]
        tensors = (Tensor * max(1, len(inputs)))(
            *(Tensor(x.ctypes.data, s.ctypes.data, x.ndim, 12) for x, s in zip(inputs, shapes))
        )
        pointers = (P * max(1, len(constants)))(*(c.ctypes.data for c in constants))
        return int(self.entry(None, ctypes.addressof(self.services), tensors, pointers))
