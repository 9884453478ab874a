# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: E501 (kernels as text)
"""Which reductions count as slow is read from the scheduled loops; and what was refused is kept."""

import pytest

from tilewright.ir.errors import ScheduleError
from tilewright.ir.loop import Kernel
from tilewright.ir.loop_parser import parse_kernel
from tilewright.ir.target import parse_target
from tilewright.passes.lower.kernel import plain_body
from tilewright.passes.schedule import select
from tilewright.passes.schedule.defaults.template import Template
from tilewright.passes.schedule.findings import Refusal, SlowStage
from tilewright.passes.schedule.schedule import apply, parse_schedule
from tilewright.passes.schedule.select import schedule_kernel
from tilewright.passes.schedule.slow_stages import slow_stages

V3, V4 = parse_target("x86-64-v3"), parse_target("x86-64-v4")
NO_VECTORS = "No loop of it runs on vectors: its axes are {}, the reduced ones {}."


def plain(text: str) -> Kernel:
    kernel = parse_kernel(f"{text} barrier\n}}")
    return kernel.with_body(plain_body(kernel.stages, kernel.outputs))


def product(m: int | str, n: int, k: int) -> Kernel:
    symbol = f"symbol {m} in [0, 1000000] hint 1" if isinstance(m, str) else ""
    return plain(f"""
kernel @product(a: f32[{m},{k}], b: f32[{k},{n}]) -> (y: f32[{m},{n}]) {{
  {symbol}
  stage reduce mm(i in {m}, j in {n}; r in {k}) -> y[i, j] : acc = f32(0.0) then (acc + (a[i, r] * b[r, j]))
""")


ROWS = plain("""
kernel @rows(x: f32[64,256]) -> (y: f32[64]) {
  stage reduce s(i in 64; j in 256) -> y[i] : acc = f32(0.0) then (acc + x[i, j])
""")
ARG = plain("""
kernel @arg(x: f32[256,64]) -> (t: f32[64], y: i64[64]) {
  stage reduce arg(i in 64; j in 256) -> t[i], y[i] : v = f32(-inf), at = i64(0) then select((x[j, i] > v), x[j, i], v), select((x[j, i] > v), cast(j, i64), at)
""")
HALF = plain("""
kernel @half(x: f16[256,64]) -> (y: f32[64]) {
  stage reduce s(i in 64; j in 256) -> y[i] : acc = f32(0.0) then (acc + cast(x[j, i], f32))
""")
SCAN = plain("""
kernel @scan(x: f32[64,256]) -> (y: f32[64,256]) {
  stage scan s(i in 64, j in 256) -> y[i, j] : acc = f32(0.0) then (acc + x[i, j])
""")
MAP = plain("""
kernel @negative(x: f32[8]) -> (y: f32[8]) {
  stage map neg(i in 8) -> y[i] = neg(x[i])
""")
EMPTY = plain("""
kernel @empty(x: f32[0,8192]) -> (y: f32[8192]) {
  stage reduce s(i in 8192; j in 0) -> y[i] : acc = f32(0.0) then (acc + x[j, i])
""")


def slow(kernel: Kernel, schedule: str, target: object = V3) -> tuple[SlowStage, ...]:
    return slow_stages(kernel, apply(kernel, parse_schedule(schedule)), target)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kernel", "schedule"),
    [
        (product(16, 16, 16), "split(j, 8); reorder(j_o, r, j_i); vectorize(j_i)"),
        (
            product(16, 17, 16),
            "partition(j, 8, s); split(j, 8); vectorize(j_i)",
        ),  # 16 of 17 columns
        (ROWS, "split_reduction(s, j, 8); reorder(i_p8, j, j_l8); vectorize(j_l8)"),
        (ARG, "split(i, 4); vectorize(i_i)"),  # four of its elements of eight bytes are a vector
        (HALF, "split(i, 8); vectorize(i_i)"),  # the accumulators are floats
        (product(64, 9, 7), ""),  # 4032 steps
        (SCAN, ""),
        (EMPTY, ""),
    ],
    ids=["whole", "most", "split", "pair", "half", "few steps", "scan", "empty"],
)
def test_reductions_on_full_vectors(kernel: Kernel, schedule: str) -> None:
    assert slow(kernel, schedule) == ()


