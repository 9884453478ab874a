# SPDX-License-Identifier: Apache-2.0
"""The interface of a frontend: it recognises a source and imports it as a module of the graph IR.

A frontend registers by subclassing. :func:`import_model` asks each of them, in order of
registration, whether a source is theirs.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence, Set
from pathlib import Path
from typing import Any, ClassVar

from tilewright.frontends.names import quoted
from tilewright.ir.errors import FrontendError, ShapesError
from tilewright.ir.graph import Module

Shapes = Mapping[str, Sequence[int | str]]


class Frontend(ABC):
    """One model format. ``name`` is its word on the command line, ``suffixes`` the usual endings of
    its files.
    """

    name: ClassVar[str] = ""
    suffixes: ClassVar[tuple[str, ...]] = ()
    registry: ClassVar[dict[str, type["Frontend"]]] = {}

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if cls.name:
            known = Frontend.registry.setdefault(cls.name, cls)
            if known.__qualname__ != cls.__qualname__:
                raise TypeError(f"Two frontends are called '{cls.name}'.")

    @abstractmethod
    def can_import(self, source: Any) -> bool:
        """True if the source looks like this format; reads no more than its beginning."""

    @abstractmethod
    def import_model(self, source: Any, shapes: Shapes | None = None) -> Module:
        """The model as a module; ``shapes`` replaces the dims of inputs by name. FrontendError if
        it cannot be.
        """


def _checked(shapes: Any) -> Shapes:
    """The shapes as a dict of lists."""
    if not isinstance(shapes, Mapping):
        raise ShapesError(
            "The shapes are a mapping from the names of inputs to lists of dims, such as "
            f"{{'x': [1, 'n']}}, not something of type '{type(shapes).__name__}'."
        )
    return {_name(name): _dims(name, given) for name, given in shapes.items()}


def _name(name: Any) -> str:
    if not isinstance(name, str):
        raise ShapesError(
            "The shapes are given by the names of inputs, not by something of type "
            f"'{type(name).__name__}'. Use texts as keys."
        )
    return name


def _dims(name: str, given: Any) -> list[int | str]:
    """The dims given for an input; each is checked where it is used."""
    try:
        if isinstance(given, str | bytes | Mapping | Set):
            raise TypeError
        return list(given)
    except TypeError:
        raise ShapesError(
            f"The shape given for {quoted(name)} is of type '{type(given).__name__}'. Give a list "
            "of dims, such as [1, 'n']."
        ) from None


def import_model(source: Any, shapes: Shapes | None = None, format: str | None = None) -> Module:
    """Import a model in any known format; ``format`` names the frontend where the source does not
    tell. ShapesError for shapes that are no lists of dims by name.
    """
    shapes = None if shapes is None else _checked(shapes)
    if format is not None:
        if format not in Frontend.registry:
            known = ", ".join(sorted(Frontend.registry))
            raise FrontendError(f"Format {quoted(format)} is unknown. Use one of: {known}.")
        return Frontend.registry[format]().import_model(source, shapes)
    for frontend in Frontend.registry.values():
        candidate = frontend()
        if candidate.can_import(source):
            return candidate.import_model(source, shapes)
    if isinstance(source, str) and source.endswith(".tw"):
        raise FrontendError(
            f"{quoted(source)} is an artifact: it is compiled already. Load it with "
            "tilewright.load, or 'tilewright run'."
        )
    if not isinstance(source, str | Path | bytes):
        raise FrontendError(
            "A model is given as a path, as bytes or as an onnx.ModelProto, not as something of "
            f"type '{type(source).__name__}'."
        )
    if isinstance(source, bytes):
        raise FrontendError(
            "The given bytes are not a model, or are damaged. Give the content of a model's file."
        )
    suffixes = sorted(s for f in Frontend.registry.values() for s in f.suffixes)
    raise FrontendError(
        f"{quoted(str(source))} is not a model in a known format. Known file endings are: "
        f"{', '.join(suffixes)}."
    )
