# SPDX-License-Identifier: Apache-2.0
"""Indices among the data that are out of range end the run with an error that names them."""

import re
from typing import Any

import numpy as np
import onnx
import pytest

import tilewright
from tilewright.driver import CompileOptions, Report, lower_groups, optimize
from tilewright.errors import IndexFaultError
from tilewright.frontends import import_model
from tilewright.ir import errors as compiler_errors
from tilewright.ir.expr import index
from tilewright.ir.interpreter.graphs import interpret_graph
from tilewright.ir.interpreter.host import interpret_host
from tilewright.ir.loop_parser import parse_host
from tilewright.ir.target import parse_target
from tilewright.ir.verify_loop import verify_host
from tilewright.passes.host import LaunchSpec, build_host
from tilewright.runtime.arrays import Array

Feeds = dict[str, Array]
F32, I64 = np.float32, np.int64
CLAMPED: dict[str, Any] = {"unchecked_indices": True}


def parse(inputs: str, body: str, functions: str = "") -> onnx.ModelProto:
    """A model in ONNX's text form with an output ``y``, of whatever shape; ``body`` names nodes as
    ``[name] y = ...``.
    """
    opsets = '"" : 18, "local" : 1' if functions else '"" : 18'
    model = onnx.parser.parse_model(
        f"<ir_version: 8, opset_import: [{opsets}]> g ({inputs}) => (float[?] y) {{ {body} }}"
        + functions
    )
    model.graph.output[0].type.tensor_type.ClearField("shape")
    return model


def fault(model: tilewright.CompiledModel, feeds: Feeds) -> tuple[str, int, int, int]:
    """The node, the index, its position and the dim that the error of a run names."""
    with pytest.raises(IndexFaultError) as caught:
        model.run(feeds)
    found = re.fullmatch(
        r"Node '(.*)': Index (-?\d+) \(element (\d+) of the indices, counted in row-major order\) "
        r"is out of range for a dim of (\d+): it must be at least (-?\d+) and below (\d+)\.",
        str(caught.value),
    )
    assert found is not None, caught.value
    node, value, position, dim, least, end = found.groups()
    assert (least, end) == (str(-int(dim)), dim)
    return node, int(value), int(position), int(dim)


def rows(*shape: int) -> Array:
    return np.arange(np.prod(shape), dtype=F32).reshape(shape)


# The operator, the dims of its data and indices (symbolic, as in the model, and at the call), those
# of the updates, and the dim that each part of an index is into.
KINDS: dict[str, tuple[str, str, tuple[int, ...], str, tuple[int, ...], str, tuple[int, ...]]] = {
    "gather-1d": ("Gather", "n", (5,), "m", (40,), "", (5,)),
    "gather-rows": ("Gather<axis = 0>", "n, 3", (6, 3), "m, k", (4, 9), "", (6,)),
    "gather-inner": ("Gather<axis = -1>", "2, n", (2, 7), "m", (3,), "", (7,)),
    "gather-scalar": ("Gather<axis = 1>", "2, n, 2", (2, 3, 2), "", (), "", (3,)),
    "gather-4d": ("Gather<axis = 2>", "1, 2, n, 3", (1, 2, 4, 3), "2, m", (2, 5), "", (4,)),
    "elements": ("GatherElements<axis = 1>", "n, 6", (8, 6), "n, m", (8, 5), "", (6,)),
    "elements-4d": ("GatherElements<axis = 0>", "n, 2, 3, 2", (3, 2, 3, 2), "m, 2, 3, 2",
                    (5, 2, 3, 2), "", (3,)),
    "nd-cells": ("GatherND", "n, 4", (3, 4), "m, 2", (20, 2), "", (3, 4)),
    "nd-rows": ("GatherND", "n, 4", (3, 4), "m, k, 1", (2, 3, 1), "", (3,)),
    "nd-batch": ("GatherND<batch_dims = 1>", "b, n, 4", (2, 3, 4), "b, 2", (2, 2), "", (3, 4)),
    "scatter-elements": ("ScatterElements<axis = 1>", "n, 6", (8, 6), "n, m", (8, 4), "n, m", (6,)),
    "scatter-add": ('ScatterElements<axis = 0, reduction = "add">', "n", (8,), "m", (30,), "m",
                    (8,)),
    "scatter-nd": ("ScatterND", "n, 4", (3, 4), "m, 1", (9, 1), "m, 4", (3,)),
    "scatter-nd-mul": ('ScatterND<reduction = "mul">', "n, 4", (3, 4), "m, 2", (9, 2), "m", (3, 4)),
}  # fmt: skip


