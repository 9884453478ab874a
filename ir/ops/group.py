# SPDX-License-Identifier: Apache-2.0
"""The fusion group: a node whose one region becomes one kernel.

The inputs of the region stand for the operands, its outputs for the results, in order and with the
same types, layouts included. Only the passes that form groups make it, through
``Builder.add_typed``.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from tilewright.ir.op import Op
from tilewright.ir.types import TensorType

KINDS = ("elementwise", "reduction", "contraction", "opaque")


@dataclass(frozen=True)
class Group(Op):
    """``kind`` says what shapes the kernel: ``contraction``, ``reduction``, ``elementwise`` or
    ``opaque``.
    """

    name = "group"
    regions: ClassVar[int] = 1
    kind: str

    def __post_init__(self) -> None:
        self.require(self.kind in KINDS, f"Kind '{self.kind}' is none of {', '.join(KINDS)}.")

    def infer(self, operands: Sequence[TensorType]) -> tuple[TensorType, ...]:
        """Refused: the types come from the region, which this method does not see."""
        self.require(False, "The result types are those of the region's outputs; give them.")
        return ()
