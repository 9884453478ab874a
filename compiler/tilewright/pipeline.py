# SPDX-License-Identifier: Apache-2.0
"""The one list of graph passes, in order."""

from tilewright.passes.manager import Pass, parse_pipeline

GRAPH_PASSES = (
    "canonicalize",
    "fold-constants",
    "eliminate-common-subexpressions",
    "eliminate-dead-code",
    "decompose",
    "fold-batch-norm",
    "canonicalize",
    "fold-constants",
    "collapse-matmul",
    "canonicalize",
    "eliminate-common-subexpressions",
    "assign-layout",
    "fold-constants",
    "eliminate-dead-code",
    "materialize-outputs",
    "fuse",
)
"""Simplify; say composites in simpler ops; fold batch normalisation; shape matrix products; choose layouts and pack
weights; give outputs memory of their own; form groups."""


def graph_passes() -> list[Pass]:
    """The passes that take an imported module to groups, ready to lower."""
    return parse_pipeline(",".join(GRAPH_PASSES))
