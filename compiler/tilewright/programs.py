# SPDX-License-Identifier: Apache-2.0
"""The programs of a model: one, or two where initialisers may be replaced by a call.

Nothing can be computed beforehand from what may be replaced, nor be packed into the layout that
kernels read. So a model with defaults is compiled a second time with all of them as constants; the
runtime takes that program for calls that replace none. The two are one image: kernels of equal form
are there once, and so are constants, whose numbers are those of one table.
"""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tilewright.codegen.artifact import DefaultInfo
from tilewright.ir.errors import PassError
from tilewright.ir.graph import ConstantRef, Module
from tilewright.ir.layout import Layout, row_major
from tilewright.ir.layout_data import pack
from tilewright.kernel_report import brief
from tilewright.passes.constant_defaults import with_constant_defaults
from tilewright.passes.lower.kernel import Lowered

_LARGE = 1 << 16
_logger = logging.getLogger("tilewright")


@dataclass(frozen=True)
class Program:
    """A module whose nodes are constants, reshapes and groups, and the kernels of the groups."""

    module: Module
    lowered: list[Lowered]


def fixed_module(module: Module) -> Module | None:
    """An imported module with its defaults as constants; None if it has none, or if no call can
    leave them all out.
    """
    if not module.defaults:
        return None
    try:
        return with_constant_defaults(module)
    except PassError as error:
        _logger.warning("Each call must replace some initialiser. %s", error)
        return None


class ConstantTable:
    """The constants of an artifact, each in each layout once, by number."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[ConstantRef, Layout], int] = {}
        self._arrays: list[Any] = []

    def number(self, module: Module, ref: ConstantRef, layout: Layout) -> int:
        """That of a constant of a module's, which is added if it is new."""
        found = self._numbers.setdefault((ref, layout), len(self._arrays))
        if found == len(self._arrays):
            self._arrays.append(pack(module.constants[ref], layout))
        return found

    def numbers(self, module: Module, constants: Iterable[tuple[ConstantRef, Layout]]) -> list[int]:
        """Those of some constants of a module's."""
        return [self.number(module, ref, layout) for ref, layout in constants]

    def defaults(self, module: Module) -> dict[str, DefaultInfo]:
        """Where the defaults of a module's inputs are, in the layout in which a call gives them."""
        return {
            name: DefaultInfo(self.number(module, ref, row_major(len(ref.shape))), ref.shape)
            for name, ref in module.defaults.items()
        }

    @property
    def arrays(self) -> list[Any]:
        """The packed constants in order."""
        return self._arrays

    def bytes_without(self, used: Iterable[int]) -> int:
        """The bytes of the constants but those that are ``used``."""
        kept = set(used)
        return sum(a.nbytes for n, a in enumerate(self._arrays) if n not in kept)


def tell_of_defaults(defaults: Mapping[str, ConstantRef], saved: int) -> None:
    """Log that initialisers may be replaced, and the bytes of constants that this costs; a warning
    if they are many.
    """
    _logger.log(
        logging.WARNING if saved > _LARGE else logging.INFO,
        "The initialisers %s are inputs of the graph too, so that a call may replace them: there "
        "is a second program for such calls, which needs %s bytes of constants more. With "
        "--constant-defaults (in Python, constant_defaults=True) they are constants, and the file "
        "is smaller by that and by the program.",
        brief(sorted(defaults)),
        f"{saved:,}",
    )
