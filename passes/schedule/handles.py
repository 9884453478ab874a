# SPDX-License-Identifier: Apache-2.0
"""Handles: what a schedule step hands back besides the kernel, the loops and stages that it made.

A loop's handle is its name, which no two loops of a kernel share; ``""`` stands for a loop that was
left out since it is known to have no iterations, or one (its variable then is that constant). So a
recipe goes on with the loops that a step has in fact made, and never spells their names itself.
"""

from collections.abc import Mapping
from dataclasses import dataclass

NO_LOOP = ""


@dataclass(frozen=True)
class Halves:
    """The two loops that ``split`` and ``chunk`` make of one."""

    outer: str
    inner: str


@dataclass(frozen=True)
class Parts:
    """The parts that ``partition`` and ``cut`` make of a loop.

    ``main`` keeps the loop's name and the names inside it; ``apart`` is the part that was cut off.
    ``copies`` tells, for each loop inside ``main``, its copy inside ``apart``; where ``main`` was
    left out the copies alone exist.
    """

    main: str
    apart: str
    copies: Mapping[str, str]

    def twin(self, loop: str) -> str:
        """The copy of a loop of the main part in the part that was cut off."""
        return self.copies.get(loop, NO_LOOP) if self.apart else NO_LOOP


@dataclass(frozen=True)
class Placed:
    """The nests of a stage that ``compute_at`` has put into ``loop``.

    ``axes`` are the loops of a map, or of a reduction's updates, by the names of the stage's axes,
    reduce axes among them; ``first`` are those of the nest that starts a reduction.
    """

    loop: str
    axes: Mapping[str, str]
    first: Mapping[str, str]

    def over(self, axis: str) -> str:
        """The loop over an axis."""
        return self.axes.get(axis, NO_LOOP)

    def first_over(self, axis: str) -> str:
        """The loop over an axis in the nest that starts the reduction."""
        return self.first.get(axis, NO_LOOP)
