# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: E501 (kernels as text)
"""The legality proof: scheduled kernels are accepted, and every way to break one is refused with a counter-example."""

from dataclasses import dataclass

import pytest
from scheduled_kernels import KERNELS

from tilewright.ir.buffer import buffer
from tilewright.ir.dtypes import F32
from tilewright.ir.errors import ScheduleError
from tilewright.ir.expr import IndexOp, Read, Symbol, Var, index
from tilewright.ir.loop import Block, For, Kernel, Store, map_stmt, walk
from tilewright.ir.loop_parser import parse_kernel
from tilewright.ir.stage import Stage
from tilewright.ir.types import tensor
from tilewright.passes.schedule.legality import prove
from tilewright.passes.schedule.proof.report import numbers


@dataclass(frozen=True)
class Break:
    """One way to break a kernel: replace each ``old``, which occurs once, by its ``new``."""

    name: str
    kernel: str
    changes: tuple[tuple[str, str], ...]
    message: str


def broken(name: str, kernel: str, message: str, *changes: str) -> Break:
    pairs = tuple(zip(changes[::2], changes[1::2], strict=True))
    return Break(name, kernel, pairs, message)


BREAKS = (
    # --- a matrix product in register tiles, with tails ---
    broken(
        "reduction one short", "matmul", r"'mm\.update\(\d+, \d+, 60\)' is missing",
        "for ko in 16 serial", "for ko in 15 serial",
    ),
    broken(
        "reduction one long", "matmul", r"reads 'b\[64, \d+\]', outside the shape \[64, 40\] at .*k1=64",
        "for k1 in 64 serial", "for k1 in 65 serial",
    ),
    broken(
        "tile buffer one short", "matmul", r"'t\[5, \d+\]', outside the shape \[5, 16\] at .*i0=5",
        "t: f32[6,16]", "t: f32[5,16]",
    ),
    broken(
        "lost init", "matmul", r"'relu\.map\(\d+, \d+\)' .* needs 'mm\[.*nothing has written 't\[",
        "block mm.init(6*mo + i0, 16*no + j0) { t[i0, j0] = f32(0.0) }", "",
    ),
    broken(
        "init of a part", "matmul", r"'mm\[\d+, (15|31)\]', but nothing has written 't\[\d, 15\]'",
        "{ t[i0, j0] = f32(0.0) }", "{ if j0 < 15 { t[i0, j0] = f32(0.0) } }",
    ),
    broken(
        "wrong init", "matmul", r"'mm\.init\(\d+, 32\)' at .* computes 'f32\(1\.0\)' where stage 'mm' says 'f32\(0\.0\)'",
        "{ u[i3, j3] = f32(0.0) }", "{ u[i3, j3] = f32(1.0) }",
    ),
    broken(
        "parallel reduction", "matmul", r"Iterations ko=\d+ and ko=\d+ of the parallel loop meet: .*'t\[\d, \d+\]'",
        "for ko in 16 serial", "for ko in 16 parallel",
    ),
    broken(
        "vectorized reduction", "matmul", r"Iterations ki=\d and ki=\d of the vectorized loop meet",
        "for ki in 4 unrolled", "for ki in 4 vectorized",
    ),
    broken(
        "missing tail", "matmul", r"returns 'o\[99, \d+\]', but nothing has written",
        "for i6 in 4 serial", "for i6 in 3 serial",
    ),
    broken(
        "wrong tail offset", "matmul", r"returns 'o\[99, \d+\]', but 'o\[99, \d+\]' was last written by 'relu\.map\(98, \d+\)' at i6=3",
        "block relu.map(96 + i6, j6) {", "block relu.map(95 + i6, j6) {",
    ),
    broken(
        "wrong offset of a tile of an operand", "matmul", r"reads 'a\[\d+, \d+\]' where its stage reads 'a\[",
        "(a[6*mo + i1, 4*ko + ki]", "(a[6*mo + i1, 4*ko]",
    ),
    broken(
        "wrong operand", "matmul", r"computes 'a\[\d+, \d+\]' where stage 'mm' says 'b\[\d+, \d+\]'",
        "b[4*ko + ki, 16*no + j1]))", "a[6*mo + i1, 4*ko + ki]))",
    ),
    broken(
        "swapped operands", "matmul", r"at mo=\d+, .* computes .* where stage 'relu' says",
        "max((t[i2, j2] - f32(1.0)), f32(0.0))", "max((f32(1.0) - t[i2, j2]), f32(0.0))",
    ),
    broken(
        "changed constant", "matmul", r"computes 'f32\(1\.5\)' where stage 'relu' says 'f32\(1\.0\)'",
        "max((u[i5, j5] - f32(1.0)), f32(0.0))", "max((u[i5, j5] - f32(1.5)), f32(0.0))",
    ),
    broken(
        "another operation", "matmul", r"computes .* where stage 'mm' says",
        "(v[0] + (a[96 + i6, k2] * b[k2, j6]))", "(v[0] - (a[96 + i6, k2] * b[k2, j6]))",
    ),
    broken(
        "another accumulator", "matmul", r"computes 't\[\d, 0\]' where stage 'mm' says 'acc'",
        "(t[i1, j1] + (a", "(t[i1, 0] + (a",
    ),
    broken(
        "double update", "matmul", r"'mm\.update\((.*)\)' at .* and block 'mm\.update\(\1\)' at .* add the same update",
        "for i1 in 6 unrolled {", "for i1 in 6 unrolled { for again in 2 serial {",
        "16*no + j1])) } } } } }", "16*no + j1])) } } } } } }",
    ),
    broken(
        "overlapping chunks of a reduction", "matmul", r"add the same update to the same accumulator",
        "block mm.update(6*mo + i1, 16*no + j1, 4*ko + ki)", "block mm.update(6*mo + i1, 16*no + j1, 3*ko + ki)",
        "(a[6*mo + i1, 4*ko + ki] * b[4*ko + ki, 16*no + j1])", "(a[6*mo + i1, 3*ko + ki] * b[3*ko + ki, 16*no + j1])",
    ),
    broken(
        "read inside the reduction", "matmul", r"before update 'mm\.update\(",
        "(v[0] + (a[96 + i6, k2] * b[k2, j6])) } }\n      block relu.map(96 + i6, j6) { o[96 + i6, j6] = max((v[0] - f32(1.0)), f32(0.0)) }",
        "(v[0] + (a[96 + i6, k2] * b[k2, j6])) }\n      block relu.map(96 + i6, j6) { o[96 + i6, j6] = max((v[0] - f32(1.0)), f32(0.0)) } }",
    ),
    # --- a convolution with its padded window in workspace ---
    broken(
        "halo one short", "convolution", r"'conv\.update\(.*\)' .* needs 'pad\[.*, 5, \d+\]', but nothing has written 'p\[5, ",
        "for pr in min(6, 16 - 4*hb)", "for pr in min(5, 16 - 4*hb)",
    ),
    broken(
        "halo off by one", "convolution", r"needs 'pad\[.*\]', but .*'p\[.*\]'",
        "(p[hi + r, 7*wb + wj + s, c]", "(p[hi + r, 7*wb + wj + 2 - s, c]",
    ),
    broken(
        "halo buffer one short", "convolution", r"writes 'p\[5, .*outside the shape \[5, 16, 16\]",
        "p: f32[6,16,16]", "p: f32[5,16,16]",
    ),
    broken(
        "dropped guard", "convolution", r"reads 'x\[\d+, \d+, \d+, (-1|14)\]', outside|computes",
        "guard(and(and(4*hb + pr >= 1, 4*hb + pr < 15), and(pw >= 1, pw < 15)), x[ni", "guard(and(4*hb + pr >= 1, 4*hb + pr < 15), x[ni",
    ),
    broken(
        "wrong padding value", "convolution", r"at .*pr=\d, pw=\d+, .* computes 'f32\(1\.0\)' where stage 'pad' says 'f32\(0\.0\)'",
        "x[ni, pc, 4*hb + pr - 1, pw - 1], f32(0.0)) }", "x[ni, pc, 4*hb + pr - 1, pw - 1], f32(1.0)) }",
    ),
    broken(
        "guard off by one", "convolution", r"computes .* where stage 'pad' says",
        "and(4*hb + pr >= 1, 4*hb + pr < 15)", "and(4*hb + pr >= 2, 4*hb + pr < 15)",
    ),
    broken(
        "columns not copied", "convolution", r"needs 'pad\[\d+, \d+, \d+, 15\]', but nothing has written 'p\[\d, 15, \d+\]'",
        "for pw in 16 serial", "for pw in 15 serial",
    ),
    broken(
        "stale tile", "convolution", r"needs 'pad\[.*\]', but 'p\[.*\]' was last written by 'pad\.map\(",
        "    for hb in 4 serial {\n      alloc p: f32[6,16,16] @workspace {\n", "    alloc p: f32[6,16,16] @workspace {\n      for hb in 4 serial {\n",
        "for pr in min(6, 16 - 4*hb) serial {", "for pr in min(6, 16 - 4*hb) serial { if or(hb < 2, pr > 0) {",
        "x[ni, pc, 4*hb + pr - 1, pw - 1], f32(0.0)) } } } }", "x[ni, pc, 4*hb + pr - 1, pw - 1], f32(0.0)) } } } } }",
    ),
    broken(
        "block of rows not covered", "convolution", r"returns 'o\[\d+, \d+, 1[23], \d+\]', but nothing has written .* \(n=\d+\)",
        "for hb in 4 serial", "for hb in 3 serial",
    ),
    # --- a softmax over rows of symbolic length ---
    broken(
        "unmasked lanes", "softmax", r"writes 'o\[\d+, (\d+)\]', outside the shape \[\d+, \d+\] at .*\(.*n=\d+",
        "for il in 8 vectorized { if 8*io + il < n {", "for il in 8 vectorized { if il < 8 {",
    ),
    broken(
        "missing tail lanes", "softmax", r"returns 'o\[\d+, \d+\]', but nothing has written 'o\[\d+, \d+\]' before \(.*n=\d+",
        "for io in (n + 7) // 8", "for io in n // 8",
    ),
    broken(
        "short sum", "softmax", r"'sum\.update\(\d+, \d+\)' is missing",
        "for k2 in n serial", "for k2 in n - 1 serial",
    ),
    broken(
        "init after update", "softmax", r"'sum\.update\(\d+, \d+\)' .* updates 's\[\d+\]', but nothing has written 'st\[0\]'",
        "      block sum.init(row) { st[0] = f32(0.0) }\n", "",
        "(st[0] + et[k2]) } }\n", "(st[0] + et[k2]) } }\n      block sum.init(row) { st[0] = f32(0.0) }\n",
    ),
    broken(
        "sum started in its loop", "softmax", r"'sum\.update\(\d+, \d+\)' is missing",
        "      block sum.init(row) { st[0] = f32(0.0) }\n", "",
        "for k2 in n serial {", "for k2 in n serial { block sum.init(row) { st[0] = f32(0.0) }",
    ),
    broken(
        "sum of what is not there yet", "softmax", r"'sum\.update\(\d+, \d+\)' at .* needs 'e\[\d+, \d+\]', but nothing has written 'et\[",
        "      for k2 in n serial { block sum.update(row, k2) { st[0] = (st[0] + et[k2]) } }\n", "",
        "{ mt[0] = max(mt[0], x[row, k]) } }\n", "{ mt[0] = max(mt[0], x[row, k]) } }\n"
        "      block sum.init(row) { st[0] = f32(0.0) }\n"
        "      for k2 in n serial { block sum.update(row, k2) { st[0] = (st[0] + et[k2]) } }\n",
        "      block sum.init(row) { st[0] = f32(0.0) }\n      for io", "      for io",
    ),
    broken(
        "rows share a buffer", "softmax", r"Iterations row=\d+ and row=\d+ of the parallel loop meet: .*'mt\[0\]'",
        "  for row in b parallel {\n    alloc mt: f32[1] @register {", "  alloc mt: f32[1] @workspace {\n    for row in b parallel {",
    ),
    broken(
        "vectorized recurrence", "softmax", r"Iterations k2=\d+ and k2=\d+ of the vectorized loop meet",
        "for k2 in n serial", "for k2 in n vectorized",
    ),
    # --- a depthwise convolution over fused loops ---
    broken(
        "wrong stride", "depthwise", r"reads 'x\[.*\]' where its stage reads 'x\[",
        "2*(f % 28) + r,", "(f % 28) + r,",
    ),
    broken(
        "swapped indices", "depthwise", r"reads 'w\[\d+, (\d), (\d)\]' where its stage reads 'w\[\d+, \2, \1\]'",
        "w[8*cb + c3, r, s]", "w[8*cb + c3, s, r]",
    ),
    broken(
        "fused loop taken apart wrongly", "depthwise", r"returns 'o\[\d+, \d+, 27, \d+\]', but nothing has written",
        "block clip.map(f // 28, 8*cb + c4, f % 28, 4*wb + w4) {\n            o[f // 28, 8*cb + c4, f % 28,",
        "block clip.map(f // 28, 8*cb + c4, f % 27, 4*wb + w4) {\n            o[f // 28, 8*cb + c4, f % 27,",
    ),
    # --- an inverted bottleneck in bands of rows ---
    broken(
        "halo not computed", "bottleneck", r"'pad\.map\(.*\)' at .* needs 'a\[\d+, \d+, \d+\]', but nothing has written 'at\[\d, .* \(h=\d+\)",
        "for er in 6 serial { if and(4*hb + er >= 1,", "for er in 6 serial { if and(4*hb + er >= 2,",
    ),
    broken(
        "expansion of another row", "bottleneck", r"reads 'x\[",
        "(x[4*hb + er - 1, ew, ek]", "(x[4*hb + er, ew, ek]",
    ),
    broken(
        "project before its input", "bottleneck", r"'project\.update\(.*\)' at .* needs 'g\[",
        "for dr in min(4, h - 4*hb)", "for dr in min(3, h - 4*hb)",
    ),
    # --- attention in tiles of query rows ---
    broken(
        "scores overwritten", "attention", r"'exp\.map\(.*\)' at .* needs 'z\[.*\]', but 'zt\[\d, 0\]' was last written by '(exp|mask)\.map\(",
        "exp((zt[ie, je] - mt[ie]))", "exp((zt[ie, 0] - mt[ie]))",
    ),
    broken(
        "maximum of a part", "attention", r"'top\.update\(\d+, \d+, \d+\)' is missing",
        "for jc in n serial", "for jc in 8*ib serial",
    ),
    broken(
        "mask of another row", "attention", r"computes .* where stage 'mask' says",
        "select(ja <= 8*ib + ia,", "select(ja <= ia,",
    ),
    broken(
        "mask dropped", "attention", r"where stage 'mask' says 'f32\(-inf\)'",
        "select(ja <= 8*ib + ia, (st[0] * f32(0.125)), f32(-inf))", "(st[0] * f32(0.125))",
    ),
    broken(
        "divided by another row", "attention", r"'div\.map\(.*\)' at .* needs 'l\[\d+, \d+\]', but 'lt\[0\]' was last written by 'sum\.init\(",
        "/ lt[ig])", "/ lt[0])",
    ),
    # --- a reduction over a tuple ---
    broken(
        "swapped loops of an ordered reduction", "argmax", r"'arg\.update\(.*\)' at .* runs before block 'arg\.update\(.*\)' at .*depends on their order",
        "for jo in n // 4 serial { for ji in 4 unrolled {", "for ji in 4 unrolled { for jo in n // 4 serial {",
    ),
    broken(
        "half of a tuple started again", "argmax", r"'arg\.init\(\d+\)'",
        "for jt in n % 4 serial {", "for jt in n % 4 serial { block arg.init(row) { t[0] = f32(-inf) o[row] = i64(0) }",
    ),
    broken(
        "tuple stored too early", "argmax", r"computes 'select\(.*' where stage 'arg' says 'v'",
        "let v3 = select((x[row, 4*(n // 4) + jt] > t[0]), x[row, 4*(n // 4) + jt], t[0]) {\n",
        "let v3 = select((x[row, 4*(n // 4) + jt] > t[0]), x[row, 4*(n // 4) + jt], t[0]) { t[0] = v3\n",
        "              t[0] = v3 o[row] = i3", "              o[row] = i3",
    ),
    # --- data-dependent indices ---
    broken(
        "index not clamped", "embedding", r"reads 'u\[.*\]', outside the shape \[1000, 64\]",
        "u[min(max(cast(ids[i], index), 0), 999), cw]", "u[max(cast(ids[i], index), 0), cw]",
    ),
    broken(
        "table not finished", "embedding", r"'pick\.map\(\d+, \d+\)' .* needs 't\[999, \d+\]', but nothing has written 'u\[999,",
        "for r in 1000 serial", "for r in 999 serial",
    ),
    broken(
        "another data-dependent index", "embedding", r"needs|computes|reads",
        "u[min(max(cast(ids[i], index), 0), 999), cw]", "u[min(max(cast(ids[n - 1 - i], index), 0), 999), cw]",
    ),
    # --- copies and inlined stages ---
    broken(
        "copy of another cell", "copies", r"reads 'x\[\d+, \d+\]' where its stage reads 'x\[",
        "{ xc[i, j] = x[8*ib + i, 8*jb + j] }", "{ xc[i, j] = x[8*ib + j, 8*jb + i] }",
    ),
    broken(
        "cell of a copy that was not filled", "copies", r"needs 'x\[.*\]', but nothing has written 'xc\[",
        "for i in 8 serial { for j in 8 serial {", "for i in 8 serial { for j in 7 serial {",
    ),
    broken(
        "inlined expression of another cell", "copies", r"reads 'y\[",
        "y[8*jb + j2, 8*ib + i2]", "y[8*ib + i2, 8*jb + j2]",
    ),
    # --- a buffer carried from one iteration to the next ---
    broken(
        "carried buffer one short", "rolling", r"'sum\.map\(\d+, \d+\)' .* needs 'e\[",
        "ring: f32[3,32]", "ring: f32[2,32]", "ring[(i + 2) % 3, ec]", "ring[i % 2, ec]",
        "((ring[i % 3, sc] - ring[(i + 1) % 3, sc]) + ring[(i + 2) % 3, sc])", "((ring[i % 2, sc] - ring[(i + 1) % 2, sc]) + ring[i % 2, sc])",
    ),
    broken(
        "read before this iteration's write", "rolling", r"'sum\.map\(\d+, \d+\)' .* needs 'e\[",
        "for ec in 32 vectorized {", "for sd in 32 vectorized { block sum.map(i, sd) { o[i, sd] = ((ring[i % 3, sd] - ring[(i + 1) % 3, sd]) + ring[(i + 2) % 3, sd]) } }\n      for ec in 32 vectorized {",
    ),
    broken(
        "parallel over a carried buffer", "rolling", r"Iterations i=\d+ and i=\d+ of the parallel loop meet",
        "for i in n serial", "for i in n parallel",
    ),
    # --- padded layouts and overlapping tiles ---
    broken(
        "read past a layout without padding", "padded", r"reads 'b\[\d+, \d+\]', outside the shape \[64, 24\]",
        "b: f32[64,24]{0,1;1:16}", "b: f32[64,24]",
    ),
    broken(
        "padding lanes stored", "padded", r"writes 'o\[\d+, (2[4-9]|3[01])\]', outside the shape",
        "if 16*jb + j4 < 24 {", "if j4 < 24 {",
    ),
    # --- scans and scatters ---
    broken(
        "scan with a gap", "last", r"'state' goes past step 5 without running it after 'state\.init\(\d+\)'",
        "for t in 64 serial {", "for t in 64 serial { if t != 5 {", "ht[t] = c[] } }", "ht[t] = c[] } } }",
    ),
    broken(
        "scan out of order", "cumsum", r"'total\.update\(.*\)' at .* runs before .* depends on their order",
        "for to in n // 4 serial { for ti in 4 unrolled {", "for ti in 4 unrolled { for to in n // 4 serial {",
    ),
    broken(
        "parallel scan", "cumsum", r"Iterations to=\d+ and to=\d+ of the parallel loop meet: .*'carried\[\]'",
        "for to in n // 4 serial", "for to in n // 4 parallel",
    ),
    broken(
        "exclusive scan stored after its step", "cumsum", r"computes .* where stage 'total' says|says 'acc'",
        "          o[i, n - 1 - 4*to - ti] = carried[]\n          carried[] = (carried[] + x[i, n - 1 - 4*to - ti]) } } }",
        "          carried[] = (carried[] + x[i, n - 1 - 4*to - ti])\n          o[i, n - 1 - 4*to - ti] = carried[] } } }",
    ),
    broken(
        "scan without start", "cumsum", r"'total\.update\(\d+, \d+\)' .* updates 'carried\[\d+\]', but nothing has written 'carried\[\]'",
        "      block total.init(i) { carried[] = f32(0.0) }\n", "",
    ),
    broken(
        "other value stored by a scan", "running", r"computes",
        "p[i, t] = ac[]", "p[i, t] = cast(mc[], i64)",
    ),
    broken(
        "missing scatter updates", "scatter", r"'add\.update\(\d+, \d+\)' is missing",
        "for k in n serial", "for k in n - 1 serial",
    ),
    broken(
        "parallel scatter", "scatter", r"Iterations k=\d+ and k=\d+ of the parallel loop meet",
        "for k in n serial", "for k in n parallel",
    ),
    broken(
        "scatter over cells that were not started", "scatter", r"'o\[99, \d+\]', but nothing has written 'o\[99, \d+\]'",
        "for r in 100 serial", "for r in 99 serial",
    ),
    broken(
        "scatter to another cell", "scatter", r"'add\.(update|init)\(",
        "      o[min(max(cast(ids[k], index), 0), 99), d] = (o[min(max(cast(ids[k], index), 0), 99), d]",
        "      o[min(max(cast(ids[0], index), 0), 99), d] = (o[min(max(cast(ids[0], index), 0), 99), d]",
    ),
    broken(
        "scatter update under a condition", "scatter", r"'add\.update' .*depends on|Where block 'add\.update' writes depends on",
        "block add.update(k, d) {", "if (u[k, d] > f32(0.0)) { block add.update(k, d) {",
        "+ u[k, d]) } } }", "+ u[k, d]) } } } }",
    ),
    broken(
        "update under a condition on values", "softmax", r"Where block 'sum\.update' writes depends on|depends on 'et\[k2\]'",
        "block sum.update(row, k2) { st[0] = (st[0] + et[k2]) }", "block sum.update(row, k2) { if (x[row, k2] > f32(0.0)) { st[0] = (st[0] + et[k2]) } }",
    ),
    broken(
        "overlapping parallel writes", "overlap", r"Iterations i=\d+ and i=\d+ of the parallel loop meet: .* writes it too \(n=\d+\)",
        "for i in (n + 7) // 8 serial", "for i in (n + 7) // 8 parallel",
    ),
)  # fmt: skip


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("thorough", [False, True])
def test_legal_kernels_are_accepted(name: str, thorough: bool) -> None:
    proof = prove(parse_kernel(KERNELS[name]), thorough=thorough)
    assert proof.instances > 0 and proof.seconds > 0


