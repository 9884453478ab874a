# SPDX-License-Identifier: Apache-2.0
"""Joining axes: what becomes one axis, what must stay apart, and that values do not change."""

import numpy as np
import pytest
from computations import computation, stages

from tilewright.ir.interpreter.stages import run_stages
from tilewright.ir.rewrite import evaluate
from tilewright.passes.lower.collapse import collapse_axes

JOINED = {
    "all axes of an elementwise map": (
        """(x: f32[n,4,8]) -> (y: f32[n,4,8]) { symbol n in [1, 9]
        stage map a(i in n, j in 4, k in 8) -> y[i, j, k] = neg(x[i, j, k]) }""",
        ["map a(i in 32*n) -> y[i] = neg(x[i])"],
    ),
    "the axes that a bias does not have": (
        """(x: f32[n,m,8], b: f32[8]) -> (y: f32[n,m,8]) { symbol n in [1, 9] symbol m in [1, 9]
        stage map a(i in n, j in m, k in 8) -> y[i, j, k] = (x[i, j, k] + b[k]) }""",
        ["map a(i in m*n, k in 8) -> y[i, k] = (x[i, k] + b[k])"],
    ),
    "rows and columns of a reduction": (
        """(x: f32[2,3,4,5]) -> (y: f32[2,3]) {
        stage reduce s(i in 2, j in 3; k in 4, l in 5) -> y[i, j]
          : acc = f32(0.0) then (acc + x[i, j, k, l]) }""",
        ["reduce s(i in 6; k in 20) -> y[i] : acc = f32(0.0) then (acc + x[i, k])"],
    ),
    "axes in the order of memory, not of the text": (
        """(x: f32[2,8,3,4]{0,2,3,1}) -> (y: f32[2,8,3,4]{0,2,3,1}) {
        stage map a(n in 2, c in 8, h in 3, w in 4) -> y[n, c, h, w] = neg(x[n, c, h, w]) }""",
        ["map a(n in 192) -> y[n] = neg(x[n])"],
    ),
    "through an intermediate buffer": (
        """(x: f32[4,8], z: f32[5]) -> (y: f32[4,8,5]) { buffer t: f32[4,8] @workspace
        stage map a(i in 4, j in 8) -> t[i, j] = exp(x[i, j])
        stage map b(k in 4, l in 8, m in 5) -> y[k, l, m] = (t[k, l] * z[m]) }""",
        ["map a(i in 32) -> t[i] = exp(x[i])",
         "map b(k in 32, m in 5) -> y[k, m] = (t[k] * z[m])"],
    ),
    "axes that a reduction keeps, in the order of the cells that it writes": (
        """(x: f32[1,8,5,4]{0,2,3,1}) -> (y: f32[1,8,3,4]{0,2,3,1}) {
        stage reduce s(n in 1, c in 8, h in 3, w in 4; k in 3) -> y[n, c, h, w]
          : acc = f32(0.0) then (acc + x[n, c, h + k, w]) }""",
        ["reduce s(h in 3, w in 32; k in 3) -> y[h, w] "
         ": acc = f32(0.0) then (acc + x[h + k, w])"],
    ),
    "unit axes go": (
        """(x: f32[1,8,1]) -> (y: f32[8,1,1]) {
        stage map a(i in 8, j in 1, k in 1) -> y[i, j, k] = neg(x[j, i, k]) }""",
        ["map a(i in 8) -> y[i] = neg(x[i])"],
    ),
    "a scan of one step": (
        """(x: f32[1,6]) -> (y: f32[1,6]) {
        stage scan s(j in 6, i in 1) -> y[i, j] : run = f32(1.0) then (run * x[i, j]) }""",
        ["map s(j in 6) -> y[j] = (f32(1.0) * x[j])"],
    ),
    "an exclusive scan of one step": (
        """(x: f32[1,6]) -> (y: f32[1,6]) {
        stage scan s(j in 6, i in 1) -> y[i, j]
          : run = f32(3.0) then exclusive (run + x[i, j]) }""",
        ["map s(j in 6) -> y[j] = f32(3.0)"],
    ),
    "unit axes in arithmetic": (
        """(x: f32[3]) -> (y: f32[1,3]) {
        stage map a(i in 1, j in 3) -> y[i, j] = x[j + 2*i] }""",
        ["map a(j in 3) -> y[j] = x[j]"],
    ),
}  # fmt: skip

