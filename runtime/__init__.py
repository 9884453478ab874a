# SPDX-License-Identifier: Apache-2.0
"""The C runtime and its thin Python wrapper: loads artifacts and runs them.

Nothing here imports the compiler; numpy is the only package needed. The names below are imported
when first used, so that reading a manifest does not import numpy.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tilewright.runtime.artifact import read_manifest
    from tilewright.runtime.errors import RunError
    from tilewright.runtime.library import default_threads
    from tilewright.runtime.model import KernelTime, Model, load

_MODULES = {
    "KernelTime": "tilewright.runtime.model",
    "Model": "tilewright.runtime.model",
    "RunError": "tilewright.runtime.errors",
    "default_threads": "tilewright.runtime.library",
    "load": "tilewright.runtime.model",
    "read_manifest": "tilewright.runtime.artifact",
}

__all__ = ["KernelTime", "Model", "RunError", "default_threads", "load", "read_manifest"]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"Module '{__name__}' has no attribute '{name}'.")
    return getattr(import_module(_MODULES[name]), name)
