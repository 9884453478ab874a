# SPDX-License-Identifier: Apache-2.0
"""Folders that are believed: what others may have written is neither read nor replaced."""

import logging
import os
import socket
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tilewright.codegen import private_folder
from tilewright.codegen.private_folder import PrivateFolder, UntrustedError, make_folders

CONTENT = b"what we have written"
OTHER = 65534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")


@pytest.fixture(autouse=True)
def nothing_told() -> Iterator[None]:
    private_folder._told.clear()
    yield


@pytest.fixture
def top(tmp_path: Path) -> Path:
    return tmp_path / "above" / "cache"


@pytest.fixture
def folder(top: Path) -> PrivateFolder:
    """A folder with the entry ``ab/entry``, below a folder that is ours by name too."""
    made = PrivateFolder(top / "objects", "test cache", top)
    write(made)
    return made


def write(folder: PrivateFolder) -> None:
    with folder.replacing("ab/entry") as stream:
        stream.write(CONTENT)


def read(folder: PrivateFolder, most: int = 1000) -> bytes | None:
    with folder.reading("ab/entry", most) as stream:
        return None if stream is None else stream.read()


def refused(folder: PrivateFolder, caplog: pytest.LogCaptureFixture) -> str:
    """The one warning of a folder whose entry is not read, and of later tries."""
    with caplog.at_level(logging.WARNING, "tilewright"):
        assert read(folder) is None and read(folder) is None
    (warning,) = caplog.messages
    return warning


def test_what_is_written_is_read(folder: PrivateFolder) -> None:
    assert read(folder) == CONTENT
    assert read(PrivateFolder(folder.path, "test cache")) == CONTENT
    assert read(PrivateFolder(folder.path / "none", "test cache")) is None
    folder.remove("ab/entry")
    assert read(folder) is None