APART = {
    "a transposition": """(x: f32[4,8]) -> (y: f32[8,4]) {
        stage map a(i in 8, j in 4) -> y[i, j] = neg(x[j, i]) }""",
    "an axis that is shifted": """(x: f32[4,9]) -> (y: f32[4,8]) {
        stage map a(i in 4, j in 8) -> y[i, j] = x[i, j + 1] }""",
    "an axis whose number is used": """(x: f32[4,8]) -> (y: f32[4,8]) {
        stage map a(i in 4, j in 8) -> y[i, j] = guard(j < 3, x[i, j], f32(0.0)) }""",
    "an axis that reads part of a dim": """(x: f32[4,9]) -> (y: f32[4,8]) {
        stage map a(i in 4, j in 8) -> y[i, j] = neg(x[i, j]) }""",
    "an axis inside an index that is data": """(x: f32[5,8], r: i64[4]) -> (y: f32[4,8]) {
        stage map a(i in 4, j in 8) -> y[i, j] = x[cast(r[i], index), j] }""",
    "a dim stored in blocks": """(x: f32[4,32]{0,1;1:16}) -> (y: f32[4,32]{0,1;1:16}) {
        stage map a(i in 4, j in 32) -> y[i, j] = neg(x[i, j]) }""",
    "reduce axes in another order than memory": """(x: f32[4,8]) -> (y: f32[]) {
        stage reduce s(; j in 8, i in 4) -> y[] : acc = f32(0.0) then (acc + x[i, j]) }""",
    "an axis kept and an axis reduced": """(x: f32[4,8]) -> (y: f32[4]) {
        stage reduce s(i in 4; j in 8) -> y[i] : acc = f32(0.0) then (acc + x[i, j]) }""",
    "a diagonal": """(x: f32[4,4]) -> (y: f32[4]) {
        stage map a(i in 4) -> y[i] = neg(x[i, i]) }""",
    "the axes of a scan": """(x: f32[4,8]) -> (y: f32[4,8]) {
        stage scan s(i in 4, j in 8) -> y[i, j] : run = f32(0.0) then (run + x[i, j]) }""",
    "a triangle": """(x: f32[4,8]) -> (y: f32[4]) {
        stage reduce s(i in 4; j in i + 1) -> y[i] : acc = f32(0.0) then (acc + x[i, j]) }""",
}  # fmt: skip


@pytest.mark.parametrize("name", JOINED)
def test_joined(name: str) -> None:
    text, expected = JOINED[name]
    assert stages(collapse_axes(computation(text))) == expected


@pytest.mark.parametrize("name", APART)
def test_apart(name: str) -> None:
    c = computation(APART[name])
    assert stages(collapse_axes(c)) == stages(c)


@pytest.mark.parametrize("name", JOINED)
def test_memory_is_the_same(name: str) -> None:
    """The arguments hold the same elements in the same order in memory, before and after."""
    before = computation(JOINED[name][0])
    after = collapse_axes(before)
    sizes, rng = {"n": 3, "m": 2}, np.random.default_rng(1)
    results = []
    given = {b.name: rng.standard_normal(1000).astype(np.float32) for b in before.inputs}
    for c in (before, after):
        feeds = {}
        for b in c.inputs:
            shape = [evaluate(b.shape[d], sizes) for d in b.layout.order]
            flat = given[b.name][: int(np.prod(shape))]
            feeds[b.name] = flat.reshape(shape).transpose(np.argsort(b.layout.order))
        found = run_stages(c.stages, feeds, sizes)
        y = c.outputs[0]
        results.append(found[y.name].transpose(y.layout.order).reshape(-1))
    np.testing.assert_array_equal(*results)
