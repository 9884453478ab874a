# SPDX-License-Identifier: Apache-2.0
"""Running kernels in the tests: emitted, compiled to an object, linked by LLJIT, called on numpy
arrays.
"""

import ctypes
from collections.abc import Callable, Sequence

import llvmlite.binding as llvm
import numpy as np
import pytest

from tilewright.codegen.llvm.compile import compile_ir
from tilewright.codegen.llvm.kernel import emit_kernel
from tilewright.ir.loop import For, Kernel
from tilewright.ir.rewrite import evaluate
from tilewright.ir.target import Target, parse_target
from tilewright.passes.loop.workspace import workspace_bytes

Function = Callable[..., int]
NATIVE = parse_target("native")
_SIGNATURE = ctypes.CFUNCTYPE(
    ctypes.c_int32, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p
)


class Linker:
    """Loads objects into this process."""

    def __init__(self) -> None:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        self._jit = llvm.create_lljit_compiler()
        self._count = 0
        self._kept: list[object] = []

    def load(self, obj: bytes, symbol: str, signature: object = _SIGNATURE) -> Function:
        """The function ``symbol`` of an object."""
        self._count += 1
        library = llvm.JITLibraryBuilder().add_object_img(obj).export_symbol(symbol)
        loaded = library.link(self._jit, f"object{self._count}")
        self._kept.append(loaded)
        return signature(loaded[symbol])  # type: ignore[operator]


class Runner:
    """Compiles a kernel and calls it."""

    def __init__(self, linker: Linker) -> None:
        self._linker = linker
        self._functions: dict[tuple[Kernel, Target], Function] = {}

    def function(self, kernel: Kernel, target: Target = NATIVE) -> Function:
        """The machine code of a kernel."""
        key = (kernel, target)
        if key not in self._functions:
            obj = compile_ir(emit_kernel(kernel, target), target)
            self._functions[key] = self._linker.load(obj, kernel.name)
        return self._functions[key]

    def __call__(
        self,
        kernel: Kernel,
        arrays: Sequence[np.ndarray],
        symbols: Sequence[int] = (),
        target: Target = NATIVE,
        tasks: tuple[int, int] | None = None,
    ) -> None:
        """Run all tasks of ``kernel`` (or those given) on arrays: inputs, then outputs."""
        state = np.ones(1, np.int32)
        args = (ctypes.c_uint64 * (len(arrays) + len(symbols) + 1))(
            *(a.ctypes.data for a in arrays),
            *(s & (2**64 - 1) for s in symbols),
            state.ctypes.data,
        )
        values = {s.name: v for s, v in zip(kernel.symbols, symbols, strict=True)}
        scratch = np.full(evaluate(workspace_bytes(kernel), values) + 64, 0xA5, np.uint8)
        start = -scratch.ctypes.data % 64 + scratch.ctypes.data
        if tasks is None:
            body = kernel.body
            parallel = isinstance(body, For) and body.kind == "parallel"
            tasks = (0, evaluate(body.var.extent, values) if parallel else 1)
        assert self.function(kernel, target)(args, *tasks, start) == 0


@pytest.fixture(scope="session")
def linker() -> Linker:
    return Linker()


@pytest.fixture(scope="session")
def run(linker: Linker) -> Runner:
    return Runner(linker)
