# SPDX-License-Identifier: Apache-2.0
"""Whole artifacts, kept by everything that decides them: a model compiled again is a copy.

The key is the SHA-256 of the model file, the target, shapes and options, the tuning records, the
versions of the packages and the compiler's own sources. Which other files a model refers to follows
from its own bytes, so a list of them is kept under that key; the artifact is kept under the key and
the SHA-256 of each of these files. Finding an artifact imports neither onnx nor the proof nor the
code generator.

An entry is the artifact itself; its own checksums tell a damaged one, which is then made anew. The
folder is private: see :mod:`tilewright.codegen.private_folder`. The cache only saves time: a folder
that cannot be written or a full disk costs a warning.
"""

import contextlib
import errno
import hashlib
import json
import logging
import os
import stat
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from tilewright.codegen.cache import CompileCache, default_folder, generator_identity
from tilewright.codegen.private_folder import PrivateFolder, UntrustedError
from tilewright.files import replacing
from tilewright.ir.target import machine_identity, parse_target
from tilewright.runtime.artifact import HEADER_BYTES, is_whole, parse_header

Shapes = Mapping[str, Sequence[int | str]]

CAPACITY = 4 << 30
LARGEST = CAPACITY // 4
"""Bytes of the largest artifact that is kept: one model should not push out all others."""

_MOST_NAMES = 1 << 20
"""Bytes of the largest list of files that is kept."""

_CLOCK_NS = 20_000_000
"""How far the times of files may lag behind the clock."""

_logger = logging.getLogger("tilewright")


class ModelCache:
    """Artifacts of at most ``CAPACITY`` bytes in all; the least recently used go first."""

    def __init__(self, cache_dir: Path | None = None) -> None:
        objects = cache_dir if cache_dir is not None else default_folder()
        self.folder = objects.with_name(f"{objects.name}-models")
        top = self.folder.parent if cache_dir is None else self.folder
        self._private = PrivateFolder(self.folder, "cache of whole models", top)

    def request(
        self,
        model: Path,
        target: str,
        shapes: Shapes | None,
        options: Mapping[str, str],
        records: Path | None = None,
    ) -> "Request | None":
        """The place of a compilation in the cache; None if the model cannot be read."""
        since = time.time_ns() - _CLOCK_NS
        facts = [_target_identity(target), sorted((shapes or {}).items()), sorted(options.items())]
        digest = hashlib.sha256(generator_identity() + _own_sources())
        digest.update(json.dumps([*facts, _stamp(records)], default=str).encode())
        try:
            digest.update(_content(model))
        except OSError:
            return None
        return Request(self._private, model, digest.hexdigest(), since)