@pytest.mark.parametrize("case", BREAKS, ids=lambda b: b.name.replace(" ", "-"))
def test_broken_kernels_are_refused(case: Break) -> None:
    text = KERNELS[case.kernel]
    for old, new in case.changes:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    kernel = parse_kernel(text)
    for thorough in (False, True):
        with pytest.raises(ScheduleError, match=case.message):
            prove(kernel, thorough=thorough)


def test_the_order_of_a_sum_is_a_matter_of_policy() -> None:
    swapped = KERNELS["matmul"].replace(
        "for ko in 16 serial { for ki in 4 unrolled {",
        "for ki in 4 unrolled { for ko in 16 serial {",
    )
    kernel = parse_kernel(swapped)
    for thorough in (False, True):
        prove(parse_kernel(KERNELS["matmul"]), allow_reorder=False, thorough=thorough)
        prove(kernel, thorough=thorough)
        with pytest.raises(ScheduleError, match=r"'mm' depends on their order"):
            prove(kernel, allow_reorder=False, thorough=thorough)


def test_a_proof_over_its_cap_is_refused() -> None:
    kernel = parse_kernel(KERNELS["rolling"])
    with pytest.raises(ScheduleError, match=r"takes more than 1000 operations"):
        prove(kernel, max_operations=1000)


