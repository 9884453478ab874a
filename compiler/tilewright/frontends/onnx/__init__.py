# SPDX-License-Identifier: Apache-2.0
"""The ONNX frontend: symbolic dims, functions, external data.

:func:`import_model` is the entry. Each operator has one row or handler in the ``ops_*`` modules of
this folder, and what tells its results from known contents is in the ``evaluators*`` ones; loading
such a module registers its rows.
"""

import importlib
import pkgutil
from pathlib import Path

from tilewright.frontends.base import Frontend, Shapes
from tilewright.frontends.onnx.defaults import DecidingDefaults, tell_of_deciding
from tilewright.frontends.onnx.importer import Importer
from tilewright.frontends.onnx.limits import Limits
from tilewright.frontends.onnx.load import Source, load_model, looks_like_onnx
from tilewright.ir.graph import Module

__all__ = ["Limits", "OnnxFrontend", "import_model"]

for _module in pkgutil.iter_modules(__path__):
    if _module.name.startswith(("ops_", "evaluators")):
        importlib.import_module(f"{__name__}.{_module.name}")


def import_model(
    source: Source,
    shapes: Shapes | None = None,
    *,
    limits: Limits | None = None,
    folder: str | Path | None = None,
) -> Module:
    """Import an ONNX model from a path, bytes or an ``onnx.ModelProto``.

    ``shapes`` replaces the dims of inputs by name: ints fix a dim, texts name it. ``folder`` is
    where external data may lie when the model is not given by its path. Raises FrontendError with
    one clear sentence; operators that are not supported are listed all at once.
    """
    limits = limits or Limits()
    loaded = load_model(source, limits, folder)
    constant: set[str] = set()
    while True:
        try:
            module = Importer(loaded, limits, constant).run(shapes or {})
        except DecidingDefaults as found:
            constant |= found.names
        else:
            tell_of_deciding(constant)
            return module


class OnnxFrontend(Frontend):
    """ONNX files (``.onnx``), bytes and messages."""

    name = "onnx"
    suffixes = (".onnx",)

    def can_import(self, source: object) -> bool:
        return looks_like_onnx(source)

    def import_model(self, source: Source, shapes: Shapes | None = None) -> Module:
        return import_model(source, shapes)
