# SPDX-License-Identifier: Apache-2.0
"""The tables of reductions and of extents: their models, their loops in C, their arithmetic."""

from __future__ import annotations

import json
import logging
import math
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from benchmarks import extents, plain_loops, reductions
from benchmarks.blocks import BlockPlan, Took
from benchmarks.extents import FORMS, KINDS, Sweep
from benchmarks.one_op import kernel_call, one_op
from benchmarks.reductions import Case, Row
from tilewright.frontends import import_model

QUICK = BlockPlan(rounds=1, seconds=0.002, settle=0.0, least_calls=2)


# --- models of one operator ---


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("extent", [1, 5])
def test_each_kind_is_a_model(kind: str, form: str, extent: int) -> None:
    """It is imported, its sizes fit its inputs, and the axis that is swept has the extent."""
    model, feeds = extents.build(KINDS[kind](extent), form)
    module = import_model(model)
    assert bool(module.symbols) is (form == "symbolic")
    for name, value in zip(module.input_names, module.graph.inputs, strict=True):
        assert len(value.type.shape) == feeds[name].ndim
    proto = onnx.load_from_string(model)
    shapes = [a.shape for a in feeds.values()] + [t.dims for t in proto.graph.initializer]
    assert any(n * extent in shape for shape in shapes for n in (1, 4, 8))


def test_kernels_say_what_they_took() -> None:
    x = np.ones((8, 8), np.float32)
    call = kernel_call(one_op("Neg", {"x": (np.float32, ["n", 8])}), {"x": x})
    assert all(isinstance(took, Took) and 0 < took < 1 for took in (call(), call()))


# --- plain loops ---


def test_the_loop_reads_each_element_once() -> None:
    x = np.arange(1024, dtype=np.float32).reshape(8, 128)
    took, total = plain_loops.read(x)
    assert total == 1023 * 512 and 0 <= took < 1
    for wrong in (x[:, :100], x.T, x.astype(np.float64)):
        with pytest.raises(ValueError, match="128 floats at a time"):
            plain_loops.read(wrong)


def test_the_copy_copies() -> None:
    x = np.arange(100, dtype=np.uint8)
    y = np.zeros_like(x)
    assert 0 <= plain_loops.copy(x, y) < 1
    assert (y == x).all()
    with pytest.raises(ValueError, match="as many bytes"):
        plain_loops.copy(x, y[:50])


# --- reductions ---


def test_every_reduction_and_transpose_is_there() -> None:
    rows = list(reductions.cases())
    assert len({(case.name, case.size) for case in rows}) == 3 * 3 * 2 + 4
    sizes = {"512 KiB": 512 << 10, "64 MiB": 64 << 20}
    for case in rows:
        elements = math.prod(case.shape)
        assert sizes.get(case.size, 4 * 2048 * 2048) == 4 * elements
        assert elements % plain_loops.READ_STEP == 0
    places = {"last": 1, "middle": 1, "first": 0}
    for case in rows[:9]:
        place = case.name.split()[1]
        x = np.ones(case.shape, np.float32)
        (result,) = ReferenceEvaluator(onnx.load_from_string(case.model)).run(None, {"x": x})
        assert list(result.shape) == np.delete(case.shape, places[place]).tolist()


def test_figures_of_a_row() -> None:
    row = Row("sum", "512 KiB", ours=4.0, theirs=6.0, best=3.0)
    assert row.ratio == 1.5 and row.share == 0.75
    cells = [next(iter(column.cells)) for column in reductions.as_table([row]).columns]
    assert cells == ["sum", "512 KiB", "4.0", "6.0", "1.50", "3.0", "75%"]


def test_a_row_is_measured() -> None:
    shape = (16, 128)
    model = one_op("ReduceSum", {"x": (np.float32, shape)}, {"axes": np.int64([1])}, keepdims=0)
    case = Case("sum", "8 KiB", model, shape, "float32", lambda x: lambda: Took(5e-9 * x.size))
    row = reductions.measure(case, QUICK)
    assert row.best == pytest.approx(5.0 * 2.048) and row.ours > 0 and row.theirs > 0


def test_reductions_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        reductions, "measure", lambda case, plan: Row(case.name, case.size, 2.0, 2.0, plan.rounds)
    )
    path = tmp_path / "rows.json"
    assert (
        reductions.main(["--only", "ReduceMax, first", "--rounds", "3", "--json", str(path)]) == 0
    )
    rows = json.loads(path.read_text())
    assert [(r["size"], r["share"]) for r in rows] == [("512 KiB", 1.5), ("64 MiB", 1.5)]


# --- extents ---


def test_each_extent_is_held_to_the_next_multiple() -> None:
    assert extents.extents(16) == (1, 15, 16, 17, 32, 33)
    assert [extents.next_multiple(e, 16) for e in extents.extents(16)] == [16, 16, 32, 32, 48, 48]
    assert list(extents.timed(16)) == [1, 15, 16, 17, 32, 33, 48]
    seconds = {1: 1.0, 15: 3.0, 16: 2.0, 17: 8.0, 32: 4.0, 33: 5.0, 48: 5.0}
    sweep = Sweep("k", "static", 16, seconds)
    assert sweep.ratios == {1: 0.5, 15: 1.5, 16: 0.5, 17: 2.0, 32: 0.8, 33: 1.0}
    assert sweep.worst == 2.0


@pytest.mark.parametrize(("slow", "status"), [(2.0, 0), (2.1, 1)])
def test_extents_command(
    slow: float,
    status: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def measure(kind: str, form: str, block: int, plan: BlockPlan) -> Sweep:
        assert plan.seconds == 0.01 and plan.settle < plan.seconds
        assert logger.level == logging.ERROR
        return Sweep(kind, form, block, {e: slow if e == 7 else 1.0 for e in extents.timed(block)})

    logger = logging.getLogger("tilewright")
    level = logger.level
    monkeypatch.setattr(extents, "measure", measure)
    path = tmp_path / "sweeps.json"
    arguments = ["--kind", "matmul, N", "--block", "8", "--seconds", "0.01", "--json", str(path)]
    assert extents.main(arguments) == status
    assert logger.level == level
    assert f"{slow:.2f}" in capsys.readouterr().out
    found = json.loads(path.read_text())
    assert [sweep["form"] for sweep in found] == list(FORMS)
    assert found[0]["ratios"]["7"] == slow


def test_only_what_is_over_the_bar_is_red() -> None:
    sweeps = [Sweep("k", "static", 4, {1: s, 3: 1, 4: 1, 5: 1, 8: 1, 9: 1, 12: 1}) for s in (2, 3)]
    rows = [list(column.cells) for column in extents.as_table(sweeps, 4).columns]
    assert rows[2] == rows[-1] == ["2.00", "[red]3.00[/]"]


def test_a_sweep_is_measured() -> None:
    sweep = extents.measure("elementwise, length", "symbolic", 4, QUICK)
    assert list(sweep.seconds) == [1, 3, 4, 5, 8, 9, 12]
    assert all(0 < seconds < 1 for seconds in sweep.seconds.values())
