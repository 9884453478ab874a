# SPDX-License-Identifier: Apache-2.0
"""The schedule steps; importing this package registers them all."""

from tilewright.passes.schedule.steps.annotate import Parallel, Unroll, Vectorize
from tilewright.passes.schedule.steps.compute_at import ComputeAt
from tilewright.passes.schedule.steps.fuse import Fuse
from tilewright.passes.schedule.steps.partition import Partition, Peel
from tilewright.passes.schedule.steps.reorder import Reorder
from tilewright.passes.schedule.steps.split import Chunk, Split
from tilewright.passes.schedule.steps.stages import CacheWrite, PadAxis, SplitReduction

__all__ = [
    "CacheWrite",
    "Chunk",
    "ComputeAt",
    "Fuse",
    "PadAxis",
    "Parallel",
    "Partition",
    "Peel",
    "Reorder",
    "Split",
    "SplitReduction",
    "Unroll",
    "Vectorize",
]
