# SPDX-License-Identifier: Apache-2.0
"""CUDA C++ to cubins, without a GPU."""

import re

import pytest
from gpu_kernels import ARGMAX, GELU, MATMUL, SOFTMAX, digit_model, plain

from tilewright.codegen.backends import backend_of
from tilewright.codegen.gpu.nvrtc import compile_cubin, is_available
from tilewright.ir.errors import CodegenError
from tilewright.ir.loop import Kernel
from tilewright.ir.target import parse_target
from tilewright.passes.schedule.select import schedule_kernel

pytestmark = pytest.mark.skipif(not is_available(), reason="needs the extra 'cuda'")

_CUDA_MACHINE = 190


def check(kernel: Kernel, level: str) -> None:
    """The kernel becomes an ELF file for CUDA that has its symbol."""
    target = parse_target(f"cuda-{level}")
    cubin = backend_of(target).compile(schedule_kernel(kernel, target).kernel, target)
    assert cubin[:4] == b"\x7fELF" and int.from_bytes(cubin[18:20], "little") == _CUDA_MACHINE
    assert f".text.{kernel.name}".encode() in cubin


@pytest.mark.parametrize("level", ["sm80", "sm90"])
@pytest.mark.parametrize("text", [MATMUL, SOFTMAX, ARGMAX, GELU])
def test_kernels(text: str, level: str) -> None:
    check(plain(text), level)


@pytest.mark.parametrize("level", ["sm80", "sm90"])
def test_digit_model(level: str) -> None:
    _, lowered = digit_model()
    for kernel in {low.kernel.name: low.kernel for low in lowered}.values():
        check(kernel, level)


def test_errors_show_the_log_of_the_compiler() -> None:
    with pytest.raises(CodegenError, match=re.compile(r"NVRTC: .*undefined", re.S)):
        compile_cubin("__global__ void k() { nothing(); }", parse_target("cuda-sm80"))
