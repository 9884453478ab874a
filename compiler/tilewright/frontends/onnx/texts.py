# SPDX-License-Identifier: Apache-2.0
"""The texts of a model must be UTF-8.

Protobuf hands a text field that is not as bytes instead of refusing it; one look over all names,
before anything uses them, keeps that case out of the rest of the importer.
"""

from collections.abc import Iterator

import onnx

from tilewright.frontends.names import quoted
from tilewright.frontends.onnx.order import sub_graphs
from tilewright.ir.errors import FrontendError


def check_texts(model: onnx.ModelProto, shown: str) -> None:
    """FrontendError if a name, operator, domain or dim of the model is not valid text."""
    for text in _texts(model):
        if not isinstance(text, str):
            raise FrontendError(
                f"{shown} holds the text {quoted(repr(text))}, which is not UTF-8. Fetch or "
                "export it again."
            )


def _texts(model: onnx.ModelProto) -> Iterator[str | bytes]:
    for opset in model.opset_import:
        yield opset.domain
    for entry in model.metadata_props:
        yield entry.key
        yield entry.value
    yield from _graph_texts(model.graph)
    for function in model.functions:
        yield from (function.domain, function.name, function.overload)
        yield from function.input
        yield from function.output
        yield from function.attribute
        for opset in function.opset_import:
            yield opset.domain
        for attribute in function.attribute_proto:
            yield attribute.name
        for node in function.node:
            yield from _node_texts(node)
            for graph in sub_graphs(node):
                yield from _graph_texts(graph)


def _graph_texts(root: onnx.GraphProto) -> Iterator[str | bytes]:
    stack = [root]
    while stack:
        graph = stack.pop()
        for info in (*graph.input, *graph.output):
            yield info.name
            for dim in info.type.tensor_type.shape.dim:
                yield dim.dim_param
        for tensor in graph.initializer:
            yield from _tensor_texts(tensor)
        for sparse in graph.sparse_initializer:
            yield from _tensor_texts(sparse.values)
            yield from _tensor_texts(sparse.indices)
        for node in graph.node:
            yield from _node_texts(node)
            stack.extend(sub_graphs(node))


def _node_texts(node: onnx.NodeProto) -> Iterator[str | bytes]:
    yield from (node.name, node.op_type, node.domain, node.overload)
    yield from node.input
    yield from node.output
    for attribute in node.attribute:
        yield attribute.name
        yield attribute.ref_attr_name
        yield from _tensor_texts(attribute.t)
        yield from _tensor_texts(attribute.sparse_tensor.values)
        yield from _tensor_texts(attribute.sparse_tensor.indices)


def _tensor_texts(tensor: onnx.TensorProto) -> Iterator[str | bytes]:
    yield tensor.name
    for entry in tensor.external_data:
        yield entry.key
        yield entry.value
