# SPDX-License-Identifier: Apache-2.0
"""Values for the operands of a :class:`~tilewright.ir.op.Sample`, and for its symbols.

What a ``fill`` means is said at the class. Values depend on the seed only, so that failures repeat.
"""

from collections.abc import Iterator, Mapping
from itertools import product

import numpy as np

from tilewright.ir.dtypes import DType
from tilewright.ir.expr import Expr, Symbol, free_variables
from tilewright.ir.op import Array, Sample
from tilewright.ir.rewrite import evaluate

_SPECIAL_FLOATS = (
    float("nan"), float("inf"), float("-inf"), 0.0, -0.0, 0.5, -0.5, 1.5, 2.5, -2.5, 1.0, -1.0,
    1e-40, -1e-40, 6e-8, -6e-8, 1e30, -1e30, 127.5, 300.0, -300.0, 448.0, 500.0,
)  # fmt: skip


def sample_operands(sample: Sample, symbols: Mapping[str, int], seed: int = 0) -> list[Array]:
    """One array for each operand of ``sample``, filled as it says, with symbols at the given
    values.
    """
    rng = np.random.default_rng(seed)
    fills = (sample.fill,) * len(sample.operands) if isinstance(sample.fill, str) else sample.fill
    return [
        filled(rng, fill, t.dtype, tuple(evaluate(d, symbols) for d in t.shape))
        for fill, t in zip(fills, sample.operands, strict=True)
    ]


def filled(rng: np.random.Generator, fill: str, dtype: DType, shape: tuple[int, ...]) -> Array:
    """An array of random values; ValueError if there is no such filling."""
    kind, _, limit = fill.partition(":")
    if kind == "bool" or dtype.is_bool:
        return rng.integers(0, 2, shape).astype(np.bool_)
    if kind == "indices":
        least = -int(limit) if dtype.is_signed else 0
        return rng.integers(least, int(limit), shape).astype(dtype.numpy)
    if dtype.is_integer and kind in ("normal", "positive", "unit", "special"):
        return _integers(rng, kind, dtype, shape)
    if kind == "normal":
        return np.asarray(rng.standard_normal(shape) * 2).astype(dtype.numpy)
    if kind == "positive":
        return np.asarray(rng.uniform(0.05, 8.0, shape)).astype(dtype.numpy)
    if kind == "unit":
        return np.asarray(rng.uniform(-1.0, 1.0, shape)).astype(dtype.numpy)
    if kind == "integers":
        return rng.integers(-3 if dtype.is_signed else 0, 4, shape).astype(dtype.numpy)
    if kind == "special":
        special = rng.choice(np.array(_SPECIAL_FLOATS), shape)
        with np.errstate(all="ignore"):
            mixed = np.where(rng.random(shape) < 0.5, special, rng.standard_normal(shape) * 4)
            return mixed.astype(dtype.numpy)
    raise ValueError(f"There is no filling '{fill}'.")


def _integers(rng: np.random.Generator, kind: str, dtype: DType, shape: tuple[int, ...]) -> Array:
    """Integers of the whole range; with ``special`` the ends of the range and small numbers are
    frequent.
    """
    least = max(1, int(dtype.min)) if kind == "positive" else int(dtype.min)
    greatest = int(dtype.max)
    wide = np.uint64 if dtype.kind == "uint" else np.int64
    values = rng.integers(least, greatest, shape, dtype=wide, endpoint=True)
    if kind == "special":
        ends = [v for v in (least, greatest, -1, 0, 1, 2, 3) if least <= v <= greatest]
        values = np.where(rng.random(shape) < 0.6, rng.choice(np.array(ends, wide), shape), values)
    return np.asarray(values).astype(dtype.numpy)


def sample_symbols(sample: Sample) -> Iterator[dict[str, int]]:
    """Values of the symbols in a sample to try: all at their hints, then the least ones, then one
    more than those.

    One empty assignment for a sample without symbols. Requirements of the op may exclude some of
    them.
    """
    found: dict[str, Symbol] = {}
    attributes = [
        a for v in sample.op.attributes().values() for a in (v if isinstance(v, tuple) else (v,))
    ]
    dims = [d for t in sample.operands for d in t.shape]
    for e in (*dims, *(a for a in attributes if isinstance(a, Expr))):
        found.update({v.name: v for v in free_variables(e) if isinstance(v, Symbol)})
    choices = [dict.fromkeys((s.hint, s.lo, s.lo + 1)) for s in found.values()]
    for values in product(*choices):
        yield dict(zip(found, values, strict=True))