def test_an_opaque_stage_is_left_as_it_is() -> None:
    (axis,) = (Var("i", index(4)),)
    x, y = (buffer(name, tensor(F32, (4,))) for name in ("x", "y"))
    copied = For(axis, "serial", Store(y, (axis,), Read(x, (axis,))))
    stage = Stage("opaque", "sort", (axis,), (), (y,), (axis,), (), (), (), False, copied)
    kernel = Kernel("k", (x,), (y,), (), (stage,), copied)
    assert prove(kernel).instances == 0
    changed = kernel.with_body(For(axis, "parallel", copied.body))
    with pytest.raises(ScheduleError, match=r"opaque stage 'sort'"):
        prove(changed)


def test_blocks_must_name_stages_and_bound_variables() -> None:
    text = KERNELS["overlap"]
    kernel = parse_kernel(text)
    (inner,) = (s for s in walk(kernel.body) if isinstance(s, Block))
    unbound = kernel.with_body(inner)
    with pytest.raises(
        ScheduleError, match=r"Block 'add.map' uses '[ij]', which nothing around it"
    ):
        prove(unbound)
    renamed = kernel.with_body(
        map_stmt(
            kernel.body,
            lambda s: Block("plus", s.part, s.point, s.body) if isinstance(s, Block) else None,
        )
    )
    with pytest.raises(ScheduleError, match=r"names stage 'plus', .*; it has 'add'"):
        prove(renamed)


