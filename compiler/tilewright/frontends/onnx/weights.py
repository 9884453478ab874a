# SPDX-License-Identifier: Apache-2.0
"""Weights are read straight into their arrays: they are cut out before protobuf parses the rest.

Protobuf copies every field when it parses and again when it hands it out, so a model of 500 MB
would exist three times. The wire format is simple enough to find the ``raw_data`` of the graph's
initialisers without it: a message is a list of (tag, payload), a sub-message is its length and its
bytes. What looks irregular in any way is left in place for protobuf to judge.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]

_GRAPH, _INITIALIZER, _RAW_DATA = 7, 5, 9
# Smaller data stays in the message.
_SMALLEST = 4096


class _Irregular(Exception):
    """The bytes are not plain wire format."""


@dataclass(frozen=True)
class _Field:
    """One field: its number, where it begins with its tag, where its payload begins, where it ends;
    ``is_bytes`` if the payload has a length.
    """

    number: int
    start: int
    payload: int
    end: int
    is_bytes: bool


class Source(Protocol):
    """Bytes that can be read in parts."""

    size: int

    def read(self, start: int, end: int) -> bytes:
        """The bytes between two positions; fewer if the source ends before."""

    def array(self, start: int, end: int) -> Bytes:
        """The same as an array, fit to keep."""


class MemorySource:
    """Bytes in memory; arrays are views of them."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.size = len(data)

    def read(self, start: int, end: int) -> bytes:
        return self._data[start:end]

    def array(self, start: int, end: int) -> Bytes:
        return np.frombuffer(self._data, np.uint8, end - start, start)


class FileSource:
    """An open file, read at positions; arrays are read into their own memory."""

    def __init__(self, descriptor: int, size: int) -> None:
        self._descriptor = descriptor
        self.size = size

    def read(self, start: int, end: int) -> bytes:
        return self.array(start, end).tobytes()

    def array(self, start: int, end: int) -> Bytes:
        found = np.empty(end - start, np.uint8)
        filled = 0
        while filled < found.size:
            count = os.preadv(self._descriptor, [found[filled:].data], start + filled)
            if count == 0:
                break
            filled += count
        return found[:filled]


def split_weights(source: Source) -> tuple[bytes, dict[int, Bytes]]:
    """The model without the large ``raw_data`` of its initialisers, and those by the position of
    the initialiser.

    >>> split_weights(MemorySource(b"not a model"))
    (b'not a model', {})
    """
    try:
        return _split(source)
    except _Irregular:
        return source.read(0, source.size), {}


def _split(source: Source) -> tuple[bytes, dict[int, Bytes]]:
    graphs = [f for f in _fields(source, 0, source.size) if f.number == _GRAPH]
    if len(graphs) != 1 or not graphs[0].is_bytes:
        raise _Irregular
    (graph,) = graphs
    weights: dict[int, Bytes] = {}
    pieces: list[bytes] = []
    kept = graph.payload
    position = 0
    for field in _fields(source, graph.payload, graph.end):
        if field.number != _INITIALIZER:
            continue
        raw = [f for f in _fields(source, field.payload, field.end) if f.number == _RAW_DATA]
        if len(raw) == 1 and raw[0].is_bytes and raw[0].end - raw[0].payload >= _SMALLEST:
            (cut,) = raw
            weights[position] = source.array(cut.payload, cut.end)
            size = (cut.start - field.payload) + (field.end - cut.end)
            pieces += [source.read(kept, field.start), _tag(_INITIALIZER), _varint(size)]
            pieces += [source.read(field.payload, cut.start), source.read(cut.end, field.end)]
            kept = field.end
        position += 1
    pieces.append(source.read(kept, graph.end))
    size = sum(len(p) for p in pieces)
    before, after = source.read(0, graph.start), source.read(graph.end, source.size)
    return b"".join([before, _tag(_GRAPH), _varint(size), *pieces, after]), weights


def _fields(source: Source, start: int, end: int) -> Iterator[_Field]:
    """The fields of the message that lies between two positions."""
    while start < end:
        # A tag and a length or number take no more than twenty bytes.
        head = source.read(start, min(start + 20, end))
        tag, at = _read_varint(head, 0)
        number, kind = tag >> 3, tag & 7
        position = start + at
        if kind == 0:
            finish = start + _read_varint(head, at)[1]
        elif kind == 1:
            finish = position + 8
        elif kind == 2:
            length, at = _read_varint(head, at)
            position = start + at
            finish = position + length
        elif kind == 5:
            finish = position + 4
        else:
            raise _Irregular
        if finish > end or number == 0:
            raise _Irregular
        yield _Field(number, start, position, finish, kind == 2)
        start = finish


def _read_varint(data: bytes, position: int) -> tuple[int, int]:
    """A number of seven bits a byte, lowest first, and the position after it."""
    value = 0
    for shift in range(0, 63, 7):
        if position >= len(data):
            raise _Irregular
        byte = data[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, position
    # A negative number takes ten bytes; a tag or a length never does.
    if position < len(data) and data[position] < 128:
        return value, position + 1
    raise _Irregular


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def _tag(number: int) -> bytes:
    return _varint(number << 3 | 2)
