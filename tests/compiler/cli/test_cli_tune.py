# SPDX-License-Identifier: Apache-2.0
"""``tilewright tune`` and ``tilewright records``."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tilewright
from tests.compiler.conftest import DIGITS
from tilewright.autotune.measure import Measurement, Measurer
from tilewright.autotune.records import Record, ScheduleRecords


@pytest.fixture
def lucky(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every candidate is measured as twice as fast as the default schedule."""
    original = Measurer.compare

    def compare(
        self: Measurer, kernel: Any, baseline: Any, candidate: Any, *more: Any, sizes: Any = None
    ) -> Any:
        found = original(self, kernel, baseline, candidate, 1, sizes=sizes)
        ns = found.baseline_nanoseconds
        return found if candidate is baseline else Measurement(ns / 2, ns)

    monkeypatch.setattr(Measurer, "compare", compare)


def test_tune_the_digits(ask: Callable[..., Any], tmp_path: Path) -> None:
    """The whole way, with real measurements."""
    found = ask("tune", DIGITS, "--trials", 8, "--seed", 1, "--records", "r.sqlite", "-q")
    assert (found["trials"], found["seed"]) == (8, 1)
    assert found["records"] == "r.sqlite"
    kernels = found["kernels"]
    assert len(kernels) == 8 and sum(k["trials"] for k in kernels) == 8
    assert sum(k["failed"] for k in kernels) == 0
    assert 0 < found["best_nanoseconds"] <= found["baseline_nanoseconds"]
    better = {k["name"]: k["schedule"] for k in kernels if k["schedule"]}
    listed = {r["kernel"]: r["schedule"] for r in ask("records", "--records", "r.sqlite")}
    assert listed == better


@pytest.mark.usefixtures("lucky")
def test_what_tune_finds_is_compiled(
    call: Any, ask: Callable[..., Any], digits: tilewright.CompiledModel, images: Any
) -> None:
    result = call("tune", DIGITS, "--trials", 3, "--records", "r.sqlite")
    lines = result.stdout.splitlines()
    assert lines[0].split()[:2] == ["kernel", "launches"]
    assert " 2.00 " in lines[1] and len(lines) == 12
    assert lines[9] == "Measured at batch=1; --size chooses other sizes."
    assert lines[10].startswith("3 trials found a better schedule than was known for ")
    assert lines[-1].split()[1:5] == ["of", "8", "kernels", "have"]
    built = ask("compile", DIGITS, "-o", "d.tw", "--records", "r.sqlite")
    templates = [k["template"] for k in built["kernels"]]
    assert 1 <= templates.count("tuned") <= 3
    assert ((tilewright.load("d.tw")(images) - digits(images)) ** 2).max() < 1e-6
    plain = ask("compile", DIGITS, "-o", "p.tw", "--records", "r.sqlite", "--no-tuned")
    assert "tuned" not in [k["template"] for k in plain["kernels"]]


@pytest.mark.usefixtures("lucky")
def test_records_are_carried_over(call: Any, ask: Callable[..., Any]) -> None:
    call("tune", DIGITS, "--trials", 2, "--records", "a.sqlite", "-q")
    assert "Wrote" in call("records", "--records", "a.sqlite", "--export", "a.jsonl").stdout
    with open("a.jsonl", "a") as lines:
        lines.write("damaged\n")
    result = call("records", "--records", "b.sqlite", "--import", "a.jsonl")
    assert "Left out of 'a.jsonl', since it is no record or damaged: 1 line." in result.stderr
    first, second = (ask("records", "--records", f"{n}.sqlite") for n in "ab")
    assert first == second and len(first) >= 1
    table = call("records", "--records", "b.sqlite").stdout.splitlines()
    assert len(table) == 1 + len(first) and first[0]["kernel"] in table[1]


