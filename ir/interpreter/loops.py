# SPDX-License-Identifier: Apache-2.0
"""The interpreter of kernels: runs loop IR exactly as written, on memory laid out exactly as
declared.

A kernel is turned into Python once (:mod:`tilewright.ir.interpreter.emit`) and run on numpy arrays
in memory order, padding included. No op and no stage is consulted. What compiled code would get
silently wrong is an InterpreterError here: an access out of bounds, a read of a cell that nothing
wrote, an output left unwritten.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import numpy as np

from tilewright.ir.buffer import Buffer
from tilewright.ir.errors import IndexFaultError, InputError, InterpreterError
from tilewright.ir.expr import Symbol, free_variables, reads
from tilewright.ir.interpreter.emit import Emitter, Source, Unwritten, fresh_memory
from tilewright.ir.layout_data import pack, unpack
from tilewright.ir.loop import Kernel, Stmt, Store, expressions, outer_buffers, walk
from tilewright.ir.loop_printer import head_text
from tilewright.ir.op import Array
from tilewright.ir.rewrite import evaluate

# Called with stage, part and point of each block that runs.
BlockHook = Callable[[str, str, tuple[int, ...]], None]


@dataclass(frozen=True)
class Program:
    """A body as a Python function, and its source for the diagnosis of errors."""

    name: str
    source: Source
    function: Callable[..., dict[str, Array]]


def build(name: str, source: Source) -> Program:
    """Compile emitted source."""
    code = compile(source.text, f"<loop IR of {name}>", "exec")
    exec(code, source.references)
    return Program(name, source, source.references["run"])


def call(program: Program, arguments: Sequence[Any]) -> dict[str, Array]:
    """Run a program; faults become InterpreterErrors that name the access and the statement."""
    try:
        with np.errstate(all="ignore"):
            return program.function(*arguments)
    except IndexFaultError:  # what the program itself tells, and an IndexError too
        raise
    except (IndexError, ZeroDivisionError, Unwritten) as error:
        fault = _diagnosis(program, error, sys.exc_info()[2])
    raise InterpreterError(fault)


def interpret_kernel(
    kernel: Kernel,
    inputs: Mapping[str, Array],
    symbols: Mapping[str, int] | None = None,
    *,
    check_initialised: bool = True,
    reverse: bool = False,
    on_block: BlockHook | None = None,
) -> dict[str, Array]:
    """The outputs of a kernel by name, in logical shape.

    ``inputs`` are logical arrays by buffer name; padding is filled with zeros. ``symbols`` gives
    the kernel's symbols by name. ``reverse`` runs parallel, vectorized and GPU loops backwards,
    which must not change the results. ``on_block`` is told of every block that runs.
    """
    known = dict(symbols or {})
    missing = [s.name for s in kernel.symbols if s.name not in known]
    if missing:
        raise InputError(f"Kernel '{kernel.name}' needs a value for symbol '{missing[0]}'.")
    memory = [to_memory(b, inputs, known) for b in kernel.inputs]
    memory += [fresh_memory(memory_shape(b, known), b.dtype.numpy) for b in kernel.outputs]
    program = kernel_program(kernel, check_initialised, reverse, on_block is not None)
    if on_block is not None:
        program.source.references["on_block"] = on_block
    masks = call(program, [*memory, *(known[s.name] for s in kernel.symbols)])
    results: dict[str, Array] = {}
    for b, array in zip(kernel.outputs, memory[len(kernel.inputs) :], strict=True):
        results[b.name] = from_memory(b, array, known)
        if b.name in masks and not from_memory(b, masks[b.name], known).all():
            cell = np.argwhere(~from_memory(b, masks[b.name], known))[0].tolist()
            raise InterpreterError(f"Kernel '{kernel.name}' never writes '{b.name}' at {cell}.")
    return results


def kernel_program(
    kernel: Kernel, check_initialised: bool = True, reverse: bool = False, trace: bool = False
) -> Program:
    """The program of a kernel; its parameters are arrays in memory order, then symbols."""
    key = ("interpreter", check_initialised, reverse, trace)
    program: Program | None = kernel._memo.get(key)
    if program is None:
        emitter = Emitter(kernel.inputs, check_initialised, reverse, trace)
        source = emitter.function((*kernel.inputs, *kernel.outputs), kernel.symbols, kernel.body)
        program = kernel._memo[key] = build(kernel.name, source)
    return program


def run_body(
    name: str,
    body: Stmt,
    outputs: Sequence[Buffer],
    memory: Mapping[str, Array],
    symbols: Mapping[str, int],
) -> dict[str, Array]:
    """Run statements that are no kernel, the body of an opaque stage, on logical arrays."""
    inputs = [b for b in outer_buffers(body) if b not in outputs]
    found = {v for s in walk(body) for e in expressions(s) for v in free_variables(e)}
    needed = sorted((v for v in found if isinstance(v, Symbol)), key=lambda s: s.name)
    arrays = [to_memory(b, memory, symbols) for b in inputs]
    arrays += [fresh_memory(memory_shape(b, symbols), b.dtype.numpy) for b in outputs]
    source = Emitter(inputs).function((*inputs, *outputs), needed, body)
    call(build(name, source), [*arrays, *(symbols[s.name] for s in needed)])
    written = arrays[len(inputs) :]
    return {b.name: from_memory(b, a, symbols) for b, a in zip(outputs, written, strict=True)}


# --- memory ---


def logical_shape(b: Buffer, symbols: Mapping[str, int]) -> tuple[int, ...]:
    """The shape of a buffer for given symbols."""
    return tuple(evaluate(d, symbols) for d in b.shape)


def memory_shape(b: Buffer, symbols: Mapping[str, int]) -> tuple[int, ...]:
    """The dims in memory order, padding included."""
    shape = logical_shape(b, symbols)
    factors = dict.fromkeys(range(len(shape)), 1)
    for axis, factor in b.layout.blocks:
        factors[axis] *= factor
    outer = [-(-shape[a] // factors[a]) for a in b.layout.order]
    return (*outer, *(factor for _, factor in b.layout.blocks))


def to_memory(b: Buffer, arrays: Mapping[str, Array], symbols: Mapping[str, int]) -> Array:
    """A logical array in memory order; InputError if it does not fit the buffer."""
    if b.name not in arrays:
        raise InputError(f"There is no array for '{b}'.")
    array = np.asarray(arrays[b.name])
    shape = logical_shape(b, symbols)
    if array.shape != shape or array.dtype != b.dtype.numpy:
        raise InputError(
            f"The array for '{b}' is {array.dtype}{list(array.shape)}, "
            f"not {b.dtype.full_name}{list(shape)}."
        )
    return pack(array, b.layout).reshape(memory_shape(b, symbols))


def from_memory(b: Buffer, memory: Array, symbols: Mapping[str, int]) -> Array:
    """The logical array in memory."""
    return unpack(memory.reshape(-1), logical_shape(b, symbols), b.layout)


# --- diagnosis ---


def _diagnosis(program: Program, error: Exception, trace: TracebackType | None) -> str:
    """One sentence on what went wrong, with the values of the variables at that moment."""
    where: Stmt | None = None
    state: dict[str, int] = {}
    filename = f"<loop IR of {program.name}>"
    while trace is not None:
        frame = trace.tb_frame
        if frame.f_code.co_filename == filename:
            where = program.source.statements.get(trace.tb_lineno, where)
            for name, variable in program.source.names.items():
                if isinstance(frame.f_locals.get(name), int | np.integer):
                    state[str(variable)] = int(frame.f_locals[name])
        trace = trace.tb_next
    at = f" at '{head_text(where)}'" if where is not None else ""
    mentioned = {str(v) for e in (expressions(where) if where else ()) for v in free_variables(e)}
    values = ", ".join(f"{name} = {state[name]}" for name in state if name in mentioned)
    values = f" ({values})" if values else ""
    in_kernel = f"in '{program.name}'{at}{values}"
    if isinstance(error, Unwritten):
        return f"'{error}' is read before it is written, {in_kernel}."
    if isinstance(error, ZeroDivisionError):
        return f"An index is divided by zero, {in_kernel}."
    access = _culprit(where, state) if where is not None else None
    detail = access or f"An access is out of bounds: {error}"
    return f"{detail}, {in_kernel}."


def _culprit(where: Stmt, state: Mapping[str, int]) -> str | None:
    """The first access of a statement that is out of bounds for these values of variables."""
    accesses = [(r.buffer, r.indices) for e in expressions(where) for r in reads(e)]
    if isinstance(where, Store):
        accesses.append((where.buffer, where.indices))
    for buffer, indices in accesses:
        try:
            place = [evaluate(i, state) for i in indices]
            shape = [evaluate(d, state) for d in buffer.shape]
        except KeyError:
            continue
        padded = _padded(buffer, shape)
        if any(not 0 <= i < n for i, n in zip(place, padded, strict=True)):
            text = ", ".join(map(str, indices))
            return (
                f"Access '{buffer.name}[{text}]' is out of bounds: index {place} of shape {shape}"
            )
    return None


def _padded(buffer: Buffer, shape: Sequence[int]) -> list[int]:
    factors = dict.fromkeys(range(len(shape)), 1)
    for axis, factor in buffer.layout.blocks:
        factors[axis] *= factor
    return [-(-n // factors[a]) * factors[a] for a, n in enumerate(shape)]
