# SPDX-License-Identifier: Apache-2.0
"""Equal terms are one object, however they are made."""

import copy
import gc
import pickle
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from tilewright.ir.buffer import Buffer, buffer
from tilewright.ir.dtypes import ALL, F32, I64, from_numpy
from tilewright.ir.expr import Expr, Symbol, Var, const, index
from tilewright.ir.interning import _references
from tilewright.ir.layout import Layout, row_major
from tilewright.ir.loop_parser import parse_kernel
from tilewright.ir.simplify import floordiv
from tilewright.ir.types import tensor

KERNEL = """kernel @k(x: f32[n,4]) -> (y: f32[n,4]) {
  symbol n in [1, 64]
  stage map s(i in n, j in 4) -> y[i, j] = exp(x[i, j])
  for i in n parallel {
    for j in 4 serial {
      block s.map(i, j) {
        y[i, j] = exp(x[i, j])
      }
    }
  }
}"""


def test_equal_terms_are_identical() -> None:
    assert index(3) is index(3)
    assert Var("i", index(4)) is Var("i", index(4))
    assert Var("i", index(4)) is not Var("i", index(5))
    assert tensor(F32, (2, 3)) is tensor(F32, (2, 3))


def test_defaults_may_be_left_out() -> None:
    assert Symbol("n") is Symbol("n", 0, 1 << 31, 1, 0)
    assert Symbol("n", 1) is Symbol("n", 1, 1 << 31)
    assert Layout((0, 1)) is row_major(2)
    assert buffer("x", tensor(F32, (4,))) is Buffer("x", F32, (index(4),), row_major(1))


def test_missing_fields_are_refused() -> None:
    with pytest.raises(TypeError, match="extent"):
        Var("i")  # type: ignore[call-arg]


def test_constants_keep_signed_zeros_and_types_apart() -> None:
    assert const(0.0, F32) is not const(-0.0, F32)
    assert const(1, F32) is const(1.0, F32)
    assert const(1, I64) is not const(1, F32)
    assert const(float("nan"), F32) is const(float("nan"), F32)


def test_pickling_gives_the_same_object() -> None:
    n = Symbol("n", 1, 64)
    kernel = parse_kernel(KERNEL)
    for term in (n, floordiv(n + 3, 4), tensor(F32, (n, 4)), kernel):
        assert pickle.loads(pickle.dumps(term)) is term
        assert copy.deepcopy(term) is term


def test_element_types_are_singletons() -> None:
    for dtype in ALL:
        assert pickle.loads(pickle.dumps(dtype)) is dtype
        if dtype.kind != "index":
            assert from_numpy(dtype.numpy) is dtype


def test_threads_agree_on_one_object() -> None:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as pool:
            for number in range(200):

                def make(_: int, number: int = number) -> Expr:
                    return Symbol("t", 0, 1000) * number + floordiv(Symbol("t", 0, 1000), 7)

                made = list(pool.map(make, range(8)))
                assert all(e is made[0] for e in made)
    finally:
        sys.setswitchinterval(interval)


def test_unused_terms_are_forgotten() -> None:
    gc.collect()
    before = len(_references)
    kept = [Var(f"forgotten{i}", index(4)) * 3 for i in range(100)]
    assert len(_references) >= before + 200
    del kept
    gc.collect()
    assert len(_references) <= before + 20