def test_all_folders_that_are_made_are_private(folder: PrivateFolder, top: Path) -> None:
    for path in (top.parent, top, folder.path, folder.path / "ab"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
    assert stat.S_IMODE((folder.path / "ab" / "entry").stat().st_mode) == 0o600
    make_folders(top / "x" / "y")
    for path in (top / "x", top / "x" / "y"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700


WITHIN = ["", "objects", "objects/ab", "objects/ab/entry"]


@pytest.mark.parametrize("place", WITHIN)
@pytest.mark.parametrize("mode", [0o777, 0o770, 0o720, 0o702, 0o1777, 0o666])
def test_what_others_may_write_is_not_read(
    folder: PrivateFolder, top: Path, place: str, mode: int, caplog: pytest.LogCaptureFixture
) -> None:
    (top / place).chmod(mode | 0o100)
    warning = refused(folder, caplog)
    assert f"'{top / place}' may be written by other users" in warning
    assert "Delete it" in warning or "TILEWRIGHT_CACHE_DIR" in warning


@as_root
@pytest.mark.parametrize("place", WITHIN)
def test_what_another_user_owns_is_not_read(
    folder: PrivateFolder, top: Path, place: str, caplog: pytest.LogCaptureFixture
) -> None:
    os.chown(top / place, OTHER, -1)
    assert f"'{top / place}' belongs to user " in refused(folder, caplog)


@pytest.mark.parametrize("place", WITHIN)
def test_what_others_may_only_read_is_read(folder: PrivateFolder, top: Path, place: str) -> None:
    (top / place).chmod(0o755)
    assert read(folder) == CONTENT


@pytest.mark.parametrize("place", WITHIN[:3])
def test_nothing_is_written_where_others_may_write(
    folder: PrivateFolder, top: Path, place: str
) -> None:
    (top / place).chmod(0o777)
    with pytest.raises(UntrustedError, match="may be written by other users"):
        write(folder)
    (top / place).chmod(0o700)
    assert read(folder) == CONTENT


# --- what lies above ---


def test_a_folder_above_that_others_may_write(
    folder: PrivateFolder, top: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """They could put another folder into its place."""
    top.parent.chmod(0o777)
    assert f"lies in '{top.parent}', which other users may write" in refused(folder, caplog)


def test_a_sticky_folder_above_is_no_danger(folder: PrivateFolder, top: Path) -> None:
    top.parent.chmod(0o1777)
    assert read(folder) == CONTENT


@pytest.mark.parametrize("alone", [True, False])
def test_a_group_above(
    folder: PrivateFolder,
    top: Path,
    alone: bool,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Many systems give each user a group of one, which may write what the user makes."""
    monkeypatch.setattr(private_folder, "_is_group_of_one", lambda group: alone)
    top.parent.chmod(0o775)
    if alone:
        assert read(folder) == CONTENT
    else:
        assert "which other users may write" in refused(folder, caplog)


@as_root
def test_another_users_folder_above(
    folder: PrivateFolder, top: Path, caplog: pytest.LogCaptureFixture
) -> None:
    os.chown(top.parent, OTHER, -1)
    assert f"is reached through '{top.parent}', which belongs" in refused(folder, caplog)


@pytest.mark.parametrize("relative", [True, False])
def test_links_of_the_user_above_are_followed(
    folder: PrivateFolder, top: Path, tmp_path: Path, relative: bool
) -> None:
    link = tmp_path / "link"
    link.symlink_to(Path("above/../above") if relative else top.parent)
    linked = PrivateFolder(link / "cache" / "objects", "test cache", link / "cache")
    assert read(linked) == CONTENT
    write(linked)
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    assert read(PrivateFolder(loop / "x", "test cache")) is None


@as_root
def test_a_link_of_another_user_above(
    top: Path, folder: PrivateFolder, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """In a folder such as ``/tmp`` anybody may make one that leads to a folder of ours."""
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    link = shared / "link"
    link.symlink_to(top)
    os.chown(link, OTHER, -1, follow_symlinks=False)
    assert "belongs to user" in refused(PrivateFolder(link / "objects", "test cache"), caplog)


def test_a_relative_path(
    folder: PrivateFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path / "above")
    assert read(PrivateFolder(Path("cache/objects"), "test cache")) == CONTENT
    assert read(PrivateFolder(Path("../above/cache/objects"), "test cache")) == CONTENT


# --- entries ---


def make_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as s:
        os.chdir(path.parent)  # the names of sockets are short
        s.bind(path.name)


def make_sparse(path: Path) -> None:
    path.touch(0o600)
    os.truncate(path, 1 << 40)


def make_hard_link(path: Path) -> None:
    """To a file that others may write."""
    other = path.with_name("other")
    other.write_bytes(CONTENT)
    other.chmod(0o666)
    path.hardlink_to(other)


ODD: dict[str, tuple[Callable[[Path], object], str]] = {
    "fifo": (os.mkfifo, "is no regular file"),
    "socket": (make_socket, "is no regular file"),
    "device": (lambda path: path.symlink_to("/dev/zero"), "is a symbolic link"),
    "link": (lambda path: path.symlink_to("../../elsewhere"), "is a symbolic link"),
    "folder": (os.mkdir, "is no regular file"),
    "sparse": (make_sparse, "has 1,099,511,627,776 bytes"),
    "hard link": (make_hard_link, "may be written by other users"),
}


@pytest.mark.parametrize("kind", ODD)
def test_odd_entries_are_not_read(
    folder: PrivateFolder,
    top: Path,
    kind: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(top)
    make, reason = ODD[kind]
    entry = folder.path / "ab" / "entry"
    (top / "elsewhere").write_bytes(CONTENT)
    entry.unlink()
    make(entry)
    warning = refused(folder, caplog)
    assert f"'{entry}' {reason}" in warning and warning.endswith("Delete it.")
    if kind != "folder":  # another takes its place
        write(folder)
        assert read(folder) == CONTENT
    assert (top / "elsewhere").read_bytes() == CONTENT


def test_an_entry_of_just_the_size(folder: PrivateFolder) -> None:
    assert read(folder, len(CONTENT)) == CONTENT
    assert read(folder, len(CONTENT) - 1) is None


def test_a_folder_that_is_a_link(
    folder: PrivateFolder, top: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Below what is ours by name there are none of our own."""
    folder.path.rename(top / "moved")
    folder.path.symlink_to("moved")
    assert f"'{folder.path}' is a symbolic link" in refused(folder, caplog)


def test_a_folder_that_is_a_file(top: Path, caplog: pytest.LogCaptureFixture) -> None:
    make_folders(top)
    (top / "objects").touch()
    folder = PrivateFolder(top / "objects", "test cache", top)
    with caplog.at_level(logging.WARNING, "tilewright"):
        assert read(folder) is None
    assert "The test cache in" in caplog.text and "Not a directory" in caplog.text
    with pytest.raises(NotADirectoryError):
        write(folder)
    with pytest.raises(NotADirectoryError):
        make_folders(top / "objects")


def test_an_error_leaves_nothing(folder: PrivateFolder) -> None:
    with pytest.raises(KeyboardInterrupt), folder.replacing("ab/entry") as stream:
        stream.write(b"half")
        raise KeyboardInterrupt
    assert read(folder) == CONTENT
    assert os.listdir(folder.path / "ab") == ["entry"]


def test_no_descriptor_is_left_open(folder: PrivateFolder, top: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for mode in (0o700, 0o777):
        top.chmod(mode)
        read(folder)
        folder.remove("ab/none")
        read(PrivateFolder(top / "none", "test cache"))
    assert len(os.listdir("/proc/self/fd")) == before
