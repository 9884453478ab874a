# SPDX-License-Identifier: Apache-2.0
"""Reading what an artifact says about itself, without loading it.

``read_manifest`` works for artifacts of any target, also on machines that cannot run them. The
header's table is in ``src/artifact.c``; the C runtime checks more when it loads a model.
"""

import json
import os
import struct
import zlib
from dataclasses import dataclass
from typing import IO, Any

from tilewright.runtime.errors import ArtifactError, ReadError

MAGIC = b"\x89TW\r\n\x1a\n\x00"
FORMAT_VERSION = 2
HEADER_BYTES = 128
MAX_RANK = 64  # of inputs and outputs: TW_MAX_RANK of src/core.h
NO_ARTIFACT = "This is not a Tilewright artifact."
_MAX_MANIFEST_BYTES = 64 << 20
_CHUNK_BYTES = 1 << 22
_ONNX_START = b"\x08"  # the version, with which ONNX's writers begin


@dataclass(frozen=True)
class Section:
    """A part of an artifact: where it is, and its CRC-32."""

    offset: int
    bytes: int
    crc: int


@dataclass(frozen=True)
class Header:
    """An artifact's header: sizes and checksums of its three sections."""

    file_bytes: int
    manifest: Section
    constants: Section
    code: Section
    alignment: int


def parse_header(data: bytes) -> Header:
    """The header in the first 128 bytes; raises ArtifactError if they are none, or damaged."""
    if len(data) < HEADER_BYTES or data[:8] != MAGIC:
        raise ArtifactError(NO_ARTIFACT)
    fields = struct.unpack_from("<IIQQQQQQQIIII", data, 8)
    if fields[0] != FORMAT_VERSION:
        raise ArtifactError(
            f"The artifact has format version {fields[0]}, but this runtime reads version "
            f"{FORMAT_VERSION}: compile the model again."
        )
    (crc,) = struct.unpack_from("<I", data, HEADER_BYTES - 4)
    if crc != zlib.crc32(data[: HEADER_BYTES - 4]):
        raise ArtifactError("The header of the artifact is damaged.")
    return Header(
        file_bytes=fields[2],
        manifest=Section(fields[3], fields[4], fields[9]),
        constants=Section(fields[5], fields[6], fields[10]),
        code=Section(fields[7], fields[8], fields[11]),
        alignment=fields[12],
    )


def is_whole(stream: IO[bytes]) -> bool:
    """True if a file holds an artifact whose three sections have the right checksums."""
    try:
        stream.seek(0)
        header = parse_header(stream.read(HEADER_BYTES))
    except (OSError, ArtifactError):
        return False
    if header.file_bytes != os.fstat(stream.fileno()).st_size:
        return False
    sections = (header.manifest, header.constants, header.code)
    return all(_checksum(stream, section) == section.crc for section in sections)


def _checksum(stream: IO[bytes], section: Section) -> int | None:
    """The CRC-32 of a section that is read, not mapped; None if it is not all there."""
    try:
        stream.seek(section.offset)
        crc, left = 0, section.bytes
        while left and (chunk := stream.read(min(left, _CHUNK_BYTES))):
            crc, left = zlib.crc32(chunk, crc), left - len(chunk)
    except (OSError, OverflowError):
        return None
    return None if left else crc


def of_file(error: ArtifactError, path: str | os.PathLike[str]) -> ArtifactError:
    """The error with the name of the file that it is about, and with the way out."""
    name = os.fsdecode(os.fspath(path))
    if str(error) != NO_ARTIFACT:
        return ArtifactError(f"File '{name}' cannot be loaded: {error}")
    hint = ""
    if _looks_like_onnx(name):
        hint = (
            " It looks like an ONNX model: compile it first, with 'tilewright compile' or "
            "tilewright.compile."
        )
    return ArtifactError(f"File '{name}' is not a Tilewright artifact.{hint}")


def _looks_like_onnx(name: str) -> bool:
    if name.endswith(".onnx"):
        return True
    try:
        with open(name, "rb") as file:
            return file.read(len(_ONNX_START)) == _ONNX_START
    except OSError:
        return False


def read_manifest(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The manifest of an artifact as decoded JSON.

    Raises ReadError if the file cannot be read, ArtifactError if it is damaged or is no artifact.
    """
    try:
        return _read_manifest(path)
    except ArtifactError as error:
        raise of_file(error, path) from None


def _read_manifest(path: str | os.PathLike[str]) -> dict[str, Any]:
    try:
        with open(path, "rb") as file:
            header = parse_header(file.read(HEADER_BYTES))
            size = os.fstat(file.fileno()).st_size
            section = header.manifest
            if (
                header.file_bytes != size
                or section.bytes > _MAX_MANIFEST_BYTES
                or section.offset + section.bytes > size
            ):
                raise ArtifactError(
                    f"The artifact should have {header.file_bytes} bytes, but has {size}: "
                    "it is incomplete."
                )
            file.seek(section.offset)
            data = file.read(section.bytes)
    except OSError as error:
        raise ReadError(f"File '{os.fspath(path)}' cannot be read: {error.strerror}.") from error
    if zlib.crc32(data) != section.crc:
        raise ArtifactError("The artifact is damaged: the checksum of its manifest is wrong.")
    try:
        manifest = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ArtifactError("The artifact's manifest is no JSON.") from error
    if not isinstance(manifest, dict):
        raise ArtifactError("The artifact's manifest is no JSON object.")
    return manifest
