# SPDX-License-Identifier: Apache-2.0
"""Give every model output memory of its own.

An output that is an input, a constant, or the same memory as another output (through reshapes and
transpositions that leave memory as it is), or that is not stored in row-major order, is copied by a
``relayout`` to row-major; ``return x, x`` becomes ``%0 = relayout(x); %1 = relayout(x);
return %0, %1``. Runs right before fusion, which turns the copies into kernels.
"""

from dataclasses import dataclass
from typing import ClassVar

from tilewright.ir.graph import Builder, Constant, Module, Value
from tilewright.ir.layout import row_major
from tilewright.ir.ops.relayout import Relayout
from tilewright.passes.manager import Pass, PassContext
from tilewright.passes.op_kinds import memory_of


@dataclass(frozen=True)
class MaterializeOutputs(Pass):
    """Copies for outputs without memory of their own."""

    name: ClassVar[str] = "materialize-outputs"

    def run(self, module: Module, context: PassContext) -> bool:
        graph = module.graph
        builder = Builder(graph, module.constants)
        taken: set[Value] = set()
        outputs: list[Value] = []
        for value in graph.outputs:
            memory = memory_of(value)
            own = memory.producer is not None and not isinstance(memory.op, Constant)
            plain = value.type.layout.is_row_major
            if not own or memory in taken or not plain:
                layout = row_major(value.type.rank)
                copied = builder.add_typed(
                    Relayout(layout), [value], [value.type.with_layout(layout)]
                )
                copied.result.name = value.name
                value = copied.result
            taken.add(memory_of(value))
            outputs.append(value)
        changed = outputs != graph.outputs
        graph.set_outputs(outputs)
        return changed
