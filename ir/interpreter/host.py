# SPDX-License-Identifier: Apache-2.0
"""The interpreter of host programs: a whole model run by the reference interpreters, memory plan
included.

Buffers placed in the arena are views of one block of bytes. Placing a buffer fills it with ones
(NaN), so a buffer placed over live data destroys it and the results show it.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from tilewright.ir.buffer import Buffer
from tilewright.ir.errors import IndexFaultError, InputError, InterpreterError
from tilewright.ir.interpreter.emit import Emitter, fresh_memory
from tilewright.ir.interpreter.loops import (
    build,
    call,
    kernel_program,
    memory_shape,
)
from tilewright.ir.layout_data import pack, unpack
from tilewright.ir.loop import (
    Fits,
    HostProgram,
    Kernel,
    Launch,
    Output,
    Place,
    Require,
    Stmt,
    shape_buffer,
)
from tilewright.ir.op import Array
from tilewright.ir.sizes import GREATEST, LEAST, steps, sums


def interpret_host(
    host: HostProgram,
    kernels: Mapping[str, Kernel],
    feeds: Mapping[str, Array],
    constants: Mapping[str, Array],
) -> dict[str, Array]:
    """The outputs of a model by buffer name, in logical shape.

    ``feeds`` and ``constants`` are logical arrays by buffer name; ``kernels`` has those that are
    launched, by name. InputError or IndexFaultError where a ``require`` does not hold,
    InterpreterError where the program is at fault.
    """
    run = _Run(host, kernels)
    arrays: list[Array] = []
    for b in host.inputs:
        array = _array(b, feeds)
        if array.ndim != b.rank:
            raise InputError(f"Input '{b.name}' has rank {array.ndim}, not {b.rank}.")
        arrays += [pack(array, b.layout), np.asarray(array.shape, dtype=np.int64)]
    arrays += [pack(_array(b, constants), b.layout) for b in host.constants]
    emitter = _HostEmitter(host)
    program = build(host.name, emitter.source_of(run))
    call(program, arrays)
    return run.results()


def _array(b: Buffer, arrays: Mapping[str, Array]) -> Array:
    if b.name not in arrays:
        raise InputError(f"There is no array for '{b}'.")
    array = np.asarray(arrays[b.name])
    if array.dtype != b.dtype.numpy:
        raise InputError(f"The array for '{b}' is of type {array.dtype}.")
    return array


class _Run:
    """The services of one run, as the runtime gives them to compiled code."""

    def __init__(self, host: HostProgram, kernels: Mapping[str, Kernel]) -> None:
        self.host = host
        self.kernels = kernels
        self.arena: Array = np.zeros(0, np.uint8)
        self.outputs: dict[int, tuple[Buffer, Array, tuple[int, ...]]] = {}

    def place(
        self, b: Buffer, offset: int, arena: int, shape: tuple[int, ...], memory: tuple[int, ...]
    ) -> Array:
        """A buffer in the arena, which has ``arena`` bytes."""
        if self.arena.size != arena:
            if self.arena.size:
                raise InterpreterError(
                    f"The arena changes from {self.arena.size} to {arena} bytes."
                )
            self.arena = np.full(arena, 0xFF, np.uint8)
        size = int(np.prod(memory, dtype=np.int64)) * b.dtype.numpy.itemsize
        if offset < 0 or offset + size > arena:
            raise InterpreterError(
                f"Buffer '{b}' lies at bytes {offset} to {offset + size} of an arena of {arena}."
            )
        view = self.arena[offset : offset + size]
        view[...] = 0xFF
        return view.view(b.dtype.numpy).reshape(memory)

    def output(
        self, b: Buffer, number: int, shape: tuple[int, ...], memory: tuple[int, ...]
    ) -> Array:
        """Memory of an output of the model."""
        array = fresh_memory(memory, b.dtype.numpy)
        self.outputs[number] = (b, array, shape)
        return array

    def require(self, holds: bool, message: str, values: tuple[Any, ...], fault: bool) -> None:
        """End the run with an error unless ``holds``."""
        if not holds:
            raise (IndexFaultError if fault else InputError)(message.format(*values))

    def fits(self, results: tuple[int, ...], message: str, values: tuple[Any, ...]) -> None:
        """End the run with an error unless all ``results`` fit 64 bits."""
        if any(not LEAST <= result <= GREATEST for result in results):
            raise InputError(message.format(*values))

    def launch(self, name: str, arrays: tuple[Array, ...], scalars: tuple[int, ...]) -> None:
        """Run a kernel on memory that it sees in shapes of its own."""
        if name not in self.kernels:
            raise InterpreterError(f"There is no kernel '{name}'.")
        kernel = self.kernels[name]
        buffers = (*kernel.inputs, *kernel.outputs)
        if len(arrays) != len(buffers) or len(scalars) != len(kernel.symbols):
            raise InterpreterError(
                f"Kernel '{name}' takes {len(buffers)} buffers and {len(kernel.symbols)} symbols, "
                f"got {len(arrays)} and {len(scalars)}."
            )
        symbols = {s.name: int(v) for s, v in zip(kernel.symbols, scalars, strict=True)}
        views: list[Array] = []
        for b, array in zip(buffers, arrays, strict=True):
            shape = memory_shape(b, symbols)
            if array.dtype != b.dtype.numpy or array.size != np.prod(shape, dtype=np.int64):
                raise InterpreterError(
                    f"Kernel '{name}' gets {array.size} elements of {array.dtype} for '{b}' "
                    f"of memory shape {list(shape)}."
                )
            views.append(array.reshape(shape))
        call(kernel_program(kernel), [*views, *symbols.values()])

    def results(self) -> dict[str, Array]:
        """The outputs in logical shape."""
        results: dict[str, Array] = {}
        for number, b in enumerate(self.host.outputs):
            if number not in self.outputs:
                raise InterpreterError(f"Output {number} ('{b.name}') was never given memory.")
            _, array, shape = self.outputs[number]
            results[b.name] = unpack(array.reshape(-1), shape, b.layout)
        return results


class _HostEmitter(Emitter):
    """Adds the statements of host programs."""

    def __init__(self, host: HostProgram) -> None:
        super().__init__((), check_initialised=False)
        self._host = host

    def source_of(self, run: _Run) -> "Any":
        """The source of the whole program; parameters are inputs, each with its shape, then
        constants.
        """
        self.source.references["host"] = run
        parameters: list[Buffer] = []
        for b in self._host.inputs:
            parameters += [b, shape_buffer(b)]
        parameters += self._host.constants
        return self.function(parameters, (), self._host.body)

    def _shapes(self, b: Buffer) -> str:
        shape = "".join(f"{self.code(d)}, " for d in b.shape)
        memory = "".join(f"{d}, " for d in self._physical_shape(b))
        return f"({shape}), ({memory})"

    def other_statement(self, s: Stmt) -> None:
        match s:
            case Require(condition, message, values, fault):
                inner = "".join(f"{self.code(v)}, " for v in values)
                arguments = f"{self.code(condition)}, {message!r}, ({inner}), {fault}"
                self.line(f"host.require({arguments})", s)
            case Fits(sizes, _, message, values):
                inner = "".join(f"{self.code(v)}, " for v in values)
                results = [step for size in sizes for e in sums(size) for step in steps(e)]
                codes = "".join(f"{self.code(r)}, " for r in dict.fromkeys(results))
                self.line(f"host.fits(({codes}), {message!r}, ({inner}))", s)
            case Place(buffer, offset):
                arguments = f"{self.code(offset)}, {self.code(self._host.arena)}"
                self._make(s, buffer, "place", arguments)
            case Output(buffer, number):
                self._make(s, buffer, "output", str(number))
            case Launch(kernel, buffers, scalars, _, _, _, _):
                arrays = "".join(f"{self.buffer(b)}, " for b in buffers)
                values_ = "".join(f"{self.code(v)}, " for v in scalars)
                self.line(f"host.launch({kernel!r}, ({arrays}), ({values_}))", s)
            case _:
                super().other_statement(s)

    def _make(self, s: Stmt, b: Buffer, service: str, arguments: str) -> None:
        name = self.buffer(b)
        self.source.references[f"of_{name}"] = b
        self.line(f"{name} = host.{service}(of_{name}, {arguments}, {self._shapes(b)})", s)
