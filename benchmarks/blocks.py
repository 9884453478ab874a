# SPDX-License-Identifier: Apache-2.0
"""Time several engines fairly on one machine, in interleaved blocks.

Engines are never alternated call by call: the idle thread pool of one goes on spinning for a while
on the cores that the other needs. A block is at least half a second of one engine alone, and the
calls of its first 150 ms are dropped. Rounds shuffle the order of the engines. The figure of an
engine is the median of its blocks' medians, which a burst of foreign load moves little.

A call is timed by the clock around it, unless it returns :class:`Took`: what a kernel takes inside
of a run, or a loop in C, is known better there.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

Call = Callable[[], object]
Clock = Callable[[], float]


class Took(float):
    """Seconds that a call says it took."""


@dataclass(frozen=True)
class BlockPlan:
    """How long and how often each engine runs; times in seconds."""

    rounds: int = 8
    seconds: float = 0.5
    settle: float = 0.15
    least_calls: int = 3
    seed: int = 0

    def __post_init__(self) -> None:
        if self.rounds < 1 or self.least_calls < 1 or not 0 <= self.settle < self.seconds:
            raise ValueError(
                f"A block of {self.seconds} s cannot settle for {self.settle} s, nor can there be "
                f"{self.rounds} rounds of {self.least_calls} calls."
            )


@dataclass(frozen=True)
class Timing:
    """Seconds a call: the median of each block, and how many calls were counted in all."""

    blocks: tuple[float, ...]
    calls: int

    @property
    def median(self) -> float:
        """The median of the block medians."""
        return statistics.median(self.blocks)

    @property
    def spread(self) -> float:
        """The distance of the quartiles of the block medians, relative to the median."""
        if len(self.blocks) < 2:
            return 0.0
        low, _, high = statistics.quantiles(self.blocks, n=4)
        return (high - low) / self.median


def run_block(call: Call, plan: BlockPlan, clock: Clock = time.perf_counter) -> list[float]:
    """Run `call` for one block and return the seconds of each call that counts.

    A call counts if it began after the settling time; the block lasts on until enough have.
    """
    begin = clock()
    counted: list[float] = []
    now = begin
    while now - begin < plan.seconds or len(counted) < plan.least_calls:
        start = clock()
        result = call()
        now = clock()
        if start - begin >= plan.settle:
            counted.append(float(result) if isinstance(result, Took) else now - start)
    return counted


def time_in_blocks(
    engines: Mapping[str, Call], plan: BlockPlan, clock: Clock = time.perf_counter
) -> dict[str, Timing]:
    """Time each engine in `plan.rounds` blocks, the engines in a new random order every round."""
    order = list(engines)
    shuffler = random.Random(plan.seed)
    medians: dict[str, list[float]] = {name: [] for name in engines}
    calls = dict.fromkeys(engines, 0)
    for _ in range(plan.rounds):
        shuffler.shuffle(order)
        for name in order:
            counted = run_block(engines[name], plan, clock)
            medians[name].append(statistics.median(counted))
            calls[name] += len(counted)
    return {name: Timing(tuple(medians[name]), calls[name]) for name in engines}
