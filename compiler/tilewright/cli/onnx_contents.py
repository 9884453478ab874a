# SPDX-License-Identifier: Apache-2.0
"""What an ONNX file holds, counted as it stands there: operators, and the tensors of weights.

Sub-graphs and functions count like the main graph, each once. Weights are wherever a file may have
them: in initialisers, in attributes of Constant nodes, sparse or dense, here or in another file.
"""

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import onnx

from tilewright.frontends.onnx.order import sub_graphs


@dataclass
class Weights:
    """``elements`` of all tensors, zeros of sparse ones included; how many ``tensors`` there are of
    each kind, each tensor under one of them.
    """

    elements: int = 0
    tensors: dict[str, int] = field(
        default_factory=lambda: dict.fromkeys(
            ("initializers", "sparse initializers", "Constant nodes", "in other files"), 0
        )
    )

    def add(self, kind: str, tensor: onnx.TensorProto) -> None:
        """Count a dense tensor."""
        other = tensor.data_location == onnx.TensorProto.EXTERNAL
        self._add("in other files" if other else kind, math.prod(tensor.dims))

    def add_sparse(self, kind: str, tensor: onnx.SparseTensorProto) -> None:
        """Count a sparse tensor by its dense dims."""
        self._add(kind, math.prod(tensor.dims))

    def add_list(self, count: int) -> None:
        """Count a list of numbers, or one number, of a Constant node."""
        self._add("Constant nodes", count)

    def _add(self, kind: str, elements: int) -> None:
        self.tensors[kind] += 1
        self.elements += elements


def operator_counts(model: onnx.ModelProto) -> dict[str, int]:
    """The nodes of each operator, the most frequent first."""
    found: Counter[str] = Counter()
    for node in _nodes(model):
        domain = "" if node.domain in ("", "ai.onnx") else f"{node.domain}."
        found[domain + node.op_type] += 1
    return dict(found.most_common())


def weights_of(model: onnx.ModelProto) -> Weights:
    """The tensors that a file holds as data."""
    found = Weights()
    for graph in _graphs(model):
        for tensor in graph.initializer:
            found.add("initializers", tensor)
        for sparse in graph.sparse_initializer:
            found.add_sparse("sparse initializers", sparse)
    for node in _nodes(model):
        if node.op_type == "Constant" and node.domain in ("", "ai.onnx"):
            for attribute in node.attribute:
                _add_constant(found, attribute)
    return found


def _add_constant(found: Weights, attribute: onnx.AttributeProto) -> None:
    kinds = onnx.AttributeProto
    match attribute.type:
        case kinds.TENSOR:
            found.add("Constant nodes", attribute.t)
        case kinds.SPARSE_TENSOR:
            found.add_sparse("Constant nodes", attribute.sparse_tensor)
        case kinds.FLOATS:
            found.add_list(len(attribute.floats))
        case kinds.INTS:
            found.add_list(len(attribute.ints))
        case kinds.FLOAT | kinds.INT:
            found.add_list(1)


def _graphs(model: onnx.ModelProto) -> Iterator[onnx.GraphProto]:
    """The main graph and all sub-graphs, those in functions included."""
    yield model.graph
    for node in _nodes(model):
        yield from sub_graphs(node)


def _nodes(model: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    """The nodes of the graph, of the functions, and of all sub-graphs."""
    waiting = [model.graph.node, *(f.node for f in model.functions)]
    while waiting:
        for node in waiting.pop():
            yield node
            waiting += [graph.node for graph in sub_graphs(node)]
