# SPDX-License-Identifier: Apache-2.0
"""Fixed costs: ``python -m benchmarks.overhead [--json FILE]``.

Two figures: the call of a model that copies one element, from Python, beside ONNX Runtime; and the
run of a host program that launches 1,000 kernels of one element each, on one thread, which is what
a launch costs when there is nothing to compute. The second model is built by hand, one group a
kernel, since fusion would make one kernel of it.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from onnx import TensorProto, helper
from rich.console import Console
from rich.table import Table

from benchmarks.blocks import BlockPlan, time_in_blocks
from tilewright import runtime
from tilewright.driver import CompileOptions, Report, build_module
from tilewright.ir.dtypes import F32
from tilewright.ir.graph import Builder, ConstantStore, Graph, Module, Value
from tilewright.ir.ops.group import Group
from tilewright.ir.ops.unary import Abs
from tilewright.ir.target import parse_target
from tilewright.ir.types import tensor

LAUNCHES = 1000
LAUNCH_BUDGET_US = 30.0


def chain(count: int) -> Module:
    """A module of ``count`` groups in a row, each the absolute value of one element."""
    store, graph = ConstantStore(), Graph("main")
    value = Value(tensor(F32, (1,)), "x")
    graph.inputs = [value]
    builder = Builder(graph, store)
    for _ in range(count):
        region = Graph("elementwise")
        inner = Value(value.type, "x")
        region.inputs = [inner]
        region.set_outputs([Builder(region, store)(Abs(), inner)])
        node = builder.add_typed(Group("elementwise"), [value], [value.type], (region,))
        value = node.result
    graph.set_outputs([value])
    return Module(graph, {}, store, ["x"], ["y"])


def identity_model() -> bytes:
    """An ONNX model that returns its one element."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1])
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "identity", [x], [y])
    opset = [helper.make_opsetid("", 18)]
    model = helper.make_model(graph, opset_imports=opset, ir_version=8)
    return bytes(model.SerializeToString())


def measure(rounds: int) -> dict[str, float]:
    """Microseconds a call: ours and ONNX Runtime's identity, and the chain of launches."""
    import onnxruntime

    import tilewright

    model = identity_model()
    ours = tilewright.compile(model, target="native")
    theirs = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    feeds = {"x": np.ones(1, np.float32)}
    options = CompileOptions(cache=False)
    launches = build_module(chain(LAUNCHES), parse_target("native"), options, Report())
    host = runtime.load(launches.to_bytes(), threads=1)
    calls = {
        "identity": lambda: ours.run(feeds),
        "identity, ONNX Runtime": lambda: theirs.run(None, feeds),
        f"{LAUNCHES} launches": lambda: host.run(feeds),
    }
    timings = time_in_blocks(calls, BlockPlan(rounds=rounds))
    return {name: timing.median * 1e6 for name, timing in timings.items()}


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; 1 if a figure is over its budget."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.overhead", description=__doc__)
    parser.add_argument("--rounds", type=int, default=BlockPlan.rounds)
    parser.add_argument("--json", type=Path, metavar="FILE")
    given = parser.parse_args(arguments)
    found = measure(given.rounds)
    ours, theirs, launches = found.values()
    budgets = (theirs, None, LAUNCH_BUDGET_US)
    table = Table("call", "us", "budget us")
    for (name, value), budget in zip(found.items(), budgets, strict=True):
        table.add_row(name, f"{value:.2f}", "" if budget is None else f"{budget:.2f}")
    Console().print(table)
    if given.json:
        given.json.write_text(json.dumps(found, indent=2), encoding="utf-8")
    return int(ours > theirs or launches > LAUNCH_BUDGET_US)


if __name__ == "__main__":
    sys.exit(main())
