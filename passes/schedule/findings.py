# SPDX-License-Identifier: Apache-2.0
"""What choosing a schedule finds out beside the schedule: plain records, which travel from the
workers to the compiler and into caches.
"""

import logging
from collections.abc import Iterable
from dataclasses import dataclass

_logger = logging.getLogger("tilewright")


@dataclass(frozen=True)
class Refusal:
    """A template whose schedule was not taken, and why: a step of it does not apply, or the proof
    says no.
    """

    template: str
    reason: str

    def __str__(self) -> str:
        return f"Template '{self.template}' is refused: {self.reason}"


@dataclass(frozen=True)
class SlowStage:
    """A reduction that runs on less than full vectors: its steps in all, and why."""

    stage: str
    steps: int
    reason: str


def log_refusals(kernel: str, origin: str, refused: Iterable[Refusal]) -> None:
    """Tell the schedules that a kernel did not get, for who wants to know."""
    for refusal in refused:
        _logger.debug("Kernel '%s' of '%s': %s", kernel, origin, refusal)
