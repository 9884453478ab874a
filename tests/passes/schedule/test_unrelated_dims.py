# SPDX-License-Identifier: Apache-2.0
"""Every op where no dim is known to equal another and each may be 0: its kernel must be proven to
read and write inside its buffers by the form of its indices alone.
"""

import itertools
from collections.abc import Iterator

import pytest

import tilewright.ir.ops  # noqa: F401
from tilewright.ir.dtypes import F32
from tilewright.ir.errors import TypeInferenceError
from tilewright.ir.expr import ZERO, Const, Expr, Symbol, index
from tilewright.ir.graph import Builder, ConstantStore, Graph, Node, Value
from tilewright.ir.layout import Layout
from tilewright.ir.op import Op, Sample
from tilewright.ir.ops.reshape import Reshape
from tilewright.ir.ops.slice import Slice
from tilewright.ir.types import TensorType, tensor
from tilewright.passes.lower.kernel import lower_group
from tilewright.passes.schedule.legality import prove

Shape = tuple[Expr, ...]

OPS = [n for n, op in Op.registry.items() if op.stages is not Op.stages and any(op.samples())]


def freed(sample: Sample, numbers: bool) -> list[TensorType]:
    """The operands with a fresh symbol in place of every symbolic dim; of ``numbers`` too."""
    fresh = (Symbol(f"d{i}", 0, 64, 1, 4) for i in itertools.count())
    return [
        tensor(
            t.dtype,
            [d if isinstance(d, Const) and not numbers else next(fresh) for d in t.shape],
            t.layout,
        )
        for t in sample.operands
    ]


def nodes(op: type[Op]) -> Iterator[tuple[Node, ConstantStore]]:
    """Nodes of the samples with freed dims, where the op takes them."""
    seen = set()
    for sample in op.samples():
        for numbers in (True, False):
            types = freed(sample, numbers)
            shown = f"{sample.op} {types}"
            if shown in seen or not any(isinstance(d, Symbol) for t in types for d in t.shape):
                continue
            seen.add(shown)
            builder = Builder(Graph("g"), ConstantStore())
            try:
                node = builder.add(sample.op, *(Value(t, f"v{i}") for i, t in enumerate(types)))
            except TypeInferenceError:
                continue
            yield node, builder.constants


@pytest.mark.parametrize("name", OPS)
def test_op(name: str) -> None:
    for node, constants in nodes(Op.registry[name]):
        if getattr(node.op, "groups", 1) > 1 and node.op.name.startswith("conv"):
            # Which channels a group has must be known.
            continue
        prove(lower_group(node, constants).kernel)


N, M = Symbol("n", 0, 64, 1, 4), Symbol("m", 0, 64, 1, 3)
FLAT, DEEP, ROWS = (N * M * 8, index(6)), (N, index(8), M, index(6)), (N * M * 2, index(24))


@pytest.mark.parametrize(("before", "after"), list(itertools.permutations((FLAT, DEEP, ROWS), 2)))
def test_a_product_of_dims_is_a_dim_of_its_own(before: Shape, after: Shape) -> None:
    """To a kernel ``n*m`` has nothing to do with ``n`` and ``m``, although the model knows."""
    builder = Builder(Graph("g"), ConstantStore())
    for order in itertools.permutations(range(len(after))):
        result = tensor(F32, after, Layout(order))
        node = builder.add_typed(Reshape(after), [Value(tensor(F32, before), "x")], [result])
        prove(lower_group(node, builder.constants).kernel)


def test_a_slice_of_a_product_of_dims() -> None:
    builder = Builder(Graph("g"), ConstantStore())
    few, times = Symbol("n", 1, 64, 1, 4), Symbol("m", 1, 64, 1, 3)
    node = builder.add(Slice((ZERO,), (few,), (1,)), Value(tensor(F32, (few * times,)), "x"))
    prove(lower_group(node, builder.constants).kernel)
