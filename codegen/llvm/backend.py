# SPDX-License-Identifier: Apache-2.0
"""Processors: objects by LLVM, in this process. Others keep away from its faults by calling it in
a worker.
"""

from tilewright.codegen.backend import Backend
from tilewright.codegen.llvm.kernel import emit_kernel
from tilewright.codegen.llvm.symbols import check_symbols
from tilewright.codegen.llvm.worker import Compiler
from tilewright.ir.loop import Kernel
from tilewright.ir.target import Target


class LLVMBackend(Backend):
    """Relocatable objects for x86-64 and AArch64."""

    architectures = ("x86-64", "aarch64")

    def __init__(self) -> None:
        self._compiler = Compiler()

    def compile(self, kernel: Kernel, target: Target) -> bytes:
        text = emit_kernel(kernel, target)
        code = self._compiler.compile(text, target.triple, target.feature_text, 2, False)
        check_symbols(code, kernel.name)
        return code
