# SPDX-License-Identifier: Apache-2.0
"""The compile cache: what it returns, and that a fault of the disk costs a compilation at most."""

import logging
import os
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tilewright.codegen import private_folder
from tilewright.codegen.cache import CompileCache, default_folder
from tilewright.codegen.llvm.compile import compile_many
from tilewright.ir.target import parse_target

KEY, OBJECT = b"some kernel", bytes(range(256)) * 20


@pytest.fixture
def cache(tmp_path: Path) -> CompileCache:
    return CompileCache(tmp_path / "objects")


def entries(cache: CompileCache) -> list[Path]:
    return sorted(p for p in cache.folder.glob("*/*") if p.is_file())


def test_returns_what_was_stored_under_exactly_that_key(cache: CompileCache) -> None:
    assert cache.get(KEY) is None
    cache.put(KEY, OBJECT)
    assert cache.get(KEY) == OBJECT
    assert cache.get(KEY + b" ") is None
    assert CompileCache(cache.folder).get(KEY) == OBJECT


def test_folders_and_entries_are_private(cache: CompileCache) -> None:
    cache.put(KEY, OBJECT)
    (entry,) = entries(cache)
    for path in (cache.folder, entry.parent):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
    assert stat.S_IMODE(entry.stat().st_mode) == 0o600


@pytest.mark.parametrize("damage", ["flip", "cut", "empty", "grow", "magic"])
def test_damaged_entry_is_dropped_with_a_warning(
    cache: CompileCache, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    cache.put(KEY, OBJECT)
    (entry,) = entries(cache)
    data = bytearray(entry.read_bytes())
    if damage == "flip":
        data[len(data) // 2] ^= 1
    elif damage == "magic":
        data[0] ^= 1
    entry.write_bytes({"cut": data[:-1], "empty": b"", "grow": data + b"x"}.get(damage, data))
    with caplog.at_level(logging.WARNING, "tilewright"):
        assert cache.get(KEY) is None
    assert "is damaged; it is compiled again." in caplog.text
    assert not entries(cache)


def test_every_flipped_byte_is_noticed(cache: CompileCache) -> None:
    cache.put(b"k", b"object")
    (entry,) = entries(cache)
    data = entry.read_bytes()
    for position in range(len(data)):
        entry.write_bytes(data[:position] + bytes([data[position] ^ 0x10]) + data[position + 1 :])
        assert cache.get(b"k") is None
    entry.write_bytes(data)
    assert cache.get(b"k") == b"object"


def test_entry_of_another_key_under_the_same_name_is_not_used(cache: CompileCache) -> None:
    cache.put(KEY, OBJECT)
    (entry,) = entries(cache)
    cache.put(b"other", b"wrong code")
    (other,) = (p for p in entries(cache) if p != entry)
    os.replace(other, entry)
    assert cache.get(KEY) is None


def test_full_disk_costs_a_warning_only(
    cache: CompileCache, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(private_folder.os, "replace", full)
    with caplog.at_level(logging.WARNING, "tilewright"):
        cache.put(KEY, OBJECT)
        cache.put(b"second", OBJECT)
    assert caplog.text.count("No space left on device") == 1
    assert cache.get(KEY) is None and not entries(cache), "No temporary file is left."


def test_folder_that_is_a_file(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "objects").write_text("occupied")
    cache = CompileCache(tmp_path / "objects")
    with caplog.at_level(logging.WARNING, "tilewright"):
        cache.put(KEY, OBJECT)
        assert cache.get(KEY) is None
    assert "cannot be written" in caplog.text


def test_least_recently_used_entries_go_first(tmp_path: Path) -> None:
    cache = CompileCache(tmp_path, capacity=20 * (len(OBJECT) + 400))
    for i in range(18):
        cache.put(b"%d" % i, OBJECT)
    for path in entries(cache):
        os.utime(path, (time.time() - 1000, time.time() - 1000))
    assert cache.get(b"3") == OBJECT
    for i in range(18, 24):
        cache.put(b"%d" % i, OBJECT)
    cache.trim()
    assert sum(p.stat().st_size for p in entries(cache)) <= cache.capacity
    kept = [i for i in range(24) if cache.get(b"%d" % i) == OBJECT]
    assert {3, *range(18, 24)} <= set(kept) and len(kept) >= 12


def test_stale_temporary_files_are_removed(cache: CompileCache) -> None:
    cache.put(KEY, OBJECT)
    (entry,) = entries(cache)
    left = entry.parent / ".new-abandoned"
    left.write_bytes(b"half")
    os.utime(left, (time.time() - 1e5, time.time() - 1e5))
    cache.trim()
    assert not left.exists() and entry.exists()


def test_environment_names_the_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path))
    assert default_folder() == tmp_path / "objects"
    monkeypatch.delenv("TILEWRIGHT_CACHE_DIR")
    assert default_folder().parent.name == "tilewright"


_WRITER = """
import sys
from pathlib import Path
from tilewright.codegen.cache import CompileCache
cache = CompileCache(Path(sys.argv[1]), capacity=200_000)
for turn in range(150):
    key = b"key %d" % (turn % 7)
    found = cache.get(key)
    assert found is None or found == key * 3000, len(found)
    cache.put(key, key * 3000)
"""


def test_concurrent_writers(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _WRITER, str(tmp_path)]
    path = os.pathsep.join(sys.path)
    children = [
        subprocess.Popen(command, env={**os.environ, "PYTHONPATH": path}, stderr=subprocess.PIPE)
        for _ in range(3)
    ]
    for child in children:
        _, errors = child.communicate(timeout=60)
        assert child.returncode == 0, errors.decode()
        assert b"damaged" not in errors


def test_compile_many_uses_it(cache: CompileCache, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [f"define i32 @k{i}() nounwind {{ ret i32 {i} }}" for i in range(2)]
    target = parse_target("x86-64-v3")
    first = compile_many(texts, target, cache=cache)
    monkeypatch.setattr("tilewright.codegen.llvm.compile._submit", None)
    assert compile_many(texts, target, cache=cache) == first
    with pytest.raises(TypeError):
        compile_many(texts, target, 1, cache=cache)
