# SPDX-License-Identifier: Apache-2.0
"""A random graph: what is needed to write it as an ONNX model, to evaluate it, and to make it
smaller.

A dim is an integer, or a name: one of the model's symbols, or that of a size that follows from
them. A value is *exact* if every right implementation gives the same bits (integers, movements of
inputs, sums of small integers in floats): only these go into operators that are not continuous.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from onnx import helper, numpy_helper

Dim = int | str
BF16 = np.dtype(ml_dtypes.bfloat16)
FLOATS = tuple(np.dtype(t) for t in ("float32", "float16", "float64")) + (BF16,)
INTS = tuple(np.dtype(t) for t in ("int64", "int32", "int16", "int8", "uint8", "uint32"))
BOOL = np.dtype("bool")
OPSET, IR_VERSION = 22, 10


def is_float(dtype: np.dtype) -> bool:
    return dtype in FLOATS


@dataclass(frozen=True)
class Tensor:
    """A value of the graph. ``bound`` is given where all elements are integers of no greater
    magnitude, in a float type too.
    """

    name: str
    dtype: np.dtype
    dims: tuple[Dim, ...]
    exact: bool
    bound: int | None = None

    @property
    def rank(self) -> int:
        return len(self.dims)

    @property
    def static(self) -> bool:
        return all(isinstance(d, int) for d in self.dims)


@dataclass(frozen=True)
class Node:
    """An application of an operator; ``""`` stands for an operand that is left out."""

    op: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"{self.outputs[0]}_{self.op}"


@dataclass(frozen=True)
class Spec:
    """The graph. ``feeds`` has the inputs for each of several sizes of the symbols."""

    seed: int
    tensors: Mapping[str, Tensor]
    nodes: tuple[Node, ...]
    inputs: tuple[str, ...]
    constants: Mapping[str, np.ndarray]
    outputs: tuple[str, ...]
    feeds: tuple[Mapping[str, np.ndarray], ...]

    def to_onnx(self) -> onnx.ModelProto:
        """The model, checked by the ``onnx`` package."""

        def port(name: str) -> onnx.ValueInfoProto:
            tensor = self.tensors[name]
            kind = helper.np_dtype_to_tensor_dtype(tensor.dtype)
            dims = [d if isinstance(d, int) or name in self.inputs else None for d in tensor.dims]
            return helper.make_tensor_value_info(name, kind, dims)

        nodes = [
            helper.make_node(n.op, n.inputs, n.outputs, n.name, **n.attributes) for n in self.nodes
        ]
        graph = helper.make_graph(
            nodes,
            f"random{self.seed}",
            [port(name) for name in self.inputs],
            [port(name) for name in self.outputs],
            [numpy_helper.from_array(array, name) for name, array in self.constants.items()],
        )
        opsets = [helper.make_opsetid("", OPSET)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION)
        onnx.checker.check_model(model)
        return model

    def with_outputs(self, outputs: tuple[str, ...]) -> "Spec":
        """The part of the graph that these values need."""
        needed = set(outputs)
        kept: list[Node] = []
        for node in reversed(self.nodes):
            if needed & set(node.outputs):
                kept.append(node)
                needed |= set(node.inputs)
        inputs = tuple(n for n in self.inputs if n in needed)
        return replace(
            self,
            outputs=outputs,
            nodes=tuple(reversed(kept)),
            inputs=inputs,
            constants={n: a for n, a in self.constants.items() if n in needed},
            feeds=tuple({n: a for n, a in feed.items() if n in inputs} for feed in self.feeds),
        )

    def with_input(self, name: str, arrays: tuple[np.ndarray, ...]) -> "Spec":
        """The graph in which a value is an input instead of being computed."""
        return replace(
            self,
            tensors={**self.tensors, name: replace(self.tensors[name], exact=True)},
            nodes=tuple(n for n in self.nodes if name not in n.outputs),
            inputs=(*self.inputs, name),
            feeds=tuple({**feed, name: a} for feed, a in zip(self.feeds, arrays, strict=True)),
        )
