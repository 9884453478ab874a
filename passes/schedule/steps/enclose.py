# SPDX-License-Identifier: Apache-2.0
"""Put the whole kernel into a loop of one iteration, where stages can be placed and tasks begin.

``enclose(whole)``, before and after::

    for i in n serial { S(i) }

    for whole in 1 serial { for i in n serial { S(i) } }
"""

from dataclasses import dataclass

from tilewright.ir.expr import ONE, Var
from tilewright.ir.loop import For, Kernel
from tilewright.passes.schedule.loops import fresh
from tilewright.passes.schedule.schedule import Step


@dataclass(frozen=True)
class Enclose(Step[str]):
    """Put everything into a loop called ``loop`` that runs once."""

    name = "enclose"
    loop: str

    def apply(self, kernel: Kernel) -> tuple[Kernel, str]:
        fresh(kernel, self.loop)
        return kernel.with_body(For(Var(self.loop, ONE), "serial", kernel.body)), self.loop
