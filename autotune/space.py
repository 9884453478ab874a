# SPDX-License-Identifier: Apache-2.0
"""The schedule space of a kernel: the decisions that its template notes.

A template is a program that decides as it goes, so its decisions form a tree: which one comes next,
and what can be chosen, depends on the choices before. One run of the template under some choices
shows all decisions on its way, and the schedule at the end. The space remembers what was visited,
as the options that are left after each sequence of choices.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tilewright.ir.loop import Kernel
from tilewright.ir.target import Target
from tilewright.passes.schedule.defaults import Candidate, default_candidates
from tilewright.passes.schedule.schedule import schedule_text
from tilewright.passes.schedule.select import MOST_COPIES, most_copies

Choices = tuple[tuple[str, int], ...]

_FRUITLESS = 24
"""After so many draws in a row without a new schedule the space counts as exhausted."""


@dataclass(frozen=True)
class Point:
    """A schedule of the space, and the choices that lead to it."""

    choices: Choices
    schedule: str


class Space:
    """The schedules that ``template``, by its name, makes of a kernel for a target."""

    def __init__(self, kernel: Kernel, target: Target, template: str) -> None:
        self.kernel, self.target, self.template = kernel, target, template
        self._left: dict[Choices, tuple[str, list[int]]] = {}
        self._options: dict[str, tuple[int, ...]] = {}
        self._seen: set[str] = set()
        default = self._candidate({})
        if default is not None:
            self._note(default)

    @property
    def is_empty(self) -> bool:
        """True if there is nothing to decide, or everything was drawn."""
        return not self._left or not self._left[()][1]

    def exclude(self, schedule: str) -> None:
        """Never draw this schedule."""
        self._seen.add(schedule)

    def draw(self, generator: np.random.Generator) -> Point | None:
        """A schedule that was not drawn before, each choice at random; None if none is found."""
        for _ in range(_FRUITLESS):
            if self.is_empty:
                return None
            candidate = self._sample(generator)
            if candidate is None:
                continue
            point = Point(self._note(candidate), schedule_text(candidate.schedule))
            self._close(point.choices)
            if point.schedule not in self._seen:
                self._seen.add(point.schedule)
                if most_copies(candidate.kernel.body) <= MOST_COPIES:
                    return point
        return None

    def _sample(self, generator: np.random.Generator) -> Candidate | None:
        """The candidate of random choices; None if the template stops on the way.

        What is known of the tree is followed; beyond it options are guessed from other branches,
        and those that turn out wrong are chosen again.
        """

        def pick(options: list[int] | tuple[int, ...]) -> int:
            return options[int(generator.integers(len(options)))]

        path: Choices = ()
        while path in self._left:
            name, options = self._left[path]
            path = (*path, (name, pick(options)))
        choices = dict(path)
        choices |= {n: pick(o) for n, o in self._options.items() if n not in choices}
        for _ in range(1 + len(choices)):
            candidate = self._candidate(choices)
            if candidate is None:
                return None
            wrong = [n for n, d in candidate.decisions.items() if choices.get(n) not in d.options]
            if not wrong:
                return candidate
            choices[wrong[0]] = pick(candidate.decisions[wrong[0]].options)
        return None

    def _candidate(self, choices: Mapping[str, int]) -> Candidate | None:
        """The first schedule of the template under these choices."""
        for candidate in default_candidates(self.kernel, self.target, choices):
            if candidate.template == self.template:
                return candidate
        return None

    def _note(self, candidate: Candidate) -> Choices:
        """Remember the decisions on the way to a candidate; returns the way."""
        path: Choices = ()
        for name, decision in candidate.decisions.items():
            self._options[name] = decision.options
            self._left.setdefault(path, (name, list(decision.options)))
            path = (*path, (name, decision.chosen))
        return path

    def _close(self, path: Choices) -> None:
        """Nothing is left at the end of this way, nor at forks that it leaves without options."""
        while path:
            *before, (_, value) = path
            path = tuple(before)
            options = self._left[path][1]
            if value in options:
                options.remove(value)
            if options:
                return
