# SPDX-License-Identifier: Apache-2.0
"""Searches through a schedule space, in the ask-and-tell form.

A search proposes a schedule when asked, and is told what became of it. It knows nothing of building
and measuring, so several proposals may be under way at once.
"""

from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np

from tilewright.autotune.space import Point, Space


class Search(ABC):
    """Base of searches; subclassing it registers one under its ``name``.

    The same space, seed and answers give the same proposals. The default schedule is measured
    before the search begins, and never proposed.
    """

    name: ClassVar[str] = ""
    registry: ClassVar[dict[str, type["Search"]]] = {}

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if cls.name:
            Search.registry[cls.name] = cls

    def __init__(self, space: Space, default: str, seed: int) -> None:
        self.space = space
        self.generator = np.random.default_rng(seed)
        space.exclude(default)

    @abstractmethod
    def ask(self) -> Point | None:
        """The next schedule to try; None when there is no more."""

    @abstractmethod
    def tell(self, point: Point, nanoseconds: float | None) -> None:
        """What a schedule took; None if it failed to build, to run or to compute the same."""


class RandomSearch(Search):
    """Every choice at random, no schedule twice."""

    name = "random"

    def ask(self) -> Point | None:
        return self.space.draw(self.generator)

    def tell(self, point: Point, nanoseconds: float | None) -> None:
        """Nothing is learned."""
