# SPDX-License-Identifier: Apache-2.0
"""The interpreter of graphs: symbols from feeds, dims in attributes, groups, and results held to
their types.
"""

import numpy as np
import pytest

from tilewright.ir.errors import InputError, InterpreterError
from tilewright.ir.graph import Module
from tilewright.ir.graph_parser import parse_module
from tilewright.ir.interpreter.graphs import interpret_graph

TEXT = """module {
  symbol n in [1, 64]
  graph @main(x "in:0": f32[n,4], y: f32[n,1]) -> ("out:0", other) {
    %0: f32[n,4] = add(x, y) "Add_0"
    %1: f32[n,4] = group(%0, x) {kind="elementwise"} {
      graph @g(a: f32[n,4], b: f32[n,4]) {
        %0: f32[n,4] = neg(a)
        %1: f32[n,4] = mul(%0, b)
        return %1
      }
    }
    %2: f32[2,2*n] = reshape(%1) {shape=(2, 2*n)} "Reshape_0"
    %3: f32[3,4] = broadcast_to(y) {shape=(3, 4)}
    return %2, %1
  }
}"""
X = np.arange(12, dtype=np.float32).reshape(3, 4)
Y = np.ones((3, 1), np.float32)


def module(old: str = "", new: str = "") -> Module:
    assert old in TEXT
    return parse_module(TEXT.replace(old, new))


def test_results_by_the_model_names() -> None:
    result = interpret_graph(module(), {"in:0": X, "y": Y})
    wanted = -(X + Y) * X
    assert list(result) == ["out:0", "other"]
    assert np.array_equal(result["out:0"], wanted.reshape(2, 6))
    assert np.array_equal(result["other"], wanted)
    again = interpret_graph(module(), [X, Y])
    assert np.array_equal(again["other"], wanted)


def test_a_bare_graph() -> None:
    result = interpret_graph(module().graph, [X, Y])
    assert list(result) == ["0", "1"]


@pytest.mark.parametrize(
    ("feeds", "message"),
    [
        ([X], "has 2 inputs, got 1"),
        ({"y": Y}, "no array for input 'in:0'"),
        ([X, Y[:2]], "Input 'y' is float32.2, 1., not 'f32.n,1.' with 'n' being 3"),
        ([X.astype(np.int32), Y], "Input 'in:0' is int32"),
        ([X[0], Y], r"Input 'in:0' is float32\[4\]"),
    ],
)
def test_wrong_feeds(feeds: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        interpret_graph(module(), feeds)  # type: ignore[arg-type]


def test_results_are_held_to_their_types() -> None:
    wrong = module("%0: f32[n,4] = add", "%0: f32[n,5] = add")
    with pytest.raises(InterpreterError, match=r"result of 'add' \('Add_0'\) is float32"):
        interpret_graph(wrong, [X, Y])
    wrong = module("%0: f32[n,4] = neg", "%0: f64[n,4] = neg")
    with pytest.raises(InterpreterError, match="not 'f64"):
        interpret_graph(wrong, [X, Y])
