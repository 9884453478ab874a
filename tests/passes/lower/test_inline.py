# SPDX-License-Identifier: Apache-2.0
"""Inlining: which maps disappear into their readers, and what the readers then say."""

import pytest
from computations import Region, computation, stages

from tilewright.ir.dtypes import F32
from tilewright.ir.ops.binary import Mul
from tilewright.ir.types import tensor
from tilewright.passes.lower.inline import LONGEST, inline_maps, is_movement
from tilewright.passes.lower.kernel import lower_group

INLINED = {
    "a chain of maps": (
        """(x: f32[8]) -> (y: f32[8]) { buffer t: f32[8] @workspace
        stage map a(i in 8) -> t[i] = exp(x[i])
        stage map b(j in 8) -> y[j] = (t[j] * t[j]) }""",
        ["map b(j in 8) -> y[j] = (exp(x[j]) * exp(x[j]))"],
    ),
    "a movement into two readers": (
        """(x: f32[4,8]) -> (y: f32[8,4], z: f32[8,4]) { buffer t: f32[8,4] @workspace
        stage map a(i in 8, k in 4) -> t[i, k] = x[k, i]
        stage map b(j in 8, l in 4) -> y[j, l] = neg(t[j, l])
        stage map c(m in 8, n in 4) -> z[m, n] = exp(t[m, n]) }""",
        ["map b(j in 8, l in 4) -> y[j, l] = neg(x[l, j])",
         "map c(m in 8, n in 4) -> z[m, n] = exp(x[n, m])"],
    ),
    "a map into the reduction of all that it computes": (
        """(x: f32[4,8]) -> (y: f32[4]) { buffer t: f32[4,8] @workspace
        stage map a(i in 4, k in 8) -> t[i, k] = exp(x[i, k])
        stage reduce s(j in 4; l in 8) -> y[j] : acc = f32(0.0) then (acc + t[j, l]) }""",
        ["reduce s(j in 4; l in 8) -> y[j] : acc = f32(0.0) then (acc + exp(x[j, l]))"],
    ),
    "through two maps": (
        """(x: f32[8]) -> (y: f32[8]) { buffer t: f32[8] @workspace buffer u: f32[8] @workspace
        stage map a(i in 8) -> t[i] = exp(x[i])
        stage map b(j in 8) -> u[j] = neg(t[j])
        stage map c(k in 8) -> y[k] = (u[7 - k] + f32(1.0)) }""",
        ["map c(k in 8) -> y[k] = (neg(exp(x[-k + 7])) + f32(1.0))"],
    ),
}  # fmt: skip

KEPT = {
    "an output of the kernel": """(x: f32[8]) -> (t: f32[8], y: f32[8]) {
        stage map a(i in 8) -> t[i] = exp(x[i])
        stage map b(j in 8) -> y[j] = neg(t[j]) }""",
    "an expensive map with two readers": """(x: f32[8]) -> (y: f32[8], z: f32[8]) {
        buffer t: f32[8] @workspace
        stage map a(i in 8) -> t[i] = exp(x[i])
        stage map b(j in 8) -> y[j] = neg(t[j])
        stage map c(k in 8) -> z[k] = (t[k] + f32(1.0)) }""",
    "an expensive map read at two cells": """(x: f32[9]) -> (y: f32[8]) {
        buffer t: f32[9] @workspace
        stage map a(i in 9) -> t[i] = exp(x[i])
        stage map b(j in 8) -> y[j] = (t[j] + t[j + 1]) }""",
    "an operand of a contraction": """(x: f32[4,8], w: f32[8,5]) -> (y: f32[4,5]) {
        buffer t: f32[4,8] @workspace
        stage map a(i in 4, k in 8) -> t[i, k] = neg(x[i, k])
        stage reduce mm(m in 4, n in 5; l in 8) -> y[m, n]
          : acc = f32(0.0) then (acc + (t[m, l] * w[l, n])) }""",
    "padding in front of a window": """(x: f32[8]) -> (y: f32[8]) {
        buffer t: f32[10] @workspace
        stage map a(i in 10) -> t[i] = guard(and(i >= 1, i < 9), x[i - 1], f32(0.0))
        stage reduce s(j in 8; k in 3) -> y[j] : acc = f32(0.0) then (acc + t[j + k]) }""",
    "a map that writes somewhere else": """(x: f32[8]) -> (y: f32[8]) {
        buffer t: f32[8] @workspace
        stage map a(i in 8) -> t[7 - i] = neg(x[i])
        stage map b(j in 8) -> y[j] = neg(t[j]) }""",
    "a map of two outputs": """(x: f32[8]) -> (y: f32[8]) {
        buffer t: f32[8] @workspace buffer u: f32[8] @workspace
        stage map a(i in 8) -> t[i], u[i] = neg(x[i]), exp(x[i])
        stage map b(j in 8) -> y[j] = (t[j] + u[j]) }""",
    "a reduction": """(x: f32[4,8]) -> (y: f32[4]) { buffer t: f32[4] @workspace
        stage reduce s(j in 4; l in 8) -> t[j] : acc = f32(0.0) then (acc + x[j, l])
        stage map b(k in 4) -> y[k] = neg(t[k]) }""",
}  # fmt: skip


@pytest.mark.parametrize("name", INLINED)
def test_inlined(name: str) -> None:
    text, expected = INLINED[name]
    assert stages(inline_maps(computation(text))) == expected


@pytest.mark.parametrize("name", KEPT)
def test_kept(name: str) -> None:
    c = computation(KEPT[name])
    assert inline_maps(c).stages == c.stages


def test_what_is_a_movement() -> None:
    c = computation("""(x: f32[8], c: bool[8]) -> (y: f32[8], z: f32[8], w: f32[8]) {
        stage map a(i in 8) -> y[i] = select(c[i], x[i], f32(0.0))
        stage map b(j in 8) -> z[j] = exp(x[j])
        stage map d(k in 8) -> w[k] = ((x[k] * x[k]) + ((x[k] * x[k]) * (x[k] - f32(1.0)))) }""")
    assert [is_movement(s) for s in c.stages] == [True, False, False]


def test_a_chain_that_doubles_is_cut() -> None:
    """Each step reads the one before it twice: written out, forty steps would be 2**40 terms."""
    region = Region(tensor(F32, (6,)))
    value = region.inputs[0]
    for _ in range(40):
        value = region.build(Mul(), value, value)
    low = lower_group(region.node(value), region.store)
    assert 2 <= len(low.kernel.stages) <= 8
    assert len(str(low.kernel)) < 8 * 50 * LONGEST
