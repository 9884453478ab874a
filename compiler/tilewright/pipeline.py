# SPDX-License-Identifier: Apache-2.0
"""The one list of graph passes, in order.

Bound the symbols; simplify; find normalisations, and fold those of batches before they are said in
simpler ops; shape matrix products; choose layouts and pack weights; give outputs memory of their
own; check indices; form groups.
"""

from tilewright.passes.manager import Pass, parse_pipeline

GRAPH_PASSES = (
    "narrow-symbols",
    "canonicalize",
    "fold-constants",
    "eliminate-common-subexpressions",
    "recover-normalization",
    "fold-batch-norm",
    "decompose",
    "canonicalize",
    "hoist-slices",
    "fold-constants",
    "collapse-matmul",
    "sink-transposes",
    "canonicalize",
    "fold-constants",
    "eliminate-common-subexpressions",
    "assign-layout",
    "fold-constants",
    "materialize-outputs",
    "check-indices",
    "fuse",
)


def graph_passes() -> list[Pass]:
    """The passes that take an imported module to groups, ready to lower."""
    return parse_pipeline(",".join(GRAPH_PASSES))
