# SPDX-License-Identifier: Apache-2.0
"""Write the trained digit network as an ONNX model.

The graph is built by walking the network's layers: `image` float[batch, 1, 8, 8] goes in, `logits`
float[batch, 10] come out. Nodes and weights are named by their place in the network.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from benchmarks.digits_network import (
    EPSILON,
    BatchNorm,
    Chain,
    Convolution,
    Dense,
    Layer,
    MaxPool,
    Relu,
    Residual,
)

OPSET = 18
IR_VERSION = 8


class _Writer:
    """Collects nodes and initialisers while layers are visited in order."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def weight(self, name: str, value: NDArray[np.float32]) -> str:
        array = np.ascontiguousarray(value, np.float32)
        self.weights.append(numpy_helper.from_array(array, name))
        return name

    def node(self, op: str, inputs: list[str], name: str, output: str = "", **attrs: Any) -> str:
        output = output or f"{name}.out"
        self.nodes.append(helper.make_node(op, inputs, [output], name=name, **attrs))
        return output

    def layer(self, layer: Layer, x: str, name: str) -> str:
        """Add the nodes of one layer; returns the name of their result."""
        if isinstance(layer, Chain):
            result = x
            for index, inner in enumerate(layer.layers):
                result = self.layer(inner, result, f"{name}{index}.")
            is_residual = isinstance(layer, Residual)
            return self.node("Add", [x, result], f"{name}add") if is_residual else result
        if isinstance(layer, Convolution):
            weight = self.weight(f"{name}weight", layer.weight.value.transpose(3, 2, 0, 1))
            return self.node("Conv", [x, weight], f"{name}conv", pads=[1] * 4, kernel_shape=[3, 3])
        if isinstance(layer, BatchNorm):
            arrays = {"scale": layer.scale.value, "shift": layer.shift.value}
            arrays |= {"mean": layer.mean, "variance": layer.variance}
            weights = [self.weight(f"{name}{key}", value) for key, value in arrays.items()]
            return self.node("BatchNormalization", [x, *weights], f"{name}norm", epsilon=EPSILON)
        if isinstance(layer, Relu):
            return self.node("Relu", [x], f"{name}relu")
        if isinstance(layer, MaxPool):
            return self.node("MaxPool", [x], f"{name}pool", kernel_shape=[2, 2], strides=[2, 2])
        if isinstance(layer, Dense):
            pooled = self.node("GlobalAveragePool", [x], f"{name}mean")
            flat = self.node("Flatten", [pooled], f"{name}flatten")
            weight = self.weight(f"{name}weight", layer.weight.value)
            bias = self.weight(f"{name}bias", layer.bias.value)
            return self.node("Gemm", [flat, weight, bias], f"{name}linear", output="logits")
        raise TypeError(f"Layer '{type(layer).__name__}' has no ONNX form here.")


def as_onnx(network: Chain) -> onnx.ModelProto:
    """The network as a checked ONNX model that ends in its linear layer."""
    writer = _Writer()
    writer.layer(network, "image", "layer")
    image = helper.make_tensor_value_info("image", TensorProto.FLOAT, ["batch", 1, 8, 8])
    logits = helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", 10])
    graph = helper.make_graph(writer.nodes, "digits", [image], [logits], writer.weights)
    model = helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
        producer_name="tilewright",
        doc_string="Handwritten digits of 8 x 8 pixels in [0, 1], trained on scikit-learn's set.",
    )
    onnx.checker.check_model(model, full_check=True)
    return model
