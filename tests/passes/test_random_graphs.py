# SPDX-License-Identifier: Apache-2.0
"""Random graphs through the whole pipeline: the reference interpreter gives the same before and
after.
"""

import random
from collections.abc import Callable

import numpy as np
import pytest

from tilewright.ir.dtypes import F32
from tilewright.ir.expr import Expr, Symbol, index
from tilewright.ir.graph import Builder, Constant, Graph, Module, Value
from tilewright.ir.interpreter.graphs import interpret_graph
from tilewright.ir.ops.binary import Add, Maximum, Mul, Sub
from tilewright.ir.ops.broadcast_to import BroadcastTo
from tilewright.ir.ops.concat import Concat
from tilewright.ir.ops.conv import Conv
from tilewright.ir.ops.gather import Gather
from tilewright.ir.ops.layer_norm import LayerNorm
from tilewright.ir.ops.matmul import Matmul
from tilewright.ir.ops.pool import AvgPool, MaxPool
from tilewright.ir.ops.reduce import ReduceMax, ReduceMean, ReduceSum
from tilewright.ir.ops.reshape import Reshape
from tilewright.ir.ops.slice import Slice
from tilewright.ir.ops.softmax import Softmax
from tilewright.ir.ops.transpose import Transpose
from tilewright.ir.ops.unary import Exp, Neg, Sigmoid, Tanh
from tilewright.ir.rewrite import evaluate
from tilewright.ir.target import parse_target
from tilewright.ir.types import tensor
from tilewright.ir.verify_graph import verify_module
from tilewright.passes.manager import PassContext, Verify, run_passes
from tilewright.passes.op_kinds import is_alias
from tilewright.pipeline import graph_passes

N = Symbol("n", 1, 8, 1, 2)


