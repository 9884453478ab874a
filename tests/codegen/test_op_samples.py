# SPDX-License-Identifier: Apache-2.0
"""Every op on its own samples, compiled as a model of one node: the results against the numpy
reference. The long suite takes all samples, the short one the first of each op.
"""

import pytest

from tests.ir.ops.test_ops import Case, assert_close, bound, cases
from tilewright.driver import Build, CompileOptions, Report, build_module, optimize
from tilewright.ir.dtypes import from_numpy
from tilewright.ir.expr import Symbol, free_variables
from tilewright.ir.graph import Builder, Graph, Module, Value
from tilewright.ir.graph_parser import registered_ops
from tilewright.ir.interpreter.graphs import with_dims
from tilewright.ir.layout import Layout, row_major
from tilewright.ir.ops.relayout import Relayout
from tilewright.ir.target import Target, parse_target
from tilewright.ir.types import tensor
from tilewright.runtime import load

# References clamp indices that are out of range, and so must the kernels.
OPTIONS = CompileOptions(cache=False, tuned=False, unchecked_indices=True)
OPS = [name for name, op in registered_ops().items() if any(op.samples())]


def in_layout(builder: Builder, value: Value, layout: Layout) -> Value:
    """The value in that layout: a model's inputs and outputs are row-major."""
    return value if value.type.layout == layout else builder(Relayout(layout), value)


def build_sample(case: Case, target: Target) -> Build:
    """A sample as a model; dims stay symbolic if the operands' shapes tell them."""
    sample, sizes, *_ = case
    dims = [d for t in sample.operands for d in t.shape]
    told = {d for d in dims if isinstance(d, Symbol)}
    used = {v for d in dims for v in free_variables(d)} | {
        Symbol(name) for name in sizes if name not in {s.name for s in told}
    }
    op, types = sample.op, sample.operands
    if used - told:
        op = with_dims(op, sizes)
        types = tuple(bound(t, sizes) for t in types)
        told = set()
    names = [f"x{i}" for i in range(len(types))]
    graph = Graph("main", [Value(tensor(t.dtype, t.shape), n) for t, n in zip(types, names)])
    module = Module(graph, {s.name: s for s in told}, input_names=names)
    builder = Builder(graph, module.constants, "sample")
    operands = [in_layout(builder, v, t.layout) for v, t in zip(graph.inputs, types)]
    node = builder.add(op, *operands)
    graph.set_outputs([in_layout(builder, v, row_major(v.type.rank)) for v in node.results])
    module.output_names = [f"y{i}" for i in range(len(node.results))]
    report = Report()
    optimize(module, target, OPTIONS, report)
    return build_module(module, target, OPTIONS, report)


def check_results(case: Case, build: Build) -> None:
    """What the model of a sample computes, held to the reference."""
    sample, sizes, arrays, expected = case
    model = load(build.to_bytes(), threads=1)
    results = model.run({f"x{i}": array for i, array in enumerate(arrays)})
    for found, wanted in zip(results.values(), expected, strict=True):
        assert_close(found, wanted, from_numpy(wanted.dtype), f"{sample} with {sizes}")


def check(name: str, chosen: slice) -> None:
    for case in cases(registered_ops()[name])[chosen]:
        check_results(case, build_sample(case, parse_target("native,cores=2")))


@pytest.mark.parametrize("name", OPS)
def test_the_first_sample(name: str) -> None:
    check(name, slice(1))


@pytest.mark.slow
@pytest.mark.parametrize("name", OPS)
def test_all_samples(name: str) -> None:
    check(name, slice(None))
