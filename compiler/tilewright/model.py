# SPDX-License-Identifier: Apache-2.0
"""Compiled models: run them, look at them, save and load them.

Nothing here imports the compiler: a saved model runs with numpy alone. A model just compiled lives
in anonymous memory that its constants are used from, so weights exist once.
"""

import json
import mmap
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, SupportsIndex

from tilewright import runtime
from tilewright.base_error import TilewrightError
from tilewright.files import replacing
from tilewright.refusals import typed, typed_refusals
from tilewright.runtime.arrays import Array
from tilewright.runtime.artifact import HEADER_BYTES, is_whole, parse_header, read_manifest
from tilewright.runtime.context import Port
from tilewright.runtime.errors import (
    ArtifactError,
    CopyError,
    InputError,
    ReadError,
    TargetMismatchError,
)
from tilewright.runtime.model import KernelTime

if TYPE_CHECKING:
    from tilewright.driver import Report

PathLike = str | os.PathLike[str]
Artifact = Path | bytes | mmap.mmap
_CHUNK_BYTES = 1 << 22


def _ports(rows: list[dict[str, Any]]) -> list[Port]:
    return [Port(r["name"], r["dtype"], tuple(r["shape"]), _default_shape(r)) for r in rows]


def _default_shape(row: dict[str, Any]) -> tuple[int, ...] | None:
    return tuple(row["default"]["shape"]) if "default" in row else None


class CompiledModel:
    """A model that is ready to run; made by :func:`tilewright.compile` or :func:`tilewright.load`.

    ``inputs`` and ``outputs`` list what it takes and gives, each with ``name``, ``dtype`` (numpy's
    name) and ``shape`` (integers, and texts for symbolic dims); an input that is ``optional`` may
    be left out of a call; ``manifest`` is all that the
    artifact says about itself; ``report`` tells how a model just compiled came to be, and is None
    for a loaded one. A model may be used from several threads at once.
    """

    def __init__(
        self,
        artifact: Artifact,
        manifest: dict[str, Any],
        header: bytes,
        model: "runtime.Model | TargetMismatchError",
        report: "Report | None" = None,
    ) -> None:
        self._artifact = artifact
        self._header = header
        self._model = model
        self.manifest = manifest
        self.report = report
        self.inputs = _ports(manifest["inputs"])
        self.outputs = _ports(manifest["outputs"])

    @property
    def _runnable(self) -> "runtime.Model":
        if isinstance(self._model, TargetMismatchError):
            raise self._model
        return self._model

    def run(
        self, feeds: Mapping[str, Any], out: Mapping[str, Array] | None = None
    ) -> dict[str, Array]:
        """Runs the model once and returns its outputs by name.

        ``feeds`` holds one array for each input (those with a default may be left out): numpy,
        ``__array_interface__``, DLPack or a buffer, of the input's dtype and shape; contiguous ones
        are read in place. Outputs own their memory; ``out`` may supply arrays for them instead.
        Raises InputError for arrays that do not fit, TargetMismatchError for a model compiled for
        another processor, ModelError and OutOfMemoryError for a run that fails.
        """
        try:
            return self._runnable.run(feeds, out)
        except (OSError, MemoryError) as error:
            if isinstance(error, TilewrightError):
                raise
            raise typed(error, "run the model") from error

    def __call__(self, *arrays: Any, **named: Any) -> Any:
        """Runs the model on arrays in the order of its inputs, or by name.

        Returns the output, or a tuple of them if there is not exactly one.
        """
        with typed_refusals("run the model"):
            return self._runnable(*arrays, **named)

    def run_profiled(self, feeds: Mapping[str, Any]) -> tuple[dict[str, Array], list[KernelTime]]:
        """Runs once and also tells how long each kernel took, in the order of their launches."""
        with typed_refusals("run the model"):
            return self._runnable.run_profiled(feeds)

    def cancel(self) -> None:
        """Ends all runs in progress, from any thread: they raise CancelledError."""
        self._runnable.cancel()

    def save(self, path: PathLike) -> None:
        """Writes the artifact, a ``.tw`` file; it appears whole or not at all.

        Raises WriteError where it cannot be written, ArtifactError if the file that the model was
        loaded from is another one by now.
        """
        with typed_refusals("save the model"):
            if isinstance(self._artifact, Path):
                self._copy_file(self._artifact, path)
                return
            with replacing(path) as stream, memoryview(self._artifact) as view:
                for start in range(0, len(view), _CHUNK_BYTES):
                    stream.write(view[start : start + _CHUNK_BYTES])

    def _copy_file(self, source: Path, path: PathLike) -> None:
        try:
            file = open(source, "rb")  # noqa: SIM115 (what fails below is another error)
        except OSError as error:
            raise ReadError(f"File '{source}' cannot be read: {error.strerror}.") from error
        with file, replacing(path) as stream:
            head = file.read(HEADER_BYTES)
            if head != self._header or not is_whole(file):
                raise ArtifactError(
                    f"File '{source}' has changed since the model was loaded from it: load it "
                    "again to save it elsewhere."
                )
            file.seek(0)
            shutil.copyfileobj(file, stream, _CHUNK_BYTES)

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise CopyError(
            "A compiled model is neither copied nor pickled: save it, and load it where it is "
            "needed. Threads may share one."
        )

    def __repr__(self) -> str:
        def text(ports: list[Port]) -> str:
            return ", ".join(f"{p.name}: {p.dtype}{list(p.shape)}" for p in ports)

        return f"<CompiledModel ({text(self.inputs)}) -> ({text(self.outputs)})>"


