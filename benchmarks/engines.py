# SPDX-License-Identifier: Apache-2.0
"""The engines that benchmarks run: Tilewright and its rivals, behind one small protocol.

Each is imported only when it is asked for, so that a rival which is not installed costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from numpy.typing import NDArray

Array = NDArray[Any]
Arrays = Mapping[str, Array]


class EngineError(RuntimeError):
    """An engine is unknown or not installed."""


class Engine(Protocol):
    """A model made ready to run."""

    @property
    def outputs(self) -> Sequence[str]:
        """The names of the model's outputs, in order."""
        ...

    @property
    def kernels(self) -> int | None:
        """How many kernels one run launches, where the engine tells."""
        ...

    def run(self, inputs: Arrays) -> Arrays:
        """Run once: output arrays by name."""
        ...


class Tilewright:
    """A model compiled once, without fixing its dynamic dims, for this machine."""

    def __init__(self, path: Path, threads: int) -> None:
        import tilewright

        self.model = tilewright.compile(str(path), target="native", threads=threads)

    @property
    def outputs(self) -> Sequence[str]:
        return [value.name for value in self.model.outputs]

    @property
    def kernels(self) -> int | None:
        from tilewright.kernel_report import split_launches

        manifest = getattr(self.model, "manifest", {})
        return len(split_launches(manifest)[0]) if "kernels" in manifest else None

    def run(self, inputs: Arrays) -> Arrays:
        results: Arrays = self.model.run(inputs)
        return results


class OnnxRuntime:
    """ONNX Runtime on the CPU with all its graph optimisations."""

    def __init__(self, path: Path, threads: int) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        self.session = onnxruntime.InferenceSession(
            str(path), options, providers=["CPUExecutionProvider"]
        )
        self.outputs: Sequence[str] = [value.name for value in self.session.get_outputs()]
        self.kernels: int | None = None

    def run(self, inputs: Arrays) -> Arrays:
        return dict(zip(self.outputs, self.session.run(None, inputs)))


class OpenVino:
    """OpenVINO on the CPU, tuned for latency, in float32."""

    def __init__(self, path: Path, threads: int) -> None:
        import openvino

        options = {
            "INFERENCE_NUM_THREADS": threads,
            "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_PRECISION_HINT": "f32",
        }
        core = openvino.Core()
        compiled = core.compile_model(core.read_model(str(path)), "CPU", options)
        self.request = compiled.create_infer_request()
        self.outputs: Sequence[str] = [value.get_any_name() for value in compiled.outputs]
        self.kernels: int | None = None

    def run(self, inputs: Arrays) -> Arrays:
        results = self.request.infer(dict(inputs), share_inputs=True)
        return dict(zip(self.outputs, results.values()))


ENGINES: Mapping[str, Callable[[Path, int], Engine]] = {
    "tilewright": Tilewright,
    "onnxruntime": OnnxRuntime,
    "openvino": OpenVino,
}


def load_engine(name: str, path: Path, threads: int) -> Engine:
    """The model at `path` in the engine called `name`; EngineError if there is no such engine."""
    if name not in ENGINES:
        raise EngineError(f"There is no engine '{name}'; choose one of {', '.join(ENGINES)}.")
    try:
        return ENGINES[name](path, threads)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        raise EngineError(f"Engine '{name}' is not installed; pip install it.") from None
