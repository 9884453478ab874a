# SPDX-License-Identifier: Apache-2.0
"""Models in the call form of ONNX Runtime, so that programs written for it change one import.

session = tilewright.InferenceSession("model.onnx")
names = [value.name for value in session.get_inputs()]
results = session.run(None, {names[0]: array})
"""

import difflib
import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from tilewright.model import CompiledModel, load
from tilewright.requirements import packages_for
from tilewright.runtime.arrays import Array
from tilewright.runtime.artifact import MAGIC
from tilewright.runtime.context import Port
from tilewright.runtime.errors import ArgumentError, InputError

_logger = logging.getLogger("tilewright")

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


# Attributes whose value would make a difference that there is not here.
_WITHOUT_EFFECT = ("enable_profiling", "optimized_model_filepath")


@dataclass
class SessionOptions:
    """ONNX Runtime's options; an object of its own class is accepted too.

    ``intra_op_num_threads`` bounds the threads of a run; 0 is for what the machine grants. The
    other attributes are known, so that programs run as they are, and change nothing: a model is
    always compiled as a whole, and runs one kernel after the other. Setting an attribute that ONNX
    Runtime does not have either is an ArgumentError.
    """

    intra_op_num_threads: int = 0
    inter_op_num_threads: int = 0
    graph_optimization_level: Any = 99
    execution_mode: Any = 0
    execution_order: Any = 0
    enable_profiling: bool = False
    profile_file_prefix: str = "onnxruntime_profile_"
    optimized_model_filepath: str = ""
    enable_cpu_mem_arena: bool = True
    enable_mem_pattern: bool = True
    enable_mem_reuse: bool = True
    use_deterministic_compute: bool = False
    use_per_session_threads: bool = True
    log_severity_level: int = -1
    log_verbosity_level: int = 0
    logid: str = ""

    def __setattr__(self, name: str, value: Any) -> None:
        known = [f.name for f in fields(self)]
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            hint = f"Did you mean '{near[0]}'?" if near else f"There are {', '.join(known)}."
            raise ArgumentError(f"Session options have no attribute '{name}'. {hint}")
        super().__setattr__(name, value)

    def add_session_config_entry(self, key: str, value: str) -> None:
        """Accepted, and changes nothing: the entries are about ONNX Runtime's own parts."""


def _threads(options: Any) -> int | None:
    """The bound on threads that session options ask for."""
    if options is None:
        return None
    if not hasattr(options, "intra_op_num_threads"):
        raise ArgumentError(
            f"The session options are of type '{type(options).__name__}', but must be "
            "SessionOptions."
        )
    for name in _WITHOUT_EFFECT:
        if getattr(options, name, None):
            _logger.warning("Session option '%s' has no effect in Tilewright.", name)
    threads = options.intra_op_num_threads
    return None if threads == 0 else threads


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
    with packages_for("tilewright.InferenceSession of a model that is not compiled"):
        from tilewright.api import compile  # late: saved models run without these packages

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
        self.model = _open(model, _threads(sess_options))
        self._names = [port.name for port in self.model.outputs]

    def get_inputs(self) -> list[NodeArg]:
        """The inputs that a run needs, in the model's order."""
        return [_node_arg(port) for port in self.model.inputs if not port.optional]

    def get_overridable_initializers(self) -> list[NodeArg]:
        """The inputs with a default, which a run may give."""
        return [_node_arg(port) for port in self.model.inputs if port.optional]

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
        """Runs the model; the outputs asked for as a list, all of them for None or no names.

        InputError for names that are no list of outputs, and as :meth:`CompiledModel.run`.
        """
        if isinstance(output_names, str):
            raise InputError(
                f"The outputs are given as a list of names, such as ['{output_names}'], not as a "
                "text."
            )
        names = list(() if output_names is None else output_names) or self._names
        unknown = [name for name in names if name not in self._names]
        if unknown:
            known = ", ".join(f"'{name}'" for name in self._names)
            raise InputError(f"'{unknown[0]}' is no output: the model's outputs are {known}.")
        results = self.model.run(input_feed)
        return [results[name] for name in names]
