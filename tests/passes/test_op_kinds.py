# SPDX-License-Identifier: Apache-2.0
"""A slice is another name of a value if all that it leaves out is padding, and of nothing else."""

import pytest

from tilewright.ir.dtypes import F32
from tilewright.ir.expr import index
from tilewright.ir.graph import Builder, ConstantStore, Graph, Value
from tilewright.ir.layout import Layout, row_major
from tilewright.ir.ops.slice import Slice
from tilewright.ir.types import tensor
from tilewright.passes.op_kinds import is_alias

BLOCKED = Layout((0, 1), ((0, 16),))
PLAIN = row_major(2)


@pytest.mark.parametrize(
    ("dim", "start", "size", "step", "before", "after", "expected"),
    [
        (32, 0, 20, 1, BLOCKED, BLOCKED, True),
        (32, 0, 17, 1, BLOCKED, BLOCKED, True),
        (32, 0, 16, 1, BLOCKED, BLOCKED, False),  # a block less
        (32, 1, 20, 1, BLOCKED, BLOCKED, False),
        (16, 0, 8, 2, BLOCKED, BLOCKED, False),
        (32, 0, 20, 1, BLOCKED, PLAIN, False),
        (32, 0, 20, 1, PLAIN, PLAIN, False),
    ],
)
def test_slices_that_are_aliases(
    dim: int, start: int, size: int, step: int, before: Layout, after: Layout, expected: bool
) -> None:
    graph = Graph("main", [Value(tensor(F32, (dim, 3), before))])
    op = Slice((index(start), index(0)), (index(size), index(3)), (step, 1))
    types = [tensor(F32, (size, 3), after)]
    node = Builder(graph, ConstantStore()).add_typed(op, graph.inputs, types)
    assert is_alias(node) is expected
