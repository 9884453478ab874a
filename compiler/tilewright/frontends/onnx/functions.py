# SPDX-License-Identifier: Apache-2.0
"""Functions: operators that a model or the standard defines by a graph of other operators.

A call is imported by walking the body in a scope of its own, where the formal names stand for the
call's operands and attributes refer to the call's. So every operator of the standard that has a
function body needs no handler.
"""

from functools import lru_cache
from typing import Any

import onnx

from tilewright.frontends.names import printable, quoted
from tilewright.frontends.onnx.attributes import schema_of
from tilewright.frontends.onnx.context import NodeContext
from tilewright.frontends.onnx.expansion import FunctionKey
from tilewright.frontends.onnx.operand import Operand
from tilewright.frontends.onnx.scope import Scope
from tilewright.frontends.onnx.tensors import CODES
from tilewright.ir.errors import FrontendError
from tilewright.ir.expr import Const


def model_functions(model: onnx.ModelProto) -> dict[FunctionKey, onnx.FunctionProto]:
    """The functions that a model defines, by domain, name and overload."""
    found: dict[FunctionKey, onnx.FunctionProto] = {}
    for function in model.functions:
        domain = "" if function.domain == "ai.onnx" else function.domain
        key = (domain, function.name, function.overload)
        if key in found:
            raise FrontendError(
                f"The model defines the function {quoted(function.name)} twice. Export it again."
            )
        found[key] = function
    return found


def inline(
    context: NodeContext, function: onnx.FunctionProto, standard: bool = False
) -> list[Operand | None]:
    """Walk a function's body in place of the call; what its outputs then stand for. ``standard``
    where the body is the standard's definition of the operator.
    """
    key = (function.domain, function.name, function.overload)
    caller = context.scope
    if key in caller.calls:
        raise FrontendError(
            f"Function {quoted(function.name)} calls itself. Recursive functions are not allowed "
            "in ONNX."
        )
    if len(context.operands) > len(function.input):
        context.fail(
            f"The function takes {len(function.input)} inputs, not {len(context.operands)}."
        )
    scope = Scope(
        opsets={**caller.opsets, **_opsets(function)},
        bindings=_bindings(context, function),
        prefix=f"{printable(context.origin)}/",
        calls=(*caller.calls, key),
        nesting=caller.nesting + 1,
        defines=caller.defines or (context if standard else None),
    )
    missing: set[str] = set()
    for position, name in enumerate(function.input):
        operand = context.operands[position] if position < len(context.operands) else None
        if operand is None:
            missing.add(name)
        else:
            scope.define(name, operand)
    nodes = [_without(node, missing) for node in function.node] if missing else function.node
    wanted = [name for position, name in enumerate(function.output) if context.gives(position)]
    results = dict(zip(wanted, context.importer.walk(nodes, wanted, scope)))
    return [results.get(name) for name in function.output]


def _opsets(function: onnx.FunctionProto) -> dict[str, int]:
    return {("" if o.domain == "ai.onnx" else o.domain): o.version for o in function.opset_import}


def _bindings(context: NodeContext, function: onnx.FunctionProto) -> dict[str, onnx.AttributeProto]:
    bindings = _defaults(schema_of(function.domain, function.name, context.version))
    bindings.update({a.name: a for a in function.attribute_proto})
    bindings.update(context.attributes.bindings)
    return bindings


def _defaults(schema: Any) -> dict[str, onnx.AttributeProto]:
    """The attributes that a standard operator has where a node does not give them."""
    given = {} if schema is None else schema.attributes
    return {n: a.default_value for n, a in given.items() if a.default_value.type}


def _without(node: onnx.NodeProto, missing: set[str]) -> onnx.NodeProto:
    """The node with formal inputs that the call leaves out turned into missing ones."""
    if not missing.intersection(node.input):
        return node
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    for position, name in enumerate(node.input):
        if name in missing:
            copy.input[position] = ""
    while copy.input and not copy.input[-1]:
        copy.input.pop()
    return copy


# --- bodies that the standard gives ---------------------------------------------------------------


def has_standard_body(domain: str, name: str, version: int) -> bool:
    """True if the standard defines the operator by a function."""
    schema = schema_of(domain, name, version)
    return schema is not None and (schema.has_function or schema.has_context_dependent_function)


def inline_standard(context: NodeContext, domain: str) -> list[Operand | None]:
    """Walk the standard's body of a node, which is refused if it has none."""
    body = standard_body(context, domain)
    if body is None:
        context.unsupported("")
    return inline(context, body, standard=True)


def standard_body(context: NodeContext, domain: str) -> onnx.FunctionProto | None:
    """The standard's body for a node; None if it has none."""
    schema = schema_of(domain, context.node.op_type, context.version)
    if schema is None:
        return None
    data = b""
    if schema.has_function:
        data = _plain_body(schema, context.version)
    elif schema.has_context_dependent_function:
        data = _dependent_body(schema, context)
    if not data:
        return None
    body = onnx.FunctionProto()
    body.ParseFromString(data)
    return body


@lru_cache(maxsize=256)
def _best_version(schema: Any, dependent: bool, version: int) -> int | None:
    known = (
        schema.context_dependent_function_opset_versions
        if dependent
        else schema.function_opset_versions
    )
    fitting = [v for v in known if v <= version]
    return max(fitting) if fitting else None


def _plain_body(schema: Any, version: int) -> bytes:
    best = _best_version(schema, False, version)
    return b"" if best is None else bytes(schema.get_function_with_opset_version(best))


def _dependent_body(schema: Any, context: NodeContext) -> bytes:
    best = _best_version(schema, True, context.version)
    if best is None:
        return b""
    types = [_type_proto(o).SerializeToString() for o in context.operands]
    node = onnx.NodeProto()
    node.CopyFrom(context.node)
    del node.attribute[:]
    node.attribute.extend(context.attributes.bindings.values())
    return bytes(
        schema.get_context_dependent_function_with_opset_version(
            best, node.SerializeToString(), types
        )
    )


def _type_proto(operand: Operand | None) -> onnx.TypeProto:
    proto = onnx.TypeProto()
    if operand is not None:
        proto.tensor_type.elem_type = CODES[operand.dtype]
        shape = proto.tensor_type.shape
        for dim in operand.shape:
            entry = shape.dim.add()
            if isinstance(dim, Const):
                entry.dim_value = int(dim.literal)
            else:
                entry.dim_param = str(dim)
    return proto
