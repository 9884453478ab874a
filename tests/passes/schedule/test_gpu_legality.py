# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: E501
"""GPU kernels in the proof: phases, barriers, registers of threads; and ways to break them."""

import pytest

from tilewright.ir.errors import ScheduleError
from tilewright.ir.loop_parser import parse_kernel
from tilewright.ir.verify_loop import verify_kernel
from tilewright.passes.schedule.legality import prove

MATMUL = """
kernel @matmul(a: f32[m,64], b: f32[64,40]) -> (o: f32[m,40]) {
  symbol m in [1, 5000]
  buffer ac: f32[m,64]
  buffer p: f32[m,40]
  stage map load(i0 in m, r0 in 64) -> ac[i0, r0] = a[i0, r0]
  stage reduce mm(i1 in m, j1 in 40; r1 in 64) -> p[i1, j1] : acc = f32(0.0) then (acc + (ac[i1, r1] * b[r1, j1]))
  stage map out(i2 in m, j2 in 40) -> o[i2, j2] = max(p[i2, j2], f32(0.0))
  for ib in (m + 7) // 8 block.x { for jb in 5 block.y {
    alloc t: f32[8,8] @register {
      for y0 in 4 thread.y { for x0 in 4 thread.x { for u0 in 2 unrolled { for v0 in 2 unrolled {
        if 8*ib + 2*y0 + u0 < m {
          block mm.init(8*ib + 2*y0 + u0, 8*jb + 4*v0 + x0) { t[2*y0 + u0, 4*v0 + x0] = f32(0.0) } } } } } }
      alloc s: f32[8,16] @shared {
        for rb in 4 serial {
          barrier
          for y1 in 4 thread.y { for x1 in 4 thread.x { for u1 in 2 serial { for v1 in 4 serial {
            if 8*ib + 4*u1 + y1 < m {
              block load.map(8*ib + 4*u1 + y1, 16*rb + 4*v1 + x1) { s[4*u1 + y1, 4*v1 + x1] = a[8*ib + 4*u1 + y1, 16*rb + 4*v1 + x1] } } } } } }
          barrier
          for y2 in 4 thread.y { for x2 in 4 thread.x { for ri in 16 serial { for u2 in 2 unrolled { for v2 in 2 unrolled {
            if 8*ib + 2*y2 + u2 < m {
              block mm.update(8*ib + 2*y2 + u2, 8*jb + 4*v2 + x2, 16*rb + ri) {
                t[2*y2 + u2, 4*v2 + x2] = (t[2*y2 + u2, 4*v2 + x2] + (s[2*y2 + u2, ri] * b[16*rb + ri, 8*jb + 4*v2 + x2])) } } } } } } }
        }
      }
      for y3 in 4 thread.y { for x3 in 4 thread.x { for u3 in 2 unrolled { for v3 in 2 unrolled {
        if 8*ib + 2*y3 + u3 < m {
          block out.map(8*ib + 2*y3 + u3, 8*jb + 4*v3 + x3) { o[8*ib + 2*y3 + u3, 8*jb + 4*v3 + x3] = max(t[2*y3 + u3, 4*v3 + x3], f32(0.0)) } } } } } }
    }
  } }
}
"""

