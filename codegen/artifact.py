# SPDX-License-Identifier: Apache-2.0
"""Writing artifacts: the ``.tw`` files that the C runtime loads.

A file is a header of 128 bytes (its table is in ``runtime/src/artifact.c``), the constants, the
code image and the JSON manifest. Constants and code begin at multiples of the target's largest
page, so that constants can be mapped; each constant is aligned to 64 bytes. The manifest comes
last, so that constants stream through once, whatever their sum. Equal arguments give equal bytes.
"""

import io
import json
import struct
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from tilewright.ir.errors import CodegenError

MAGIC = b"\x89TW\r\n\x1a\n\x00"
FORMAT_VERSION = 2
HEADER_BYTES = 128
CONSTANT_ALIGNMENT = 64

# The largest page that systems of an architecture use: where sections begin in the file.
_PAGE_BYTES = {"x86_64": 4096, "aarch64": 65536}
_CHUNK_BYTES = 1 << 22
_INT64_MAX = (1 << 63) - 1
_MARKED = 256  # bytes by which constants are told apart before they are compared

Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class TargetInfo:
    """The machine that the code is for: LLVM's architecture, features and triple."""

    arch: str
    features: tuple[str, ...]
    triple: str
    cores: int


@dataclass(frozen=True)
class DefaultInfo:
    """The value of an input in a call that gives none: the number of a constant, and its shape."""

    constant: int
    shape: tuple[int, ...]


@dataclass(frozen=True)
class PortInfo:
    """An input or output: dtype under numpy's name, dims as integers or texts of expressions."""

    name: str
    dtype: str
    shape: tuple[int | str, ...] = ()
    default: DefaultInfo | None = None


@dataclass(frozen=True)
class SymbolInfo:
    """A symbolic dim's bounds (inclusive; ``hi`` None: none) and what it is a multiple of."""

    name: str
    lo: int = 0
    hi: int | None = None
    multiple: int = 1


@dataclass(frozen=True)
class KernelInfo:
    """One launch of the host program: the kernel's symbol, and where in the model it is from."""

    name: str
    origin: str = ""


@dataclass(frozen=True)
class DefaultsEntry:
    """A second host program, for calls that replace no default: its offset in the image and its
    symbol. Its launches are those of the manifest's kernels from ``first_kernel`` on.
    """

    entry: int
    host: str
    first_kernel: int


@dataclass(frozen=True)
class Manifest:
    """What an artifact says about itself.

    ``messages`` are the texts that the host program's ``fail`` refers to, with ``{0}`` to ``{9}``
    for values; ``kernels`` is indexed by the ``call_id`` of launches; ``entry`` is the offset of
    the host program in the image and ``host`` its symbol; ``notes`` is free for reports. A model
    whose inputs have defaults has two programs.
    """

    target: TargetInfo
    inputs: tuple[PortInfo, ...]
    outputs: tuple[PortInfo, ...]
    entry: int
    host: str = "tw_host"
    symbols: tuple[SymbolInfo, ...] = ()
    messages: tuple[str, ...] = ()
    kernels: tuple[KernelInfo, ...] = ()
    numerics: str = "default"
    unchecked_indices: bool = False
    tool: str = "tilewright 0.1.0"
    notes: dict[str, Any] = field(default_factory=dict)
    defaults_entry: DefaultsEntry | None = None

    def to_json(self, constants: Sequence[tuple[int, int]]) -> bytes:
        """The manifest's text; ``constants`` are pairs of offset and bytes in their section.

        Raises CodegenError for a name or text with a NUL character, which C cannot hold.
        """
        fields: dict[str, Any] = {
            "format": FORMAT_VERSION,
            "tool": self.tool,
            "target": {
                "arch": self.target.arch,
                "features": list(self.target.features),
                "triple": self.target.triple,
                "cores": self.target.cores,
            },
            "numerics": self.numerics,
            "unchecked_indices": self.unchecked_indices,
            "inputs": [_port(port) for port in self.inputs],
            "outputs": [_port(port) for port in self.outputs],
            "symbols": [_symbol(symbol) for symbol in self.symbols],
            "messages": list(self.messages),
            "kernels": [{"name": k.name, "origin": k.origin} for k in self.kernels],
            "constants": [{"offset": offset, "bytes": size} for offset, size in constants],
            "entry": self.entry,
            "host": self.host,
            "notes": self.notes,
        }
        if self.defaults_entry is not None:
            fields["defaults_entry"] = asdict(self.defaults_entry)
        text = json.dumps(fields, separators=(",", ":"), allow_nan=False)
        if "\\u0000" in text.replace("\\\\", ""):
            raise CodegenError("A name or text of the model holds a NUL character.")
        return text.encode("ascii")


