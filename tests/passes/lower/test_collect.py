# SPDX-License-Identifier: Apache-2.0
"""Collecting stages: literals, constants of the group's own, unique names."""

import numpy as np
import pytest
from computations import Region

from tilewright.ir.dtypes import F32, I64
from tilewright.ir.errors import PassError
from tilewright.ir.interpreter.loops import interpret_kernel
from tilewright.ir.ops.binary import Add, Mul
from tilewright.ir.ops.scatter import ScatterElements
from tilewright.ir.ops.softmax import Softmax
from tilewright.ir.ops.unary import Exp, Exp2
from tilewright.ir.types import tensor
from tilewright.ir.verify_loop import verify_kernel
from tilewright.passes.lower.collect import Computation, collect
from tilewright.passes.lower.kernel import lower_group

ROW = tensor(F32, (6,))


def added(values: list[float]) -> tuple[Computation, Region]:
    """``x + values`` for six values of the group's own."""
    region = Region(ROW)
    ramp = region.build.constant(np.array(values, np.float32))
    return collect(region.node(region.build(Add(), *region.inputs, ramp)), region.store), region


def test_a_constant_of_one_value_is_a_literal() -> None:
    c, _ = added([2.5] * 6)
    assert [b.name for b in c.inputs] == ["x0"] and len(c.arguments) == 1
    assert str(c.stages[0].values[0]) == "(x0[add_i0] + f32(2.5))"


def test_literals_keep_the_sign_of_zero() -> None:
    c, _ = added([-0.0] * 6)
    assert str(c.stages[0].values[0]) == "(x0[add_i0] + f32(-0.0))"


@pytest.mark.parametrize("values", [[1, 2, 3, 4, 5, 6], [0.0, -0.0] * 3, [np.nan] * 6])
def test_any_other_constant_is_an_argument(values: list[float]) -> None:
    c, region = added(values)
    assert [b.name for b in c.inputs] == ["x0", "c2"]
    assert c.arguments[1] is region.graph.nodes[0].result
    assert str(c.stages[0].values[0]) == "(x0[add_i0] + c2[add_i0])"


def test_names_are_unique_even_where_an_op_is_called_like_a_number() -> None:
    region = Region(*(tensor(F32, (4, n)) for n in (3, 4, 5, 6)))
    *first, last = region.inputs
    results = [region.build(Exp(), x) for x in first]
    c = collect(region.node(*results, region.build(Exp2(), last)), region.store)
    assert [s.name for s in c.stages] == ["exp", "exp1", "exp2", "exp21"]
    axes = [v.name for s in c.stages for v in s.axes]
    assert len(set(axes)) == len(axes) == 8


def test_ops_of_several_stages_get_buffers_of_their_own() -> None:
    region = Region(tensor(F32, (3, 5)))
    (x,) = region.inputs
    once = region.build(Softmax(1), x)
    c = collect(region.node(region.build(Softmax(1), once)), region.store)
    written = [b.name for s in c.stages for b in s.outputs]
    assert len(set(written)) == len(written) and written[-1] == "y0"
    accumulators = [a.name for s in c.stages for a in s.accumulators]
    assert len(set(accumulators)) == len(accumulators) == 4
    verify_kernel(lower_group(region.node(*region.graph.outputs), region.store).kernel)


def test_a_scatter_takes_literal_indices() -> None:
    region = Region(tensor(F32, (4, 3)), tensor(F32, (1, 3)))
    data, updates = region.inputs
    row = region.build.constant(np.full((1, 3), 2, np.int64))
    node = region.node(region.build(ScatterElements(0, "add"), data, row, updates))
    kernel = lower_group(node, region.store).kernel
    verify_kernel(kernel)
    given = {"x0": np.zeros((4, 3), np.float32), "x1": np.arange(3, dtype=np.float32)}
    expected = np.zeros((4, 3))
    expected[2] = np.arange(3)
    np.testing.assert_array_equal(interpret_kernel(kernel, given)["y0"], expected)


def test_a_lone_node_needs_no_group() -> None:
    region = Region(ROW, tensor(I64, (6,)))
    x, _ = region.inputs
    c = collect(region.build.add(Mul(), x, x), region.store)
    assert [b.name for b in (*c.inputs, *c.outputs)] == ["x0", "x1", "y0"]
    assert c.arguments == (x, x)


@pytest.mark.parametrize("twice", [False, True])
def test_a_group_may_not_return_operands_or_a_value_twice(twice: bool) -> None:
    region = Region(ROW)
    (x,) = region.inputs
    results = [region.build(Exp(), x)] * 2 if twice else [x]
    message = f"Group 'elementwise' returns its own operand {int(twice)} or returns a value twice."
    with pytest.raises(PassError, match=message):
        collect(region.node(*results), region.store)
