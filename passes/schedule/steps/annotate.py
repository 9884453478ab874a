# SPDX-License-Identifier: Apache-2.0
"""Set how a loop runs.

``vectorize(j)``, before and after (``parallel`` and ``unroll`` alike)::

    for j in 8 serial { S(j) }

    for j in 8 vectorized { S(j) }
"""

from dataclasses import dataclass

from tilewright.ir.errors import ScheduleError
from tilewright.ir.expr import Const
from tilewright.ir.loop import For, Kernel
from tilewright.passes.schedule.loops import find_loop, replace_loop
from tilewright.passes.schedule.schedule import Step

LARGEST_UNROLL = 64


def _set_kind(kernel: Kernel, loop: str, kind: str) -> Kernel:
    return replace_loop(kernel, loop, lambda target: For(target.var, kind, target.body))


@dataclass(frozen=True)
class Parallel(Step[None]):
    """Make ``loop``, the outermost of the kernel, the loop over tasks."""

    name = "parallel"
    loop: str

    def apply(self, kernel: Kernel) -> tuple[Kernel, None]:
        body = kernel.body
        if not (isinstance(body, For) and body.var.name == self.loop):
            raise ScheduleError(f"'{self.loop}' is not the outermost loop of the kernel.")
        return _set_kind(kernel, self.loop, "parallel"), None


@dataclass(frozen=True)
class Vectorize(Step[None]):
    """Run all iterations of ``loop`` at once; its extent must be constant."""

    name = "vectorize"
    loop: str

    def apply(self, kernel: Kernel) -> tuple[Kernel, None]:
        _require_constant(kernel, self.loop, "vectorized")
        return _set_kind(kernel, self.loop, "vectorized"), None


@dataclass(frozen=True)
class Unroll(Step[None]):
    """Emit the body of ``loop`` once for each iteration; its extent must be constant and small."""

    name = "unroll"
    loop: str

    def apply(self, kernel: Kernel) -> tuple[Kernel, None]:
        if _require_constant(kernel, self.loop, "unrolled") > LARGEST_UNROLL:
            raise ScheduleError(f"'{self.loop}' has more than {LARGEST_UNROLL} iterations.")
        return _set_kind(kernel, self.loop, "unrolled"), None


def _require_constant(kernel: Kernel, loop: str, what: str) -> int:
    extent = find_loop(kernel.body, loop).var.extent
    if not isinstance(extent, Const):
        raise ScheduleError(f"'{loop}' cannot be {what}: its extent {extent} is not constant.")
    return int(extent.literal)