def _port(port: PortInfo) -> dict[str, Any]:
    row: dict[str, Any] = {"name": port.name, "dtype": port.dtype, "shape": list(port.shape)}
    if port.default is not None:
        row["default"] = {
            "constant": port.default.constant,
            "shape": list(port.default.shape),
        }
    return row


def _symbol(symbol: SymbolInfo) -> dict[str, Any]:
    bounded = symbol.hi is not None and symbol.hi < _INT64_MAX
    return {
        "name": symbol.name,
        "lo": symbol.lo,
        "hi": symbol.hi if bounded else None,
        "multiple": symbol.multiple,
    }


class _Section:
    """Writes one section: pads to its start, then counts bytes and sums the checksum."""

    def __init__(self, stream: IO[bytes], alignment: int) -> None:
        self._stream = stream
        position = stream.tell()
        self.offset = _align(position, alignment)
        self.bytes = 0
        self.crc = 0
        stream.write(bytes(self.offset - position))

    def write(self, data: Any) -> None:
        """Appends a buffer, in chunks, so that a mapped constant is never wholly in memory."""
        if isinstance(data, np.ndarray):
            data = data.reshape(-1).view(np.uint8)  # the buffer protocol does not know bfloat16
        view = memoryview(data)
        if view.nbytes == 0:
            return
        view = view.cast("B")
        for start in range(0, len(view), _CHUNK_BYTES):
            chunk = view[start : start + _CHUNK_BYTES]
            self._stream.write(chunk)
            self.crc = zlib.crc32(chunk, self.crc)
        self.bytes += len(view)

    def align(self, alignment: int) -> None:
        """Pads with zeros to a multiple of ``alignment`` from the section's start."""
        self.write(bytes(_align(self.bytes, alignment) - self.bytes))


def _align(value: int, alignment: int) -> int:
    return (value + alignment - 1) // alignment * alignment


def _header(
    file_bytes: int, manifest: _Section, constants: _Section, code: _Section, page: int
) -> bytes:
    fixed = struct.pack(
        "<8sIIQQQQQQQIIII36x",
        MAGIC,
        FORMAT_VERSION,
        HEADER_BYTES,
        file_bytes,
        manifest.offset,
        manifest.bytes,
        constants.offset,
        constants.bytes,
        code.offset,
        code.bytes,
        manifest.crc,
        constants.crc,
        code.crc,
        page,
    )
    return fixed + struct.pack("<I", zlib.crc32(fixed))


def write_stream(
    stream: IO[bytes], manifest: Manifest, constants: Iterable[Any], image: bytes
) -> None:
    """Writes an artifact to a seekable, empty stream.

    ``constants`` are contiguous buffers in the order of the host program's table, of which those of
    equal bytes are written once. Raises CodegenError for a manifest that no runtime would load.
    """
    fast = manifest.defaults_entry
    for entry in (manifest.entry, *(() if fast is None else (fast.entry,))):
        if not 0 <= entry < len(image):
            raise CodegenError(f"The entry {entry} is not inside the image of {len(image)} bytes.")
    page = _PAGE_BYTES.get(manifest.target.arch)
    if page is None:
        raise CodegenError(f"There is no runtime for the architecture '{manifest.target.arch}'.")
    stream.write(bytes(HEADER_BYTES))
    constant_section = _Section(stream, page)
    table: list[tuple[int, int]] = []
    kept: dict[bytes, list[tuple[Bytes, tuple[int, int]]]] = {}
    for constant in constants:
        content = _content(constant)
        alike = kept.setdefault(_mark(content), [])
        place = next((at for other, at in alike if np.array_equal(other, content)), None)
        if place is None:
            constant_section.align(CONSTANT_ALIGNMENT)
            start = constant_section.bytes
            constant_section.write(constant)
            place = (start, constant_section.bytes - start)
            alike.append((content, place))
        table.append(place)
    code_section = _Section(stream, page)
    code_section.write(image)
    manifest_section = _Section(stream, 8)
    manifest_section.write(manifest.to_json(table))
    file_bytes = stream.tell()
    stream.seek(0)
    stream.write(_header(file_bytes, manifest_section, constant_section, code_section, page))


def _content(constant: Any) -> Bytes:
    """The bytes of a contiguous buffer, not copied."""
    if isinstance(constant, np.ndarray):
        return constant.reshape(-1).view(np.uint8)
    return np.frombuffer(constant, np.uint8)


def _mark(content: Bytes) -> bytes:
    """Something short that is the same for equal bytes, and seldom for others."""
    step = max(1, content.size // _MARKED)
    return b"%d %s" % (content.size, content[::step][:_MARKED].tobytes())


def artifact_bytes(manifest: Manifest, constants: Iterable[Any], image: bytes) -> bytes:
    """An artifact in memory; see :func:`write_stream`."""
    stream = io.BytesIO()
    write_stream(stream, manifest, constants, image)
    return stream.getvalue()
