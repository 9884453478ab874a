# SPDX-License-Identifier: Apache-2.0
"""The text of GPU kernels: small ones in full, and what has no code."""

import pytest

from tilewright.codegen.gpu.cuda import Cuda
from tilewright.codegen.gpu.dialect import Dialect
from tilewright.codegen.gpu.kernel import kernel_source
from tilewright.codegen.gpu.opencl import OpenCL
from tilewright.ir.errors import CodegenError
from tilewright.ir.loop import Kernel
from tilewright.ir.loop_parser import parse_kernel
from tilewright.passes.loop.threads import privatize
from tilewright.passes.schedule.schedule import apply, parse_schedule

SQUARE = """
kernel @square(x: f32[n]) -> (y: f32[n]) {
  symbol n in [1, 1000]
  stage map s(i in n) -> y[i] = max((x[i] * x[i]), f32(-inf))
  for i in n serial { block s.map(i) { y[i] = max((x[i] * x[i]), f32(-inf)) } }
}
"""
STEPS = (
    "cache_read(s, x); split(i, 64); compute_at(s_x, shared, i_o); bind(i_o, block.x); "
    "bind(i_i, thread.x); bind(s_x_0, thread.x); synchronize()"
)

OPENCL_TEXT = """\
static inline float tw_max_f32(float x, float y) { return x > y || x != x ? x : y; }
__kernel __attribute__((reqd_work_group_size(64, 1, 1)))
void square(__global const float *restrict x, __global float *restrict y, long n)
{
  __local float x_r_1[64];
  const int i_o = get_group_id(0);
  {
    const int s_x_0 = get_local_id(0);
    if ((64*i_o + s_x_0) < n) {
      x_r_1[s_x_0] = x[64*i_o + s_x_0];
    }
  }
  barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
  {
    const int i_i = get_local_id(0);
    if ((i_i + 64*i_o) < n) {
      {
        const float value = x_r_1[i_i];
        y[i_i + 64*i_o] = tw_max_f32((value * value), as_float(0xff800000u));
      }
    }
  }
}
"""

CUDA_TEXT = """\
__device__ static inline float tw_max_f32(float x, float y) { return x > y || x != x ? x : y; }
extern "C" __global__ void __launch_bounds__(64)
square(const float *__restrict__ x, float *__restrict__ y, long long n)
{
  __shared__ float x_r_1[64];
  const int i_o = blockIdx.x;
  {
    const int s_x_0 = threadIdx.x;
    if ((64*i_o + s_x_0) < n) {
      x_r_1[s_x_0] = x[64*i_o + s_x_0];
    }
  }
  __syncthreads();
  {
    const int i_i = threadIdx.x;
    if ((i_i + 64*i_o) < n) {
      {
        const float value = x_r_1[i_i];
        y[i_i + 64*i_o] = tw_max_f32((value * value), __int_as_float(0xff800000));
      }
    }
  }
}
"""


def bound(text: str, steps: str) -> Kernel:
    return apply(parse_kernel(text), parse_schedule(steps))


@pytest.mark.parametrize(("dialect", "text"), [(OpenCL(), OPENCL_TEXT), (Cuda(), CUDA_TEXT)])
def test_source(dialect: Dialect, text: str) -> None:
    assert kernel_source(bound(SQUARE, STEPS), dialect) == text


def test_long_offsets_are_wide() -> None:
    text = SQUARE.replace("[1, 1000]", "[1, 1000000000]").replace("f32[n]", "f32[n,8]")
    text = text.replace("[i]", "[i, 3]").replace("-> y[i, 3] =", "-> y[i, j] =")
    text = text.replace("s(i in n)", "s(i in n, j in 8)").replace("s.map(i)", "s.map(i, 3)")
    source = kernel_source(
        bound(text, "split(i, 64); bind(i_o, block.x); bind(i_i, thread.x)"), OpenCL()
    )
    assert "y[8*i_i + (long)(512)*i_o + 3]" in source


def test_what_only_some_threads_run() -> None:
    kernel = parse_kernel("""
    kernel @k(x: f32[8]) -> (y: f32[8], z: f32[3], w: f32[1]) {
      stage map s(i in 8) -> y[i] = x[i]
      stage map t(j in 3) -> z[j] = x[j]
      stage map u(k in 1) -> w[k] = x[k]
      for i in 8 thread.x { block s.map(i) { y[i] = x[i] } }
      for j in 3 thread.x { block t.map(j) { z[j] = x[j] } }
      block u.map(0) { w[0] = x[0] }
    }""")
    source = kernel_source(kernel, OpenCL())
    assert "    if (j < 3) {\n      z[j] = x[j];" in source
    assert "  if (get_local_id(0) == 0) {\n    w[0] = x[0];" in source
    assert "if (i" not in source


def test_registers_are_divided_among_threads() -> None:
    kernel = parse_kernel("""
    kernel @k(x: f32[32,8]) -> (o: f32[32,8]) {
      stage map s(i in 32, j in 8) -> o[i, j] = x[i, j]
      alloc t: f32[32,8] @register {
        for y in 16 thread.y { for v in 4 thread.x { for r in 2 unrolled { for q in 2 unrolled {
          t[2*y + r, 4*q + v] = x[2*y + r, 4*q + v] } } } }
        for y2 in 16 thread.y { for v2 in 4 thread.x { for r2 in 2 unrolled { for q2 in 2 unrolled {
          o[2*y2 + r2, 4*q2 + v2] = t[2*y2 + r2, 4*q2 + v2] } } } }
      }
    }""")
    text = str(privatize(kernel))
    assert "alloc t: f32[2,2] @register" in text
    assert "t[r, q] = x[r + 2*y, 4*q + v]" in text
    assert "o[r2 + 2*y2, 4*q2 + v2] = t[r2, q2]" in text


def test_registers_of_other_threads_are_out_of_reach() -> None:
    text = str(bound(SQUARE, STEPS)).replace("@shared", "@register")
    assert "float x_r_1[1];" in kernel_source(parse_kernel(text), OpenCL())
    with pytest.raises(CodegenError, match="do not divide the register buffer 'x_r_1'"):
        kernel_source(parse_kernel(text.replace("x_r_1[i_i]", "x_r_1[-i_i + 63]")), OpenCL())


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("i_i in 64 thread.x", "i_i in 64 serial", None),
        ("i_o in (n + 63) // 64 block.x", "i_o in (n + 63) // 64 parallel", "is not bound"),
        ("f32", "f16", "Values of type 'f16' have no code for GPUs"),
        ("f32[64] @shared", "f32[n] @shared", "has the symbolic shape"),
    ],
)
def test_what_has_no_code(old: str, new: str, message: str | None) -> None:
    kernel = parse_kernel(str(bound(SQUARE, STEPS)).replace(old, new))
    if message is None:
        assert "if (get_local_id(0) == 0)" in kernel_source(kernel, OpenCL())
        return
    with pytest.raises(CodegenError, match=message):
        kernel_source(kernel, OpenCL())