def test_records_as_json(call: Any, ask: Callable[..., Any]) -> None:
    none = ["records", "--records", "none.sqlite"]
    assert call(*none).stdout.startswith("There are no records. 'tilewright tune MODEL'")
    assert ask(*none) == []
    with ScheduleRecords(Path("r.sqlite")) as kept:
        kept.keep(Record("kernel @k()", "x86-64", "1", "unroll(i)", 1.0, 2.0, "2020-01-01"))
    name = ["records", "--records", "r.sqlite", "--export", "r.jsonl"]
    assert call(*name).stdout == "Wrote 1 record to 'r.jsonl'.\n"
    assert ask(*name) == {"output": "r.jsonl", "records": 1}
    name = ["records", "--records", "s.sqlite", "--import", "r.jsonl"]
    assert ask(*name) == {"read": 1, "kept": 1, "refused": 0}
    assert call(*name).stdout.startswith("Kept 0 of 1 record: ")


def test_nothing_to_import(call: Any, tmp_path: Path) -> None:
    Path("bad.jsonl").write_text("{}\n")
    assert "holds no records" in call("records", "--import", "bad.jsonl", status=1).stderr
    assert "cannot be used" in call("records", "--import", "missing.jsonl", status=1).stderr
    assert (
        "Give one of"
        in call("records", "--import", "bad.jsonl", "--export", "x.jsonl", status=2).stderr
    )


@pytest.mark.usefixtures("lucky")
def test_a_second_job_says_what_is_known(call: Any) -> None:
    """It finds nothing better than what is on record, and does not say that nothing is better."""
    call("tune", DIGITS, "--trials", 4, "--records", "r.sqlite", "-q")
    text = call("tune", DIGITS, "--trials", 0, "--records", "r.sqlite", "-q").stdout
    assert "Nothing new was tried: the default schedules and those on record" in text
    assert "schedules on record are still the best that is known." in text
    assert "of 8 kernels have a better schedule" in text
    assert "No schedule" not in text


def test_sizes(ask: Callable[..., Any], call: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[dict[str, int]] = []
    original = Measurer.compare

    def compare(self: Measurer, *more: Any, sizes: Any = None) -> Any:
        seen.append(dict(sizes))
        return original(self, *more, sizes=sizes)

    monkeypatch.setattr(Measurer, "compare", compare)
    found = ask("tune", DIGITS, "--trials", 0, "--records", "r.sqlite", "--size", "batch=24")
    assert found["sizes"] == {"batch": 24}
    assert any(24 in sizes.values() for sizes in seen)
    for size, message in (
        ("rows=3", "'rows' is no symbolic dim: the model's are 'batch'."),
        ("batch=0", "Size 0 of 'batch' is not one to measure at: give one from 1 to 2147483648."),
        ("batch=100000000000", "is not one to measure at: give one from 1 to 2147483648."),
    ):
        assert message in call("tune", DIGITS, "--size", size, status=1).stderr
    assert "is not understood" in call("tune", DIGITS, "--size", "batch", status=2).stderr


def test_no_trials(ask: Callable[..., Any]) -> None:
    found = ask("tune", DIGITS, "--trials", 0, "--records", "r.sqlite")
    assert found["trials"] == 0 and len(found["kernels"]) == 8
    assert not Path("r.sqlite").exists()


def test_a_target_of_another_kind(call: Any) -> None:
    text = call("tune", DIGITS, "--target", "aarch64", status=2).stderr
    assert "cannot be measured on this machine" in text


def test_control_c_keeps_what_was_found(tmp_path: Path) -> None:
    path = tmp_path / "r.sqlite"
    command = [sys.executable, "-m", "tilewright", "tune", DIGITS, "--trials", "5000"]
    process = subprocess.Popen(
        [*map(str, command), "--records", str(path), "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
    )
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("trials: "):
            os.killpg(process.pid, signal.SIGINT)  # as a terminal does
            break
    out, err = process.communicate(timeout=120)
    assert process.returncode == 130, (out, err)
    assert "Interrupted. What was found until then is kept." in err
    assert "Traceback" not in err
    found = json.loads(out)
    better = {k["schedule"] for k in found["kernels"] if k["schedule"]}
    with ScheduleRecords(path) as records:
        assert {r.schedule for r in records} == better
