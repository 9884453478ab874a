# SPDX-License-Identifier: Apache-2.0
"""What a name of an ONNX graph stands for during import.

An :class:`Operand` is data known at import (an array, or small contents with symbolic elements), a
value of our graph, or both. Data becomes a node only when something uses it as a tensor: axes,
shapes and pads never do.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.frontends.onnx.registry import Contents
from tilewright.ir.dtypes import F32, DType
from tilewright.ir.expr import Expr, index
from tilewright.ir.graph import Value
from tilewright.ir.op import Array


@dataclass(eq=False)
class Operand:
    """``array`` is a constant; ``contents`` an object array of numbers and expressions over dims
    (:mod:`tilewright.frontends.elements`); ``deferred`` makes the value from other operands, where
    contents that are no integers have expressions.

    ``blocked`` marks a result of an unsupported node, or an input without a shape: what depends on
    it is skipped, so that one message can list all unsupported operators.
    """

    name: str
    dtype: DType
    array: Array | None = None
    contents: Contents | None = None
    value: Value | None = None
    blocked: bool = False
    deferred: "Deferred | None" = None

    @property
    def shape(self) -> tuple[Expr, ...]:
        if self.value is not None:
            return self.value.type.shape
        data = self.array if self.array is not None else self.contents
        return tuple(index(d) for d in (() if data is None else data.shape))

    @property
    def rank(self) -> int:
        return len(self.shape)

    def known(self, most: int) -> Contents | None:
        """The contents, if they are known and no more than ``most`` elements."""
        array = self.array
        if self.contents is None and array is not None and array.size <= most:
            # Complex numbers decide no shapes.
            self.contents = None if array.dtype.kind == "c" else object_array(array)
        return self.contents

    def expressions(self) -> Iterator[Expr]:
        """The expressions in the shape and in the contents."""
        yield from self.shape
        for x in () if self.contents is None else self.contents.reshape(-1):
            if isinstance(x, Expr):
                yield x


@dataclass(frozen=True)
class Deferred:
    """The way to a tensor by ordinary nodes, taken only if the tensor is needed: ``make`` appends
    them, once ``inputs`` have values.
    """

    inputs: Sequence[Operand]
    make: Callable[[], Value]


def blocked(name: str) -> Operand:
    """What stands for a name that could not be given a meaning."""
    return Operand(name, F32, blocked=True)


def object_array(array: Array) -> Contents:
    """The elements of an array as Python numbers; those of the small float types as floats."""
    if array.dtype.kind == "V" or array.dtype.name.startswith(("bfloat", "float8", "float4")):
        array = array.astype(np.float64)
    elif array.dtype.name in ("int4", "uint4"):
        array = array.astype(np.int64)
    return array.astype(object)
