# SPDX-License-Identifier: Apache-2.0
"""Folders of files that are believed: nobody but this user may have written what is read from them.

A compiled object that another user can plant is that user's code in this process. So a folder is
walked to from the root, one descriptor at a time: what lies above it must be out of other users'
reach (a sticky folder such as ``/tmp`` is, since they cannot rename what is ours in it), the folder
and what it holds must be ours, and writable by us alone. All checks are of open descriptors, so
nothing can be exchanged between check and use. Entries that are no regular files, or larger than
expected, are not even read.

What is not trusted is left alone, with one warning, and the work goes on without it.
"""

import contextlib
import errno
import grp
import logging
import os
import pwd
import secrets
import stat
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from tilewright.ir.errors import CacheError

_log = logging.getLogger("tilewright")
_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_ENTRY = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_MOST_LINKS = 40
TEMPORARY = ".new-"
"""How the names of files begin that are being written."""

_OTHER_FOLDER = (
    "Name another folder with TILEWRIGHT_CACHE_DIR, or make this one yours alone, and empty."
)
_DELETE = "Delete it."


class UntrustedError(CacheError):
    """Another user owns a file or folder, or may write it; or it is of another kind or size."""

    def __init__(self, path: str | Path, reason: str, way_out: str = _OTHER_FOLDER) -> None:
        super().__init__(f"'{path}' {reason}, so it is not used. {way_out}")


class PrivateFolder:
    """A folder, and those below it, whose files are believed.

    ``what`` names it in warnings: ``compile cache``. What is below ``top`` is ours by name, and so
    must be ours alone; ``top`` is the folder itself if not given.
    """

    def __init__(self, path: Path, what: str, top: Path | None = None) -> None:
        self.path = path
        self._what = what
        self._top = top or path

    @contextlib.contextmanager
    def reading(self, name: str, most_bytes: int) -> Iterator[IO[bytes] | None]:
        """The file ``name`` below the folder; None if there is none that can be believed."""
        try:
            stream = self._open(name, most_bytes)
        except FileNotFoundError:
            stream = None
        except (OSError, UntrustedError) as error:
            self.warn_of(error)
            stream = None
        if stream is None:
            yield None
            return
        with stream:
            yield stream

    @contextlib.contextmanager
    def replacing(self, name: str) -> Iterator[IO[bytes]]:
        """A stream whose content becomes the file ``name`` when the block ends without an error;
        folders that are missing are made. OSError or UntrustedError if that cannot be.
        """
        folder, base = self._folder_of(name, create=True)
        temporary = f"{TEMPORARY}{secrets.token_hex(8)}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            with os.fdopen(os.open(temporary, flags, 0o600, dir_fd=folder), "wb") as stream:
                try:
                    yield stream
                    stream.flush()
                    os.replace(temporary, base, src_dir_fd=folder, dst_dir_fd=folder)
                except BaseException:
                    with contextlib.suppress(OSError):
                        os.unlink(temporary, dir_fd=folder)
                    raise
        finally:
            os.close(folder)

    def remove(self, name: str) -> None:
        """Remove a file, if it is there and can be."""
        with contextlib.suppress(OSError, UntrustedError):
            folder, base = self._folder_of(name)
            try:
                os.unlink(base, dir_fd=folder)
            finally:
                os.close(folder)

    def check(self, *names: str, most_bytes: int) -> None:
        """UntrustedError unless the folder and those of the files that are there can be believed,
        or are not there yet; OSError if they cannot be looked at.
        """
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                self._open(name, most_bytes).close()

    def make(self) -> None:
        """Make the folder, and those above it, if they are missing. OSError or UntrustedError if
        that cannot be.
        """
        folder, _ = self._folder_of("any", create=True)
        os.close(folder)

    def warn_of(self, error: OSError | UntrustedError) -> None:
        """Tell why something is not used."""
        if isinstance(error, UntrustedError):
            warn_once(error)
            return
        reason = error.strerror or str(error)
        _log.warning(
            "The %s in '%s' cannot be used: %s. %s", self._what, self.path, reason, _OTHER_FOLDER
        )

    def _open(self, name: str, most_bytes: int) -> IO[bytes]:
        folder, base = self._folder_of(name)
        path = self.path / name
        try:
            entry = os.open(base, _ENTRY, dir_fd=folder)
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise UntrustedError(path, "is a symbolic link", _DELETE) from error
            if error.errno == errno.ENXIO:  # a socket
                raise UntrustedError(path, "is no regular file", _DELETE) from error
            raise
        finally:
            os.close(folder)
        try:
            _check_entry(path, os.fstat(entry), most_bytes)
            return os.fdopen(entry, "rb")
        except BaseException:
            os.close(entry)
            raise

    def _folder_of(self, name: str, create: bool = False) -> tuple[int, str]:
        """A descriptor of the folder that a file is in, and the file's name there."""
        *below, base = Path(name).parts
        folder = _walk(self._top, create)
        path = self._top
        try:
            for part in (*self.path.relative_to(self._top).parts, *below):
                path /= part
                folder = _step(folder, part, path, create)
                _check_ours(path, os.fstat(folder))
        except BaseException:
            os.close(folder)
            raise
        return folder, base


