# SPDX-License-Identifier: Apache-2.0
"""The first of some indices that is out of range: what a run that read such an index must tell.

Ops that index by data clamp what they read, so that memory is safe whatever the data. That the data
is right is a question of its own, asked of the indices alone: the op is a reduction to the least
position of a bad index, so the answer does not depend on the order in which threads come to it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tilewright.ir.buffer import Buffer
from tilewright.ir.dtypes import BOOL, I8, I32, I64, INDEX, U8, U64, from_numpy
from tilewright.ir.errors import IndexFaultError
from tilewright.ir.expr import ONE, ZERO, Binary, Expr, Read, Scalar, Symbol, Var, const, index
from tilewright.ir.op import Array, Op, Sample
from tilewright.ir.ops.domain import read_clamped, scratch
from tilewright.ir.ops.gather import check_indices
from tilewright.ir.ops.shapes import static_dims
from tilewright.ir.simplify import compare, mod
from tilewright.ir.stage import Stage, map_stage, reduce_stage
from tilewright.ir.types import TensorType, tensor
from tilewright.ir.value_expr import cast, select

MESSAGE = (
    "Index {0} (element {1} of the indices, counted in row-major order) is out of range for a dim "
    "of {2}: it must be at least {3} and below {2}."
)
"""The sentence behind the name of a node, for an index, its position, the dim and its negative."""

_NONE = const(I64.max, I64)
_N = Symbol("N", 0, 64, 1, 5)
_M = Symbol("M", 0, 64, 1, 3)


@dataclass(frozen=True)
class IndexFault(Op):
    """The position of the first of ``indices`` that is not from ``-dim`` to ``dim - 1``, that
    index, and its ``dim``; if all are in range the position is -1 and the rest is 0.

    With several ``dims`` the indices are tuples: the dims belong to their parts in turn.
    """

    name = "index_fault"
    effects: ClassVar[bool] = True
    dims: tuple[Expr, ...]

    def infer(self, operands: Sequence[TensorType]) -> tuple[TensorType, ...]:
        self.expect_operands(operands, 1)
        (indices,) = operands
        check_indices(self, indices)
        self.require(
            indices.rank == 1, f"The indices are of rank {indices.rank}; reshape them to one dim."
        )
        self.require(bool(self.dims), "There is no dim that the indices are into.")
        return (tensor(I64, (3,)),)

    def reference(self, *operands: Array) -> tuple[Array, ...]:
        (indices,) = operands
        found = first_fault(indices, static_dims(self, self.dims))
        return (np.array(found or (-1, 0, 0), dtype=np.int64),)

    def stages(self, operands: Sequence[Buffer], results: Sequence[Buffer]) -> tuple[Stage, ...]:
        (indices,), (result,) = operands, results
        r = Var("r", indices.shape[0])
        acc, first = Scalar("acc", I64), scratch("first", I64, (), result)
        bad = self._is_outside(Read(indices, (r,)), r)
        step = Binary("min", acc, select(bad, cast(r, I64), _NONE), I64)
        search = reduce_stage("search", (), (r,), (first,), (acc,), (_NONE,), (step,))
        return search, self._report(indices, Read(first, ()), result)

    def _of_part(self, values: Sequence[Expr], position: Expr) -> Expr:
        """The one of some values, one for each part of a tuple, that is the position's; in i64."""
        part = mod(position, len(values))
        found = cast(values[-1], I64)
        for number in reversed(range(len(values) - 1)):
            here = compare("eq", part, index(number))
            found = select(here, cast(values[number], I64), found)
        return found

    def _is_outside(self, value: Expr, position: Expr) -> Expr:
        i = cast(value, I64)
        above = compare("ge", i, self._of_part(self.dims, position))
        if value.dtype.is_signed:
            least = self._of_part([ZERO - d for d in self.dims], position)
        elif value.dtype is U64:
            least = const(0, I64)  # the greatest numbers of 64 bits become negative
        else:
            return above
        return Binary("or", compare("lt", i, least), above, BOOL)

    def _report(self, indices: Buffer, first: Expr, result: Buffer) -> Stage:
        """The stage that gives the result, from the position that was found."""
        at = cast(first, INDEX)
        value = read_clamped(indices, (at,))
        i = Var("i", index(3))
        details = select(compare("eq", i, ONE), cast(value, I64), self._of_part(self.dims, at))
        found = select(compare("eq", i, ZERO), first, details)
        nothing = select(compare("eq", i, ZERO), const(-1, I64), const(0, I64))
        bad = compare("lt", first, _NONE)
        return map_stage("report", (i,), result, select(bad, found, nothing))

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        for dtype in (I64, I32, I8, U8, U64):
            yield Sample(cls((index(5),)), (tensor(dtype, (40,)),), "indices:6")
            yield Sample(cls((index(5),)), (tensor(dtype, (40,)),), "indices:5")
        yield Sample(cls((_M,)), (tensor(I64, (_N,)),), "indices:4")
        yield Sample(cls((index(3), _M)), (tensor(I64, (2 * _N,)),), "indices:4")
        yield Sample(cls((index(9), index(4), index(3))), (tensor(I32, (60,)),), "indices:3")


def first_fault(indices: Array, dims: Sequence[int]) -> tuple[int, int, int] | None:
    """Position, value and dim of the first index that is out of range; None if there is none."""
    flat = indices.reshape(-1)
    wide = np.uint64 if flat.dtype.kind == "u" else np.int64
    values, limits = flat.astype(wide), np.resize(np.array(dims, dtype=wide), flat.size)
    bad = values >= limits
    if wide is np.int64:
        bad |= values < -limits
    found = np.flatnonzero(bad)
    if not found.size:
        return None
    position = int(found[0])
    return position, int(flat[position].astype(np.int64)), int(limits[position])


def fault_of(op: Op, operands: Sequence[Array]) -> tuple[int, int, int] | None:
    """Position, value and dim of the first index out of range among arrays that an op is applied
    to.
    """
    indexed = op.indexed_axes([tensor(from_numpy(a.dtype), a.shape) for a in operands])
    return first_fault(operands[1], [operands[0].shape[a] for a in indexed]) if indexed else None


def check_in_range(op: Op, operands: Sequence[Array], origin: str = "") -> None:
    """IndexFaultError, naming the node, if an op reads an index out of range from arrays."""
    fault = fault_of(op, operands)
    if fault is not None:
        position, value, dim = fault
        message = MESSAGE.format(value, position, dim, -dim)
        raise IndexFaultError(f"Node '{origin or op.name}': {message}")
