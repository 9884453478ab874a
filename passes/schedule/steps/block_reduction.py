# SPDX-License-Identifier: Apache-2.0
"""Block a reduced axis, before any loop is touched: it changes the stages.

``block_reduction(s, k, 8, 16, f64)``, before and after (see
:mod:`tilewright.passes.lower.block_reduction`)::

    reduce s(i; k in K) -> t[i] : acc = f32(0.0) then (acc + x[i, k])

    reduce s_b(i, b in ceil(K/128), l in 16; k in 8) -> p[i, b, l] : acc = f32(0.0)
        then (acc + guard(128*b + 16*k + l < K, x[i, 128*b + 16*k + l], f32(0.0)))
    reduce s(i; b in ceil(K/128), l in 16) -> t[i] : acc = f64(0.0) then (acc + cast(p[i, b, l]))

``compute_at(s_b, register, b)`` then makes each block where it is added. With f64, what reads the
sum reads it rounded to f32.
"""

from dataclasses import dataclass

from tilewright.ir.dtypes import F32, F64, DType
from tilewright.ir.errors import ScheduleError
from tilewright.ir.expr import Binary, Expr, Read
from tilewright.ir.loop import Kernel
from tilewright.ir.rewrite import rewrite
from tilewright.ir.stage import Stage
from tilewright.ir.value_expr import cast
from tilewright.passes.lower.block_reduction import block_reduction
from tilewright.passes.lower.collect import map_stage_expressions
from tilewright.passes.lower.split_reduction import is_splittable
from tilewright.passes.schedule.schedule import Step, check_factor
from tilewright.passes.schedule.steps.stages import axis_of, plain_stage, with_stages

_TYPES = {"f32": F32, "f64": F64}


@dataclass(frozen=True)
class BlockReduction(Step[str]):
    """Reduce ``axis`` of ``stage`` in blocks of ``steps`` for each of ``lanes`` neighbours, in a
    new stage; what is left combines the blocks, in ``dtype``. The axes ``inside`` are part of each
    block, other reduce axes are outside.
    """

    name = "block_reduction"
    stage: str
    axis: str
    steps: int
    lanes: int = 1
    dtype: str = "same"
    inside: tuple[str, ...] = ()

    def apply(self, kernel: Kernel) -> tuple[Kernel, str]:
        stage = plain_stage(kernel, self.stage)
        check_factor(self.steps)
        check_factor(self.lanes)
        if not is_splittable(stage):
            raise ScheduleError(
                f"Stage '{self.stage}' is not a reduction that starts at the identity of its "
                "operation."
            )
        axis = axis_of(stage.reduce_axes, self.stage, self.axis)
        dtype = self._dtype(stage)
        if dtype is not stage.output.dtype and stage.output in kernel.outputs:
            raise ScheduleError(f"Stage '{self.stage}' writes an output of the kernel.")
        inside = [axis_of(stage.reduce_axes, self.stage, name) for name in self.inside]
        if axis in inside:
            raise ScheduleError(f"'{self.axis}' cannot be both blocked and inside the blocks.")
        first, second = block_reduction(stage, axis, self.steps, self.lanes, dtype, inside)
        wide = second.output

        def leaf(e: Expr) -> Expr | None:
            if isinstance(e, Read) and e.buffer is stage.output:
                sum_there = Read(wide, tuple(rewrite(i, leaf) for i in e.indices))
                return cast(sum_there, e.buffer.dtype)
            return None

        stages: list[Stage] = []
        for s in kernel.stages:
            reader = map_stage_expressions(s, lambda e: rewrite(e, leaf))
            stages.extend((first, second) if s is stage else (reader,))
        return with_stages(kernel, tuple(stages)), first.name

    def _dtype(self, stage: Stage) -> DType:
        """The type of the outer accumulators: the stage's own, or a wider one for a sum."""
        own = stage.init[0].dtype
        if self.dtype == "same":
            return own
        if self.dtype not in _TYPES:
            raise ScheduleError(f"'{self.dtype}' is not one of the types {', '.join(_TYPES)}.")
        dtype = _TYPES[self.dtype]
        combine = stage.values[0]
        is_sum = isinstance(combine, Binary) and combine.op == "add" and own.is_float
        if dtype is not own and not (is_sum and own.bytes < dtype.bytes):
            raise ScheduleError(f"Stage '{self.stage}' of type {own} cannot be summed in {dtype}.")
        return dtype