def from_memory(
    artifact: bytes | mmap.mmap, threads: int | None = None, report: "Report | None" = None
) -> CompiledModel:
    """The model of an artifact that was just built, so its checksums are not verified again.

    An artifact for another processor can be saved and looked at, but not run.
    """
    header = parse_header(artifact[:HEADER_BYTES])
    start, size = header.manifest.offset, header.manifest.bytes
    manifest = json.loads(artifact[start : start + size])
    model: runtime.Model | TargetMismatchError
    try:
        model = runtime.load(artifact, threads, check_constants=False)
    except TargetMismatchError as error:
        model = error
    return CompiledModel(artifact, manifest, artifact[:HEADER_BYTES], model, report)


def load(
    source: PathLike | bytes, threads: int | None = None, *, copy: bool = False
) -> CompiledModel:
    """Loads a compiled model from a ``.tw`` file, or from its bytes.

    ``threads`` bounds the threads of a run; None means ``TILEWRIGHT_NUM_THREADS`` if that is set,
    else what the machine grants. Large constants of a file are used in place, so it must not be
    written into while the model lives: a run after that is an ArtifactError. To replace it, write a
    new file and rename it over the old one, as ``save`` does. ``copy`` reads all constants into
    memory instead, so that nothing that happens to the file matters. An artifact is code: load only
    what you would run. Raises ArtifactError for a damaged one, TargetMismatchError for one that is
    for another processor, ReadError for a file that cannot be read.
    """
    with typed_refusals("load the model"):
        if isinstance(source, bytes):
            model = runtime.load(source, threads)
            return CompiledModel(source, model.manifest, source[:HEADER_BYTES], model)
        if not isinstance(source, str | os.PathLike):
            raise InputError(
                "A compiled model is loaded from a path or from bytes, not from something of type "
                f"'{type(source).__name__}'."
            )
        path = Path(source).absolute()
        model = runtime.load(path, threads, copy=copy)
        return CompiledModel(path, model.manifest, _read_header(path), model)


def _read_header(path: Path) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(HEADER_BYTES)
    except OSError as error:
        raise ReadError(f"File '{path}' cannot be read: {error.strerror}.") from error


__all__ = ["CompiledModel", "from_memory", "load", "read_manifest"]
