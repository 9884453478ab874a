# SPDX-License-Identifier: Apache-2.0
"""What steps hand back: handles of loops that are in the kernel, and none of those left out."""

import pytest

from tests.passes.schedule.test_steps import LONG, MATMUL, SHIFTED, SOFT, random_schedules
from tilewright.ir.loop import For, Kernel, walk
from tilewright.passes.schedule.defaults.plan import Plan
from tilewright.passes.schedule.handles import Halves, Parts, Placed
from tilewright.passes.schedule.legality import prove
from tilewright.passes.schedule.loops import loop_names
from tilewright.passes.schedule.schedule import parse_schedule
from tilewright.passes.schedule.steps import Chunk

STAGE_STEPS = ("block_reduction", "cache_read", "cache_write", "pack", "split_reduction")


def handles(made: object) -> list[str]:
    """All loops that a step says it has made."""
    match made:
        case str():
            return [made]
        case Halves(outer, inner):
            return [outer, inner]
        case Parts(main, apart, copies):
            inside = [*(copies if main else ()), *(copies.values() if apart else ())]
            return [name for name in (main, apart) if name] + inside
        case Placed(loop, axes, first):
            return [loop, *axes.values(), *first.values()]
        case tuple():
            return [name for placed in made for name in handles(placed)]
    return []


@pytest.mark.parametrize("seed", range(4))
def test_handles_are_loops_of_the_kernel(seed: int) -> None:
    seen: set[str] = set()
    plain = {k.name: k for k in (MATMUL, SOFT, SHIFTED, LONG)}
    for scheduled, steps in random_schedules(seed, 150):
        kernel = plain[scheduled.name]
        for step in steps:
            kernel, made = step.apply(kernel)
            if step.name in STAGE_STEPS:
                names = {s.name for s in kernel.stages}
            elif step.name == "split_axis":
                names = {v.name for s in kernel.stages for v in s.axes}
            else:
                names = set(loop_names(kernel.body))
            assert set(handles(made)) <= names, step
            if made is not None:
                seen.add(step.name)
    assert {"split", "chunk", "partition", "cut"} <= seen


PARTS = [
    # kernel, step, the main part, the part that is cut off, the copy there of the loop j
    (LONG, "partition(i, 4, t)", ("i", "", "")),
    (LONG, "partition(i, 7, t)", ("i", "i_t", "j_t")),
    (LONG, "partition(i, 101, t)", ("", "i_t", "j_t")),
    (LONG, "cut(i, 1, f)", ("i", "i_f", "j_f")),
    (LONG, "cut(i, -1, f)", ("i", "i_f", "j_f")),
    (LONG, "cut(i, 100, f)", ("", "i_f", "j_f")),
    (MATMUL, "partition(p, 4, t)", ("p", "p_t", "")),
]


@pytest.mark.parametrize(("kernel", "text", "parts"), PARTS, ids=[p[1] for p in PARTS])
def test_parts_of_a_loop_tell_which_is_left_out(
    kernel: Kernel, text: str, parts: tuple[str, str, str]
) -> None:
    (step,) = parse_schedule(text)
    loop = text.partition("(")[2][0]
    after, made = step.apply(kernel)
    assert isinstance(made, Parts)
    assert (made.main, made.apart, made.twin("j")) == parts
    loops = [n for n in loop_names(after.body) if n == loop or n.startswith(f"{loop}_")]
    assert {n for n in loops if "init" not in n} == {p for p in parts[:2] if p}


def test_loops_of_a_placed_stage_are_told_by_its_axes() -> None:
    (cut, place) = parse_schedule("partition(p, 4, t); compute_at(mm, workspace, p, p_t)")
    kernel, _ = cut.apply(MATMUL)
    _, placed = place.apply(kernel)
    assert placed == (
        Placed("p", {"j": "j", "k": "k"}, {"j": "j_init"}),
        Placed("p_t", {"j": "j_1", "k": "k_1"}, {"j": "j_init_1"}),
    )
    assert placed[1].over("i") == placed[1].first_over("i") == ""


def test_a_loop_that_never_fills_four_vectors_is_vectorized() -> None:
    plan = Plan(LONG)
    piece = plan.do(Chunk("k", 40)).inner  # min(40, 100 - 40*k_o) iterations
    plan.vectorize(piece, 16)
    kinds = {n.var.name: n.kind for n in walk(plan.kernel.body) if isinstance(n, For)}
    assert kinds["k_i_r_i"] == "vectorized"
    assert "k_i_i" not in kinds
    prove(plan.kernel)