@pytest.mark.parametrize(
    ("kernel", "schedule", "steps", "reason"),
    [
        (product(16, 16, 16), "", 4096, NO_VECTORS.format([16, 16], [16])),
        (product(8, 16, 32), "unroll(r); unroll(j)", 4096, NO_VECTORS.format([8, 16], [32])),
        (product(500, 3, 16), "vectorize(j)", 24000, "Its vectors, along 'j', have 3 of 8 lanes."),
        (ROWS, "", 16384, NO_VECTORS.format([64], [256])),
        (HALF, "split(i, 4); vectorize(i_i)", 16384, "Its vectors, along 'i_i', have 4 of 8 lanes."),
        (
            # Of twenty columns eight are on full vectors.
            product(500, 20, 16), "cut(j, 8, front); vectorize(j_front); split(j, 6); vectorize(j_i)",
            160000, "Its vectors, along 'j_i', have 6 of 8 lanes.",
        ),
        # Two vectorised loops in each other are one vector, the inner one.
        (product(16, 16, 16), "vectorize(i); split(j, 4); vectorize(j_i)", 4096,
         "Its vectors, along 'j_i', have 4 of 8 lanes."),
    ],
    ids=["plain", "unrolled", "few columns", "rows", "half", "rest", "nested"],
)  # fmt: skip
def test_slow_reductions(kernel: Kernel, schedule: str, steps: int, reason: str) -> None:
    stage = kernel.stages[0].name
    assert slow(kernel, schedule) == (SlowStage(stage, steps, reason),)


def test_what_is_full_follows_from_the_target() -> None:
    schedule = "split(j, 8); reorder(j_o, r, j_i); vectorize(j_i)"
    assert slow(product(16, 16, 16), schedule, V3) == ()
    (found,) = slow(product(16, 16, 16), schedule, V4)
    assert found.reason == "Its vectors, along 'j_i', have 8 of 16 lanes."
    assert slow(product(16, 16, 16), "", parse_target("opencl")) == ()


def test_a_dim_that_nothing_is_known_of_counts_as_long() -> None:
    """At its hint, 1, the main loop over the rows would never run."""
    kernel = plain("""
kernel @columns(x: f32[4096,n]) -> (y: f32[n]) {
  symbol n in [0, 1000000] hint 1
  stage reduce s(i in n; j in 4096) -> y[i] : acc = f32(0.0) then (acc + x[j, i])
""")
    main = "partition(i, 8, s); split(i, 8); vectorize(i_i)"
    assert slow(kernel, main) == ()
    assert slow(kernel, main.replace("; vectorize(i_i)", "")) == (
        SlowStage("s", 4096, NO_VECTORS.format("[?]", [4096])),
    )


def test_a_reduction_that_the_check_does_not_find_is_told() -> None:
    """A step that gives it another name may not make it invisible."""
    kernel = product(16, 16, 16)
    other = parse_kernel(str(kernel).replace("mm", "renamed"))
    assert [s.stage for s in slow_stages(kernel, other, V3)] == ["mm"]


def test_refused_schedules_are_kept_and_are_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Template, "registry", Template.registry[-1:])

    class Misfit(Template):
        priority = -2

        def plans(self, kernel: Kernel, target: object, choices: object) -> object:  # type: ignore[override]
            raise ScheduleError("Nothing fits.")

    kernel = product(16, 16, 16)
    done = schedule_kernel(kernel, V3, stored="vectorize(z)")
    assert done.template == "serial"
    stored, misfit = done.refused
    assert stored.template == select.STORED and "There is no loop 'z'" in stored.reason
    assert misfit == Refusal("misfit", "Nothing fits.")
    (found,) = slow_stages(kernel, done.kernel, V3, [misfit])
    told = NO_VECTORS.format([16, 16], [16])
    assert found.reason == f"{told} Template 'misfit' is refused: Nothing fits."


def test_a_schedule_that_is_not_proven_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Template, "registry", Template.registry[-1:])
    calls: list[Kernel] = []
    prove = select.prove

    def first_fails(kernel: Kernel) -> object:
        calls.append(kernel)
        if len(calls) == 1:
            raise ScheduleError("Cell 'y[0]' is written twice.")
        return prove(kernel)

    monkeypatch.setattr(select, "prove", first_fails)
    done = schedule_kernel(MAP, V3)
    assert done.refused == (Refusal("serial", "Cell 'y[0]' is written twice."),)
    assert done.kernel is calls[-1] and len(calls) == 2
