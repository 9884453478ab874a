# SPDX-License-Identifier: Apache-2.0
"""Remove nodes whose results nobody uses.

Before ``%1 = exp(x); %2 = neg(x); return %2``, after ``%2 = neg(x); return %2``. Ops with effects
stay.
"""

from dataclasses import dataclass
from typing import ClassVar

from tilewright.ir.graph import Module
from tilewright.passes.manager import Pass, PassContext
from tilewright.passes.rewriter import rewrite_module


@dataclass(frozen=True)
class EliminateDeadCode(Pass):
    """Removal of dead nodes, in sub-graphs too."""

    name: ClassVar[str] = "eliminate-dead-code"

    def run(self, module: Module, context: PassContext) -> bool:
        return rewrite_module(module, {})
