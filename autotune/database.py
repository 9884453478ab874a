# SPDX-License-Identifier: Apache-2.0
"""A SQLite file that many processes write, and that survives what happens to files.

Write-ahead logging keeps what was committed through a kill at any moment, and lets readers go on
beside a writer. A damaged file is set aside, once, under a lock; a fresh one takes its place: what
was kept in it only saved time. Only a file that is a database of ours is ever written or moved: any
other that a user names by mistake is refused.
"""

import contextlib
import errno
import fcntl
import logging
import os
import sqlite3
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from tilewright.codegen.private_folder import PrivateFolder, make_folders
from tilewright.ir.errors import CacheError

Result = TypeVar("Result")

_logger = logging.getLogger("tilewright")
_DAMAGE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_MAGIC = b"SQLite format 3\0"
_BESIDE = ("-wal", "-shm", "-journal")
"""How the names of SQLite's own files beside a database end."""

_MOST_BYTES = 1 << 30
_WAIT_SECONDS = 30.0
_RETRY_SECONDS = 0.02


class Database:
    """A database file with one table, made by ``schema``; it is opened at the first use.

    ``what`` names the content in messages. ``own`` says that nobody named the file: it is in a
    folder of ours, which must be private, and one that is no database must be a damaged one.
    CacheError if the file cannot be used.
    """

    def __init__(
        self, path: Path, table: str, schema: str, version: int, what: str, own: bool = False
    ) -> None:
        self.path = path
        self._table = table
        self._schema = schema
        self._version = version
        self._what = what
        self._own = own
        self._folder = PrivateFolder(path.parent, what)
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
        """The rows of a query; none if there is no file yet, and none is made.

        A damaged file is set aside.
        """
        return self._guarded(lambda c: self._rows(c, query, values)) if self._exists() else []

    def look(self, query: str, values: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        """As :meth:`read`, but nothing is made or moved; CacheError if the file is damaged."""
        if not self._exists():
            return []
        try:
            self._refuse_others()
            with contextlib.closing(self._connect()) as connection:
                self._check_version(connection)
                return self._rows(connection, query, values)
        except sqlite3.DatabaseError as error:
            if _is_damage(error):
                raise CacheError(
                    f"File '{self.path}' of {self._what} is damaged. Delete it, or name another "
                    "one."
                ) from error
            raise self._unusable(str(error)) from error
        except OSError as error:
            raise self._unusable(error.strerror or str(error)) from error

    def _exists(self) -> bool:
        try:
            self.path.stat()
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            raise self._unusable(error.strerror or str(error)) from error
        return True

    def _rows(
        self, connection: sqlite3.Connection, query: str, values: tuple[Any, ...]
    ) -> list[tuple[Any, ...]]:
        """The rows of a query; none if the table has not been made yet."""
        if self._table not in _tables(connection):
            return []
        return connection.execute(query, values).fetchall()

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
            self._make()
            self._refuse_others()
            connection = self._connect()
            try:
                self._prepare(connection)
            except BaseException:
                connection.close()
                raise
            self._connection = connection
        return self._connection

    def _make(self) -> None:
        """Make the file if it is missing, and the folders above it."""
        if self._own:
            self._folder.make()
        else:
            make_folders(self.path.parent)
        flags = os.O_RDONLY | os.O_CREAT | os.O_NONBLOCK | os.O_CLOEXEC
        os.close(os.open(self.path, flags, 0o600))

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, timeout=_WAIT_SECONDS, isolation_level=None)
        connection.text_factory = lambda data: data.decode(errors="replace")
        connection.execute("PRAGMA trusted_schema = OFF")
        return connection

    def _refuse_others(self) -> None:
        """CacheError for a file that is no database: it is somebody's, and named by mistake; and
        for one of ours that another user may have written.
        """
        if self._own:
            names = [f"{self.path.name}{suffix}" for suffix in ("", *_BESIDE)]
            self._folder.check(*names, most_bytes=_MOST_BYTES)
            return
        handle = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(handle, "rb") as file:
            kind = os.fstat(handle).st_mode
            if stat.S_ISDIR(kind):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(self.path))
            head = file.read(len(_MAGIC)) if stat.S_ISREG(kind) else b"?"
        if head and head != _MAGIC:
            raise self._other()

    def _other(self) -> CacheError:
        return CacheError(f"'{self.path}' is not a file of {self._what}. Name another one.")

    def _check_version(self, connection: sqlite3.Connection) -> int:
        """The version of the tables; CacheError for a later one, and for another program's file."""
        tables = _tables(connection)
        if tables and self._table not in tables:
            raise self._other()
        (found,) = connection.execute("PRAGMA user_version").fetchone()
        if found > self._version:
            raise CacheError(
                f"File '{self.path}' of {self._what} is of a later version of Tilewright. Name "
                "another one."
            )
        return int(found)

    def _prepare(self, connection: sqlite3.Connection) -> None:
        _patiently(lambda: self._check_version(connection))
        _patiently(lambda: connection.execute("PRAGMA journal_mode = WAL").fetchone())
        connection.execute("PRAGMA synchronous = FULL")
        if self._check_version(connection) < self._version:
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
            kept = self._free_name()
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

    def _free_name(self) -> Path:
        """``FILE.damaged``, with a number if files that were set aside before have that name."""
        kept, number = Path(f"{self.path}.damaged"), 1
        while any(os.path.lexists(f"{kept}{suffix}") for suffix in ("", "-wal", "-shm")):
            number += 1
            kept = Path(f"{self.path}.damaged-{number}")
        return kept

    @contextlib.contextmanager
    def _lock(self) -> Iterator[None]:
        """Hold ``FILE.lock``, which is gone afterwards."""
        path = f"{self.path}.lock"
        while True:
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX)
                if _is_at(handle, path):  # else who held it before has removed it: it locks nothing
                    try:
                        yield
                    finally:
                        os.unlink(path)
                    return
            finally:
                os.close(handle)

    def _is_damaged(self) -> bool:
        try:
            with contextlib.closing(sqlite3.connect(self.path, timeout=_WAIT_SECONDS)) as c:
                return bool(c.execute("PRAGMA integrity_check(1)").fetchone() != ("ok",))
        except sqlite3.DatabaseError as error:
            return _is_damage(error)


def _is_at(handle: int, path: str) -> bool:
    """Whether an open file is the one that lies at the path now."""
    try:
        return os.path.samestat(os.fstat(handle), os.stat(path))
    except FileNotFoundError:
        return False


def _tables(connection: sqlite3.Connection) -> set[str]:
    """The names of a database's tables."""
    rows = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    return {str(name) for (name,) in rows}


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
