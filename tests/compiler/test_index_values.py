# SPDX-License-Identifier: Apache-2.0
"""Tables read at numbers that the model makes: ranges, and what is computed from them."""

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest

import tilewright

Array = np.ndarray[Any, Any]
TABLE = np.random.default_rng(0).standard_normal(66).astype(np.float32)
CONSTANTS = """<int64 zero = {0}, int64 one = {1}, int64 two = {2}, int64 five = {5},
    int64 seven = {7}, int64 last = {65}, float half = {0.5}, int64[1] front = {0},
    int64[1] behind = {1}>"""


def compiled(make: str, op: str, dims: str) -> Any:
    """A model that reads ``TABLE`` by ``op`` at the index ``i`` that ``make`` computes from ``n``,
    the size of ``x``, and the numbers ``r`` below it.
    """
    model = onnx.parser.parse_model(f"""
    <ir_version: 8, opset_import: ["" : 17]>
    g (float[{dims}] x) => (float[m] y) {CONSTANTS} {{
      shape = Shape(x)
      n = Squeeze(shape)
      r = Range(zero, n, one)
      {make}
      y = {op}(table, i)
    }}""")
    model.graph.output[0].type.tensor_type.ClearField("shape")
    model.graph.initializer.append(onnx.numpy_helper.from_array(TABLE, "table"))
    return tilewright.compile(model)


INDICES: dict[str, tuple[str, Callable[[Array], Array]]] = {
    "the numbers themselves": ("i = Identity(r)", lambda r: r),
    "a multiple of them": ("i = Mul(r, two)", lambda r: 2 * r),
    "a remainder of a sum": (
        "a = Mul(r, five) b = Add(a, two) i = Mod(b, seven)",
        lambda r: (5 * r + 2) % 7,
    ),
    "numbers of another type": ("i = Cast<to = 6>(r)", lambda r: r),
    "the smaller of two": ("i = Min(r, five)", lambda r: np.minimum(r, 5)),
    "a choice": ("c = Less(r, five) i = Where(c, r, five)", lambda r: np.minimum(r, 5)),
    "squares of remainders": ("a = Mod(r, seven) i = Mul(a, a)", lambda r: (r % 7) ** 2),
    "a quotient": ("i = Div(r, two)", lambda r: r // 2),
    "from the end": ("i = Neg(r)", lambda r: -r),
    "by the size of the input": (
        "a = Mul(r, n) i = Mod(a, last)",
        lambda r: r * len(r) % 65,
    ),
    "floats, rounded down": (
        "f = Cast<to = 1>(r) h = Mul(f, half) d = Floor(h) i = Cast<to = 7>(d)",
        lambda r: r // 2,
    ),
    "a table of two dims": (
        "a = Unsqueeze(r, behind) b = Unsqueeze(r, front) c = Mul(a, b) i = Min(c, last)",
        lambda r: np.minimum(np.multiply.outer(r, r), 65),
    ),
}


@pytest.mark.parametrize("case", INDICES)
def test_an_index_made_from_a_range_of_symbolic_length(case: str) -> None:
    make, right = INDICES[case]
    model = compiled(make, "Gather", "n")
    for n in (0, 1, 9, 30):
        found = model(np.zeros(n, np.float32))
        np.testing.assert_array_equal(found, TABLE[right(np.arange(n))])


@pytest.mark.parametrize(
    ("op", "make"),
    [
        ("GatherElements", "i = Mod(r, seven)"),
        ("GatherND", "a = Mod(r, seven) i = Unsqueeze(a, behind)"),
    ],
)
def test_other_ways_to_read_a_table(op: str, make: str) -> None:
    model = compiled(make, op, "n")
    for n in (1, 30):
        found = model(np.zeros(n, np.float32))
        np.testing.assert_array_equal(found, TABLE[np.arange(n) % 7])


def test_a_long_static_range() -> None:
    model = onnx.parser.parse_model("""
    <ir_version: 8, opset_import: ["" : 17]>
    g (float[1] x) => (float[150000] y) <int64 zero = {0}, int64 one = {1}, int64 end = {150000}> {
      i = Range(zero, end, one)
      g = Gather(table, i)
      y = Add(g, x)
    }""")
    table = np.arange(200_000, dtype=np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(table, "table"))
    found = tilewright.compile(model)(np.ones(1, np.float32))
    np.testing.assert_array_equal(found, table[:150_000] + 1)
