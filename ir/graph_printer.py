# SPDX-License-Identifier: Apache-2.0
"""Text of the graph IR; :mod:`tilewright.ir.graph_parser` reads it back to an equal module.

The syntax is shown in :mod:`tilewright.ir.graph`. Names of values are hints: any text is made a
legal name, and a second value of that name gets a number. Values without a name are numbered. The
model's own name of an input or output follows in quotes where it is no legal name. Attributes print
by their Python type::

    3  1e-05  -inf  true  none  "text"  f32  {0,2,3,1}  2*n + 1  #3fa9...  (1, 2)  (3,)  ()

A node with sub-graphs has them in braces after its origin.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

from tilewright.ir.dtypes import INDEX, DType
from tilewright.ir.expr import Expr
from tilewright.ir.graph import ConstantRef, Graph, Module, Node, Value
from tilewright.ir.layout import Layout
from tilewright.ir.lexer import is_name
from tilewright.ir.loop_printer import symbol_text
from tilewright.ir.types import TensorType, tensor


def module_text(module: Module) -> str:
    """A whole module: symbols, metadata, defaults of inputs, the main graph."""
    lines = ["module {"]
    lines += [f"  symbol {symbol_text(s)}" for s in module.symbols.values()]
    lines += [
        f"  metadata {json.dumps(key)} = {json.dumps(value)}"
        for key, value in module.metadata.items()
    ]
    lines += [
        f"  default {json.dumps(name)} = {tensor(ref.dtype, ref.shape)} {ref}"
        for name, ref in module.defaults.items()
    ]
    lines += _graph_lines(module.graph, 1, module.input_names, module.output_names)
    return "\n".join([*lines, "}"])


def graph_text(graph: Graph) -> str:
    """One graph; its symbols are not declared."""
    return "\n".join(_graph_lines(graph, 0, [], []))


def node_text(node: Node, names: Mapping[Value, str]) -> str:
    """The line of a node, without its sub-graphs; values that ``names`` lacks print as ``%?``."""
    results = ", ".join(f"{names.get(v, '%?')}: {v.type}" for v in node.results)
    operands = ", ".join(names.get(v, "%?") for v in node.operands)
    line = f"{results} = " if results else ""
    line += f"{node.op.name}({operands})"
    result = node.results[0].type if node.results else None
    attributes = ", ".join(
        f"{key}={attribute_text(value, result)}" for key, value in node.op.attributes().items()
    )
    if attributes:
        line += f" {{{attributes}}}"
    return f"{line} {json.dumps(node.origin)}" if node.origin else line


def value_names(graph: Graph) -> dict[Value, str]:
    """The printed name of every value of a graph, sub-graphs not included: unique and legal."""
    names: dict[Value, str] = {}
    taken: set[str] = set()
    for position, value in enumerate(graph.inputs):
        names[value] = _unused(_legal(value.name) or f"input{position}", taken)
    unnamed = 0
    for node in graph.nodes:
        for value in node.results:
            hint = _legal(value.name)
            if not hint:
                hint, unnamed = str(unnamed), unnamed + 1
            names[value] = "%" + _unused(hint, taken)
    return names


def _legal(hint: str) -> str:
    """A hint as an identifier; empty if nothing of it is left."""
    name = re.sub(r"[^A-Za-z0-9_]+", "_", hint)
    return f"_{name}" if name[:1].isdigit() else name


def _unused(hint: str, taken: set[str]) -> str:
    name, number = hint, 0
    while name in taken:
        number += 1
        name = f"{hint}_{number}"
    taken.add(name)
    return name


def attribute_text(value: Any, result: TensorType | None = None) -> str:
    """An attribute; a constant's handle tells its type unless that is the one of ``result``."""
    match value:
        case None:
            return "none"
        case bool():
            return "true" if value else "false"
        case int() | float():
            return repr(value)
        case str():
            return json.dumps(value)
        case DType() | Layout():
            return str(value)
        case Expr() if value.dtype is INDEX:
            return str(value)
        case ConstantRef(_, dtype, shape):
            dims = tuple(map(str, shape))
            if (
                result is not None
                and result.dtype is dtype
                and dims == tuple(map(str, result.shape))
            ):
                return str(value)
            return f"{value}:{dtype}[{','.join(dims)}]"
        case tuple():
            inner = ", ".join(attribute_text(v, result) for v in value)
            return f"({inner},)" if len(value) == 1 else f"({inner})"
    raise TypeError(f"Attribute {value!r} of type {type(value).__name__} has no text form.")


def _graph_lines(
    graph: Graph, depth: int, input_names: list[str], output_names: list[str]
) -> list[str]:
    indent = "  " * depth
    names = value_names(graph)
    inputs = []
    for position, value in enumerate(graph.inputs):
        own = input_names[position] if position < len(input_names) else names[value]
        quoted = f" {json.dumps(own)}" if own != names[value] else ""
        inputs.append(f"{names[value]}{quoted}: {value.type}")
    outputs = ", ".join(n if is_name(n) else json.dumps(n) for n in output_names)
    arrow = f" -> ({outputs})" if output_names else ""
    lines = [f"{indent}graph @{graph.name}({', '.join(inputs)}){arrow} {{"]
    for node in graph.nodes:
        lines.append(f"{indent}  {node_text(node, names)}")
        if node.regions:
            lines[-1] += " {"
            for region in node.regions:
                lines += _graph_lines(region, depth + 2, [], [])
            lines.append(f"{indent}  }}")
    returned = ", ".join(names.get(v, "%?") for v in graph.outputs)
    return [*lines, f"{indent}  return{' ' if returned else ''}{returned}", f"{indent}}}"]
