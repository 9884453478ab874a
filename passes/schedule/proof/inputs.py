# SPDX-License-Identifier: Apache-2.0
"""Reads of kernel inputs: nothing writes them, so the read must be of the very cell that the stage
names.
"""

from collections.abc import Sequence

from tilewright.ir.errors import ScheduleError
from tilewright.ir.simplify import compare
from tilewright.passes.schedule.proof import report
from tilewright.passes.schedule.proof.accesses import Program, point_ranges
from tilewright.passes.schedule.proof.facts import Facts
from tilewright.passes.schedule.proof.match import Demand


def check_inputs(program: Program, demands: Sequence[Demand], facts: Facts) -> None:
    """ScheduleError with the two cells where a block reads another cell of an input than its stage
    says.
    """
    for instance in program.instances:
        for write in instance.writes:
            if write.memory.role == "input":
                raise ScheduleError(
                    f"Block '{instance.name}' writes to the input '{write.memory.buffer.name}'."
                )
    for demand in demands:
        if demand.memory.role != "input" or demand.indices == demand.cell:
            continue
        conditions = list(demand.conditions)
        for e, extent in point_ranges(program, demand.instance, demand.buffer):
            conditions += [compare("ge", e, 0), compare("lt", e, extent)]
        values = facts.difference(demand.instance.place, conditions, demand.indices, demand.cell)
        if values is not None:
            raise ScheduleError(
                f"Block {report.instance(demand.instance, values)}{report.symbols(values)} reads "
                f"{report.cell(demand.memory.buffer, demand.indices, values)} where its stage "
                "reads "
                f"{report.cell(demand.buffer, demand.cell, values)}. The last step changed an "
                "index."
            )