class Request:
    """One compilation, and where its artifact is or will be; made by :meth:`ModelCache.request`."""

    def __init__(self, folder: PrivateFolder, model: Path, key: str, since: int) -> None:
        self.key = key
        self._folder = folder
        self._model = model
        self._since = since

    def files(self) -> list[str]:
        """The other files that the model refers to, relative to its folder; none if the model was
        not compiled before.
        """
        with self._folder.reading(_name(self.key, "files"), _MOST_NAMES) as stream:
            return [] if stream is None else _read_names(stream)

    def fetch(self, output: Path) -> dict[str, Any] | None:
        """Copy the artifact to ``output``; its manifest, or None if there is none. OSError if the
        output cannot be written.
        """
        try:
            name = self._entry(self.files())
        except OSError:
            return None
        with self._folder.reading(name, LARGEST) as stream:
            if stream is None:
                return None
            if is_whole(stream):
                manifest = _manifest(stream)
                with replacing(output, durable=False) as target:
                    _send(stream, target)
                with contextlib.suppress(OSError):
                    os.utime(stream.fileno())
                return manifest
        path = self._folder.path / name
        _logger.warning("Cached artifact '%s' is damaged; it is compiled again.", path)
        self._folder.remove(name)
        return None

    def keep(self, artifact: Path, files: Sequence[str] = ()) -> None:
        """Keep a copy of the artifact that was made since the request; ``files`` are those that the
        model refers to, relative to its folder. Failure to do so is only logged.
        """
        try:
            sources = [self._model, *(self._model.parent / name for name in files)]
            kept = artifact.is_file() and artifact.stat().st_size <= LARGEST
            if not kept or any(map(self._has_changed, sources)):
                return
            entry = self._entry(files)
            if files:
                with self._folder.replacing(_name(self.key, "files")) as target:
                    target.write(json.dumps(files).encode())
            with open(artifact, "rb") as source, self._folder.replacing(entry) as target:
                _send(source, target)
        except UntrustedError as error:
            self._folder.warn_of(error)
            return
        except OSError as error:
            _logger.warning("Artifact '%s' is not kept in the cache: %s.", artifact, error.strerror)
            return
        CompileCache(self._folder.path, CAPACITY).trim()

    def _has_changed(self, path: Path) -> bool:
        """Whether a file was written or replaced since the request: then nobody knows what of it
        was compiled.
        """
        return path.stat().st_ctime_ns >= self._since

    def _entry(self, files: Iterable[str]) -> str:
        """Where the artifact is kept, by the content of the files that the model refers to."""
        digest = hashlib.sha256(self.key.encode())
        for name in files:
            digest.update(f"\n{name}\n".encode() + _content(self._model.parent / name))
        return _name(digest.hexdigest(), "tw")


def _name(key: str, suffix: str) -> str:
    """Where in the folder an entry is."""
    return f"{key[:2]}/{key[2:]}.{suffix}"


def _content(path: Path) -> bytes:
    """The SHA-256 of a file; OSError if it cannot be read, or only once."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(handle, "rb") as stream:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError(errno.EINVAL, "Not a regular file", str(path))
        return hashlib.file_digest(stream, "sha256").digest()


def _read_names(stream: IO[bytes]) -> list[str]:
    """The list of files in an entry; none if it is damaged."""
    try:
        names = json.loads(stream.read(_MOST_NAMES))
    except (OSError, ValueError, RecursionError):
        return []
    return [str(name) for name in names] if isinstance(names, list) else []


def _send(source: IO[bytes], target: IO[bytes]) -> None:
    """Copy a whole file, which the system does without bringing it here."""
    target.flush()
    done, size = 0, os.fstat(source.fileno()).st_size
    while done < size:
        sent = os.sendfile(target.fileno(), source.fileno(), done, size - done)
        if not sent:
            raise OSError(f"File '{source.name}' has become shorter while it was copied.")
        done += sent


def _manifest(stream: IO[bytes]) -> dict[str, Any]:
    """What an artifact that is whole says about itself."""
    stream.seek(0)
    section = parse_header(stream.read(HEADER_BYTES)).manifest
    stream.seek(section.offset)
    manifest: dict[str, Any] = json.loads(stream.read(section.bytes))
    return manifest


def _target_identity(text: str) -> str:
    """What a target's text means; for ``native`` without loading LLVM. TargetError for one that is
    not understood.
    """
    if text.partition(",")[0] == "native":
        return f"{text}\n{machine_identity()}"
    return repr(parse_target(text))


def _own_sources() -> bytes:
    """A digest of the sources that decide an artifact beside those of code generation."""
    digest = hashlib.sha256()
    folder = Path(__file__).parent
    paths = [folder / "driver.py", folder / "pipeline.py", *(folder / "frontends").rglob("*.py")]
    for path in sorted(paths):
        digest.update(path.read_bytes())
    return digest.digest()


def _stamp(path: Path | None) -> list[tuple[int, int]]:
    """Size and time of a database and of its log, where what was written lately may still be."""
    found = []
    for name in () if path is None else (path, f"{path}-wal"):
        try:
            status = os.stat(name)
        except OSError:
            continue
        if status.st_size:  # an empty log comes and goes with readers
            found.append((status.st_size, status.st_mtime_ns))
    return found
