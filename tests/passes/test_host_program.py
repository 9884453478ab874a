# SPDX-License-Identifier: Apache-2.0
import pytest

from tests.targets import NARROW
from tilewright.ir.dtypes import F32
from tilewright.ir.errors import PassError
from tilewright.ir.expr import ONE, ZERO, Symbol, index
from tilewright.ir.graph import Builder, Graph, Module, Value
from tilewright.ir.loop import Fits, HostProgram, If, Launch, Output, Place, Require, walk
from tilewright.ir.loop_parser import parse_host
from tilewright.ir.ops.binary import Add
from tilewright.ir.ops.matmul import Matmul
from tilewright.ir.ops.pool import MaxPool
from tilewright.ir.ops.reshape import Reshape
from tilewright.ir.ops.unary import Exp, Neg
from tilewright.ir.types import TensorType, tensor
from tilewright.ir.verify_loop import verify_host
from tilewright.passes.host import Host, LaunchSpec, build_host
from tilewright.passes.host_sizes import check_constant_sizes
from tilewright.passes.manager import PassContext, parse_pipeline, run_passes

N = Symbol("n", 1, 64, 2, 8)
M, L = Symbol("m"), Symbol("l")


def module(*types: TensorType, names: tuple[str, ...] = ("x", "z")) -> tuple[Module, Builder]:
    graph = Graph("main", [Value(t, name) for t, name in zip(types, names, strict=False)])
    symbols = {"n": N, "m": M, "l": L}
    made = Module(graph, symbols, input_names=list(names[: len(types)]))
    return made, Builder(graph, made.constants)


def host_of(made: Module, outputs: list[Value], passes: str = "fuse") -> Host:
    made.graph.set_outputs(outputs)
    made.output_names = [f"y{i}" for i in range(len(outputs))]
    run_passes(made, parse_pipeline(passes), PassContext(NARROW))
    launches = [
        LaunchSpec(
            node,
            f"k{i}",
            tuple(node.operands),
            tuple(node.results),
            (),
            ONE,
            index(100),
            ZERO,
            node.origin,
        )
        for i, node in enumerate(n for n in made.graph.nodes if n.regions)
    ]
    host = build_host(made, launches)
    verify_host(host.program)
    assert parse_host(str(host.program)) is host.program
    return host


def requirements(program: HostProgram) -> list[str]:
    return [s.message for s in walk(program.body) if isinstance(s, Require)]


def test_buffers_are_placed_reused_and_aliased() -> None:
    made, build = module(tensor(F32, (N, 3)))
    weight = build.constant([[0.5] * 32] * 3, F32, name="weight")
    product = build(Matmul(), made.graph.inputs[0], weight)
    flat = build(Reshape((N * 32,)), product)
    first = build(Exp(), flat)
    total = build(Add(), first, first)
    program = host_of(made, [total], "fuse").program
    lines = [str(s) for s in walk(program.body) if isinstance(s, Place | Output | Launch)]
    assert lines == [
        "place t: f32[n,32] at 0",
        'launch @k0(x, weight, t) tasks 1 work 100 workspace 0 ""',
        "output y0: f32[32*n] as 0",
        'launch @k1(t, y0) tasks 1 work 100 workspace 0 ""',
    ]
    assert program.arena is N * 128
    assert [str(b) for b in program.constants] == ["weight: f32[3,32]"]


def test_what_a_node_requires_is_told_before_what_follows_from_it() -> None:
    made, build = module(tensor(F32, (2, 3, M, 9)))
    pooled = build(MaxPool((4, 4), (2, 2), (0, 0, 0, 0), (1, 1)), made.graph.inputs[0])
    told = requirements(host_of(made, [build(Exp(), pooled)]).program)
    assert "A window of {0} elements does not fit a dim of {1}" in told[-2]
    assert "A result would have size {0} ((m // 2) - 1)." in told[-1]


