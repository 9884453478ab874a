# SPDX-License-Identifier: Apache-2.0
"""The schedule cache: what is found, what survives a kill, many writers, damage and bad content."""

import contextlib
import logging
import os
import signal
import sqlite3
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tilewright.autotune import database
from tilewright.autotune import records as records_module
from tilewright.autotune.exchange import export_lines, import_lines
from tilewright.autotune.records import (
    Record,
    ScheduleRecords,
    checked_record,
    default_path,
    stored_schedules,
)
from tilewright.ir.errors import CacheError
from tilewright.ir.loop import Kernel
from tilewright.ir.target import Target

RECORD = Record(
    "kernel @k", "x86-64+avx2,cores=2", "1.0", "unroll(i)", 50.0, 100.0, "2026-01-01T00:00:00+00:00"
)


def found(path: Path, like: Record = RECORD) -> Record | None:
    with ScheduleRecords(path) as records:
        return records.find(like.kernel, like.target, like.version)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "schedules.sqlite"


def keep(path: Path, *records: Record) -> int:
    with ScheduleRecords(path) as kept:
        return kept.keep(*records)


def test_what_is_kept_is_found(path: Path) -> None:
    assert found(path) is None
    assert not path.exists()  # looking makes no file
    assert keep(path, RECORD) == 1
    assert found(path) == RECORD
    assert RECORD.gain == 2.0
    for other in (
        replace(RECORD, kernel="kernel @l"),
        replace(RECORD, target="x86-64,cores=2"),
        replace(RECORD, version="1.1"),
    ):
        assert found(path, other) is None


def test_only_its_owner_may_read_it(path: Path) -> None:
    keep(path, RECORD)
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_the_greater_gain_stays(path: Path) -> None:
    better = replace(RECORD, schedule="unroll(j)", nanoseconds=40.0)
    # A slower machine, yet a greater gain over the default schedule on it.
    best = replace(RECORD, schedule="unroll(k)", nanoseconds=300.0, baseline_nanoseconds=1200.0)
    assert [keep(path, r) for r in (RECORD, better, RECORD, best, better)] == [1, 1, 0, 1, 0]
    assert found(path) == best
    with ScheduleRecords(path) as records:
        assert list(records) == [best]
        records.forget(best.kernel, best.target, best.version)
        assert list(records) == []


def test_the_text_of_the_kernel_decides(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records_module, "_hash", lambda kernel: "the same")
    keep(path, RECORD)
    assert found(path) == RECORD
    assert found(path, replace(RECORD, kernel="kernel @other")) is None


def test_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path))
    assert default_path() == tmp_path / "schedules.sqlite"
    monkeypatch.delenv("TILEWRIGHT_CACHE_DIR")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    assert default_path() == tmp_path / "data" / "tilewright" / "schedules.sqlite"


# --- processes ---

WRITER = """
import sys
from dataclasses import replace
from pathlib import Path
from tests.autotune.test_records import RECORD
from tilewright.autotune.records import ScheduleRecords

name, count = sys.argv[2], int(sys.argv[3])
with ScheduleRecords(Path(sys.argv[1])) as records:
    for number in range(count):
        assert records.keep(replace(RECORD, kernel=f"{name} {number}")) == 1
        print(number, flush=True)
"""


def writer(path: Path, name: str, count: int) -> "subprocess.Popen[str]":
    root = Path(__file__).parent.parent.parent
    paths = os.pathsep.join([str(root), *(p for p in sys.path if p)])
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path), name, str(count)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": paths},
    )


def test_kill_loses_nothing_that_was_kept(path: Path) -> None:
    process = writer(path, "k", 1_000_000)
    assert process.stdout is not None
    told = -1
    for line in process.stdout:
        told = int(line)
        if told >= 20:
            break
    process.send_signal(signal.SIGKILL)
    told = max([told, *(int(x) for x in process.stdout if x.endswith("\n"))])
    process.wait()
    process.stdout.close()
    with ScheduleRecords(path) as records:
        names = {r.kernel for r in records}
    assert {f"k {n}" for n in range(told + 1)} <= names
    assert len(names) <= told + 2
    assert keep(path, RECORD) == 1


