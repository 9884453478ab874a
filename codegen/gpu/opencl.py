# SPDX-License-Identifier: Apache-2.0
"""OpenCL C, version 1.2 and up."""

from tilewright.codegen.backend import Backend
from tilewright.codegen.gpu.dialect import Dialect
from tilewright.codegen.gpu.kernel import kernel_source
from tilewright.ir.dtypes import F32, DType
from tilewright.ir.loop import Kernel
from tilewright.ir.target import Target
from tilewright.passes.loop.threads import LaunchShape


class OpenCL(Dialect):
    """Kernels as OpenCL C source, which the device's driver compiles."""

    wide = "long"
    wide_suffix = "l"
    function = "static inline"
    shared = "__local "
    memory = "__global "
    restrict = "restrict "
    barrier = "barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);"

    def from_bits(self, bits: str, dtype: DType) -> str:
        return f"as_float({bits}u)" if dtype is F32 else f"as_double({bits}ul)"

    def head(self, name: str, parameters: list[str], shape: LaunchShape) -> str:
        size = ", ".join(map(str, shape.block))
        attribute = f"__attribute__((reqd_work_group_size({size})))"
        return f"__kernel {attribute}\nvoid {name}({', '.join(parameters)})"

    def block_index(self, axis: int) -> str:
        return f"get_group_id({axis})"

    def thread_index(self, axis: int) -> str:
        return f"get_local_id({axis})"


class OpenCLBackend(Backend):
    """Source text: the device's driver compiles it."""

    architectures = ("opencl",)

    def compile(self, kernel: Kernel, target: Target) -> bytes:
        return kernel_source(kernel, OpenCL()).encode()
