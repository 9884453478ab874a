# SPDX-License-Identifier: Apache-2.0
"""Why the contents of a value are not known at import, told from what it is computed of.

Only a value that depends on what an input holds is computed at run time. One that depends on dims
alone is known once these have sizes, and one of constants alone is known but large.
"""

from tilewright.frontends.names import quoted
from tilewright.frontends.onnx.limits import Limits
from tilewright.frontends.onnx.operand import Operand
from tilewright.frontends.sizes import dims_text, symbols_in
from tilewright.ir.graph import Node, Value

COMPUTED = "computed at run time"
_MOST_NAMED = 3


def why_unknown(operand: Operand, limits: Limits) -> tuple[str, tuple[str, ...]]:
    """A clause that goes after ``its axes are``, and the symbolic dims whose sizes would make the
    contents known.
    """
    dims: tuple[str, ...] = symbols_in(operand.expressions())
    if operand.value is not None:
        read, symbols = sources(operand.value)
        if read:
            names = [quoted(v.name) for v in read[:_MOST_NAMED]]
            more = " and others" if len(read) > _MOST_NAMED else ""
            plural = "s" if len(read) > 1 else ""
            return f"{COMPUTED} from the input{plural} {', '.join(names)}{more}", ()
        dims = tuple(sorted({*dims, *symbols}))
    if dims:
        return f"computed from {dims_text(dims)} in a way that is not followed", dims
    if operand.array is not None and operand.array.dtype.kind == "c":
        return "complex numbers", ()
    if operand.array is not None or operand.contents is not None:
        return f"a constant of more than {limits.contents} elements, the most that are followed", ()
    return (
        f"computed from constants by way of more than {limits.folded} elements, the most that are "
        "computed at import",
        (),
    )


def sources(value: Value) -> tuple[list[Value], tuple[str, ...]]:
    """The inputs whose elements a value depends on, and the names of the symbols in the types and
    attributes on the way.
    """
    read: dict[Value, None] = {}
    seen: set[Node] = set()
    items: list[object] = []
    stack = [value]
    while stack:
        current = stack.pop()
        items += current.type.shape
        node = current.producer
        if node is None:
            read[current] = None
        elif node not in seen:
            seen.add(node)
            for attribute in node.op.attributes().values():
                items += attribute if isinstance(attribute, tuple) else (attribute,)
            stack.extend(node.operands)
    return list(read), symbols_in(items)