class RandomGraph:
    """Grows a graph op by op; ``values`` are what later ops may use."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.numbers = np.random.default_rng(seed)
        shapes = self.random.choice((((N, 4, 6, 6), (N, 4, 6, 6)), ((N, 5, 8), (8, 8))))
        graph = Graph("main", [Value(tensor(F32, s), f"x{i}") for i, s in enumerate(shapes)])
        self.module = Module(graph, {"n": N}, input_names=["x0", "x1"])
        self.build = Builder(graph, self.module.constants)
        self.values = list(graph.inputs)
        makers = [self.unary, self.binary, self.with_constant, self.transpose, self.reshape]
        makers += [self.cut, self.join, self.reduce, self.normalize, self.contract, self.spread]
        for number in range(self.random.randrange(6, 22)):
            self.build.origin = f"node{number}"
            made = self.random.choice(makers)(self.random.choice(self.values[-6:]))
            if made is not None:
                self.values.append(made)
        unused = [v for v in self.values if not v.use_count] or self.values[-1:]
        graph.set_outputs(unused[:6])
        self.module.output_names = [f"y{i}" for i in range(len(graph.outputs))]

    def constant(self, shape: tuple[Expr, ...]) -> Value:
        dims = [evaluate(d, {}) for d in shape]
        return self.build.constant(self.numbers.standard_normal(dims) * 0.5, F32)

    def unary(self, x: Value) -> Value:
        op = self.random.choice((Neg, Sigmoid, Tanh, Exp))
        return self.build(op(), self.build(Tanh(), x) if op is Exp else x)

    def binary(self, x: Value) -> Value | None:
        alike = [v for v in self.values if v.type.shape == x.type.shape]
        op = self.random.choice((Add, Sub, Mul, Maximum))
        return self.build(op(), x, self.random.choice(alike))

    def with_constant(self, x: Value) -> Value:
        dims = x.type.shape
        by_channel = (dims[1], *[index(1)] * (len(dims) - 2)) if len(dims) > 1 else ()
        keep = self.random.choice((dims[-1:], (), by_channel))
        if not all(str(d).isdigit() for d in keep):
            keep = ()
        op = self.random.choice((Add, Mul, Maximum))
        return self.build(op(), x, self.constant(tuple(keep)))

    def transpose(self, x: Value) -> Value:
        perm = list(range(x.type.rank))
        self.random.shuffle(perm)
        return self.build(Transpose(tuple(perm)), x)

    def reshape(self, x: Value) -> Value | None:
        dims = list(x.type.shape)
        if len(dims) < 2:
            return None
        if self.random.random() < 0.5:
            at = self.random.randrange(len(dims) - 1)
            dims[at : at + 2] = [dims[at] * dims[at + 1]]
        else:
            even = [i for i, d in enumerate(dims) if str(d).isdigit() and int(str(d)) % 2 == 0]
            if even and len(dims) < 5:
                at = self.random.choice(even)
                dims[at : at + 1] = [index(2), index(int(str(dims[at])) // 2)]
            else:
                dims.insert(self.random.randrange(len(dims)), index(1))
        return self.build(Reshape(tuple(dims)), x) if len(dims) < 6 else None

    def cut(self, x: Value) -> Value | None:
        fixed = [i for i, d in enumerate(x.type.shape) if str(d).isdigit() and int(str(d)) > 1]
        if not fixed:
            return None
        axis = self.random.choice(fixed)
        extent = int(str(x.type.shape[axis]))
        start = self.random.randrange(extent)
        if self.random.random() < 0.2:
            at = self.build.constant(np.array([start, 0, -1]))
            return self.build(Gather(axis), x, at)
        size = self.random.randrange(1, extent - start + 1)
        starts = tuple(index(start if a == axis else 0) for a in range(x.type.rank))
        sizes = tuple(index(size) if a == axis else d for a, d in enumerate(x.type.shape))
        return self.build(Slice(starts, sizes, (1,) * x.type.rank), x)

    def join(self, x: Value) -> Value | None:
        if x.type.rank < 2:
            return None
        return self.build(Concat(1), x, self.build(Neg(), x), x)

    def reduce(self, x: Value) -> Value | None:
        if x.type.rank < 3:
            return None
        axis = self.random.randrange(1, x.type.rank)
        op = self.random.choice((ReduceSum, ReduceMean, ReduceMax))
        return self.build(op((axis,), self.random.random() < 0.7), x)

    def normalize(self, x: Value) -> Value | None:
        last = x.type.rank - 1
        if x.type.rank < 2 or x.type.shape[-1] is N or not str(x.type.shape[-1]).isdigit():
            return None
        if self.random.random() < 0.5:
            return self.build(Softmax(last), x)
        scale, bias = (self.constant(x.type.shape[-1:]) for _ in range(2))
        return self.build(LayerNorm(last, 1e-3), x, scale, bias)

    def contract(self, x: Value) -> Value | None:
        dims = x.type.shape
        if len(dims) == 4 and self.random.random() < 0.7:
            return self.convolve(x)
        if len(dims) < 2 or not str(dims[-1]).isdigit():
            return None
        if self.random.random() < 0.4:
            swap = (*range(len(dims) - 2), len(dims) - 1, len(dims) - 2)
            return self.build(Matmul(), x, self.build(Transpose(swap), x))
        return self.build(Matmul(), x, self.constant((dims[-1], index(6))))

    def convolve(self, x: Value) -> Value | None:
        channels, *spatial = x.type.shape[1:]
        if not all(str(d).isdigit() for d in (channels, *spatial)):
            return None
        extents = [int(str(d)) for d in spatial]
        kernel = tuple(min(3, e) if self.random.random() < 0.6 else 1 for e in extents)
        pads = tuple(self.random.choice((0, k // 2)) for k in (*kernel, *kernel))
        if self.random.random() < 0.25:
            pool = self.random.choice((MaxPool, AvgPool))
            return self.build(pool(kernel, (1, 1), pads, (1, 1)), x)
        depthwise = self.random.random() < 0.3
        groups = int(str(channels)) if depthwise else 1
        shape = (
            channels if depthwise else index(4),
            index(1) if depthwise else channels,
            *map(index, kernel),
        )
        return self.build(Conv((1, 1), pads, (1, 1), groups), x, self.constant(shape))

    def spread(self, x: Value) -> Value | None:
        ones = [i for i, d in enumerate(x.type.shape) if str(d) == "1"]
        if not ones:
            return None
        shape = tuple(index(3) if a == ones[0] else d for a, d in enumerate(x.type.shape))
        return self.build(BroadcastTo(shape), x)


@pytest.mark.parametrize("seed", range(40))
def test_the_pipeline_keeps_values_and_ends_in_groups(seed: int) -> None:
    module = RandomGraph(seed).module
    verify_module(module)
    numbers = np.random.default_rng(seed)
    feeds = [
        numbers.standard_normal([evaluate(d, {"n": 3}) for d in v.type.shape]).astype(np.float32)
        for v in module.graph.inputs
    ]
    before = interpret_graph(module, feeds)
    check: Callable[[Module], None] = verify_module
    context = PassContext(parse_target("x86-64-v3"))
    run_passes(module, graph_passes(), context, [Verify(check)])
    for node in module.graph.nodes:
        assert node.regions or isinstance(node.op, Constant) or is_alias(node)
    assert all(v.type.layout.is_row_major for v in module.graph.outputs)
    after = interpret_graph(module, feeds)
    for name, array in before.items():
        np.testing.assert_allclose(after[name], array, rtol=1e-4, atol=1e-4, err_msg=name)