TRANSPOSED = """
kernel @transposed(x: f32[4,4,5]) -> (y: f32[4,4]) {
  stage reduce sum(i in 4, j in 4; k in 5) -> y[j, i] : acc = f32(0.0) then (acc + x[i, j, k])
  for a in 4 serial { for b in 4 serial { block sum.init(a, b) { y[b, a] = f32(0.0) } } }
  for i in 4 serial { for j in 4 serial { for k in 5 serial {
    block sum.update(i, j, k) { y[j, i] = (y[j, i] + x[i, j, k]) } } } }
}
"""


@pytest.mark.parametrize("thorough", [False, True])
def test_a_reduction_may_write_its_cells_in_another_order(thorough: bool) -> None:
    prove(parse_kernel(TRANSPOSED), thorough=thorough)
    for right, wrong in (
        ("block sum.init(a, b) { y[b, a]", "block sum.init(a, b) { y[a, b]"),
        ("{ y[j, i] = (y[j, i] +", "{ y[i, j] = (y[i, j] +"),
    ):
        broken = TRANSPOSED.replace(right, wrong)
        assert broken != TRANSPOSED
        with pytest.raises(ScheduleError):
            prove(parse_kernel(broken), thorough=thorough)


SHRUNK = """
kernel @shrunk(x: f32[n - 4]) -> (y: f32[n - 4]) {
  symbol n in [1, 64]
  stage map neg(i in n - 4) -> y[i] = neg(x[i])
  for i in max(n - 4, 1) serial { if (n != 4) { block neg.map(i) { y[i] = neg(x[i]) } } }
}
"""


def test_no_dim_of_an_argument_is_negative() -> None:
    """For n below 4 the block would write outside; the host program lets no such n through."""
    prove(parse_kernel(SHRUNK))
    prove(parse_kernel(SHRUNK), thorough=True)
    with pytest.raises(ScheduleError, match=r"writes 'y\[0\]', outside the shape \[0\] .*n=4"):
        prove(parse_kernel(SHRUNK.replace("n != 4", "n != 5")))


def test_a_counter_example_may_divide_by_zero() -> None:
    m = Symbol("m", 0, 9)
    assert numbers((IndexOp("floordiv", m, m), m + 1), {m: 0}) == ["0", "1"]
