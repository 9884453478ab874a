# SPDX-License-Identifier: Apache-2.0
"""The options of a compilation: their types are checked where they are made, and relied on then."""

import os
from collections.abc import Collection
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from tilewright.ir.errors import OptionError


@dataclass(frozen=True)
class CompileOptions:
    """What a compilation may be told; see the command line for the meaning of each.

    Paths may be given as texts, names of passes in any collection. OptionError for a value of
    another type.
    """

    numerics: str = "default"
    disabled: frozenset[str] = frozenset()
    verify: bool = False
    dump_ir: Path | None = None
    cache: bool = True
    cache_dir: Path | None = None
    tuned: bool = True
    records: Path | None = None
    unchecked_indices: bool = False
    constant_defaults: bool = False

    def __post_init__(self) -> None:
        for each in fields(self):
            value = _CHECKS[each.type](each.name, getattr(self, each.name))
            object.__setattr__(self, each.name, value)


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise _refusal(name, value, "a text")
    return value


def _flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise _refusal(name, value, "True or False")
    return value


def _names(name: str, value: Any) -> frozenset[str]:
    wanted = "a collection of texts"
    if isinstance(value, str | bytes) or not isinstance(value, Collection):
        raise _refusal(name, value, wanted)
    for item in value:
        if not isinstance(item, str):
            raise _refusal(name, item, wanted)
    return frozenset(value)


def _path(name: str, value: Any) -> Path | None:
    if value is None:
        return None
    if not isinstance(value, str | os.PathLike) or not isinstance(os.fspath(value), str):
        raise _refusal(name, value, "a path")
    return Path(value)


def _refusal(name: str, value: Any, wanted: str) -> OptionError:
    kind = type(value).__name__
    return OptionError(f"Option '{name}' has a value of type '{kind}', but must be {wanted}.")


_CHECKS: dict[Any, Any] = {
    str: _text,
    bool: _flag,
    frozenset[str]: _names,
    Path | None: _path,
}
