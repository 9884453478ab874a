# SPDX-License-Identifier: Apache-2.0
"""Bring the graph to a simple form by exact local rules, until none applies.

Before ``%1 = transpose(x) {perm=(1, 0)}; %2 = transpose(%1) {perm=(1, 0)}; %3 = mul(%2, 1)``, after
``x``. The rules are those of :mod:`tilewright.passes.rules`.
"""

from dataclasses import dataclass
from typing import ClassVar

from tilewright.ir.graph import Module
from tilewright.passes.manager import Pass, PassContext
from tilewright.passes.rewriter import rewrite_module
from tilewright.passes.rules import elementwise, movement, reductions


@dataclass(frozen=True)
class Canonicalize(Pass):
    """All simplification rules; dead nodes go too."""

    name: ClassVar[str] = "canonicalize"

    def run(self, module: Module, context: PassContext) -> bool:
        rules = (*elementwise.RULES, *movement.RULES, *reductions.RULES)
        return rewrite_module(module, {"*": rules})
