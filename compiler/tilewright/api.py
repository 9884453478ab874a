# SPDX-License-Identifier: Apache-2.0
"""Compiling from Python: :func:`compile`, which is ``tilewright.compile``."""

import difflib
import mmap
import os
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import IO, TYPE_CHECKING, Any, cast

from tilewright.codegen.artifact import write_stream
from tilewright.driver import Build, CompileOptions, Progress, build
from tilewright.ir.errors import OptionError, TargetError
from tilewright.ir.target import Target
from tilewright.model import CompiledModel, from_memory
from tilewright.refusals import typed_refusals
from tilewright.runtime.model import check_threads
from tilewright.target_choice import choose_target

if TYPE_CHECKING:
    import onnx

__all__ = ["CompileOptions", "choose_target", "compile"]


def compile(
    model: "str | os.PathLike[str] | bytes | onnx.ModelProto",
    target: str | Target = "native",
    shapes: Mapping[str, Sequence[int | str]] | None = None,
    options: CompileOptions | Mapping[str, Any] | None = None,
    *,
    threads: int | None = None,
    progress: Progress | None = None,
) -> CompiledModel:
    """Compiles a model: a path, its bytes, or an ``onnx.ModelProto``.

    ``target`` is the processor to compile for, as ``native``, ``x86-64-v3`` or
    ``aarch64+dotprod,cores=4``; a model for another processor can be saved, but not run here.
    ``shapes`` replaces dims of inputs by name: integers fix a dim, texts name it; without it
    symbolic dims stay symbolic, and one compilation serves all their sizes. ``options`` are
    CompileOptions, or a mapping of its fields. ``threads`` bounds the threads of a run.
    ``progress`` is told a phase's name, how many steps are done, and of how many.

    Raises TilewrightError, with one sentence, if the model cannot be compiled.
    """
    check_threads(threads)
    found = _options(options)
    if not isinstance(target, str | Target):
        raise TargetError(
            f"The target is of type '{type(target).__name__}', but must be a text such as 'native'."
        )
    chosen = choose_target(target) if isinstance(target, str) else target
    source: Any = os.fspath(model) if isinstance(model, os.PathLike) else model
    with typed_refusals("compile the model"):
        built = build(source, chosen, shapes, found, progress)
        return from_memory(in_memory(built), threads, built.report)


def _options(given: CompileOptions | Mapping[str, Any] | None) -> CompileOptions:
    """The options that were given, in any of the accepted forms."""
    if given is None:
        return CompileOptions()
    if isinstance(given, CompileOptions):
        return given
    if not isinstance(given, Mapping):
        raise OptionError(
            f"The options are of type '{type(given).__name__}', but must be CompileOptions, or a "
            "mapping of its fields."
        )
    known = [f.name for f in fields(CompileOptions)]
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(str(name), known, 1)
            hint = f"Did you mean '{near[0]}'?" if near else f"There are {', '.join(known)}."
            raise OptionError(f"'{name}' is no option of a compilation. {hint}")
    return CompileOptions(**given)


def in_memory(built: Build) -> mmap.mmap:
    """The artifact in anonymous memory of its own, aligned to pages, written once."""
    stream = _Memory()
    write_stream(cast(IO[bytes], stream), built.manifest, built.constants, built.image)
    return stream.finish()


class _Memory:
    """A stream in anonymous memory, which no disk and no limit on files concerns.

    It grows by moving pages, and those that nothing was written to take no memory.
    """

    def __init__(self) -> None:
        self._map = mmap.mmap(-1, 1 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._bytes = 0

    def write(self, data: Any) -> int:
        end = self._map.tell() + len(data)
        if end > len(self._map):
            self._map.resize(max(end, 2 * len(self._map)))
        self._bytes = max(self._bytes, end)
        return self._map.write(data)

    def tell(self) -> int:
        return self._map.tell()

    def seek(self, position: int) -> None:
        self._map.seek(position)

    def finish(self) -> mmap.mmap:
        """The memory, of exactly what was written."""
        self._map.resize(self._bytes)
        return self._map
