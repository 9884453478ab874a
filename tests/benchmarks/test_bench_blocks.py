# SPDX-License-Identifier: Apache-2.0
"""Timing in blocks, with a clock that only the engines under test move."""

from __future__ import annotations

import pytest

from benchmarks.blocks import BlockPlan, Call, Timing, Took, run_block, time_in_blocks


class FakeClock:
    """A clock that stands still but for what engines add to it."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def engine(self, seconds: float, first: float | None = None) -> Call:
        """An engine whose calls take `seconds`, the first one ever `first`."""
        durations = iter([] if first is None else [first])

        def call() -> None:
            self.now += next(durations, seconds)

        return call


def test_block_drops_the_settling_time_and_lasts_half_a_second() -> None:
    clock = FakeClock()
    counted = run_block(clock.engine(0.0625, first=0.125), BlockPlan(), clock)
    assert clock.now == 0.5
    assert counted == [0.0625] * 5  # calls that began at 0.1875 to 0.4375; 0 and 0.125 are dropped


def test_block_goes_on_until_a_slow_engine_has_enough_calls() -> None:
    clock = FakeClock()
    counted = run_block(clock.engine(2.0), BlockPlan(least_calls=3), clock)
    assert counted == [2.0] * 3
    assert clock.now == 8.0  # the first call, within the settling time, does not count


def test_a_block_is_long_and_there_are_eight() -> None:
    plan = BlockPlan()
    assert (plan.rounds, plan.seconds, plan.settle, plan.least_calls) == (8, 0.5, 0.15, 3)


def test_a_warm_up_outlier_does_not_reach_the_figure() -> None:
    clock = FakeClock()
    timings = time_in_blocks({"ours": clock.engine(0.01, first=0.4)}, BlockPlan(rounds=2), clock)
    assert timings["ours"].median == pytest.approx(0.01)


def test_every_engine_gets_every_round_in_blocks_of_its_own() -> None:
    clock = FakeClock()
    trace: list[str] = []

    def traced(name: str) -> Call:
        inner = clock.engine(0.125)

        def call() -> None:
            trace.append(name)
            inner()

        return call

    plan = BlockPlan(rounds=8, seed=3)
    timings = time_in_blocks({name: traced(name) for name in "ab"}, plan, clock)
    assert len(timings["a"].blocks) == len(timings["b"].blocks) == 8
    assert timings["a"].calls == timings["b"].calls
    blocks = ["".join(trace[i : i + 5]) for i in range(0, len(trace), 5)]
    assert set(blocks) == {"aaaaa", "bbbbb"}  # never call by call
    rounds = {(blocks[i], blocks[i + 1]) for i in range(0, len(blocks), 2)}
    assert rounds == {("aaaaa", "bbbbb"), ("bbbbb", "aaaaa")}  # both orders occur


def test_a_call_may_say_what_it_took() -> None:
    clock = FakeClock()
    engine = clock.engine(0.125)
    told = iter([9.0, 9.0, 1.0, 2.0, 3.0])

    def call() -> Took:
        engine()
        return Took(next(told))

    plan = BlockPlan(rounds=1, seconds=0.625, settle=0.25)
    assert time_in_blocks({"kernel": call}, plan, clock)["kernel"].blocks == (2.0,)
    assert clock.now == 0.625  # the block lasts by the clock


def test_the_figure_is_the_median_of_block_medians() -> None:
    timing = Timing(blocks=(3.0, 1.0, 2.0, 9.0, 2.0), calls=50)
    assert timing.median == 2.0
    assert timing.spread == pytest.approx((6.0 - 1.5) / 2.0)
    assert Timing(blocks=(1.0,), calls=3).spread == 0.0


def test_an_impossible_plan_is_refused() -> None:
    with pytest.raises(ValueError, match=r"cannot settle for 0.15 s"):
        BlockPlan(seconds=0.1)
