# SPDX-License-Identifier: Apache-2.0
"""Plain nests of every kind of stage: their text, and that they compute what the stages say."""

import numpy as np
import pytest
from computations import computation

from tilewright.ir.interpreter.loops import interpret_kernel
from tilewright.ir.interpreter.stages import run_stages
from tilewright.ir.loop import Kernel
from tilewright.ir.loop_parser import parse_kernel
from tilewright.ir.verify_loop import verify_kernel
from tilewright.passes.lower.collect import Computation
from tilewright.passes.lower.kernel import build_kernel, named
from tilewright.passes.lower.work import operations, work_estimate

FORMS = {
    "map": "(x: f32[4,6]) -> (y: f32[6,4]) { stage map a(i in 6, j in 4) -> y[i, j] = x[j, i] }",
    "map of two outputs": """(x: f32[4]) -> (y: f32[4], z: f32[4]) {
        stage map a(i in 4) -> y[i], z[i] = neg(x[i]), (x[i] * x[i]) }""",
    "map that writes from the end": """(x: f32[4]) -> (y: f32[4]) {
        stage map a(i in 4) -> y[3 - i] = x[i] }""",
    "scalar": "(x: f32[]) -> (y: f32[]) { stage map a() -> y[] = neg(x[]) }",
    "reduction": """(x: f32[4,6]) -> (y: f32[4]) {
        stage reduce s(i in 4; j in 6) -> y[i] : acc = x[i, 0] then max(acc, x[i, j]) }""",
    "largest and where": """(x: f32[4,6]) -> (y: f32[4], z: i64[4]) {
        stage reduce s(i in 4; j in 6) -> y[i], z[i] : best = f32(-inf), at = i64(0)
          then max(best, x[i, j]), select((x[i, j] > best), cast(j, i64), at) }""",
    "scan": """(x: f32[4,6]) -> (y: f32[4,6]) {
        stage scan s(i in 4, j in 6) -> y[i, j] : run = f32(1.0) then (run + x[i, j]) }""",
    "exclusive scan": """(x: f32[4,6]) -> (y: f32[4,6]) {
        stage scan s(i in 4, j in 6) -> y[i, j]
          : run = f32(1.0) then exclusive (run + x[i, j]) }""",
    "scan from the end": """(x: f32[6]) -> (y: f32[6]) {
        stage scan s(j in 6) -> y[5 - j] : run = f32(0.0) then (run + x[5 - j]) }""",
    "scatter": """(x: f32[4], u: f32[9], r: i64[9]) -> (y: f32[4]) {
        stage scatter s(i in 4; j in 9) -> y[cast(r[j], index)] : old = x[i] then (old * u[j]) }""",
    "chain": """(x: f32[4,6]) -> (y: f32[4,6]) { buffer t: f32[4] @workspace
        stage reduce s(i in 4; j in 6) -> t[i] : acc = f32(0.0) then (acc + x[i, j])
        stage map a(k in 4, l in 6) -> y[k, l] = (x[k, l] / t[k]) }""",
}  # fmt: skip


def built(text: str) -> tuple[Computation, Kernel]:
    c = computation(text)
    return c, build_kernel(c, ())


@pytest.mark.parametrize("name", FORMS)
def test_nests_compute_their_stages(name: str) -> None:
    c, kernel = built(FORMS[name])
    verify_kernel(kernel)
    assert parse_kernel(str(kernel)) is kernel
    rng = np.random.default_rng(3)
    feeds = {}
    for b in c.inputs:
        shape = tuple(int(str(d)) for d in b.shape)
        feeds[b.name] = rng.integers(0, 4, shape).astype(b.dtype.numpy)
    expected, found = run_stages(c.stages, feeds, {}), interpret_kernel(kernel, feeds)
    assert found.keys() == {b.name for b in c.outputs}
    for key, value in found.items():
        np.testing.assert_array_equal(value, expected[key])


def test_accumulators_step_together() -> None:
    """All new values of a step are computed before one of them is stored."""
    text = str(built(FORMS["largest and where"])[1].body)
    lets, stores = text.index("let at_new"), text.index("y[i] = best_new")
    assert text.index("let best_new") < lets < stores < text.index("z[i] = at_new")


def test_a_scan_carries_its_value_in_a_register() -> None:
    inclusive = str(built(FORMS["scan"])[1].body)
    exclusive = str(built(FORMS["exclusive scan"])[1].body)
    assert "for i in 4 serial {\n  alloc run_carried: f32[] @register {" in inclusive
    for text, first, second in (
        (inclusive, "run_carried[] = (run", "y[i, j] ="),
        (exclusive, "y[i, j] =", "run_carried[] = (run"),
    ):
        assert text.index(first) < text.index(second)


def test_only_intermediate_buffers_are_allocated() -> None:
    text = str(built(FORMS["chain"])[1].body)
    assert text.count("alloc") == 1 and "alloc t: f32[4] @workspace" in text


def test_a_kernel_is_called_by_its_form() -> None:
    (_, one), (_, same), (_, other) = (built(FORMS[n]) for n in ("scan", "scan", "exclusive scan"))
    assert one is same and one.name != other.name
    assert one.name.startswith("k") and len(one.name) == 17
    renamed = Kernel("", one.inputs, one.outputs, one.symbols, one.stages, one.body)
    assert named(renamed) is one


def test_work_counts_points_and_operations() -> None:
    text = """(x: f32[n,32], w: f32[32,8]) -> (y: f32[n,8]) {{ symbol n in [1, 99]
      stage reduce s(i in n, j in 8; k in 32) -> y[i, j] : acc = f32(0.0) then {} }}"""
    cheap, dear = (
        built(text.format(f"(acc + {value})"))[1]
        for value in ("(x[i, k] * w[k, j])", "exp((x[i, k] * w[k, j]))")
    )
    # The sum, the product, two reads and the accumulator: 5 operations; a function costs 10 more.
    assert operations(cheap.stages[0]) == 5 and operations(dear.stages[0]) == 15
    assert str(work_estimate(cheap)) == "80*n"
    assert str(work_estimate(dear)) == "240*n"
