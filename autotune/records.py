# SPDX-License-Identifier: Apache-2.0
"""The schedule cache: for each kernel form and target the best schedule that was measured.

A record is a hint, not code: whoever uses it parses, applies and proves the schedule as if anyone
had written it. So the file may come from anywhere; at worst it costs time.

Records of another version of the compiler are kept, but not found: they were measured against
default schedules that may be better by now.
"""

from __future__ import annotations

import hashlib
import logging
import math
import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import astuple, dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewright.autotune.database import Database
from tilewright.codegen.private_folder import UntrustedError, warn_once
from tilewright.ir.errors import CacheError

if TYPE_CHECKING:
    from tilewright.ir.loop import Kernel
    from tilewright.ir.target import Target

FILE_NAME = "schedules.sqlite"
MOST_TEXT = 1 << 20
"""The longest text of a kernel or a schedule that is kept, in characters."""

_logger = logging.getLogger("tilewright")
_SCHEMA = """
CREATE TABLE IF NOT EXISTS records (
    kernel_sha256 TEXT NOT NULL,
    kernel TEXT NOT NULL,
    target TEXT NOT NULL,
    version TEXT NOT NULL,
    schedule TEXT NOT NULL,
    nanoseconds REAL NOT NULL,
    baseline_nanoseconds REAL NOT NULL,
    written TEXT NOT NULL,
    PRIMARY KEY (kernel_sha256, target, version)
)"""
_COLUMNS = "kernel, target, version, schedule, nanoseconds, baseline_nanoseconds, written"


def default_path() -> Path:
    """In ``TILEWRIGHT_CACHE_DIR``, else in the user's folder for data."""
    chosen = os.environ.get("TILEWRIGHT_CACHE_DIR")
    if chosen:
        return Path(chosen) / FILE_NAME
    import platformdirs

    return Path(platformdirs.user_data_dir("tilewright")) / FILE_NAME


def now() -> str:
    """The time in UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


@dataclass(frozen=True)
class Record:
    """A measured schedule. ``kernel`` is the text of the unscheduled kernel; both times are of one
    process that ran the schedule and the default one in turn.
    """

    kernel: str
    target: str
    version: str
    schedule: str
    nanoseconds: float
    baseline_nanoseconds: float
    written: str

    @property
    def gain(self) -> float:
        """How many times faster than the default schedule."""
        return self.baseline_nanoseconds / self.nanoseconds


def checked_record(values: Iterable[Any]) -> Record | None:
    """A record of these fields in order, or None if they are no sensible ones."""
    found = list(values)
    wanted: list[type] = [float if "nanoseconds" in f.name else str for f in fields(Record)]
    if len(found) != len(wanted):
        return None
    for value, kind in zip(found, wanted, strict=True):
        if kind is str and not (isinstance(value, str) and len(value) <= MOST_TEXT):
            return None
        if kind is float and not (
            isinstance(value, int | float)
            and not isinstance(value, bool)
            and math.isfinite(value)
            and value > 0
        ):
            return None
    return Record(*found)


class ScheduleRecords:
    """The records in a file, which several processes may use at once."""

    def __init__(self, path: Path | None = None) -> None:
        place = path or default_path()
        own = place == default_path()
        self._database = Database(place, "records", _SCHEMA, 1, "schedule records", own)

    @property
    def path(self) -> Path:
        return self._database.path

    def __enter__(self) -> ScheduleRecords:
        return self

    def __exit__(self, *raised: object) -> None:
        self._database.close()

    def find(self, kernel: str, target: str, version: str) -> Record | None:
        """The record of exactly this kernel, target and version."""
        rows = self._database.read(
            f"SELECT {_COLUMNS} FROM records"
            " WHERE kernel_sha256 = ? AND target = ? AND version = ?",
            (_hash(kernel), target, version),
        )
        record = checked_record(rows[0]) if rows else None
        return record if record is not None and record.kernel == kernel else None

    def keep(self, *records: Record) -> int:
        """Keep those that gain more than what is there, in one transaction; returns how many."""
        return self._database.write(lambda connection: sum(_put(connection, r) for r in records))

    def revise(self, record: Record) -> None:
        """Put a record in the place of what is there, whatever that gains: it was measured anew."""
        self._database.write(lambda connection: _put(connection, record, always=True))

    def forget(self, kernel: str, target: str, version: str) -> None:
        """Remove the record of a kernel, target and version."""
        self._database.write(
            lambda connection: connection.execute(
                "DELETE FROM records WHERE kernel_sha256 = ? AND target = ? AND version = ?",
                (_hash(kernel), target, version),
            )
        )

    def __iter__(self) -> Iterator[Record]:
        rows = self._database.look(
            f"SELECT {_COLUMNS} FROM records ORDER BY target, version, kernel_sha256"
        )
        return (record for row in rows if (record := checked_record(row)) is not None)


def stored_schedules(
    kernels: Mapping[str, Kernel], target: Target, version: str, path: Path | None = None
) -> dict[str, str]:
    """The schedules on record by the kernel's name; a file that cannot be used is only a warning.

    They are untrusted: each must be proven before it is used.
    """
    found: dict[str, str] = {}
    try:
        with ScheduleRecords(path) as records:
            for name, kernel in kernels.items():
                record = records.find(str(kernel), str(target), version)
                if record is not None:
                    found[name] = record.schedule
    except UntrustedError as error:
        warn_once(error)
    except CacheError as error:
        _logger.warning("%s The default schedules are used.", error)
    return found


def _hash(kernel: str) -> str:
    return hashlib.sha256(kernel.encode()).hexdigest()


def _put(connection: sqlite3.Connection, record: Record, always: bool = False) -> int:
    marks = ", ".join("?" * (1 + len(fields(Record))))
    better = (
        " WHERE excluded.nanoseconds * baseline_nanoseconds"
        " < nanoseconds * excluded.baseline_nanoseconds"
    )
    cursor = connection.execute(
        f"INSERT INTO records (kernel_sha256, {_COLUMNS}) VALUES ({marks})"
        " ON CONFLICT (kernel_sha256, target, version) DO UPDATE SET"
        " kernel = excluded.kernel, schedule = excluded.schedule,"
        " nanoseconds = excluded.nanoseconds,"
        " baseline_nanoseconds = excluded.baseline_nanoseconds, written = excluded.written"
        + ("" if always else better),
        (_hash(record.kernel), *astuple(record)),
    )
    return max(0, cursor.rowcount)
