# SPDX-License-Identifier: Apache-2.0
"""A SQLite file that many processes write, and that survives what happens to files.

Write-ahead logging keeps what was committed through a kill at any moment, and lets readers go on
beside a writer. A damaged file is set aside, once, under a lock; a fresh one takes its place: what
was kept in it only saved time.
"""

import contextlib
import fcntl
import logging
import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from tilewright.ir.errors import CacheError

Result = TypeVar("Result")

_logger = logging.getLogger("tilewright")
_DAMAGE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_WAIT_SECONDS = 30.0
_RETRY_SECONDS = 0.02


class Database:
    """A database file with the tables of ``schema``; it is opened at the first use.

    ``what`` names the content in messages. CacheError if the file cannot be used.
    """

    def __init__(self, path: Path, schema: str, version: int, what: str) -> None:
        self.path = path
        self._schema = schema
        self._version = version
        self._what = what
        self._connection: sqlite3.Connection | None = None

    def __enter__(self) -> "Database":
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; the next use opens it again."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def read(self, query: str, values: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        """The rows of a query; none if there is no file yet, and none is made."""
        try:
            self.path.stat()
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise self._unusable(error.strerror or str(error)) from error
        return self._guarded(lambda c: c.execute(query, values).fetchall())

    def write(self, change: Callable[[sqlite3.Connection], Result]) -> Result:
        """Run ``change`` as one transaction, alone among writers; when this returns, it is kept."""

        def transaction(connection: sqlite3.Connection) -> Result:
            connection.execute("BEGIN IMMEDIATE")
            try:
                result = change(connection)
            except BaseException:
                connection.rollback()
                raise
            connection.commit()
            return result

        return self._guarded(transaction)

    # --- opening ---

    def _guarded(self, operation: Callable[[sqlite3.Connection], Result]) -> Result:
        """Run an operation; if the file turns out to be damaged, once more on a fresh one."""
        try:
            try:
                return operation(self._open())
            except sqlite3.DatabaseError as error:
                self.close()
                if not _is_damage(error):
                    raise
            self._set_aside()
            return operation(self._open())
        except sqlite3.DatabaseError as error:
            self.close()
            raise self._unusable(str(error)) from error
        except OSError as error:
            raise self._unusable(error.strerror or str(error)) from error

    def _unusable(self, reason: str) -> CacheError:
        return CacheError(
            f"File '{self.path}' of {self._what} cannot be used: {reason}. Name another one, or "
            "see to its permissions."
        )

    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.close(os.open(self.path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
            connection = sqlite3.connect(self.path, timeout=_WAIT_SECONDS, isolation_level=None)
            try:
                self._prepare(connection)
            except BaseException:
                connection.close()
                raise
            self._connection = connection
        return self._connection

    def _prepare(self, connection: sqlite3.Connection) -> None:
        connection.text_factory = lambda data: data.decode(errors="replace")
        _patiently(lambda: connection.execute("PRAGMA journal_mode = WAL").fetchone())
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA trusted_schema = OFF")
        (found,) = connection.execute("PRAGMA user_version").fetchone()
        if found > self._version:
            raise CacheError(
                f"File '{self.path}' of {self._what} is of a later version of Tilewright. Name "
                "another one."
            )
        if found < self._version:
            # With the number last, a process that stops between leaves the work to the next one.
            mark = f"PRAGMA user_version = {self._version}"
            script = f"BEGIN IMMEDIATE; {self._schema}; {mark}; COMMIT"
            _patiently(lambda: connection.executescript(script))

    # --- damage ---

    def _set_aside(self) -> None:
        """Rename a damaged file, unless another process has done so by now."""
        with self._lock():
            if not self._is_damaged():
                return
            kept = Path(f"{self.path}.damaged")
            # The log goes first: a fresh file must never meet the log of the old one.
            for suffix in ("-wal", "-shm"):
                with contextlib.suppress(FileNotFoundError):
                    os.replace(f"{self.path}{suffix}", f"{kept}{suffix}")
            os.replace(self.path, kept)
            _logger.warning(
                "File '%s' of %s is damaged: it is now '%s', and a fresh one takes its place.",
                self.path,
                self._what,
                kept.name,
            )

    @contextlib.contextmanager
    def _lock(self) -> Iterator[None]:
        handle = os.open(f"{self.path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)

    def _is_damaged(self) -> bool:
        try:
            with contextlib.closing(sqlite3.connect(self.path, timeout=_WAIT_SECONDS)) as c:
                return bool(c.execute("PRAGMA integrity_check(1)").fetchone() != ("ok",))
        except sqlite3.DatabaseError as error:
            return _is_damage(error)


def _is_damage(error: sqlite3.DatabaseError) -> bool:
    return (getattr(error, "sqlite_errorcode", 0) or 0) & 0xFF in _DAMAGE


def _patiently(attempt: Callable[[], Result]) -> Result:
    """Try until no other process is in the way: SQLite does not wait for all locks by itself."""
    end = time.monotonic() + _WAIT_SECONDS
    while True:
        try:
            return attempt()
        except sqlite3.OperationalError as error:
            busy = (error.sqlite_errorcode & 0xFF) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
            if not busy or time.monotonic() > end:
                raise
            time.sleep(_RETRY_SECONDS)
