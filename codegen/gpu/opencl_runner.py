# SPDX-License-Identifier: Apache-2.0
"""Run OpenCL kernels on numpy arrays through pyopencl (extra ``opencl``): for tests, and to measure
schedules.

Arrays are in memory order, as the kernel's buffers are laid out.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.codegen.gpu.kernel import kernel_source
from tilewright.codegen.gpu.opencl import OpenCL
from tilewright.ir.loop import Kernel
from tilewright.ir.rewrite import evaluate
from tilewright.passes.loop.threads import launch_shape
from tilewright.passes.loop.workspace import workspace_bytes


class OpenCLRunner:
    """One device and its queue; compiled kernels are kept."""

    def __init__(self) -> None:
        import pyopencl

        self._cl: Any = pyopencl
        self._context = pyopencl.create_some_context(interactive=False)
        self._queue = pyopencl.CommandQueue(self._context)
        self._kernels: dict[Kernel, Any] = {}

    @property
    def device(self) -> str:
        """The name of the device."""
        return str(self._context.devices[0].name)

    def run(
        self, kernel: Kernel, arrays: Sequence["np.ndarray[Any, Any]"], symbols: Sequence[int] = ()
    ) -> None:
        """Run a scheduled kernel on its inputs and outputs; the outputs are written in place."""
        flags = self._cl.mem_flags.READ_WRITE | self._cl.mem_flags.COPY_HOST_PTR
        memory = [self._cl.Buffer(self._context, flags, hostbuf=a) for a in arrays]
        values = {s.name: v for s, v in zip(kernel.symbols, symbols, strict=True)}
        shape = launch_shape(kernel)
        grid = [evaluate(e, values) for e in shape.grid]
        arguments = [*memory, *map(np.int64, symbols)]
        scratch = evaluate(workspace_bytes(kernel), values) * int(np.prod(grid))
        if scratch:
            flags = self._cl.mem_flags.READ_WRITE
            arguments.append(self._cl.Buffer(self._context, flags, scratch))
        work = tuple(g * b for g, b in zip(grid, shape.block, strict=True))
        self._compiled(kernel)(self._queue, work, shape.block, *arguments)
        for array, held in zip(arrays[len(kernel.inputs) :], memory[len(kernel.inputs) :]):
            self._cl.enqueue_copy(self._queue, array, held)

    def _compiled(self, kernel: Kernel) -> Any:
        if kernel not in self._kernels:
            source = kernel_source(kernel, OpenCL())
            program = self._cl.Program(self._context, source).build()
            self._kernels[kernel] = self._cl.Kernel(program, kernel.name)
        return self._kernels[kernel]
