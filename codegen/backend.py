# SPDX-License-Identifier: Apache-2.0
"""Backends: what turns a scheduled kernel into code, chosen by the target's architecture.

A backend registers by subclassing; :mod:`tilewright.codegen.backends` imports those of this
package.
"""

from typing import ClassVar

from tilewright.ir.loop import Kernel
from tilewright.ir.target import Target


class Backend:
    """Code generation for the targets of some ``architectures``; one object serves a process."""

    architectures: ClassVar[tuple[str, ...]] = ()
    registry: ClassVar[dict[str, type["Backend"]]] = {}

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        Backend.registry.update(dict.fromkeys(cls.architectures, cls))

    def compile(self, kernel: Kernel, target: Target) -> bytes:
        """The code of a scheduled kernel: what a runtime loads. CodegenError if there is none."""
        raise NotImplementedError
