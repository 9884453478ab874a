# SPDX-License-Identifier: Apache-2.0
"""Random models against two references, and that what checks them notices what it should."""

import os
import signal
from dataclasses import replace

import numpy as np
import pytest

from tests.random_graphs import hunt as hunt_module
from tests.random_graphs.check import FAULTS, Outcome, check, difference
from tests.random_graphs.drawing import draw
from tests.random_graphs.hunt import Child, hunt, smallest
from tests.random_graphs.judge import Overflow, judge, unit
from tests.random_graphs.minimise import minimise
from tests.random_graphs.spec import FLOATS, Node, Spec, Tensor
from tests.targets import fixed_target

F32 = np.dtype(np.float32)


def chain(*operators: str, dtype: np.dtype = F32) -> Spec:
    """Operators of one operand, one after another, on 40 numbers."""
    names = [f"v{i}" for i in range(len(operators) + 1)]
    tensors = {n: Tensor(n, dtype, (40,), n == "v0") for n in names}
    nodes = [Node(op, (a,), (b,)) for op, a, b in zip(operators, names, names[1:])]
    x = np.linspace(-3, 3, 40).astype(dtype)
    return Spec(0, tensors, tuple(nodes), ("v0",), {}, (names[-1],), ({"v0": x},))


@pytest.mark.parametrize("seed", range(20))
def test_graph(seed: int) -> None:
    outcome = check(draw(seed), fixed_target())
    assert outcome.kind in ("same", "skipped"), outcome


@pytest.mark.slow
def test_many_graphs() -> None:
    summary = hunt(range(10_000), 3000)
    assert summary.compared == 3000
    assert summary.kinds["same"] > 0.97 * 3000
    assert not summary.faults


def test_equal_seeds_draw_equal_graphs() -> None:
    for seed in range(30):
        first, again = draw(seed), draw(seed)
        assert first.to_onnx() == again.to_onnx()
        for one, other in zip(first.feeds, again.feeds, strict=True):
            assert all(one[n].tobytes() == other[n].tobytes() for n in first.inputs)


def test_graphs_are_of_many_kinds() -> None:
    specs = [draw(seed) for seed in range(400)]
    used = {n.op for spec in specs for n in spec.nodes}
    assert len(used) > 90
    kinds = {spec.tensors[n].dtype for spec in specs for n in spec.tensors}
    assert set(FLOATS) <= kinds
    assert sum(len(s.feeds) > 1 for s in specs) > 100
    assert sum(len(s.outputs) > 1 for s in specs) > 100
    sizes = {d for s in specs for feed in s.feeds for a in feed.values() for d in a.shape}
    assert {0, 1, 7, 8, 9, 15, 16, 17, 31, 32, 33} <= sizes


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_the_judge_notices_an_error_of_some_bits(dtype: np.dtype) -> None:
    spec = chain("Tanh", "Sin", dtype=dtype)
    verdict = judge(spec, spec.feeds[0])
    wanted = verdict.values["v2"]
    assert (verdict.errors["v2"] < 200 * unit(dtype)).all()
    right = wanted.astype(dtype)
    assert difference(spec, "v2", {"v2": right}, verdict, []) == ""
    wrong = right.copy()
    wrong[7] = wanted[7] * (1 + 400 * unit(dtype))
    assert "at (7,), which may be off by" in difference(spec, "v2", {"v2": wrong}, verdict, [])
    wrong[7] = np.nan
    assert "nan instead of" in difference(spec, "v2", {"v2": wrong}, verdict, [])
    assert "instead of" in difference(spec, "v2", {"v2": right[:-1]}, verdict, [])


def test_exact_values_are_compared_to_the_bit() -> None:
    spec = chain("Neg")
    spec = replace(spec, tensors={**spec.tensors, "v1": replace(spec.tensors["v1"], exact=True)})
    verdict = judge(spec, spec.feeds[0])
    right = verdict.values["v1"]
    assert difference(spec, "v1", {"v1": right}, verdict, []) == ""
    wrong = right.copy()
    wrong[3] = np.nextafter(wrong[3], F32.type(9))
    assert "at (3,)" in difference(spec, "v1", {"v1": wrong}, verdict, [{"v1": right}])


def test_cancellation_widens_what_is_allowed() -> None:
    """``(x + y) - x`` may have the error of the sum, far more than rounding of ``y``."""
    x, y = (Tensor(n, F32, (8,), True) for n in "xy")
    made = {n: Tensor(n, F32, (8,), False) for n in ("s", "d")}
    nodes = (Node("Add", ("x", "y"), ("s",)), Node("Sub", ("s", "x"), ("d",)))
    feed = {"x": np.full(8, 1000, F32), "y": np.full(8, 0.001, F32)}
    spec = Spec(0, {"x": x, "y": y, **made}, nodes, ("x", "y"), {}, ("d",), (feed,))
    errors = judge(spec, feed).errors["d"]
    assert (errors > 1000 * unit(F32)).all() and (errors < 200_000 * unit(F32)).all()


def test_numbers_out_of_range_are_not_judged() -> None:
    spec = chain("Exp", "Exp", "Exp")
    with pytest.raises(Overflow, match="v3_Exp"):
        judge(spec, spec.feeds[0])


def test_a_crash_is_told_and_the_next_graph_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    with Child() as child:
        child.check({"seed": 1})
        assert child._process is not None
        os.kill(child._process.pid, signal.SIGSEGV)
        child._process.wait()
        outcome, _ = child.check({"seed": 2})
        assert outcome == Outcome("crash", "the process ended with status -11")
        assert outcome.is_fault
        monkeypatch.setattr(hunt_module, "TIMEOUT", 0.01)
        assert child.check({"seed": 3})[0].kind == "hang"
        monkeypatch.undo()
        assert child.check({"seed": 3})[0].kind == "same"


def test_faults_are_made_smaller() -> None:
    large = (s for s in map(draw, range(99)) if len(s.nodes) > 6)
    spec = next(s for s in large if all(t.static for t in s.tensors.values()))
    last = spec.nodes[-1].op

    def fails(smaller: Spec) -> bool:
        smaller.to_onnx()
        return any(n.op == last for n in smaller.nodes)

    small = minimise(spec, fails)
    assert [n.op for n in small.nodes] == [last]
    assert len(small.feeds) == 1


def test_what_is_no_fault_is_not_made_smaller() -> None:
    spec, outcome = smallest(0, "crash")
    assert spec.to_onnx() == draw(0).to_onnx() and outcome == Outcome("crash")
    assert "same" not in FAULTS
