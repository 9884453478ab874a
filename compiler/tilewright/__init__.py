# SPDX-License-Identifier: Apache-2.0
"""Tilewright, a deep-learning compiler: ONNX models in, fast native code out.

    import tilewright

    model = tilewright.compile("model.onnx")
    outputs = model.run({"x": array})
    model.save("model.tw")

The names below are imported when first used: ``import tilewright`` alone imports no other package,
and ``load`` needs nothing of the compiler but numpy.
"""

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewright.requirements import packages_for
from tilewright.version import VERSION as __version__

if TYPE_CHECKING:
    from tilewright import backend, errors
    from tilewright.api import CompileOptions, compile
    from tilewright.model import CompiledModel, load
    from tilewright.session import InferenceSession, SessionOptions

_MODULES = {
    "CompileOptions": "tilewright.api",
    "CompiledModel": "tilewright.model",
    "InferenceSession": "tilewright.session",
    "SessionOptions": "tilewright.session",
    "compile": "tilewright.api",
    "load": "tilewright.model",
}
_SUBMODULES = ("backend", "errors")
_LINKS = ("ir", "passes", "codegen", "autotune", "runtime")

__all__ = [
    "CompileOptions",
    "CompiledModel",
    "InferenceSession",
    "SessionOptions",
    "__version__",
    "backend",
    "compile",
    "errors",
    "load",
]


def _check_links(folder: Path) -> None:
    """ImportError if a root folder of the project is not linked into the package."""
    missing = [name for name in _LINKS if not (folder / name / "__init__.py").is_file()]
    if missing:
        names = ", ".join(f"'{name}'" for name in missing)
        raise ImportError(
            f"The checkout of Tilewright in '{folder}' is incomplete: its symbolic links {names} "
            "lead nowhere. Clone it with git (on Windows with core.symlinks=true): archives drop "
            "symbolic links."
        )


_check_links(Path(__file__).parent)


def __getattr__(name: str) -> Any:
    with packages_for(f"tilewright.{name}"):
        if name in _MODULES:
            return getattr(import_module(_MODULES[name]), name)
        if name in _SUBMODULES:
            return import_module(f"tilewright.{name}")
    raise AttributeError(f"Module '{__name__}' has no attribute '{name}'.")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
