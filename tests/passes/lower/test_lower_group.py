# SPDX-License-Identifier: Apache-2.0
"""Lowering: which stages, axes, symbols and names a group's kernel has."""

import numpy as np
import pytest
from computations import Region

from tilewright.ir.dtypes import F32, I64
from tilewright.ir.errors import SymbolicDimError
from tilewright.ir.expr import Symbol
from tilewright.ir.graph import Builder, ConstantStore, Graph, Value
from tilewright.ir.ops.binary import Add, Mul
from tilewright.ir.ops.conv import Conv
from tilewright.ir.ops.cumsum import Cumsum
from tilewright.ir.ops.matmul import Matmul
from tilewright.ir.ops.scatter import ScatterElements
from tilewright.ir.ops.transpose import Transpose
from tilewright.ir.ops.unary import Exp, Neg
from tilewright.ir.rewrite import evaluate
from tilewright.ir.types import tensor
from tilewright.passes.lower.kernel import lower_group
from tilewright.passes.lower.work import work_estimate

B, S = Symbol("batch", 1, 64, 1, 2), Symbol("seq", 1, 512, 1, 128)


def test_maps_merge_and_axes_join() -> None:
    region = Region(tensor(F32, (B, S, 8)), tensor(F32, (B, S, 8)))
    x, y = region.graph.inputs
    low = lower_group(region.node(region.build(Exp(), region.build(Add(), x, y))), region.store)
    (stage,) = low.kernel.stages
    assert str(stage.values[0]).startswith("exp((x0[")
    assert [str(v.extent) for v in stage.axes] == ["8*n0"]
    assert [str(e) for e in low.scalars] == ["batch*seq"]
    assert low.kernel.symbols[0].hi == 64 * 512 and low.origin == "Node_1"


def test_a_bias_keeps_its_axis_apart() -> None:
    region = Region(tensor(F32, (B, S, 8)), tensor(F32, (8,)))
    low = lower_group(region.node(region.build(Add(), *region.graph.inputs)), region.store)
    (stage,) = low.kernel.stages
    assert [str(v.extent) for v in stage.axes] == ["n0", "8"]


def test_an_expensive_map_with_two_readers_stays() -> None:
    region = Region(tensor(F32, (4, 8)))
    (x,) = region.graph.inputs
    e = region.build(Exp(), x)
    moved = region.build(Transpose((1, 0)), e)
    node = region.node(region.build(Mul(), region.build(Neg(), moved), moved))
    low = lower_group(node, region.store)
    assert [s.kind for s in low.kernel.stages].count("map") == len(low.kernel.stages)
    assert sum("exp" in str(s.values[0]) for s in low.kernel.stages) == 1


def test_literals_are_baked_and_other_constants_are_arguments() -> None:
    region = Region(tensor(F32, (6,)))
    (x,) = region.graph.inputs
    two = region.build.constant(np.full(6, 2.0, np.float32))
    ramp = region.build.constant(np.arange(6, dtype=np.float32))
    y = region.build(Add(), region.build(Mul(), x, two), ramp)
    low = lower_group(region.node(y), region.store)
    assert len(low.kernel.inputs) == 2 and low.arguments[1] is ramp
    assert "f32(2.0)" in str(low.kernel.stages[0])


def test_equal_forms_are_one_kernel() -> None:
    def kernel(rows: object) -> object:
        builder = Builder(Graph("g"), ConstantStore())
        values = Value(tensor(F32, (rows, 8))), Value(tensor(F32, (8, 4)))  # type: ignore[list-item]
        return lower_group(builder.add(Matmul(), *values), builder.constants).kernel

    twin = Symbol("other", S.lo, S.hi, S.multiple, S.hint)
    assert kernel(S) is kernel(twin)
    assert kernel(S) is not kernel(16)
    assert kernel(16).name != kernel(17).name  # type: ignore[attr-defined]


def test_scans_and_scatters_have_plain_nests() -> None:
    builder = Builder(Graph("g"), ConstantStore())
    scan = builder.add(Cumsum(1, False, False), Value(tensor(F32, (3, 5))))
    text = str(lower_group(scan, builder.constants).kernel)
    assert "stage scan" in text and "@register" in text
    values = [Value(tensor(F32, (4, 3))), Value(tensor(I64, (2, 3))), Value(tensor(F32, (2, 3)))]
    scatter = builder.add(ScatterElements(0, "add"), *values)
    kernel = lower_group(scatter, builder.constants).kernel
    assert "stage scatter" in str(kernel) and "scatter_elements.update" in str(kernel)


def test_work_grows_with_the_points() -> None:
    builder = Builder(Graph("g"), ConstantStore())
    values = Value(tensor(F32, (S, 64))), Value(tensor(F32, (64, 64)))
    kernel = lower_group(builder.add(Matmul(), *values), builder.constants).kernel
    work = work_estimate(kernel)
    small, large = (evaluate(work, {"n0": n}) for n in (10, 100))
    assert 9 * small <= large <= 11 * small


def test_groups_of_a_symbolic_number_of_channels() -> None:
    """The group of an output channel is a quotient by a dim, times another."""
    outputs, inputs = Symbol("M", 2, 64), Symbol("K", 1, 64)
    builder = Builder(Graph("g"), ConstantStore(), "stem/conv")
    x = Value(tensor(F32, (B, inputs * 2, 8, 8)))
    weight = Value(tensor(F32, (outputs, inputs, 3, 3)))
    node = builder.add(Conv((1, 1), (0, 0, 0, 0), (1, 1), 2), x, weight)
    low = lower_group(node, builder.constants)
    assert "(contract_o // (n2 // 2))*n1" in str(low.kernel.stages[0])


def test_an_index_that_is_not_affine_names_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    """The symbols that it would need as numbers are told apart: the caller knows their inputs."""

    def refuse(_: object) -> None:
        raise SymbolicDimError("An index divides by 'M'.", ["M"])

    monkeypatch.setattr("tilewright.passes.lower.kernel.abstract_dims", refuse)
    builder = Builder(Graph("g"), ConstantStore(), "stem/conv")
    node = builder.add(Mul(), *(Value(tensor(F32, (B, 8))) for _ in range(2)))
    message = r"^Node 'stem/conv' has no kernel for symbolic sizes: An index divides by 'M'\.$"
    with pytest.raises(SymbolicDimError, match=message) as caught:
        lower_group(node, builder.constants)
    assert caught.value.dims == ("M",)
