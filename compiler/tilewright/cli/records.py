# SPDX-License-Identifier: Apache-2.0
"""``tilewright records``: the schedules that ``tune`` has found, to see and to carry over."""

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tilewright.cli.arguments import JsonOption, RecordsOption, check_writable
from tilewright.cli.terminal import (
    command,
    counted,
    fail,
    note,
    say,
    say_json,
    say_table,
    wrong_usage,
)

if TYPE_CHECKING:
    from tilewright.autotune.records import Record, ScheduleRecords

EXAMPLES = """\b
Examples:
  tilewright records
  tilewright records --export schedules.jsonl
  tilewright records --import schedules.jsonl
"""


@command
def show_records(
    export: Annotated[
        Path | None,
        typer.Option("--export", metavar="FILE", help="Write all records there, one line each."),
    ] = None,
    source: Annotated[
        Path | None,
        typer.Option("--import", metavar="FILE", help="Add records from such a file."),
    ] = None,
    records: RecordsOption = None,
    json: JsonOption = False,
) -> None:
    """List tuned schedules, or move them between machines.

    A record only speeds up kernels of exactly its form, target and version. Imported schedules are
    proven before they are used, as all are.
    """
    if export is not None and source is not None:
        wrong_usage("Give one of --export and --import.")
    from tilewright.autotune.records import ScheduleRecords, default_path

    if export is not None:
        check_writable(export, records or default_path())
    with ScheduleRecords(records) as kept:
        if source is not None:
            _import(kept, source, json)
        elif export is not None:
            _export(kept, export, json)
        else:
            _list(list(kept), json)


def _import(kept: "ScheduleRecords", source: Path, json: bool) -> None:
    from tilewright.autotune.exchange import import_lines

    with open(source, encoding="utf-8", errors="replace") as lines:
        found, refused = import_lines(lines)
    if refused and not found:
        fail(f"File '{source}' holds no records.")
    if refused:
        left_out = counted(refused, "line")
        note(f"Left out of '{source}', since it is no record or damaged: {left_out}.")
    better = kept.keep(*found)
    if json:
        say_json({"read": len(found), "kept": better, "refused": refused})
        return
    say(f"Kept {better} of {counted(len(found), 'record')}: better than what '{kept.path}' had.")


def _export(kept: "ScheduleRecords", target: Path, json: bool) -> None:
    from tilewright.autotune.exchange import export_lines
    from tilewright.files import replacing

    count = 0
    with replacing(target) as stream:
        for line in export_lines(kept):
            stream.write(f"{line}\n".encode())
            count += 1
    if json:
        say_json({"output": str(target), "records": count})
    else:
        say(f"Wrote {counted(count, 'record')} to '{target}'.")


def kernel_name(record: "Record") -> str:
    """The kernel's name as reports have it, from the text of the kernel."""
    head = record.kernel.partition("(")[0].partition("@")[2]
    return head or hashlib.sha256(record.kernel.encode()).hexdigest()[:16]


def _list(found: "list[Record]", json: bool) -> None:
    if json:
        say_json(
            [
                {
                    "kernel": kernel_name(r),
                    "target": r.target,
                    "version": r.version,
                    "schedule": r.schedule,
                    "nanoseconds": r.nanoseconds,
                    "baseline_nanoseconds": r.baseline_nanoseconds,
                    "gain": r.gain,
                    "written": r.written,
                }
                for r in found
            ]
        )
        return
    if not found:
        say("There are no records. 'tilewright tune MODEL' makes them.")
        return
    say_table(
        ("kernel", "gain", "us", "version", "written", "target"),
        [
            (
                kernel_name(r),
                f"{r.gain:.2f}",
                f"{1e-3 * r.nanoseconds:.2f}",
                r.version,
                r.written,
                r.target,
            )
            for r in found
        ],
        right="gain,us",
    )
