# SPDX-License-Identifier: Apache-2.0
"""Symbols of a kernel's own: what stays related, what becomes a fresh symbol, and what is known of
it.
"""

import pytest
from computations import computation, stages

from tilewright.ir.errors import SymbolicDimError
from tilewright.ir.expr import Symbol
from tilewright.passes.lower.abstract import abstract_dims

SYMBOLS = """
  symbol batch in [2, 16] multiple 2 hint 4
  symbol seq in [1, 128] hint 100
"""
MAP = "stage map a(i in {0}) -> y[i] = neg(x[i]) }}"


def abstracted(extent: str) -> tuple[str, list[tuple[Symbol, str]]]:
    """The axis of a map over ``extent`` in the kernel's terms, and what its symbols stand for."""
    text = f"(x: f32[{extent}]) -> (y: f32[{extent}]) {{ {SYMBOLS} {MAP.format(extent)}"
    c, meaning = abstract_dims(computation(text))
    assert c.inputs[0].shape == c.outputs[0].shape == (c.stages[0].axes[0].extent,)
    return str(c.stages[0].axes[0].extent), [(s, str(e)) for s, e in meaning.items()]


@pytest.mark.parametrize(
    ("extent", "expected", "meaning"),
    [
        ("8", "8", []),
        ("seq", "n0", ["seq"]),
        ("2*seq + 1", "2*n0 + 1", ["seq"]),
        ("seq // 4", "n0 // 4", ["seq"]),
        ("max(seq, batch)", "max(n0, n1)", ["seq", "batch"]),
        ("batch*seq", "n0", ["batch*seq"]),
        ("3*batch*seq + seq", "3*n0 + n1", ["batch*seq", "seq"]),
        ("seq // batch", "n0", ["seq // batch"]),
        ("seq % batch", "n0", ["seq % batch"]),
    ],
)
def test_what_stays_and_what_becomes_a_symbol(
    extent: str, expected: str, meaning: list[str]
) -> None:
    found, symbols = abstracted(extent)
    assert (found, [e for _, e in symbols]) == (expected, meaning)
    assert [s.name for s, _ in symbols] == [f"n{i}" for i in range(len(symbols))]


def test_symbols_know_what_is_known_of_their_meaning() -> None:
    ((symbol, _),) = abstracted("batch*seq")[1]
    assert (symbol.lo, symbol.hi, symbol.multiple, symbol.hint) == (2, 16 * 128, 2, 400)
    ((symbol, _),) = abstracted("seq // batch")[1]
    assert symbol.lo == 0 and symbol.hi == 64 and symbol.hint == 25


def test_the_same_dim_is_the_same_symbol_everywhere() -> None:
    text = f"""(x: f32[batch*seq,8]) -> (y: f32[batch*seq]) {{ {SYMBOLS}
      buffer t: f32[batch*seq] @workspace
      stage reduce s(i in batch*seq; j in 8) -> t[i] : acc = f32(0.0) then (acc + x[i, j])
      stage map m(k in batch*seq) -> y[k] = (t[k] / cast(batch*seq + batch, f32)) }}"""
    c, meaning = abstract_dims(computation(text))
    assert [str(e) for e in meaning.values()] == ["batch*seq", "batch"]
    assert stages(c) == [
        "reduce s(i in n0; j in 8) -> t[i] : acc = f32(0.0) then (acc + x[i, j])",
        "map m(k in n0) -> y[k] = (t[k] / cast(n0 + n1, f32))",
    ]


def test_indices_keep_their_loop_variables() -> None:
    text = f"""(x: f32[seq + 2]) -> (y: f32[seq]) {{ {SYMBOLS}
      stage map m(k in seq) -> y[k] = (x[seq - 1 - k] + x[(k + 1) // 2 + k % 3]) }}"""
    c, _ = abstract_dims(computation(text))
    assert stages(c) == ["map m(k in n0) -> y[k] = (x[-k + n0 - 1] + x[((k + 1) // 2) + (k % 3)])"]


def test_rows_of_a_symbolic_length() -> None:
    """Row-major memory read by rows: the stride is a symbol, the product with the row is kept.

    That ``n0`` is the product of ``n1`` and ``n2`` is lost, so the read has a guard.
    """
    text = f"""(x: f32[batch*seq]) -> (y: f32[batch,seq]) {{ {SYMBOLS}
      stage map m(i in batch, j in seq) -> y[i, j] = x[seq*i + j] }}"""
    c, meaning = abstract_dims(computation(text))
    assert [str(e) for e in meaning.values()] == ["batch*seq", "batch", "seq"]
    assert stages(c)[0].endswith("= guard((i*n2 + j < n0), x[i*n2 + j], f32(0.0))")


def test_what_is_in_bounds_by_the_symbols_has_no_guard() -> None:
    text = f"""(x: f32[batch*seq], r: f32[seq]) -> (y: f32[batch*seq, seq]) {{ {SYMBOLS}
      stage map m(i in batch*seq, j in seq) -> y[i, j] = (x[i] + r[j]) }}"""
    c, _ = abstract_dims(computation(text))
    assert stages(c) == ["map m(i in n0, j in n1) -> y[i, j] = (x[i] + r[j])"]


def test_an_index_that_is_computed_in_another_type() -> None:
    """What is in it of dims alone is the host's to compute; the rest stays as it is."""
    text = f"""(x: f32[seq]) -> (y: f32[8]) {{ {SYMBOLS}
      stage map m(i in 8) -> y[i] = x[max(0, min(seq - 1,
        cast(mod(cast(i, i32), cast(cast(floor(sqrt(cast(seq, f32))), index) + 1, i32)), index)))]
      }}"""
    c, meaning = abstract_dims(computation(text))
    assert [str(e) for e in meaning.values()] == ["seq", "cast(floor(sqrt(cast(seq, f32))), index)"]
    index = "cast(mod(cast(i, i32), cast(n1 + 1, i32)), index)"
    assert index in stages(c)[0] and "n0 - 1" in stages(c)[0]


def test_a_product_of_two_loop_variables_in_a_divisor_is_refused() -> None:
    text = f"""(x: f32[seq]) -> (y: f32[8]) {{ {SYMBOLS}
      stage map m(i in 8) -> y[i] = x[seq // (i + 1)] }}"""
    message = r"^An index multiplies or divides a loop variable by 'seq'\.$"
    with pytest.raises(SymbolicDimError, match=message):
        abstract_dims(computation(text))


def test_equal_forms_get_equal_symbols() -> None:
    def form(name: str) -> list[str]:
        text = f"""(x: f32[{name}]) -> (y: f32[{name}]) {{ symbol {name} in [1, 9] hint 3
          stage map m(i in {name}) -> y[i] = neg(x[i]) }}"""
        c, meaning = abstract_dims(computation(text))
        assert [str(e) for e in meaning.values()] == [name]
        return [*stages(c), *(f"{s.lo} {s.hi} {s.hint}" for s in meaning)]

    assert form("seq") == form("width")
