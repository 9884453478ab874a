# SPDX-License-Identifier: Apache-2.0
"""The one way by which bytes outside the model file are read.

A tensor may keep its bytes in a file beside the model. The location is the attacker's: it is split
into plain components and opened one by one beneath the model's folder (which is resolved once)
without following links, so that neither ``..``, an absolute path, a symbolic link nor a parent
swapped meanwhile leads outside. The file must be a regular one with a single name, and hold
``offset + length`` bytes before anything is mapped.
"""

import mmap
import os
import stat
from collections.abc import Iterable
from pathlib import Path

from tilewright.frontends.names import quoted
from tilewright.ir.errors import FrontendError

_KEYS = frozenset({"location", "offset", "length", "checksum"})
_LARGEST = (1 << 63) - 1


class ExternalData:
    """Maps the files of one model's folder, each once; a ``folder`` of None refuses all."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = None if folder is None else Path(os.path.realpath(folder))
        self._maps: dict[tuple[str, ...], memoryview] = {}

    @property
    def files(self) -> tuple[str, ...]:
        """The files that were read, relative to the model's folder."""
        return tuple("/".join(parts) for parts in self._maps)

    def read(self, tensor: str, entries: Iterable[tuple[str, str]], size: int) -> memoryview:
        """The ``size`` bytes of a tensor, mapped; FrontendError if its entries are unsafe or do not
        fit.
        """
        keys = self._keys(tensor, entries)
        if self._folder is None:
            raise FrontendError(
                f"Tensor {quoted(tensor)} keeps its data in a file beside the model, but the "
                "model was given without "
                "a folder. Import it by its path."
            )
        offset = self._number(tensor, "offset", keys.get("offset", "0"))
        length = self._number(tensor, "length", keys["length"]) if "length" in keys else size
        if length != size:
            raise FrontendError(
                f"Tensor {quoted(tensor)} needs {size} bytes but its external data declares "
                f"{length}. "
                "Save the model again."
            )
        data = self._open(tensor, keys["location"])
        if offset + size > len(data):
            raise FrontendError(
                f"Tensor {quoted(tensor)} lies at bytes {offset} to {offset + size} of "
                f"{quoted(keys['location'])}, "
                f"which holds {len(data)}. Fetch the complete file."
            )
        return data[offset : offset + size]

    @staticmethod
    def _keys(tensor: str, entries: Iterable[tuple[str, str]]) -> dict[str, str]:
        keys: dict[str, str] = {}
        for key, value in entries:
            if key not in _KEYS or key in keys:
                raise FrontendError(
                    f"The external data of tensor {quoted(tensor)} has the key {quoted(key)}, "
                    "which is unknown or "
                    "given twice. Only 'location', 'offset', 'length' and 'checksum' are read."
                )
            keys[key] = value
        if "location" not in keys:
            raise FrontendError(
                f"The external data of tensor {quoted(tensor)} names no location. Save the model "
                "again."
            )
        return keys

    @staticmethod
    def _number(tensor: str, key: str, text: str) -> int:
        if not (text.isascii() and text.isdigit()) or len(text) > 19 or int(text) > _LARGEST:
            raise FrontendError(
                f"The {key} {quoted(text)} of the external data of tensor {quoted(tensor)} is "
                "not a byte count. "
                "Save the model again."
            )
        return int(text)

    def _open(self, tensor: str, location: str) -> memoryview:
        parts = _components(tensor, location)
        known = self._maps.get(parts)
        if known is None:
            assert self._folder is not None
            descriptor = _open_beneath(self._folder, parts, tensor, location)
            try:
                known = _map(descriptor, tensor, location)
            finally:
                os.close(descriptor)
            self._maps[parts] = known
        return known


def _components(tensor: str, location: str) -> tuple[str, ...]:
    parts = tuple(p for p in location.split("/") if p not in ("", "."))
    unsafe = (
        not parts
        or location.startswith("/")
        or ".." in parts
        or "\\" in location
        or ":" in parts[0]
        or any(ord(c) < 32 for c in location)
        or any(len(p) > 255 for p in parts)
        or len(parts) > 32
    )
    if unsafe:
        raise FrontendError(
            f"Tensor {quoted(tensor)} keeps its data at {quoted(location)}, which is not a plain "
            "path inside the "
            "model's folder. Put the file beside the model and save its location without '..'."
        )
    return parts


def _open_beneath(folder: Path, parts: tuple[str, ...], tensor: str, location: str) -> int:
    """A descriptor of the file; each component is opened beneath the one before, links refused."""
    descriptor = -1
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        for position, part in enumerate(parts):
            last = position == len(parts) - 1
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
            flags |= os.O_NONBLOCK if last else os.O_DIRECTORY
            opened = os.open(part, flags, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = opened
    except (OSError, ValueError) as error:
        if descriptor >= 0:
            os.close(descriptor)
        if isinstance(error, FileNotFoundError):
            raise FrontendError(
                f"The external data {quoted(location)} of tensor {quoted(tensor)} does not exist. "
                "Fetch the file, and put it into the model's folder."
            ) from error
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise FrontendError(
            f"The external data {quoted(location)} of tensor {quoted(tensor)} cannot be opened "
            "without following "
            f"links: {reason}. Put the file itself into the model's folder."
        ) from error
    return descriptor


def _map(descriptor: int, tensor: str, location: str) -> memoryview:
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1:
        kind = "has several names (hard links)" if stat.S_ISREG(status.st_mode) else "is no file"
        raise FrontendError(
            f"The external data {quoted(location)} of tensor {quoted(tensor)} {kind}. "
            "Copy the bytes into a file of their own in the model's folder."
        )
    if status.st_size == 0:
        return memoryview(b"")
    return memoryview(mmap.mmap(descriptor, status.st_size, access=mmap.ACCESS_READ))
