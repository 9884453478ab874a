# SPDX-License-Identifier: Apache-2.0
"""Modules whose defaults are made constants: as text, and where the defaults do not fit."""

import numpy as np
import pytest

from tilewright.ir.errors import PassError
from tilewright.ir.graph import ConstantStore, Module
from tilewright.ir.graph_parser import parse_module
from tilewright.ir.interpreter.graphs import interpret_graph
from tilewright.ir.verify_graph import verify_module
from tilewright.passes.constant_defaults import with_constant_defaults

W = np.array([10, 20], np.float32)


def module_of(n: str = "[0, 8]", v: tuple[float, ...] = (1, 2)) -> Module:
    store = ConstantStore()
    w, other = store.add(W), store.add(np.array(v, np.float32))
    text = f"""
    module {{
      symbol n in {n}
      default "w" = f32[2] {w}
      default "v" = f32[{len(v)}] {other}
      graph @main(x: f32[n], w: f32[n], v: f32[n]) -> (y, z) {{
        %y: f32[n] = add(x, w) "sum"
        %z: f32[n] = mul(%y, v) "product"
        return %y, %z
      }}
    }}
    """
    return parse_module(text, store)


def test_defaults_become_constants_and_their_dims_numbers() -> None:
    module = module_of()
    before = str(module)
    fixed = with_constant_defaults(module)
    verify_module(fixed)
    assert str(module) == before
    assert fixed.input_names == ["x"] and not fixed.defaults and not fixed.symbols
    assert [str(v.type) for v in (*fixed.graph.inputs, *fixed.graph.outputs)] == ["f32[2]"] * 3
    x = np.array([1, 2], np.float32)
    given, left = (interpret_graph(m, {"x": x}) for m in (module, fixed))
    for name in ("y", "z"):
        np.testing.assert_array_equal(given[name], left[name])


def test_the_stores_are_apart() -> None:
    module = module_of()
    fixed = with_constant_defaults(module)
    fixed.constants.keep_only([])
    assert all(ref in module.constants for ref in module.defaults.values())


@pytest.mark.parametrize(
    ("n", "v", "message"),
    [
        ("[0, 8]", (1, 2, 3), "'v' has a dim of 3 where the model expects 2"),
        ("[3, 8]", (1, 2), "'w' has a dim of 2 where the model expects n"),
    ],
)
def test_defaults_that_do_not_fit_together(n: str, v: tuple[float, ...], message: str) -> None:
    with pytest.raises(PassError, match=message):
        with_constant_defaults(module_of(n, v))
