# SPDX-License-Identifier: Apache-2.0
"""The schedule steps; importing this package registers them all."""

from tilewright.passes.schedule.steps.annotate import Parallel, Unroll, Vectorize
from tilewright.passes.schedule.steps.bind import Bind, Synchronize
from tilewright.passes.schedule.steps.block_reduction import BlockReduction
from tilewright.passes.schedule.steps.compute_at import ComputeAt
from tilewright.passes.schedule.steps.enclose import Enclose
from tilewright.passes.schedule.steps.fuse import Fuse
from tilewright.passes.schedule.steps.partition import Cut, Partition
from tilewright.passes.schedule.steps.peel import Peel
from tilewright.passes.schedule.steps.reorder import Reorder
from tilewright.passes.schedule.steps.split import Chunk, Split
from tilewright.passes.schedule.steps.split_axis import SplitAxis
from tilewright.passes.schedule.steps.stages import (
    CacheRead,
    CacheWrite,
    Inline,
    Pack,
    PadAxis,
    SplitReduction,
)
from tilewright.passes.schedule.steps.store_order import StoreOrder

__all__ = [
    "Bind",
    "BlockReduction",
    "CacheRead",
    "CacheWrite",
    "Chunk",
    "ComputeAt",
    "Cut",
    "Enclose",
    "Fuse",
    "Inline",
    "Pack",
    "PadAxis",
    "Parallel",
    "Partition",
    "Peel",
    "Reorder",
    "Split",
    "SplitAxis",
    "SplitReduction",
    "StoreOrder",
    "Synchronize",
    "Unroll",
    "Vectorize",
]
