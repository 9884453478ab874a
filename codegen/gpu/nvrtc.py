# SPDX-License-Identifier: Apache-2.0
"""CUDA source to a cubin with NVIDIA's run-time compiler, which needs no GPU and no driver.

The library comes with the package ``nvidia-cuda-nvrtc`` (extra ``cuda``), or lies where the
system's loader finds it.
"""

import ctypes
import ctypes.util
from functools import cache
from pathlib import Path
from typing import Any

from tilewright.ir.errors import CodegenError, TargetError
from tilewright.ir.target import Target


def compile_cubin(source: str, target: Target) -> bytes:
    """The machine code of a module for the level of a CUDA target; CodegenError with the compiler's
    log if it fails.
    """
    nvrtc = _library()
    program = ctypes.c_void_p()
    created = nvrtc.nvrtcCreateProgram(
        ctypes.byref(program), source.encode(), b"kernel.cu", 0, None, None
    )
    if created != 0:
        raise CodegenError(f"NVRTC makes no program: {_text(nvrtc, created)}.")
    try:
        options = [f"--gpu-architecture={_architecture(target)}".encode(), b"--std=c++17"]
        values = (ctypes.c_char_p * len(options))(*options)
        status = nvrtc.nvrtcCompileProgram(program, len(options), values)
        if status != 0:
            log = _read(nvrtc, "ProgramLog", program).rstrip(b"\0").decode()
            raise CodegenError(f"NVRTC: {_text(nvrtc, status)}.\n{log}")
        return _read(nvrtc, "CUBIN", program)
    finally:
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))


def is_available() -> bool:
    """True if the compiler's library is installed."""
    return _path() is not None


def _architecture(target: Target) -> str:
    """The level as NVRTC names it."""
    (level,) = target.features
    return level.replace("sm", "sm_")


def _path() -> str | None:
    try:
        import nvidia
    except ImportError:
        return ctypes.util.find_library("nvrtc")
    folders = [Path(p) for p in nvidia.__path__]
    found = [p for f in folders for p in sorted(f.glob("*/lib/libnvrtc.so.*"))]
    return str(found[-1]) if found else ctypes.util.find_library("nvrtc")


@cache
def _library() -> Any:
    path = _path()
    if path is None:
        raise TargetError(
            "CUDA code needs NVRTC, which is not installed. Install the extra 'cuda': "
            "pip install 'tilewright[cuda]'."
        )
    library = ctypes.CDLL(path)
    library.nvrtcGetErrorString.restype = ctypes.c_char_p
    return library


def _text(nvrtc: Any, status: int) -> str:
    message: bytes = nvrtc.nvrtcGetErrorString(status)
    return message.decode()


def _read(nvrtc: Any, what: str, program: ctypes.c_void_p) -> bytes:
    """A product of a compilation: its size is asked first."""
    size = ctypes.c_size_t()
    for status in (
        nvrtc[f"nvrtcGet{what}Size"](program, ctypes.byref(size)),
        nvrtc[f"nvrtcGet{what}"](program, buffer := ctypes.create_string_buffer(size.value)),
    ):
        if status != 0:
            raise CodegenError(f"NVRTC gives no {what}: {_text(nvrtc, status)}.")
    return buffer.raw
