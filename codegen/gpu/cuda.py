# SPDX-License-Identifier: Apache-2.0
"""CUDA C++, as NVRTC compiles it: without any header."""

from math import prod

from tilewright.codegen.backend import Backend
from tilewright.codegen.gpu.dialect import Dialect
from tilewright.codegen.gpu.kernel import kernel_source
from tilewright.codegen.gpu.nvrtc import compile_cubin
from tilewright.ir.dtypes import F32, DType
from tilewright.ir.loop import Kernel
from tilewright.ir.target import Target
from tilewright.passes.loop.threads import LaunchShape


class Cuda(Dialect):
    """Kernels as CUDA source; see :mod:`.nvrtc` for the way to a cubin."""

    wide = "long long"
    wide_suffix = "ll"
    function = "__device__ static inline"
    shared = "__shared__ "
    restrict = "__restrict__ "
    barrier = "__syncthreads();"

    def from_bits(self, bits: str, dtype: DType) -> str:
        return f"__int_as_float({bits})" if dtype is F32 else f"__longlong_as_double({bits}ll)"

    def head(self, name: str, parameters: list[str], shape: LaunchShape) -> str:
        bounds = f"__launch_bounds__({prod(shape.block)})"
        return f'extern "C" __global__ void {bounds}\n{name}({", ".join(parameters)})'

    def block_index(self, axis: int) -> str:
        return f"blockIdx.{'xyz'[axis]}"

    def thread_index(self, axis: int) -> str:
        return f"threadIdx.{'xyz'[axis]}"


class CudaBackend(Backend):
    """Cubins, one for each kernel."""

    architectures = ("cuda",)

    def compile(self, kernel: Kernel, target: Target) -> bytes:
        return compile_cubin(kernel_source(kernel, Cuda()), target)
