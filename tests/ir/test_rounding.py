# SPDX-License-Identifier: Apache-2.0
"""What rounds to a 16-bit float, and what only moves or chooses."""

import pytest

from tilewright.ir.dtypes import BF16, BOOL, F16, F32, I64, DType
from tilewright.ir.graph import Builder, ConstantStore, Graph, Module, Value
from tilewright.ir.op import Op
from tilewright.ir.ops.arg_reduce import Argmax
from tilewright.ir.ops.binary import Add, Div, Maximum
from tilewright.ir.ops.cast import Cast
from tilewright.ir.ops.channel_norm import BatchNorm
from tilewright.ir.ops.matmul import Matmul
from tilewright.ir.ops.pool import AvgPool, MaxPool
from tilewright.ir.ops.reduce import ReduceMax, ReduceSum
from tilewright.ir.ops.softmax import Softmax
from tilewright.ir.ops.transpose import Transpose
from tilewright.ir.ops.unary import Abs, Exp
from tilewright.ir.rounding import computed_wide, roundings
from tilewright.ir.types import tensor
from tilewright.ir.verify_graph import verify_module


def built(dtype: DType, op: Op, *shapes: tuple[int, ...]) -> Builder:
    builder = Builder(Graph("g"), ConstantStore())
    builder.add(op, *(Value(tensor(dtype, shape)) for shape in shapes))
    return builder


WINDOW = ((2, 2), (1, 1), (0, 0, 0, 0), (1, 1))
OPS: list[tuple[int, Op, tuple[tuple[int, ...], ...]]] = [
    (1, Add(), ((3,), (3,))),
    (1, Exp(), ((3,),)),
    (1, ReduceSum((0,)), ((3,),)),
    (1, Matmul(), ((2, 3), (3, 2))),
    (1, Softmax(0), ((3,),)),
    (1, AvgPool(*WINDOW), ((1, 1, 3, 3),)),
    (2, BatchNorm(), ((2, 3), *[(3,)] * 4)),  # it stands for several
    (0, Maximum(), ((3,), (3,))),
    (0, Abs(), ((3,),)),
    (0, ReduceMax((0,)), ((3,),)),
    (0, MaxPool(*WINDOW), ((1, 1, 3, 3),)),
    (0, Transpose((1, 0)), ((2, 3),)),
    (0, Argmax(0, False, False), ((3,),)),
    (0, Cast(F32), ((3,),)),
]


@pytest.mark.parametrize("dtype", [F16, BF16])
@pytest.mark.parametrize(("count", "op", "shapes"), OPS, ids=[op.name for _, op, _ in OPS])
def test_roundings(count: int, op: Op, shapes: tuple[tuple[int, ...], ...], dtype: DType) -> None:
    assert roundings(built(dtype, op, *shapes).graph.nodes) == count
    assert roundings(built(F32, op, *shapes).graph.nodes) == 0


@pytest.mark.parametrize(("dtype", "count"), [(F32, 1), (I64, 1), (BOOL, 0), (BF16, 1), (F16, 0)])
def test_casts(dtype: DType, count: int) -> None:
    """To a truth value's 0 and 1, and to the type that it has, nothing is rounded."""
    assert roundings(built(dtype, Cast(F16), (3,)).graph.nodes) == count


def test_a_constant_is_no_step() -> None:
    builder = Builder(Graph("g"), ConstantStore())
    builder.constant([0.1], F16)
    assert roundings(builder.graph.nodes) == 0


def test_steps_are_computed_wide_and_rounded_at_the_end() -> None:
    builder = Builder(Graph("g"), ConstantStore())
    x, n = Value(tensor(F16, (3,)), "x"), Value(tensor(I64, (3,)), "n")
    builder.graph.inputs = [x, n]

    def half(operands: object) -> list[Value]:
        v, count = operands  # type: ignore[misc]
        assert v.type.dtype is F32 and count is n
        return [builder(Div(), v, builder.constant(2.0, F32)), count]

    y, same = computed_wide(builder, [x, n], [x.type, n.type], half)
    assert y.type.dtype is F16 and same is n
    builder.graph.set_outputs([y])
    assert [node.op.name for node in builder.graph.nodes] == ["cast", "constant", "div", "cast"]
    assert roundings(builder.graph.nodes) == 1


def test_nodes_are_taken_back() -> None:
    builder = Builder(Graph("g"), ConstantStore())
    x = Value(tensor(F16, (3,)), "x")
    builder.graph.inputs = [x]
    kept = builder(Abs(), x)
    begin = builder.position
    twice = builder(Add(), kept, kept)
    builder(Add(), twice, x)
    gone = builder.take_back(begin)
    assert [n.op.name for n in gone] == ["add", "add"] and gone[0].result is twice
    assert x.use_count == 1 and kept.use_count == 0
    builder.graph.set_outputs([builder(Abs(), kept)])
    assert [node.op.name for node in builder.graph.nodes] == ["abs", "abs"]
    verify_module(Module(builder.graph, {}, builder.constants, ["x"], ["y"]))
