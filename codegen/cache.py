# SPDX-License-Identifier: Apache-2.0
"""A cache of compiled objects on disk, addressed by content.

The key is everything that enters code generation; its SHA-256, together with the versions of the
compiler and of LLVM, names the file, and the entry holds the full key, which must match. An entry
is written to a temporary file and renamed, so writers need no lock and readers never see half of
one; a checksum catches the rest. The folder is private (:mod:`tilewright.codegen.private_folder`).
The cache only saves time: a damaged entry, a full disk or a folder that cannot be written costs a
compilation and a warning, never an error.

Entry: magic, then the lengths of key and object (u64 each), SHA-256 of key and object together,
key, object.
"""

import contextlib
import functools
import hashlib
import logging
import os
import struct
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from tilewright.codegen.private_folder import TEMPORARY, PrivateFolder, UntrustedError

_log = logging.getLogger("tilewright")
_MAGIC = b"TWOBJ\x00\x00\x01"
_HEADER = struct.Struct("<8sQQ32s")
DEFAULT_CAPACITY = 1 << 30
_MOST_BYTES = 1 << 28
"""Of one entry: code of this size no model needs."""

_KEPT_SHARE = 0.8
_ABANDONED_SECONDS = 3600


def default_folder() -> Path:
    """``TILEWRIGHT_CACHE_DIR``, else the user's cache folder."""
    chosen = os.environ.get("TILEWRIGHT_CACHE_DIR")
    if chosen:
        return Path(chosen) / "objects"
    import platformdirs

    return Path(platformdirs.user_cache_dir("tilewright")) / "objects"


@functools.cache
def generator_identity() -> bytes:
    """What made the code: the versions of the packages, and a digest of the compiler's own
    sources.
    """
    parts = []
    for package in ("tilewright", "llvmlite", "islpy"):
        try:
            parts.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            parts.append(f"{package} unknown")
    digest = hashlib.sha256()
    package_folder = Path(__file__).parent.parent
    for folder in ("ir", "passes", "codegen"):
        for path in sorted((package_folder / folder).rglob("*.py")):
            digest.update(path.relative_to(package_folder).as_posix().encode())
            digest.update(path.read_bytes())
    return "\n".join([*parts, digest.hexdigest()]).encode()


class CompileCache:
    """Objects by key, at most ``capacity`` bytes of them; the least recently used go first."""

    def __init__(self, folder: Path | None = None, capacity: int = DEFAULT_CAPACITY) -> None:
        self.folder = folder or default_folder()
        self.capacity = capacity
        top = self.folder.parent if folder is None else self.folder
        self._private = PrivateFolder(self.folder, "compile cache", top)
        self._written = 0
        self._usable = True

    def get(self, key: bytes) -> bytes | None:
        """The object stored under ``key``, or None; a damaged entry is removed."""
        full = self._full(key)
        name = _name(full)
        try:
            with self._private.reading(name, _MOST_BYTES) as stream:
                if stream is None:
                    return None
                found = _unpack(stream.read(_MOST_BYTES), full)
                if found is not None:
                    with contextlib.suppress(OSError):
                        os.utime(stream.fileno())
                    return found
        except OSError as error:
            self._private.warn_of(error)
            return None
        path = self.folder / name
        _log.warning("Entry '%s' of the compile cache is damaged; it is compiled again.", path)
        self._private.remove(name)
        return None

    def put(self, key: bytes, obj: bytes) -> None:
        """Store an object; failure to do so is only logged."""
        if not self._usable or len(key) + len(obj) > _MOST_BYTES // 2:
            return
        full = self._full(key)
        data = _HEADER.pack(_MAGIC, len(full), len(obj), _digest(full, obj)) + full + obj
        try:
            with self._private.replacing(_name(full)) as stream:
                stream.write(data)
        except UntrustedError as error:
            self._usable = False
            self._private.warn_of(error)
            return
        except OSError as error:
            self._usable = False
            _log.warning(
                "Compile cache '%s' cannot be written: %s. Compiled code is not kept.",
                self.folder,
                error.strerror,
            )
            return
        self._written += len(data)
        if self._written > self.capacity // 16:
            self._written = 0
            self.trim()

    def trim(self) -> None:
        """Remove the least recently used entries if there are too many bytes of them, and temporary
        files that a writer left behind.
        """
        entries: list[tuple[float, int, Path]] = []
        for path in self.folder.glob("*/*"):
            with contextlib.suppress(OSError):
                status = path.stat()
                if not path.name.startswith(TEMPORARY):
                    entries.append((status.st_mtime, status.st_size, path))
                elif status.st_mtime < time.time() - _ABANDONED_SECONDS:
                    path.unlink()
        total = sum(size for _, size, _ in entries)
        if total <= self.capacity:
            return
        for _, size, path in sorted(entries):
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)
                total -= size
            if total <= self.capacity * _KEPT_SHARE:
                return

    def _full(self, key: bytes) -> bytes:
        return generator_identity() + b"\n" + key


def _name(full: bytes) -> str:
    """Where in the folder an entry is."""
    name = hashlib.sha256(full).hexdigest()
    return f"{name[:2]}/{name[2:]}"


def _digest(key: bytes, obj: bytes) -> bytes:
    return hashlib.sha256(struct.pack("<Q", len(key)) + key + obj).digest()


def _unpack(data: bytes, key: bytes) -> bytes | None:
    """The object of an entry; None unless it is whole and stored under exactly this key."""
    if len(data) < _HEADER.size:
        return None
    magic, key_bytes, object_bytes, digest = _HEADER.unpack_from(data)
    if magic != _MAGIC or len(data) != _HEADER.size + key_bytes + object_bytes:
        return None
    stored = data[_HEADER.size : _HEADER.size + key_bytes]
    obj = data[_HEADER.size + key_bytes :]
    return obj if stored == key and digest == _digest(stored, obj) else None
