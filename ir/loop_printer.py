# SPDX-License-Identifier: Apache-2.0
"""Text of the loop IR: two spaces a level, one statement a line; :mod:`tilewright.ir.loop_parser` reads it back."""

import json

from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import Symbol
from tilewright.ir.loop import (
    Alloc,
    Barrier,
    Block,
    For,
    HostProgram,
    If,
    Kernel,
    Launch,
    Let,
    Output,
    Place,
    Require,
    Seq,
    Stmt,
    Store,
    While,
)


def symbol_text(s: Symbol) -> str:
    """``n in [1, 64] multiple 8 hint 16``, without the parts that are defaults."""
    out = f"{s.name} in [{s.lo}, {s.hi}]"
    if s.multiple != 1:
        out += f" multiple {s.multiple}"
    return out + (f" hint {s.hint}" if s.hint else "")


def stmt_text(s: Stmt, level: int = 0) -> str:
    """The lines of a statement, indented by ``level``."""
    return "\n".join("  " * (level + depth) + line for depth, line in _lines(s, 0))


def _buffers(buffers: tuple[Buffer, ...]) -> str:
    return ", ".join(map(str, buffers))


def kernel_text(k: Kernel) -> str:
    """A whole kernel: arguments, symbols, stages, body."""
    lines = [f"kernel @{k.name}({_buffers(k.inputs)}) -> ({_buffers(k.outputs)}) {{"]
    lines += [f"  symbol {symbol_text(s)}" for s in k.symbols]
    lines += [f"  stage {s}" for s in k.stages]
    return "\n".join([*lines, stmt_text(k.body, 1), "}"])


def host_text(h: HostProgram) -> str:
    """A whole host program."""
    lines = [f"host @{h.name}({_buffers(h.inputs)}) -> ({_buffers(h.outputs)}) {{"]
    lines += [f"  constant {b}" for b in h.constants]
    lines += [f"  arena {h.arena}", stmt_text(h.body, 1), "}"]
    return "\n".join(lines)


def _lines(s: Stmt, depth: int) -> list[tuple[int, str]]:
    def braced(head: str, body: Stmt) -> list[tuple[int, str]]:
        return [(depth, f"{head} {{"), *_lines(body, depth + 1), (depth, "}")]

    match s:
        case Seq(stmts):
            return [line for c in stmts for line in _lines(c, depth)]
        case For(var, kind, body):
            return braced(f"for {var.name} in {var.extent} {kind}", body)
        case While(condition, body):
            return braced(f"while {condition}", body)
        case If(condition, then, None):
            return braced(f"if {condition}", then)
        case If(condition, then, otherwise) if otherwise is not None:
            opening = braced(f"if {condition}", then)
            return [*opening[:-1], (depth, "} else {"), *_lines(otherwise, depth + 1), (depth, "}")]
        case Let(var, value, body):
            name = f"symbol {symbol_text(var)}" if isinstance(var, Symbol) else f"{var.name}"
            return braced(f"let {name} = {value}", body)
        case Alloc(buffer, body):
            return braced(f"alloc {buffer}", body)
        case Block(stage, part, point, body):
            return braced(f"block {stage}.{part}({', '.join(map(str, point))})", body)
        case Store(buffer, indices, value):
            return [(depth, f"{buffer.name}[{', '.join(map(str, indices))}] = {value}")]
        case Barrier():
            return [(depth, "barrier")]
        case Require(condition, message, values):
            return [
                (depth, f"require {condition} {json.dumps(message)}({', '.join(map(str, values))})")
            ]
        case Place(buffer, offset):
            return [(depth, f"place {buffer} at {offset}")]
        case Output(buffer, number):
            return [(depth, f"output {buffer} as {number}")]
        case Launch(kernel, buffers, scalars, tasks, work, workspace, origin):
            args = ", ".join(b.name for b in buffers)
            if scalars:
                args += f"; {', '.join(map(str, scalars))}"
            tail = f"tasks {tasks} work {work} workspace {workspace} {json.dumps(origin)}"
            return [(depth, f"launch @{kernel}({args}) {tail}")]
    raise TypeError(f"No text form for {type(s).__name__}.")
