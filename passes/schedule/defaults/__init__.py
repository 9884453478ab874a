# SPDX-License-Identifier: Apache-2.0
"""Default schedules: good code without tuning.

A :class:`Template` recognises a form of kernel and offers schedules for it, best first; the caller
takes the first one that applies and is proven legal. Templates register by subclassing and are
asked in order of ``priority``; the last one fits every kernel. Their parameters (tile sizes, chunk
sizes, where tasks are cut) are data: the autotuner searches over them.
"""

from tilewright.passes.schedule.defaults import (
    columns,
    elementwise,
    gpu_rows,
    gpu_tiled,
    maps,
    rows,
    serial,
    short_rows,
    tiled,
)
from tilewright.passes.schedule.defaults.template import Candidate, Template, default_candidates

__all__ = [
    "Candidate",
    "Template",
    "columns",
    "default_candidates",
    "elementwise",
    "gpu_rows",
    "gpu_tiled",
    "maps",
    "rows",
    "serial",
    "short_rows",
    "tiled",
]
