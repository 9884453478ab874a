# SPDX-License-Identifier: Apache-2.0
"""The worker that takes a kernel all the way: schedule, proof, code.

It reads the text of an unscheduled kernel and answers with what the compiler needs to know of the
result, and the code. Everything may fail or crash here without harm to the process that compiles
the model.
"""

import os
import resource
import sys
import traceback
from dataclasses import asdict
from typing import IO, Any

from tilewright.codegen.backends import backend_of
from tilewright.codegen.llvm.worker import read_message, write_message
from tilewright.ir.errors import CodegenError, ScheduleError, TilewrightError
from tilewright.ir.expr import ONE
from tilewright.ir.loop import For, Kernel
from tilewright.ir.loop_parser import parse_kernel
from tilewright.ir.target import Target
from tilewright.passes.loop.workspace import workspace_bytes
from tilewright.passes.lower.work import work_estimate
from tilewright.passes.schedule.schedule import schedule_text
from tilewright.passes.schedule.select import replay_schedule, schedule_kernel
from tilewright.passes.schedule.slow_stages import slow_stages


def compile_kernel(
    kernel: Kernel,
    target: Target,
    stored: str | None = None,
    exact: bool = False,
) -> tuple[dict[str, Any], bytes]:
    """What is known of the compiled kernel, and its code.

    ``stored`` is the schedule to try before the default ones; with ``exact`` there is no other.
    """
    if exact and stored is not None:
        scheduled = replay_schedule(kernel, stored)
    else:
        scheduled = schedule_kernel(kernel, target, stored)
    body = scheduled.kernel.body
    tasks = body.var.extent if isinstance(body, For) and body.kind == "parallel" else ONE
    code = backend_of(target).compile(scheduled.kernel, target)
    slow = slow_stages(kernel, scheduled.kernel, target, scheduled.refused)
    facts = {
        "template": scheduled.template,
        "schedule": schedule_text(scheduled.schedule),
        "proof_ms": scheduled.proof.seconds * 1e3,
        "tasks": str(tasks),
        "workspace": str(workspace_bytes(scheduled.kernel)),
        "work": str(work_estimate(kernel)),
        "text": str(scheduled.kernel),
        "refused": [asdict(refusal) for refusal in scheduled.refused],
        "slow": [asdict(stage) for stage in slow],
    }
    return facts, code


def serve(source: IO[bytes], sink: IO[bytes]) -> None:
    """Answer requests until the other side closes the pipe."""
    while (message := read_message(source)) is not None:
        header, payload = message
        target = Target(header["arch"], tuple(header["features"]), *header["sizes"])
        try:
            kernel = parse_kernel(payload.decode())
            facts, code = compile_kernel(
                kernel, target, header.get("schedule"), header.get("exact", False)
            )
        except (TilewrightError, RuntimeError) as error:
            write_message(sink, {"error": str(error), "reason": _reason(error)}, b"")
        except MemoryError:
            told = "There is not enough memory."
            write_message(sink, {"error": told, "reason": told}, b"")
        except Exception as error:
            told = "".join(traceback.format_exception(error))
            reason = f"There is an internal fault of the compiler, {type(error).__name__}."
            write_message(sink, {"error": f"{reason}\n{told}", "reason": reason}, b"")
        else:
            write_message(sink, facts, code)


def _reason(error: Exception) -> str:
    """What a user is told: nothing of loops or of schedules, which are ours."""
    if isinstance(error, CodegenError) and error.reason:
        return error.reason
    if isinstance(error, ScheduleError):
        return "No schedule of its loops is proven right."
    return "No code could be generated for its loops."


def main() -> None:
    """Serve on standard input and output; whatever else prints goes to standard error."""
    sink = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    serve(sys.stdin.buffer, sink)
