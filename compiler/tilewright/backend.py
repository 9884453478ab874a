# SPDX-License-Identifier: Apache-2.0
"""The interface of ``onnx.backend``: ``prepare``, ``run_model``, ``run_node``, ``supports_device``.

    import tilewright.backend as backend

    outputs = backend.prepare(model).run([x, y])

A model with operators that are not supported raises ``BackendIsNotSupposedToImplementIt``, which
ONNX's own test runner takes for a skipped case.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tilewright.model import CompiledModel
from tilewright.requirements import packages_for
from tilewright.runtime.arrays import Array
from tilewright.runtime.errors import InputError

with packages_for("tilewright.backend"):
    import onnx
    from onnx import helper
    from onnx.backend.base import Backend, BackendRep, namedtupledict
    from onnx.backend.test.runner import BackendIsNotSupposedToImplementIt

    from tilewright.api import compile
    from tilewright.driver import CompileOptions
    from tilewright.frontends import import_model
    from tilewright.frontends.onnx.registry import NEWEST_OPSET, OLDEST_OPSET
    from tilewright.ir.errors import FrontendError, UnsupportedOperatorError


class PreparedModel(BackendRep):
    """A compiled model; ``run`` takes a list of arrays, a mapping, or one array."""

    def __init__(self, model: CompiledModel) -> None:
        self.model = model
        self._results = namedtupledict("Outputs", [port.name for port in model.outputs])

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Array, ...]:
        """The outputs as a tuple whose items also go by name."""
        if isinstance(inputs, Mapping):
            feeds = dict(inputs)
        else:
            arrays = [inputs] if isinstance(inputs, np.ndarray) else list(inputs)
            names = [port.name for port in self.model.inputs]
            needed = sum(not port.optional for port in self.model.inputs)
            if not needed <= len(arrays) <= len(names):
                raise InputError(
                    f"There are {len(arrays)} arrays, but the model has {len(names)} inputs."
                )
            feeds = dict(zip(names, arrays))
        results: tuple[Array, ...] = self._results(*self.model.run(feeds).values())
        return results


class TilewrightBackend(Backend):
    """Tilewright as ONNX's tests and tools call backends."""

    @classmethod
    def is_opset_supported(cls, model: onnx.ModelProto) -> tuple[bool, str]:
        """Whether the standard operator set that the model imports is known here."""
        for entry in model.opset_import:
            standard = entry.domain in ("", "ai.onnx")
            if standard and not OLDEST_OPSET <= entry.version <= NEWEST_OPSET:
                return False, (
                    f"Operator set {entry.version} is not supported: "
                    f"{OLDEST_OPSET} to {NEWEST_OPSET} are."
                )
        return True, ""

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """True for ``CPU`` alone, with or without a number."""
        return device.split(":")[0] == "CPU"

    @classmethod
    def is_compatible(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> bool:
        """Whether the model can be prepared, by trying to import it."""
        if not cls.supports_device(device):
            return False
        try:
            import_model(model)
        except FrontendError:
            return False
        return True

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> PreparedModel:
        """Compiles a model for this machine.

        Keyword ``options`` may be CompileOptions. FrontendError for a model that is not valid.
        """
        if not cls.supports_device(device):
            raise BackendIsNotSupposedToImplementIt(
                f"Device '{device}' is not supported: use 'CPU'."
            )
        if not isinstance(model, onnx.ModelProto):
            raise FrontendError(
                "A backend is given a model as an onnx.ModelProto, not as something of type "
                f"'{type(model).__name__}'. Read a file with onnx.load."
            )
        supported, reason = cls.is_opset_supported(model)
        if not supported:
            raise BackendIsNotSupposedToImplementIt(reason)
        options = kwargs.get("options")
        if options is not None and not isinstance(options, CompileOptions):
            raise TypeError(
                f"'options' is of type '{type(options).__name__}', but must be CompileOptions."
            )
        try:
            return PreparedModel(compile(model, options=options))
        except UnsupportedOperatorError as error:
            raise BackendIsNotSupposedToImplementIt(str(error)) from error

    @classmethod
    def run_model(
        cls, model: onnx.ModelProto, inputs: Any, device: str = "CPU", **kwargs: Any
    ) -> tuple[Array, ...]:
        """Compiles a model and runs it once."""
        return cls.prepare(model, device, **kwargs).run(inputs)

    @classmethod
    def run_node(
        cls,
        node: onnx.NodeProto,
        inputs: Any,
        device: str = "CPU",
        outputs_info: Sequence[tuple[Any, tuple[int, ...]]] | None = None,
        **kwargs: Any,
    ) -> tuple[Array, ...]:
        """Runs one operator; ``opset_version`` (a keyword) is the newest understood by default."""
        version = kwargs.pop("opset_version", None)
        arrays = [inputs] if isinstance(inputs, np.ndarray) else list(inputs)
        return cls.run_model(_as_model(node, arrays, version), arrays, device, **kwargs)


def _as_model(node: onnx.NodeProto, arrays: Sequence[Any], version: int | None) -> onnx.ModelProto:
    """A model of one node whose inputs have the arrays' types."""
    names = list(dict.fromkeys(name for name in node.input if name))
    if len(names) != len(arrays):
        raise InputError(f"There are {len(arrays)} arrays, but the node has {len(names)} inputs.")
    inputs = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(np.asarray(array).dtype), np.shape(array)
        )
        for name, array in zip(names, arrays)
    ]
    outputs = [onnx.ValueInfoProto(name=name) for name in node.output if name]
    newest = min(NEWEST_OPSET, onnx.defs.onnx_opset_version())
    opsets = [helper.make_opsetid("", version or newest)]
    if node.domain not in ("", "ai.onnx"):
        opsets.append(helper.make_opsetid(node.domain, 1))
    graph = helper.make_graph([node], "node", inputs, outputs)
    return helper.make_model(graph, opset_imports=opsets)


is_compatible = TilewrightBackend.is_compatible
prepare = TilewrightBackend.prepare
run_model = TilewrightBackend.run_model
run_node = TilewrightBackend.run_node
supports_device = TilewrightBackend.supports_device