def test_writers_at_the_same_time(path: Path) -> None:
    processes = [writer(path, f"w{n}", 25) for n in range(3)]
    for process in processes:
        process.communicate(timeout=60)
        assert process.returncode == 0
    with ScheduleRecords(path) as records:
        kernels = [r.kernel for r in records]
    assert sorted(kernels) == sorted(f"w{n} {i}" for n in range(3) for i in range(25))


# --- damage ---


def damage_start(path: Path) -> None:
    path.write_bytes(b"SQLite format 3\0" + b"no database" * 1000)


def damage_middle(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[100:] = os.urandom(len(data) - 100)
    path.write_bytes(data)


@pytest.mark.parametrize("damage", [damage_start, damage_middle])
def test_a_damaged_file_is_set_aside(
    path: Path, damage: Any, caplog: pytest.LogCaptureFixture
) -> None:
    keep(path, *(replace(RECORD, kernel=f"k{n}") for n in range(50)))
    damage(path)
    with caplog.at_level(logging.WARNING, "tilewright"):
        assert found(path) is None
        assert keep(path, RECORD) == 1
        assert found(path) == RECORD
    (warning,) = caplog.messages
    assert "is damaged" in warning and str(path) in warning
    assert path.with_name("schedules.sqlite.damaged").exists()


def files_of(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in folder.iterdir()}


def test_what_was_set_aside_before_stays(path: Path) -> None:
    for number in range(3):
        keep(path, replace(RECORD, kernel=f"k{number}"))
        path.write_bytes(b"SQLite format 3\0" + bytes([number]) * 5000)
    keep(path, RECORD)
    names = ["", ".damaged", ".damaged-2", ".damaged-3"]
    assert sorted(files_of(path.parent)) == [f"{path.name}{suffix}" for suffix in names]
    assert path.with_name(f"{path.name}.damaged-2").read_bytes().endswith(bytes([1]) * 5000)


def make_text(path: Path) -> None:
    path.write_bytes(b"\x08\x07\x12\x04onnx" * 1000)


def make_short_text(path: Path) -> None:
    path.write_bytes(b"short")


def make_other_database(path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE history (url TEXT)")
        connection.execute("PRAGMA user_version = 7")


@pytest.mark.parametrize("make", [make_text, make_short_text, make_other_database])
def test_a_file_of_something_else_is_left_alone(path: Path, make: Any) -> None:
    path.parent.mkdir()
    make(path)
    before = files_of(path.parent)
    with ScheduleRecords(path) as records:
        for use in (lambda: list(records), lambda: found(path), lambda: keep(path, RECORD)):
            with pytest.raises(CacheError, match=r"'.*' is not a file of schedule records\."):
                use()
    assert files_of(path.parent) == before


def test_the_default_file_is_ours_whatever_is_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path))
    records_module.default_path().write_bytes(b"no database" * 1000)
    with ScheduleRecords() as records:
        assert records.keep(RECORD) == 1
    assert sorted(files_of(tmp_path)) == ["schedules.sqlite", "schedules.sqlite.damaged"]


def test_looking_leaves_everything_as_it_is(path: Path) -> None:
    with ScheduleRecords(path) as records:
        assert list(records) == []
    assert not path.parent.exists()
    path.parent.mkdir()
    for content in (b"", b"SQLite format 3\0" + b"no database" * 1000):
        path.write_bytes(content)
        with ScheduleRecords(path) as records:
            if content:
                with pytest.raises(CacheError, match="is damaged"):
                    list(records)
            else:
                assert list(records) == []
        assert files_of(path.parent) == {path.name: content}


def test_an_empty_file_is_a_fresh_one(path: Path) -> None:
    path.parent.mkdir()
    path.touch()
    assert found(path) is None
    assert keep(path, RECORD) == 1


def test_a_file_of_a_later_version(path: Path) -> None:
    keep(path, RECORD)
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(CacheError, match="later version of Tilewright"):
        found(path)