BREAKS = {
    "no barrier before the tile is used": (
        "          barrier\n          for y2", "          for y2",
        "The phase 'for y2 in 4 thread.y' touches 's', which another thread may still be writing",
    ),
    "no barrier before the tile is filled again": (
        "          barrier\n          for y1", "          for y1",
        "The phase 'for y1 in 4 thread.y' touches 's', which another thread may still be writing",
    ),
    "a barrier that not all threads reach": (
        "for x1 in 4 thread.x {", "for x1 in 4 thread.x { barrier",
        "A barrier is inside a loop over threads",
    ),
    "threads share the reduction": (
        "for ri in 16 serial", "for ri in 16 thread.z",
        r"Iterations ri=\d+ and ri=\d+ of the thread\.z loop meet",
    ),
    "every thread fills the tile": (
        "for v1 in 4 serial {", "for v1 in 16 serial {",
        "16*rb + 4*v1 + x1) { s[4*u1 + y1, 4*v1 + x1] = a[8*ib + 4*u1 + y1, 16*rb + 4*v1 + x1]",
        "16*rb + v1) { s[4*u1 + y1, v1] = a[8*ib + 4*u1 + y1, 16*rb + v1]",
        r"Iterations x1=\d and x1=\d of the thread\.x loop meet",
    ),
    "blocks share the tile": (
        "alloc s: f32[8,16] @shared {", "alloc q: f32[8,16] @shared {",
        "  for ib in (m + 7)", "  alloc s: f32[8,16] @shared { for ib in (m + 7)",
        "    }\n  } }\n}", "    }\n  } } }\n}",
        r"Iterations ib=\d+ and ib=\d+ of the block\.x loop meet",
    ),
    "accumulators divided in two ways": (
        "for x3 in 4 thread.x { for u3 in 2 unrolled { for v3 in 2 unrolled {",
        "for v3 in 2 thread.x { for u3 in 2 unrolled { for x3 in 4 unrolled {",
        "do not divide the register buffer 't' in one way",
    ),
    "a phase without an axis of its accumulators": (
        "for y3 in 4 thread.y { for x3 in 4 thread.x", "for x3 in 4 thread.x { for y3 in 4 serial",
        "do not divide the register buffer 't' in one way",
    ),
    "an axis of blocks twice": (
        "for jb in 5 block.y", "for jb in 5 block.x", "Two loops are bound to 'block.x'",
    ),
    "an axis of threads twice": (
        "for y1 in 4 thread.y", "for y1 in 4 thread.x",
        "The loop 'x1' is inside another one over 'thread.x'",
    ),
    "a loop over blocks inside": (
        "for y0 in 4 thread.y { for x0", "for z in 1 block.z { for y0 in 4 thread.y { for x0",
        "{ t[2*y0 + u0, 4*v0 + x0] = f32(0.0) } } } } } }",
        "{ t[2*y0 + u0, 4*v0 + x0] = f32(0.0) } } } } } } }",
        "The loop 'z' over blocks is inside of other statements",
    ),
    "statements between loops over threads": (
        "for x1 in 4 thread.x { for u1 in 2 serial {", "for u1 in 2 serial { for x1 in 4 thread.x {",
        "There are statements between 'y1' and the loop over threads inside it",
    ),
    "shared memory of one thread": (
        "for x1 in 4 thread.x {", "for x1 in 4 thread.x { alloc q: f32[2] @shared {",
        "16*rb + 4*v1 + x1] } } } } } }", "16*rb + 4*v1 + x1] } } } } } } }",
        "'q' is shared, but allocated by each thread",
    ),
    "a symbolic number of threads": (
        "for y3 in 4 thread.y", "for y3 in min(4, m) thread.y",
        "The extent of the loop 'y3' over threads is not constant",
    ),
    "a lost guard": (
        "if 8*ib + 2*y3 + u3 < m {", "if 8*ib + 2*y3 + u3 < m + 1 {",
        r"Block 'out\.map' writes 'o\[\d+, \d+\]', outside the shape",
    ),
}  # fmt: skip


def broken(name: str) -> tuple[str, str]:
    """The kernel with the changes of a case, and the message that is expected."""
    *changes, message = BREAKS[name]
    text = MATMUL
    for old, new in zip(changes[::2], changes[1::2], strict=True):
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text, message


def test_a_tiled_matmul_is_accepted() -> None:
    kernel = parse_kernel(MATMUL)
    verify_kernel(kernel)
    assert prove(kernel).instances == 4
    assert prove(kernel, thorough=True).instances == 4


@pytest.mark.parametrize("name", BREAKS)
def test_broken_kernels_are_refused(name: str) -> None:
    text, message = broken(name)
    with pytest.raises(ScheduleError, match=message):
        prove(parse_kernel(text))
