# SPDX-License-Identifier: Apache-2.0
"""Whole artifacts, kept by everything that decides them: a model compiled again is a copy.

The key is the SHA-256 of the model file, the target, shapes and options, the tuning records, the
versions of the packages and the compiler's own sources. Finding an artifact imports neither onnx
nor the proof nor the code generator. A model that may read weights from other files is not kept,
since they could change unseen.

An entry is the artifact itself; its own checksums tell a damaged one, which is then made anew. The
cache only saves time: a folder that cannot be written or a full disk costs a warning.
"""

import hashlib
import json
import logging
import mmap
import os
import shutil
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from tilewright.codegen.cache import CompileCache, default_folder, generator_identity
from tilewright.files import replacing
from tilewright.ir.target import Target
from tilewright.runtime.artifact import HEADER_BYTES, parse_header
from tilewright.runtime.errors import ArtifactError

_logger = logging.getLogger("tilewright")
CAPACITY = 4 << 30
_CHUNK = 1 << 22
_EXTERNAL_DATA = b"location"
"""The key under which an ONNX tensor names the file that holds its data."""


class ModelCache:
    """Artifacts by key, at most ``CAPACITY`` bytes of them; the least recently used go first."""

    def __init__(self, cache_dir: Path | None = None) -> None:
        objects = cache_dir if cache_dir is not None else default_folder()
        self.folder = objects.with_name(f"{objects.name}-models")

    def key(
        self,
        model: Path,
        target: Target,
        shapes: Mapping[str, Sequence[int | str]] | None,
        options: Mapping[str, str],
        records: Path | None = None,
    ) -> str | None:
        """The key of a compilation; None for a model that may refer to other files, or no file."""
        digest = hashlib.sha256(generator_identity() + _own_sources())
        facts = [str(target), repr(target), sorted((shapes or {}).items()), sorted(options.items())]
        digest.update(json.dumps([*facts, _stamp(records)], default=str).encode())
        try:
            with open(model, "rb") as stream:
                if os.fstat(stream.fileno()).st_size == 0:
                    return None
                with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
                    if data.find(_EXTERNAL_DATA) >= 0:
                        return None
                    digest.update(data)
        except OSError:
            return None
        return digest.hexdigest()

    def fetch(self, key: str, output: Path) -> bool:
        """Copy the artifact of a key to ``output``; False if there is none. OSError if the output
        cannot be written.
        """
        entry = self._path(key)
        try:
            with open(entry, "rb") as stream:
                data = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError):
            return False
        with data:
            if not _is_whole(data):
                _logger.warning("Cached artifact '%s' is damaged; it is compiled again.", entry)
                entry.unlink(missing_ok=True)
                return False
            with replacing(output, durable=False) as target:
                target.write(data)
        os.utime(entry)
        return True

    def keep(self, key: str, artifact: Path) -> None:
        """Keep a copy of an artifact; failure to do so is only logged."""
        entry = self._path(key)
        try:
            entry.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with open(artifact, "rb") as source, replacing(entry, durable=False) as target:
                shutil.copyfileobj(source, target, _CHUNK)
        except OSError as error:
            _logger.warning("Artifact '%s' is not kept in the cache: %s.", artifact, error.strerror)
            return
        CompileCache(self.folder, CAPACITY).trim()

    def _path(self, key: str) -> Path:
        return self.folder / key[:2] / f"{key[2:]}.tw"


def _is_whole(data: mmap.mmap) -> bool:
    """True if the header and the checksums of an artifact's three sections are right."""
    try:
        header = parse_header(data[:HEADER_BYTES])
    except ArtifactError:
        return False
    view = memoryview(data)
    try:
        return header.file_bytes == len(data) and all(
            zlib.crc32(view[s.offset : s.offset + s.bytes]) == s.crc
            for s in (header.manifest, header.constants, header.code)
        )
    finally:
        view.release()


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
