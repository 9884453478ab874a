# SPDX-License-Identifier: Apache-2.0
"""Files that appear whole or not at all, whatever the path names."""

import os
import threading
from pathlib import Path
from typing import Any

import pytest

from tilewright.errors import ArgumentError, WriteError
from tilewright.files import replacing


def write(path: Path, content: bytes = b"new") -> None:
    with replacing(path) as stream:
        stream.write(b"?" * len(content))
        stream.seek(0)
        stream.write(content)


def test_a_file_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"a longer content")
    before = path.stat().st_ino
    write(path)
    assert path.read_bytes() == b"new" and path.stat().st_ino != before


@pytest.mark.parametrize("path", [None, 5, "a\0b", b"a\0b"])
def test_what_is_no_path(path: Any) -> None:
    with pytest.raises(
        ArgumentError, match=r"not by something of type '.*'\. Give a text|holds a NUL character"
    ):
        write(path)


def test_paths_may_be_bytes(tmp_path: Path) -> None:
    write(os.fsencode(tmp_path / "file"))  # type: ignore[arg-type]
    assert (tmp_path / "file").read_bytes() == b"new"


def test_failure_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with pytest.raises(MemoryError), replacing(path) as stream:
        stream.write(b"half")
        raise MemoryError
    assert path.read_bytes() == b"old" and list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("name", ["none/file", "folder"])
def test_what_cannot_be_written_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(WriteError, match=f"File '.*/{name}' cannot be written: "):
        write(tmp_path / name)
    assert os.listdir(tmp_path) == ["folder"]


def test_mode_follows_the_umask(tmp_path: Path) -> None:
    path = tmp_path / "file"
    old = os.umask(0o027)
    try:
        write(path)
    finally:
        os.umask(old)
    assert path.stat().st_mode & 0o777 == 0o640


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    link, file = tmp_path / "link", tmp_path / "folder" / "file"
    file.write_bytes(b"old")
    link.symlink_to(file)
    write(link)
    assert link.is_symlink() and file.read_bytes() == b"new"


def test_a_pipe_gets_the_content(tmp_path: Path) -> None:
    pipe, read = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
    reader.start()
    write(pipe)
    reader.join(10)
    assert read == [b"new"] and pipe.is_fifo()


def test_a_pipe_gets_nothing_of_what_fails(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(MemoryError), replacing(pipe):
        raise MemoryError
    assert pipe.is_fifo()
