# SPDX-License-Identifier: Apache-2.0
"""Models in the call form of ONNX Runtime, so that programs written for it change one import.

session = tilewright.InferenceSession("model.onnx")
names = [value.name for value in session.get_inputs()]
results = session.run(None, {names[0]: array})
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.model import CompiledModel, load
from tilewright.runtime.arrays import Array
from tilewright.runtime.artifact import MAGIC
from tilewright.runtime.context import Port
from tilewright.runtime.errors import ArgumentError, InputError

# ONNX's words for element types where they differ from numpy's.
_TYPE_WORDS = {
    "float32": "float",
    "float64": "double",
    "float8_e4m3fn": "float8e4m3fn",
    "float8_e4m3fnuz": "float8e4m3fnuz",
    "float8_e5m2": "float8e5m2",
    "float8_e5m2fnuz": "float8e5m2fnuz",
    "float8_e8m0fnu": "float8e8m0",
    "float4_e2m1fn": "float4e2m1",
}
_PROVIDER = "CPUExecutionProvider"


@dataclass
class SessionOptions:
    """The options that mean something here; an object of ONNX Runtime's class is accepted too."""

    intra_op_num_threads: int = 0
    inter_op_num_threads: int = 0


@dataclass(frozen=True)
class NodeArg:
    """An input or output: ``shape`` lists integers, and texts for symbolic dims; ``type`` is a word
    such as ``tensor(float)``.
    """

    name: str
    shape: list[int | str]
    type: str


def _node_arg(port: Port) -> NodeArg:
    word = _TYPE_WORDS.get(port.dtype, port.dtype)
    return NodeArg(port.name, list(port.shape), f"tensor({word})")


def _open(source: Any, threads: int | None) -> CompiledModel:
    """Loads an artifact, compiles anything else."""
    is_path = isinstance(source, str | os.PathLike)
    artifact = (
        os.fspath(source).endswith(".tw")
        if is_path
        else isinstance(source, bytes) and source.startswith(MAGIC)
    )
    if artifact:
        return load(source, threads)
    from tilewright.api import compile  # late: saved models run without the compiler's packages

    return compile(source, threads=threads)


class InferenceSession:
    """A model compiled for this machine, or a saved one, called as ONNX Runtime's sessions are.

    ``model`` is a path, bytes, or an ``onnx.ModelProto``; a path that ends in ``.tw`` is a compiled
    model. Of ``providers`` only ``CPUExecutionProvider`` is there.
    """

    def __init__(
        self,
        model: Any,
        sess_options: Any = None,
        providers: Sequence[Any] | None = None,
        provider_options: Sequence[Mapping[str, Any]] | None = None,
    ) -> None:
        names = [p if isinstance(p, str) else p[0] for p in providers or [_PROVIDER]]
        if _PROVIDER not in names:
            raise ArgumentError(
                f"The providers are {names}, but the only one here is '{_PROVIDER}'."
            )
        threads = int(getattr(sess_options, "intra_op_num_threads", 0) or 0)
        self.model = _open(model, threads or None)
        self._names = [port.name for port in self.model.outputs]

    def get_inputs(self) -> list[NodeArg]:
        """The inputs, in the model's order."""
        return [_node_arg(port) for port in self.model.inputs]

    def get_outputs(self) -> list[NodeArg]:
        """The outputs, in the model's order."""
        return [_node_arg(port) for port in self.model.outputs]

    def get_providers(self) -> list[str]:
        """What runs the model."""
        return [_PROVIDER]

    def run(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        run_options: Any = None,
    ) -> list[Array]:
        """Runs the model; the outputs asked for as a list, all of them for None.

        InputError for a name that is no output, and as :meth:`CompiledModel.run`.
        """
        names = self._names if output_names is None else list(output_names)
        unknown = [name for name in names if name not in self._names]
        if unknown:
            known = ", ".join(f"'{name}'" for name in self._names)
            raise InputError(f"'{unknown[0]}' is no output: the model's outputs are {known}.")
        results = self.model.run(input_feed)
        return [results[name] for name in names]
