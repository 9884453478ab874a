# SPDX-License-Identifier: Apache-2.0
"""Where results are rounded to a 16-bit float: what is computed in several steps should be rounded
once, at its end.

Products, sums and squares of 16-bit numbers leave their range long before the result does: a norm
of 64 elements of 300 is 2400, the sum of their squares is infinite. So whoever makes several nodes
of one operator counts those that round, and makes them in f32 if there are several.
"""

from collections.abc import Callable, Sequence

from tilewright.ir.buffer import buffer
from tilewright.ir.dtypes import BF16, F16, F32, DType
from tilewright.ir.expr import Binary, Call, Cast, Expr, walk
from tilewright.ir.graph import Builder, Constant, Node, Value
from tilewright.ir.op import Op
from tilewright.ir.ops.cast import Cast as CastOp
from tilewright.ir.types import TensorType

HALVES = frozenset((F16, BF16))
WIDE = F32
"""The type in which steps on 16-bit floats are computed."""

_EXACT = frozenset(("min", "max"))


def roundings(nodes: Sequence[Node]) -> int:
    """How many times nodes round to 16-bit floats; movement and choices between elements do not. An
    op that stands for several others counts twice.
    """
    return sum(_roundings(n.op, [v.type for v in n.operands], [v.type for v in n.results])
               for n in nodes if any(v.type.dtype in HALVES for v in n.results))  # fmt: skip


def _roundings(op: Op, operands: Sequence[TensorType], results: Sequence[TensorType]) -> int:
    if isinstance(op, Constant):
        return 0
    if type(op).stages is Op.stages:
        return 2
    given, made = (
        [buffer(f"{name}{i}", t) for i, t in enumerate(types)]
        for name, types in (("x", operands), ("y", results))
    )
    stages = op.stages(given, made)
    values = [v for s in stages for v in (*s.init, *s.values)]
    opaque = any(s.kind == "opaque" for s in stages)
    return int(opaque or any(_is_rounded(e) for v in values for e in walk(v)))


def _is_rounded(e: Expr) -> bool:
    if e.dtype not in HALVES:
        return False
    if isinstance(e, Cast):
        return not e.x.dtype.is_bool and e.x.dtype is not e.dtype
    return isinstance(e, Call) or (isinstance(e, Binary) and e.op not in _EXACT)


def computed_wide(
    builder: Builder,
    operands: Sequence[Value],
    types: Sequence[TensorType],
    compute: Callable[[Sequence[Value]], Sequence[Value]],
) -> list[Value]:
    """What ``compute`` gives for the operands in f32, rounded to the dtypes of ``types``."""
    wide = [_as(builder, v, WIDE) if v.type.dtype in HALVES else v for v in operands]
    return [_as(builder, v, t.dtype) for v, t in zip(compute(wide), types, strict=True)]


def _as(builder: Builder, x: Value, dtype: DType) -> Value:
    return x if x.type.dtype is dtype else builder(CastOp(dtype), x)
