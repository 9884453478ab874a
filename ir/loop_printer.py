# SPDX-License-Identifier: Apache-2.0
"""Text of the loop IR: two spaces a level, one statement a line.

:mod:`tilewright.ir.loop_parser` reads it back::

    kernel @scale(x: f32[n,4]) -> (y: f32[n,4]) {
      symbol n in [1, 64]
      buffer t: f32[n,4]
      stage map double(i in n, j in 4) -> t[i, j] = (x[i, j] + x[i, j])
      ...
      alloc t: f32[n,4] @workspace {
        for i in n parallel {
        ...
    }

``buffer`` declares what only stages mention: the body allocates its own, which a schedule may have
made smaller.
"""

import json

from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import Symbol
from tilewright.ir.loop import (
    Alloc,
    Barrier,
    Block,
    Fits,
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
    outer_buffers,
)


def symbol_text(s: Symbol) -> str:
    """``n in [1, 64] multiple 8 hint 16``, without the parts that are defaults."""
    out = f"{s.name} in [{s.lo}, {s.hi}]"
    if s.multiple != 1:
        out += f" multiple {s.multiple}"
    return out + (f" hint {s.hint}" if s.hint else "")


def stmt_text(s: Stmt, level: int = 0) -> str:
    """The lines of a statement, indented by ``level``."""
    return "\n".join(_indented(s, level))


def _indented(s: Stmt, level: int) -> list[str]:
    return ["  " * depth + line for depth, line, _ in stmt_lines(s, level)]


def _buffers(buffers: tuple[Buffer, ...]) -> str:
    return ", ".join(map(str, buffers))


def kernel_text(k: Kernel) -> str:
    """A whole kernel: arguments, symbols, buffers of stages only, stages, body."""
    lines = [f"kernel @{k.name}({_buffers(k.inputs)}) -> ({_buffers(k.outputs)}) {{"]
    lines += [f"  symbol {symbol_text(s)}" for s in k.symbols]
    lines += [f"  buffer {b}" for b in stage_buffers(k)]
    for s in k.stages:
        lines.append(f"  stage {s}")
        if s.body is not None:
            lines[-1] += " {"
            lines += [*_indented(s.body, 2), "  }"]
    return "\n".join([*lines, *_indented(k.body, 1), "}"])


def stage_buffers(k: Kernel) -> list[Buffer]:
    """The buffers that stages mention and that are no arguments, in order of appearance."""
    found: dict[Buffer, None] = {}
    for stage in k.stages:
        found.update(dict.fromkeys(read.buffer for read in stage.reads()))
        if stage.body is not None:
            found.update(dict.fromkeys(outer_buffers(stage.body)))
        found.update(dict.fromkeys(stage.outputs))
    return [b for b in found if b not in k.inputs and b not in k.outputs]


def host_text(h: HostProgram) -> str:
    """A whole host program."""
    lines = [f"host @{h.name}({_buffers(h.inputs)}) -> ({_buffers(h.outputs)}) {{"]
    lines += [f"  constant {b}" for b in h.constants]
    return "\n".join([*lines, f"  arena {h.arena}", *_indented(h.body, 1), "}"])


def stmt_lines(s: Stmt, depth: int = 0) -> list[tuple[int, str, Stmt]]:
    """The lines of a statement: indentation level, text, and the statement that the line shows."""
    out: list[tuple[int, str, Stmt]] = []
    _append(s, depth, out)
    return out


def _append(s: Stmt, depth: int, out: list[tuple[int, str, Stmt]]) -> None:
    match s:
        case Seq(stmts):
            for c in stmts:
                _append(c, depth, out)
        case If(condition, then, otherwise):
            out.append((depth, f"if {condition} {{", s))
            _append(then, depth + 1, out)
            if otherwise is not None:
                out.append((depth, "} else {", s))
                _append(otherwise, depth + 1, out)
            out.append((depth, "}", s))
        case (
            For(_, _, body)
            | While(_, body)
            | Let(_, _, body)
            | Alloc(_, body)
            | Block(_, _, _, body)
        ):
            out.append((depth, f"{head_text(s)} {{", s))
            _append(body, depth + 1, out)
            out.append((depth, "}", s))
        case _:
            out.append((depth, head_text(s), s))


def head_text(s: Stmt) -> str:
    """The line of a statement, without what it holds: the words that messages quote."""
    match s:
        case For(var, kind, _):
            return f"for {var.name} in {var.extent} {kind}"
        case While(condition, _):
            return f"while {condition}"
        case If(condition, _, _):
            return f"if {condition}"
        case Let(var, value, _):
            name = f"symbol {symbol_text(var)}" if isinstance(var, Symbol) else f"{var.name}"
            return f"let {name} = {value}"
        case Alloc(buffer, _):
            return f"alloc {buffer}"
        case Block(stage, part, point, _):
            return f"block {stage}.{part}({', '.join(map(str, point))})"
        case Store(buffer, indices, value):
            return f"{buffer.name}[{', '.join(map(str, indices))}] = {value}"
        case Barrier():
            return "barrier"
        case Require(condition, message, values, fault):
            shown = f"{json.dumps(message)}({', '.join(map(str, values))})"
            return f"require {condition} {shown}{' fault' if fault else ''}"
        case Fits(sizes, kind, message, values):
            inner = f"({', '.join(map(str, sizes))})"
            return f"fits {kind} {inner} {json.dumps(message)}({', '.join(map(str, values))})"
        case Place(buffer, offset):
            return f"place {buffer} at {offset}"
        case Output(buffer, number):
            return f"output {buffer} as {number}"
        case Launch():
            return _launch_text(s)
    raise TypeError(f"No text form for {type(s).__name__}.")


def _launch_text(s: Launch) -> str:
    args = ", ".join(b.name for b in s.buffers)
    if s.scalars:
        args += f"; {', '.join(map(str, s.scalars))}"
    cost = f"tasks {s.tasks} work {s.work} workspace {s.workspace}"
    return f"launch @{s.kernel}({args}) {cost} {json.dumps(s.origin)}"
