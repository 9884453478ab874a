# SPDX-License-Identifier: Apache-2.0
"""Schedule records as JSON Lines, to carry between machines and to keep beside a model.

Each line holds one record and a checksum, so a line that was cut or edited is left out by itself.
"""

import json
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import asdict, fields
from typing import Any

from tilewright.autotune.records import MOST_TEXT, Record, checked_record

_FORMAT = "tilewright-schedule-1"
_MOST_LINE = 4 * MOST_TEXT


def export_lines(records: Iterable[Record]) -> Iterator[str]:
    """One line for each record, without the line's end."""
    for record in records:
        content = {"format": _FORMAT, **asdict(record)}
        yield json.dumps({**content, "crc32": _checksum(content)}, allow_nan=False)


def import_lines(lines: Iterable[str]) -> tuple[list[Record], int]:
    """The records of the lines, and how many lines hold none; empty lines do not count."""
    records: list[Record] = []
    refused = 0
    for line in lines:
        if not line.strip():
            continue
        record = _read(line)
        if record is None:
            refused += 1
        else:
            records.append(record)
    return records, refused


def _read(line: str) -> Record | None:
    if len(line) > _MOST_LINE:
        return None
    try:
        content = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(content, dict) or content.get("format") != _FORMAT:
        return None
    if content.pop("crc32", None) != _checksum(content):
        return None
    return checked_record(content.get(f.name) for f in fields(Record))


def _checksum(content: dict[str, Any]) -> int:
    return zlib.crc32(json.dumps(content, sort_keys=True).encode())