def test_a_place_that_cannot_be_used(
    tmp_path: Path, product: Kernel, target: Target, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    for place in (tmp_path, tmp_path / "file" / "below.sqlite"):
        with pytest.raises(CacheError, match="cannot be used"):
            keep(place, RECORD)
    with caplog.at_level(logging.WARNING, "tilewright"):
        assert stored_schedules({product.name: product}, target, "1.0", tmp_path) == {}
    (warning,) = caplog.messages
    assert "The default schedules are used." in warning


def long_name(path: Path) -> Path:
    path.parent.mkdir()
    return path.with_name("x" * 300)


def no_place_for_damage(path: Path) -> Path:
    """A damaged file that cannot be set aside."""
    keep(path, RECORD)
    damage_start(path)
    Path(f"{path}.lock").mkdir()
    return path


@pytest.mark.parametrize("make", [long_name, no_place_for_damage])
def test_compiling_goes_on_where_the_system_refuses(
    path: Path, product: Kernel, target: Target, make: Any, caplog: pytest.LogCaptureFixture
) -> None:
    refused = make(path)
    with pytest.raises(CacheError, match="cannot be used"):
        found(refused)
    with caplog.at_level(logging.WARNING, "tilewright"):
        assert stored_schedules({product.name: product}, target, "1.0", refused) == {}
    assert ["The default schedules are used." in m for m in caplog.messages] == [True]


def test_a_name_below_a_file_is_no_file(path: Path) -> None:
    keep(path, RECORD)
    assert found(path / "below") is None


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("nanoseconds", -1.0),
        ("nanoseconds", float("inf")),
        ("nanoseconds", "fast"),
        ("schedule", b"\xff\x00"),
        ("schedule", "x" * (records_module.MOST_TEXT + 1)),
    ],
)
def test_rows_that_make_no_sense_are_not_found(path: Path, column: str, value: Any) -> None:
    keep(path, RECORD)
    with sqlite3.connect(path) as connection:
        connection.execute(f"UPDATE records SET {column} = ?", (value,))
    connection.close()
    assert found(path) is None
    with ScheduleRecords(path) as records:
        assert list(records) == []


def test_fields_are_checked() -> None:
    values = list(vars(RECORD).values())
    assert checked_record(values) == RECORD
    assert checked_record(values[:-1]) is None
    assert checked_record([*values[:4], True, *values[5:]]) is None
    assert checked_record([None, *values[1:]]) is None


# --- exchange ---


def test_records_travel_as_lines(path: Path) -> None:
    sent = [replace(RECORD, kernel=f'kernel @k{n} "é\n"') for n in range(3)]
    lines = list(export_lines(sent))
    assert all("\n" not in line for line in lines)
    assert import_lines([*lines, "", "\n"]) == (sent, 0)


@pytest.mark.parametrize(
    "change",
    [
        lambda line: line[: len(line) // 2],
        lambda line: line.replace("unroll(i)", "unroll(j)"),
        lambda line: line.replace("schedule-1", "schedule-2"),
        lambda line: "[" * 100_000,
        lambda line: '"text"',
        lambda line: "{}",
        lambda line: "null",
    ],
)
def test_a_damaged_line_is_left_out(change: Any) -> None:
    good, bad = export_lines([replace(RECORD, kernel="other"), RECORD])
    assert import_lines([good, change(bad)]) == ([replace(RECORD, kernel="other")], 1)


def test_a_line_of_any_length() -> None:
    """Four times the longest text of a record is read, blanks included; more is not looked at."""
    (line,) = export_lines([RECORD])
    most = 4 * records_module.MOST_TEXT
    assert import_lines([line.ljust(most)]) == ([RECORD], 0)
    assert import_lines([line.ljust(most + 1)]) == ([], 1)


def test_a_database_that_is_busy_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "_WAIT_SECONDS", 0.2)
    monkeypatch.setattr(database, "_RETRY_SECONDS", 0.001)

    def fails(code: int, times: int) -> Callable[[], int]:
        left = [times]

        def attempt() -> int:
            left[0] -= 1
            if left[0] >= 0:
                error = sqlite3.OperationalError("in the way")
                error.sqlite_errorcode = code
                raise error
            return -left[0]

        return attempt

    for code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_BUSY_SNAPSHOT):
        assert database._patiently(fails(code, 3)) == 1
    start = time.monotonic()
    with pytest.raises(sqlite3.OperationalError):
        database._patiently(fails(sqlite3.SQLITE_BUSY, 10**9))
    assert 0.15 < time.monotonic() - start < 5
    once = fails(sqlite3.SQLITE_FULL, 1)
    with pytest.raises(sqlite3.OperationalError):
        database._patiently(once)
    assert once() == 1  # it was tried but once