def make_folders(path: Path) -> None:
    """Make a folder, and those above it that are missing, for this user alone."""
    for folder in (*reversed(path.parents), path):
        if not folder.exists():
            with contextlib.suppress(FileExistsError):
                folder.mkdir(0o700)
    if not path.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))


def _walk(path: Path, create: bool) -> int:
    """A descriptor of a folder that is ours alone, and that nobody else can exchange for another:
    the folders above it, and those that symbolic links on the way lead to, are out of their reach.
    """
    waiting = deque((Path.cwd() / path).parts[1:])
    place, links = Path("/"), 0
    folder = os.open("/", _FOLDER)
    try:
        while waiting:
            _check_above(place, path, os.fstat(folder))
            part = waiting.popleft()
            try:
                folder = _step(folder, part, place / part, create)
                place /= part
            except _LinkError:
                links += 1
                if links > _MOST_LINKS:
                    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path)) from None
                _check_owner_above(place / part, path, os.lstat(part, dir_fd=folder))
                target = Path(os.readlink(part, dir_fd=folder))
                if target.is_absolute():
                    root = os.open("/", _FOLDER)
                    os.close(folder)
                    place, folder = Path("/"), root
                waiting.extendleft(reversed(target.parts[target.is_absolute() :]))
        _check_ours(path, os.fstat(folder))
    except BaseException:
        os.close(folder)
        raise
    return folder


class _LinkError(UntrustedError):
    """A folder's name is that of a symbolic link."""


def _step(folder: int, part: str, path: Path, create: bool) -> int:
    """A descriptor of a folder in a folder, whose own descriptor is closed then."""
    try:
        inner = os.open(part, _FOLDER, dir_fd=folder)
    except FileNotFoundError:
        if not create:
            raise
        with contextlib.suppress(FileExistsError):
            os.mkdir(part, 0o700, dir_fd=folder)
        inner = os.open(part, _FOLDER, dir_fd=folder)
    except NotADirectoryError:
        if stat.S_ISLNK(os.lstat(part, dir_fd=folder).st_mode):
            raise _LinkError(path, "is a symbolic link") from None
        raise
    os.close(folder)
    return inner


# --- whom to believe ---


def _name_of(user: int) -> str:
    try:
        return f"'{pwd.getpwuid(user).pw_name}'"
    except KeyError:
        return str(user)


def _check_ours(path: Path, status: os.stat_result, way_out: str = _OTHER_FOLDER) -> None:
    if status.st_uid != os.geteuid():
        raise UntrustedError(path, f"belongs to user {_name_of(status.st_uid)}", way_out)
    if status.st_mode & _OTHERS_WRITE:
        mode = stat.S_IMODE(status.st_mode)
        raise UntrustedError(path, f"may be written by other users (its mode is {mode:o})", way_out)


def _check_entry(path: Path, status: os.stat_result, most_bytes: int) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise UntrustedError(path, "is no regular file", _DELETE)
    _check_ours(path, status, _DELETE)
    if status.st_size > most_bytes:
        size = f"{status.st_size:,} bytes, but at most {most_bytes:,} are written there"
        raise UntrustedError(path, f"has {size}", _DELETE)


def _check_owner_above(path: Path, folder: Path, status: os.stat_result) -> None:
    """Whoever owns this program's own files decides what runs here anyway."""
    if status.st_uid not in (0, os.geteuid(), os.stat(__file__).st_uid):
        owner = _name_of(status.st_uid)
        raise UntrustedError(folder, f"is reached through '{path}', which belongs to user {owner}")


def _check_above(path: Path, folder: Path, status: os.stat_result) -> None:
    _check_owner_above(path, folder, status)
    if status.st_mode & stat.S_ISVTX or not status.st_mode & _OTHERS_WRITE:
        return
    if not status.st_mode & stat.S_IWOTH and _is_group_of_one(status.st_gid):
        return
    raise UntrustedError(folder, f"lies in '{path}', which other users may write")


def _is_group_of_one(group: int) -> bool:
    """Whether a group is this user's own, as many systems give one to each user, who then makes
    folders that the group may write.
    """
    try:
        user, found = pwd.getpwuid(os.geteuid()), grp.getgrgid(group)
    except KeyError:
        return False
    own = user.pw_gid == group and found.gr_name == user.pw_name
    return own and set(found.gr_mem) <= {user.pw_name}


_told: set[str] = set()


def warn_once(error: UntrustedError) -> None:
    """Tell, once in a process, why something is not used: every kernel of a model meets it."""
    message = str(error)
    if message not in _told:
        _told.add(message)
        _log.warning("%s", message)
