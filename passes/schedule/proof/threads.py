# SPDX-License-Identifier: Apache-2.0
"""GPU kernels: what the loop IR says one after another may run in one set of threads.

The rest of the proof reads loops over blocks and threads as parallel loops, in the order of the
text. That order holds for the threads of a block only if

* loops over blocks are the outermost statements, each axis once, so that one launch is the whole
  kernel;
* loops over threads have constant extents, are nested directly in one another, each axis once, and
  hold no barrier and no shared memory, so that a phase is one nest of them around what one thread
  does by itself;
* no phase touches memory that an earlier one wrote, or writes what it touched, without a barrier
  between (:mod:`tilewright.passes.loop.phases`);
* a register buffer that lives through several phases is divided among the threads in one way
  (:mod:`tilewright.passes.loop.threads`).

Shared memory is one place however often it is allocated, so phases of different iterations of a
loop are compared too.
"""

from typing import NoReturn

from tilewright.ir.buffer import Buffer
from tilewright.ir.errors import ScheduleError
from tilewright.ir.expr import Const
from tilewright.ir.loop import Alloc, Barrier, For, Kernel, Stmt, children, walk
from tilewright.ir.loop_printer import head_text
from tilewright.passes.loop.phases import Phases, is_block_loop, is_thread_loop
from tilewright.passes.loop.threads import shares


def check_threads(kernel: Kernel) -> None:
    """ScheduleError where threads would not do what the text says."""
    if not any(
        isinstance(s, Barrier) or is_thread_loop(s) or is_block_loop(s) for s in walk(kernel.body)
    ):
        return
    body, axes = kernel.body, []
    while isinstance(body, For) and is_block_loop(body):
        axes.append(body.kind)
        body = body.body
    _check_nesting(body, axes, ())
    for s in walk(body):
        if isinstance(s, Alloc) and s.buffer.scope == "register" and shares(s) is None:
            raise ScheduleError(
                f"The threads of a block do not divide the register buffer '{s.buffer.name}' in "
                "one way. Split and bind the loops of all its phases alike, or place it in shared "
                "memory."
            )
    Phases(_early).visit(kernel.body)


def _early(phase: Stmt, buffer: Buffer) -> NoReturn:
    raise ScheduleError(
        f"The phase '{head_text(phase)}' touches '{buffer.name}', which another thread may still "
        "be writing or reading: there is no barrier between. End the schedule with 'synchronize()'."
    )


def _check_nesting(s: Stmt, axes: list[str], threads: tuple[str, ...]) -> None:
    if isinstance(s, For) and is_block_loop(s):
        raise ScheduleError(
            f"The loop '{s.var}' over blocks is inside of other statements. "
            "Make it an outermost loop."
        )
    if len(set(axes)) < len(axes):
        raise ScheduleError(f"Two loops are bound to '{max(axes, key=axes.count)}'.")
    if isinstance(s, For) and is_thread_loop(s):
        if s.kind in threads:
            raise ScheduleError(f"The loop '{s.var}' is inside another one over '{s.kind}'.")
        if not isinstance(s.var.extent, Const):
            raise ScheduleError(f"The extent of the loop '{s.var}' over threads is not constant.")
        threads = (*threads, s.kind)
        if not is_thread_loop(s.body) and any(map(is_thread_loop, walk(s.body))):
            raise ScheduleError(
                f"There are statements between '{s.var}' and the loop over threads inside it. "
                "Reorder the loops."
            )
    if threads and isinstance(s, Barrier):
        raise ScheduleError(
            "A barrier is inside a loop over threads, which not all of them may reach."
        )
    if threads and isinstance(s, Alloc) and s.buffer.scope == "shared":
        raise ScheduleError(f"'{s.buffer.name}' is shared, but allocated by each thread.")
    for child in children(s):
        _check_nesting(child, axes, threads)
