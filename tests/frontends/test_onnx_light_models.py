# SPDX-License-Identifier: Apache-2.0
"""The nine networks inside the onnx package: real structure, old operator sets, dummy weights."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from tests.frontends.onnx_running import expected, imported, load
from tilewright.frontends.onnx import import_model

FOLDER = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
# Nodes of the module without constants, and the type of the output.
MODELS: dict[str, tuple[int, str]] = {
    "light_bvlc_alexnet": (50, "f32[1,1000]"),
    "light_densenet121": (789, "f32[1,1000,1,1]"),
    "light_inception_v1": (215, "f32[1,1000]"),
    "light_inception_v2": (442, "f32[1,1000]"),
    "light_resnet50": (231, "f32[1,1000]"),
    "light_shufflenet": (239, "f32[1,1000]"),
    "light_squeezenet": (83, "f32[1,1000,1,1]"),
    "light_vgg19": (68, "f32[1,1000]"),
    "light_zfnet512": (50, "f32[1,1000]"),
}


def constants(nodes: Any) -> int:
    return sum(n.op.name == "constant" for n in nodes)


@pytest.mark.parametrize("name", sorted(MODELS))
def test_import(name: str) -> None:
    nodes, result = MODELS[name]
    module = import_model(FOLDER / f"{name}.onnx")
    graph = module.graph
    assert (len(graph.nodes) - constants(graph.nodes), str(graph.outputs[0].type)) == (
        nodes,
        result,
    )
    assert all(n.origin for n in graph.nodes)
    assert not module.symbols


def test_the_batch_can_be_symbolic() -> None:
    module = import_model(FOLDER / "light_squeezenet.onnx", {"data_0": ("n", 3, 224, 224)})
    assert str(module.graph.outputs[0].type) == "f32[n,1000,1,1]"


def test_values() -> None:
    model = load(FOLDER / "light_squeezenet.onnx")
    x = np.random.default_rng(0).standard_normal((1, 3, 224, 224)).astype(np.float32)
    (theirs,) = expected(model, {"data_0": x})
    (ours,) = imported(model, {"data_0": x}).values()
    np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-6)
