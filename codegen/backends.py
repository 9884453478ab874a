# SPDX-License-Identifier: Apache-2.0
"""The backends of this package; importing it registers them all."""

from functools import cache

from tilewright.codegen.backend import Backend
from tilewright.codegen.gpu.cuda import CudaBackend
from tilewright.codegen.gpu.opencl import OpenCLBackend
from tilewright.codegen.llvm.backend import LLVMBackend
from tilewright.ir.errors import TargetError
from tilewright.ir.target import Target

__all__ = ["Backend", "CudaBackend", "LLVMBackend", "OpenCLBackend", "backend_of"]


def backend_of(target: Target) -> Backend:
    """The backend of a target, one object a process; TargetError if no backend knows it."""
    if target.arch not in Backend.registry:
        known = ", ".join(sorted(Backend.registry))
        raise TargetError(f"No backend makes code for '{target.arch}'; there are {known}.")
    return _backend(target.arch)


@cache
def _backend(architecture: str) -> Backend:
    return Backend.registry[architecture]()
