# SPDX-License-Identifier: Apache-2.0
"""Symbolic dims of a model's inputs.

A named dim becomes one :class:`Symbol` wherever its name appears; a dim without a name, named
``?``, or declared negative gets a fresh one, ``x_d0``. A named dim that is a sum or product of
other named dims (``past + seq``) becomes that expression. A symbol may be 0, unless the pass
``narrow-symbols`` finds that the model had better be compiled without that.
"""

import operator
import re
from collections.abc import Iterable

import onnx

from tilewright.frontends.names import identifier, quoted, unique
from tilewright.ir.errors import FrontendError, ShapesError
from tilewright.ir.expr import UNBOUNDED, Expr, Symbol, add, index, mul

_ANONYMOUS = frozenset({"", "?", "-1", "None", "*"})
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")
_LARGEST_DIM = 1 << 62


class Symbols:
    """Makes the symbols of one module; ``table`` holds them by their cleaned names."""

    def __init__(self) -> None:
        self.table: dict[str, Symbol] = {}
        self._by_model_name: dict[str, Expr] = {}

    def fresh(self, base: str, hint: int = 0) -> Symbol:
        """A new symbol with a name like ``base``, expected to be about ``hint``."""
        name = unique(identifier(base), set(self.table))
        symbol = Symbol(name, 0, UNBOUNDED, 1, hint)
        self.table[name] = symbol
        return symbol

    def named(self, name: str, hint: int = 0) -> Expr:
        """The dim that the model calls ``name``; the same each time."""
        known = self._by_model_name.get(name)
        if known is None:
            known = self._expression(name) or self.fresh(name, hint)
            self._by_model_name[name] = known
        return known

    def _expression(self, name: str) -> Expr | None:
        """``name`` read as sums of products of known dims; None if it is not that."""
        if len(name) > 200 or not re.search(r"[+*]", name):
            return None
        total: Expr = index(0)
        for term in name.split("+"):
            product: Expr = index(1)
            for raw in term.split("*"):
                factor = raw.strip()
                if factor.isascii() and factor.isdigit() and len(factor) < 10:
                    product = mul(product, int(factor))
                elif factor in self._by_model_name:
                    product = mul(product, self._by_model_name[factor])
                else:
                    return None
            total = add(total, product)
        return total

    def declare(self, infos: Iterable[onnx.ValueInfoProto]) -> None:
        """Make the symbols of all plainly named dims first, so that expressions over them are
        understood.
        """
        for info in infos:
            dims = info.type.tensor_type.shape.dim
            for axis, dim in enumerate(dims):
                if dim.dim_param not in _ANONYMOUS and _NAME.fullmatch(dim.dim_param):
                    self.named(dim.dim_param, expected_size(axis, len(dims)))

    def dim(self, dim: onnx.TensorShapeProto.Dimension, base: str, hint: int = 0) -> Expr:
        """The dim that a model declares."""
        if dim.HasField("dim_value"):
            if dim.dim_value > _LARGEST_DIM:
                raise FrontendError(
                    f"Dim {quoted(base)} is {dim.dim_value}, which no machine can hold. Export "
                    "the model again."
                )
            return index(dim.dim_value) if dim.dim_value >= 0 else self.fresh(base, hint)
        if dim.dim_param in _ANONYMOUS:
            return self.fresh(base, hint)
        return self.named(dim.dim_param, hint)

    def given(self, dim: int | str, axis: int, name: str) -> Expr:
        """The dim that the caller asks for: a size, of any type of integer, or a name."""
        base = f"{name}_d{axis}"
        if isinstance(dim, str):
            return self.fresh(base) if dim in _ANONYMOUS else self.named(dim)
        try:
            size = -1 if isinstance(dim, bool) else operator.index(dim)
        except TypeError:
            size = -1
        if not 0 <= size <= _LARGEST_DIM:
            raise ShapesError(
                f"{dim!r}, given for dim {axis} of input {quoted(name)}, is neither a size from 0 "
                f"to {_LARGEST_DIM} nor a name. Give a number, or a text to keep it symbolic."
            )
        return index(size)


def expected_size(axis: int, rank: int) -> int:
    """What heuristics should expect of an input's symbolic dim: one item, image or sequence."""
    if axis == 0:
        return 1
    return 224 if rank >= 4 else 128