TYPED = [(kind, "int64") for kind in KINDS]
TYPED += [(kind, "int32") for kind in KINDS if "nd" not in kind]  # the standard has no other


@pytest.mark.parametrize(("kind", "word"), TYPED)
def test_the_first_bad_index_is_named(kind: str, word: str) -> None:
    operator, dims, shape, index_dims, index_shape, update_dims, into = KINDS[kind]
    inputs = f"float[{dims}] x, {word}{f'[{index_dims}]' if index_dims else ''} i"
    inputs += f", float[{update_dims}] u" if update_dims else ""
    operands = "x, i, u" if update_dims else "x, i"
    parsed = parse(inputs, f"[pick] y = {operator}({operands})")
    model = tilewright.compile(parsed)
    rng = np.random.default_rng(0)
    limits = np.resize(np.array(into), max(1, int(np.prod(index_shape))))
    good = rng.integers(-limits, limits).astype(word)
    feeds: Feeds = {"x": rows(*shape), "i": good.reshape(index_shape)}
    if update_dims:
        updates = (*index_shape[:-1], *shape[len(into) :]) if "ND" in operator else index_shape
        feeds["u"] = np.ones(updates, F32)
    expected = model.run(feeds)["y"].copy()
    module = import_model(parsed)
    np.testing.assert_array_equal(interpret_graph(module, feeds)["y"], expected)
    for position in sorted({0, good.size // 2, good.size - 1}):
        for value in (int(limits[position]), -int(limits[position]) - 1, 2**31 - 1, -(2**31)):
            bad = good.copy()
            bad[position] = value
            bad[position + 1 :: 2] = 100  # others that come later
            wrong = {**feeds, "i": bad.reshape(index_shape)}
            named = ("pick", value, position, int(limits[position]))
            assert fault(model, wrong) == named
            with pytest.raises(compiler_errors.IndexFaultError, match=f"'pick': Index {value} "):
                interpret_graph(module, wrong)
    np.testing.assert_array_equal(model.run(feeds)["y"], expected)


def test_of_many_threads_and_nodes_the_first_is_told() -> None:
    """Also where indices are many, and the later node's are at hand before the first one's."""
    parsed = parse(
        "float[n, 2] x, int64[m, 2] i, int64[m, 2] j",
        """
        [far] moved = Add(i, i)
        [first] a = GatherElements<axis = 0>(x, moved)
        [second] b = GatherElements<axis = 0>(x, j)
        y = Add(a, b)
        """,
    )
    x, good = rows(50, 2), np.zeros((200_000, 2), I64)
    rng = np.random.default_rng(0)
    for threads in (1, 2, 7):
        model = tilewright.compile(parsed, threads=threads)
        for _ in range(5):
            bad = good.copy()
            places = rng.integers(0, bad.size, 3)
            bad.reshape(-1)[places] = (25, -26, 10**9)[int(rng.integers(3))]
            doubled = int(2 * bad.reshape(-1)[places[0]])
            told = (doubled, int(places.min()), 50)
            assert fault(model, {"x": x, "i": bad, "j": bad * 2}) == ("first", *told)
            assert fault(model, {"x": x, "i": good, "j": bad * 2}) == ("second", *told)
        assert not model.run({"x": x, "i": good, "j": good})["y"][:, 0].any()


FUSED = {
    "cast": ("float[m, k] i", "at = Cast<to = 7>(i)", 0),
    "offset": ("int64[m, k] i", "one = Constant<value_int = 1>() at = Add(i, one)", 1),
    "reshaped": ("int64[m, k] i", "flat = Constant<value_ints = [-1]>() at = Reshape(i, flat)", 0),
    "turned": ("int64[k, m] i", "at = Transpose(i)", 0),
    "cut": ("int64[m, k] i", "a = Constant<value_ints = [1]>() b = Constant<value_ints = [99]>() "
            "z = Constant<value_ints = [0]>() at = Slice(i, a, b, z)", 0),
    "spread": ("int64[1, k] i", "d = Constant<value_ints = [3, 1]>() at = Expand(i, d)", 0),
}  # fmt: skip


@pytest.mark.parametrize("name", FUSED)
def test_indices_that_are_computed_or_viewed(name: str) -> None:
    """What makes the indices may be part of the kernel that reads them, or no kernel at all."""
    declared, made, offset = FUSED[name]
    body = f"h = Relu(x) {made} [pick] g = Gather(h, at) y = Exp(g)"
    model = tilewright.compile(parse(f"float[n] x, {declared}", body))
    shape = (1, 4) if name == "spread" else (4, 2) if name == "turned" else (3, 4)
    dtype = F32 if name == "cast" else I64
    good = np.ones(shape, dtype)
    x = rows(9) / 8
    np.testing.assert_allclose(model.run({"x": x, "i": good})["y"].flat[0], np.exp(x[1 + offset]),
                               rtol=1e-6)  # fmt: skip
    bad = good.copy()
    bad[-1, -1] = -12
    place = {"turned": 7, "cut": 7, "spread": 3}.get(name, 11)
    assert fault(model, {"x": x, "i": bad}) == ("pick", offset - 12, place, 9)
    assert model.run({"x": x, "i": good})["y"].size


EMBEDDING = """
    at = Cast<to = 7>(i) rows = Gather(x, at)
    one = Constant<value_float = 1.0>() [add] y = Add(rows, one)
"""


def test_checks_leave_the_other_kernels_as_they_are() -> None:
    """What reads the indices is fused as without the checks, to the same code."""
    parsed = parse("float[n, 8] x, int32[b, s] i", EMBEDDING)
    checked, unchecked = (
        [k.name for k in tilewright.compile(parsed, options=options).report.kernels]
        for options in ({}, CLAMPED)
    )
    assert len(unchecked) == 1 and len(checked) == 2 and unchecked[0] in checked


def test_the_interpreter_of_host_programs_tells_the_same() -> None:
    parsed = parse("float[n, 8] x, int32[b, s] i", EMBEDDING.replace("rows =", "[pick] rows ="))
    target = parse_target("x86-64-v3,cores=2")
    module, options = import_model(parsed), CompileOptions(verify=True)
    optimize(module, target, options, Report())
    lowered = lower_groups(module)
    calls = [
        LaunchSpec(
            low.results[0].producer, low.kernel.name, low.arguments, low.results, low.scalars,
            index(1), index(1), index(0), low.origin,
        )
        for low in lowered
        if low.results[0].producer is not None
    ]  # fmt: skip
    host = build_host(module, calls).program
    kernels = {low.kernel.name: low.kernel for low in lowered}
    verify_host(host, kernels)
    assert parse_host(str(host)) == host
    feeds: Feeds = {"x": rows(3, 8), "i": np.array([[0, 1], [-3, 2]], np.int32)}
    found = interpret_host(host, kernels, feeds, {})
    model = tilewright.compile(parsed)
    np.testing.assert_array_equal(found["y"], model.run(feeds)["y"])
    feeds["i"][1] = -4, 3
    with pytest.raises(compiler_errors.IndexFaultError) as caught:
        interpret_host(host, kernels, feeds, {})
    assert fault(model, feeds) == ("pick", -4, 2, 3)
    with pytest.raises(IndexFaultError, match=re.escape(str(caught.value))):
        model.run(feeds)


def test_a_node_inside_a_function() -> None:
    inner = (
        '<opset_import: ["" : 18], domain: "local"> Look (t, i) => (r) '
        "{ [rows] s = Gather(t, i) r = Neg(s) }"
    )
    parsed = parse("float[n, 2] x, int64[m] i", "[look] y = local.Look(x, i)", functions=inner)
    model = tilewright.compile(parsed)
    node, *told = fault(model, {"x": rows(3, 2), "i": np.array([0, 3])})
    assert "look" in node and told == [3, 1, 3]


@pytest.mark.parametrize("kind", ["gather-rows", "nd-cells", "scatter-elements", "scatter-nd-mul"])
def test_an_empty_dim_holds_no_index(kind: str) -> None:
    operator, dims, shape, index_dims, index_shape, update_dims, into = KINDS[kind]
    inputs = f"float[{dims}] x, int64[{index_dims}] i"
    inputs += f", float[{update_dims}] u" if update_dims else ""
    operands = "x, i, u" if update_dims else "x, i"
    parsed = parse(inputs, f"[pick] y = {operator}({operands})")
    empty: Feeds = {"x": rows(0, *shape[1:]), "i": np.zeros(index_shape, I64)}
    nothing: Feeds = {"x": empty["x"], "i": np.zeros((0, *index_shape[1:]), I64)}
    if update_dims:
        if kind == "scatter-elements":  # other dims hold the data's to be as large
            empty = {"x": rows(8, 0), "i": np.zeros((8, 4), I64)}
            nothing = {"x": rows(8, 0), "i": np.zeros((8, 0), I64)}
            parsed.graph.input[0].type.tensor_type.shape.dim[1].dim_param = "w"
        for feeds in (empty, nothing):
            tail = feeds["x"].shape[len(into) :] if "ND" in operator else ()
            lead = feeds["i"].shape[:-1] if "ND" in operator else feeds["i"].shape
            feeds["u"] = np.ones((*lead, *tail), F32)
    model = tilewright.compile(parsed)
    assert fault(model, empty) == ("pick", 0, 0, 0)
    assert not model.run(nothing)["y"].any()
    clamped = tilewright.compile(parsed, options=CLAMPED)
    assert not clamped.run(empty)["y"].any()


def test_indices_in_the_model() -> None:
    """A constant index is checked where its dim is not known, and never folded to a value."""
    at = "at = Constant<value_ints = [1, -4, 3]>()"
    for dims, table in (("n", rows(3)), ("3", rows(3))):
        parsed = parse(f"float[{dims}] x", f"{at} [pick] y = Gather(x, at)")
        assert fault(tilewright.compile(parsed), {"x": table}) == ("pick", -4, 1, 3)
        clamped = tilewright.compile(parsed, options=CLAMPED)
        assert clamped.run({"x": table})["y"].tolist() == [1, 0, 2]
    assert tilewright.compile(
        parse("float[n] x", f"{at} [pick] y = Gather(x, at)")
    ).run({"x": rows(4)})["y"].tolist() == [1, 0, 3]  # fmt: skip
    table = "t = Constant<value_floats = [1.0, 2.0, 3.0]>()"
    folded = parse("float[n] x", f"{at} {table} [pick] g = Gather(t, at) s = Size(x) "
                   "f = Cast<to = 1>(s) y = Add(g, f)")  # fmt: skip
    assert fault(tilewright.compile(folded), {"x": rows(2)}) == ("pick", -4, 1, 3)
    clamped = tilewright.compile(folded, options=CLAMPED)
    assert clamped.run({"x": rows(2)})["y"].tolist() == [4, 3, 5]


def test_unchecked_indices_are_clamped_and_said_so() -> None:
    parsed = parse("float[n] x, int64[m] i", "[pick] y = Gather(x, i)")
    model = tilewright.compile(parsed, options=CLAMPED)
    assert model.run({"x": rows(3), "i": np.array([5, -9, 1])})["y"].tolist() == [2, 0, 1]
    assert model.manifest["unchecked_indices"] is True
    assert tilewright.compile(parsed).manifest["unchecked_indices"] is False
    module = import_model(parsed)
    feeds = {"x": rows(3), "i": np.array([5, -9, 1])}
    clamped = interpret_graph(module, feeds, unchecked_indices=True)["y"]
    assert clamped.tolist() == [2, 0, 1]


def test_a_check_runs_on_vectors() -> None:
    """Also of indices as many as what they pick, and of those that are computed."""
    for declared, made in (("int64[64, 128] i", ""), ("float[m, k] i", "j = Cast<to = 7>(i)")):
        parsed = parse(f"float[n] x, {declared}", f"{made} y = Gather(x, {'j' if made else 'i'})")
        report = tilewright.compile(parsed, "x86-64-v3").report
        assert report is not None and not report.warnings
        assert "rows" in [k.template for k in report.kernels]
