# SPDX-License-Identifier: Apache-2.0
"""Choose the schedule of a kernel: the first candidate that is proven legal."""

import logging
from dataclasses import dataclass

from tilewright.ir.errors import ScheduleError
from tilewright.ir.loop import Kernel
from tilewright.ir.target import Target
from tilewright.passes.schedule.defaults import default_candidates
from tilewright.passes.schedule.legality import Proof, prove
from tilewright.passes.schedule.schedule import Schedule

_logger = logging.getLogger("tilewright")


@dataclass(frozen=True)
class Scheduled:
    """A scheduled kernel, the schedule and the template that made it, and the proof."""

    kernel: Kernel
    schedule: Schedule
    template: str
    proof: Proof


def schedule_kernel(kernel: Kernel, target: Target) -> Scheduled:
    """The kernel under its best default schedule that is proven; ScheduleError if not even the plain one is."""
    refused: ScheduleError | None = None
    for candidate in default_candidates(kernel, target):
        try:
            proof = prove(candidate.kernel)
        except ScheduleError as error:
            _logger.debug("Kernel '%s', template '%s': %s", kernel.name, candidate.template, error)
            refused = error
            continue
        return Scheduled(candidate.kernel, candidate.schedule, candidate.template, proof)
    raise ScheduleError(
        f"No schedule of kernel '{kernel.name}' is proven legal: {refused}"
    ) from refused
