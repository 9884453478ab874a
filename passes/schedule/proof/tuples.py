# SPDX-License-Identifier: Apache-2.0
"""Reductions over tuples: the accumulators of one point are started together.

Each accumulator is shown complete in its own memory. An update of one reads the others too, so all
of them must have seen the same updates: they must have been started by the same init instance.
"""

from collections.abc import Callable, Mapping

import islpy as isl

from tilewright.ir.errors import ScheduleError
from tilewright.ir.stage import Stage
from tilewright.passes.schedule.proof import report
from tilewright.passes.schedule.proof.accesses import Instance, Memory, Program
from tilewright.passes.schedule.proof.dataflow import Flow, union
from tilewright.passes.schedule.proof.direct import Direct


def check_tuples(
    program: Program, directs: Mapping[Memory, Direct], flow_of: Callable[[Memory, int], Flow]
) -> None:
    """ScheduleError where accumulators of one tuple were started by different instances.

    ``directs`` are the memories whose dataflow was shown directly; ``flow_of`` solves that of a
    memory with the given number of outer loops as parameters.
    """
    for stage in program.kernel.stages:
        if stage.kind != "reduce" or len(stage.outputs) < 2:
            continue
        for instance in program.instances:
            if instance.part == "update" and instance.stage == stage.name:
                memories = list(dict.fromkeys(w.memory for w in instance.writes))
                if not _same_origins(instance, memories, directs):
                    _compare(stage, instance, memories, flow_of)


def _same_origins(
    instance: Instance, memories: list[Memory], directs: Mapping[Memory, Direct]
) -> bool:
    found = set()
    for memory in memories:
        direct = directs.get(memory)
        if direct is None:
            return False
        for access, origins in direct.origins.items():
            if access.instance is instance:
                starts = frozenset((o.source.instance, o.shared, o.values) for o in origins)
                found.add(starts)
    return len(found) == 1


def _compare(
    stage: Stage,
    instance: Instance,
    memories: list[Memory],
    flow_of: Callable[[Memory, int], Flow],
) -> None:
    depth = min(len(m.loops) for m in memories)
    flows = [flow_of(memory, depth) for memory in memories]
    own = []
    for flow in flows:
        access = next(a for a in flow.accesses if a.kind == "update" and a.instance is instance)
        members = isl.UnionSet.from_set(access.domain.set)
        own.append(flow.dependence.intersect_range(members))
    everything = union(own)
    for relation in own:
        missed = flows[0].example(everything.subtract(relation))
        if missed is not None:
            start, before, _, values = missed
            assert start.instance is not None
            raise ScheduleError(
                f"The accumulators that block {report.instance(instance, values)} updates were "
                "not all started by "
                f"{report.instance(start.instance, before)}{report.symbols(values)}: reduction "
                f"'{stage.name}' is over a "
                "tuple. Place the init of all of them at one loop."
            )