def test_checks_of_input_shapes_are_sentences() -> None:
    made, build = module(tensor(F32, (N, 3)), tensor(F32, (N * 2 + 1, M)), names=("a b", "z{0}"))
    x, z = made.graph.inputs
    program = host_of(made, [build(Exp(), x), build(Neg(), z)]).program
    assert requirements(program) == [
        "Input 'a b' has size {0} in dimension 0, but at least {1} is needed.",
        "Input 'a b' has size {0} in dimension 0, but at most {1} is supported.",
        "Input 'a b' has size {0} in dimension 0, but a multiple of {1} is needed.",
        "Input 'z?0?' has size {0} in dimension 1, but at most {1} is supported.",
        "Input 'a b' has size {0} in dimension 1, expected {1}.",
        "Input 'z?0?' has size {0} in dimension 0, expected {1} ('2*n + 1').",
    ]
    assert [b.name for b in program.inputs] == ["a_b", "z_0_"]


def test_a_symbol_is_found_from_a_linear_dim() -> None:
    made, build = module(tensor(F32, (N * 4 + 3,)))
    program = host_of(made, [build(Exp(), made.graph.inputs[0])]).program
    overflow, binding = str(program.body).split("\n")[:2]
    assert "(cast(x.shape[0], index) + 1)" in overflow
    assert binding.endswith("= ((cast(x.shape[0], index) + 1) // 4) - 1 {")
    assert "expected {1} ('4*n + 3')." in requirements(program)[-1]


def test_dims_that_must_agree_are_checked() -> None:
    made, build = module(tensor(F32, (N,)), tensor(F32, (M,)))
    build.origin = "Add_7"
    program = host_of(made, [build(Add(), *made.graph.inputs)]).program
    assert "Node 'Add_7': Dims {0} and {1} do not broadcast (m, n)." in requirements(program)


def test_a_symbol_without_a_source_is_refused() -> None:
    made, build = module(tensor(F32, (N * M,)))
    with pytest.raises(PassError, match=r"Symbol '[mn]' has no value: no input has a dim"):
        host_of(made, [build(Exp(), made.graph.inputs[0])])


def test_an_output_without_memory_of_its_own_is_refused_unless_materialized() -> None:
    made, build = module(tensor(F32, (N, 3)))
    x = made.graph.inputs[0]
    y = build(Exp(), x)
    with pytest.raises(PassError, match="run the pass 'materialize-outputs' before fusion"):
        host_of(made, [x, y, y])
    made, build = module(tensor(F32, (N, 3)))
    x = made.graph.inputs[0]
    y = build(Exp(), x)
    program = host_of(made, [x, y, y], "materialize-outputs,fuse").program
    numbers = [s.number for s in walk(program.body) if isinstance(s, Output)]
    assert sorted(numbers) == [0, 1, 2]
    assert program.arena is ZERO


def test_a_value_that_no_symbol_makes_small_enough_is_refused() -> None:
    made, build = module(tensor(F32, (1 << 31, 1 << 31)), tensor(F32, (N, 1 << 30, 1 << 31)))
    build.origin = "Exp_3"
    x, z = made.graph.inputs
    made.graph.set_outputs([build(Exp(), x)])
    with pytest.raises(
        PassError, match=r"of 'Exp_3' of type float32\[2147483648,2147483648\] takes"
    ):
        check_constant_sizes(made)
    made.graph.set_outputs([build(Exp(), z)])
    with pytest.raises(PassError, match="takes more than 9223372036854775807 bytes of memory"):
        check_constant_sizes(made)


def test_sizes_are_checked_before_anything_is_placed() -> None:
    made, build = module(tensor(F32, (L, M)), tensor(F32, (M, L)))
    x, z = made.graph.inputs
    build.origin = "MatMul_1"
    product = build(Matmul(), x, z)
    program = host_of(made, [build(Exp(), build(Matmul(), product, x))]).program
    kinds = [type(s).__name__ for s in walk(program.body)]
    assert kinds.index("Place") > len(kinds) - kinds[::-1].index("Fits") - 1
    told = [s for s in walk(program.body) if isinstance(s, Fits)]
    assert [str(s.sizes[-1]) for s in told] == [
        "4*l*l",
        "64*((4*l*l + 63) // 64)",
        "4*l*m",
    ]
    assert "of 'MatMul_1' of type float32[l,l] takes more than" in told[0].message
    assert told[0].message.endswith(", where 'l' is {0}.") and told[0].values == (L,)


def test_one_symbol_needs_no_checks() -> None:
    made, build = module(tensor(F32, (M, 1 << 16)))
    program = host_of(made, [build(Exp(), made.graph.inputs[0])]).program
    assert not any(isinstance(s, Fits | If) for s in walk(program.body))
