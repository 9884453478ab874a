# SPDX-License-Identifier: Apache-2.0
"""Schedule steps: what they refuse and how they say it, text that reads back, docstrings that hold,
and random steps.
"""

import importlib
import random
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields

import pytest

from tilewright.ir.errors import ScheduleError, VerifyError
from tilewright.ir.loop import GPU_AXES, Kernel
from tilewright.ir.loop_parser import parse_kernel
from tilewright.ir.verify_loop import verify_kernel
from tilewright.passes.lower.kernel import plain_body
from tilewright.passes.schedule.legality import prove
from tilewright.passes.schedule.loops import loop_names
from tilewright.passes.schedule.schedule import Step, apply, parse_schedule, schedule_text
from tilewright.passes.schedule.select import replay_schedule
from tilewright.passes.schedule.steps.compute_at import ComputeAt


def plain(text: str) -> Kernel:
    """The unscheduled kernel of stages as text."""
    kernel = parse_kernel(f"{text} barrier\n}}")
    return kernel.with_body(plain_body(kernel.stages, kernel.outputs))


MATMUL = plain("""
kernel @matmul(a: f32[m,9], b: f32[9,20]{1,0;1:8}) -> (y: f32[m,20]) {
  symbol m in [1, 100] hint 13
  buffer t: f32[m,20] @workspace
  stage reduce mm(i in m, j in 20; k in 9) -> t[i, j] : acc = f32(0.0) then (acc + (a[i, k] * b[k, j]))
  stage map relu(p in m, q in 20) -> y[p, q] = max(t[p, q], f32(0.0))
""")  # noqa: E501
SOFT = plain("""
kernel @soft(x: f32[6,n], d: f32[n]) -> (y: f32[6,n], z: f32[n]) {
  symbol n in [4, 100] hint 10
  buffer s: f32[6] @workspace
  buffer e: f32[n] @workspace
  stage reduce sum(r in 6; c in n) -> s[r] : acc = f32(1.0) then (acc + x[r, c])
  stage map scale(u in 6, v in n) -> y[u, v] = (x[u, v] * s[u])
  stage map exp(w in n) -> e[w] = exp(d[w])
  stage scan total(f in n) -> z[f] : run = f32(0.0) then (run + e[f])
""")
SHIFTED = plain("""
kernel @shifted(x: f32[8]) -> (y: f32[8]) {
  buffer t: f32[8] @workspace
  stage map exp(i in 8) -> t[7 - i] = exp(x[i])
  stage map neg(j in 8) -> y[j] = neg(t[j])
""")
PRODUCT = plain("""
kernel @product(a: f32[4,9], b: f32[9,20]) -> (y: f32[4,20]) {
  stage reduce mm(i in 4, j in 20; k in 9) -> y[i, j] : acc = f32(0.0) then (acc + (a[i, k] * b[k, j]))
""")  # noqa: E501
LONG = plain("""
kernel @long(x: f32[100,100,100]) -> (y: f32[100,100,100]) {
  stage map neg(i in 100, j in 100, k in 100) -> y[i, j, k] = neg(x[i, j, k])
""")

REFUSED: list[tuple[Kernel, str, str]] = [
    # loops by name
    (MATMUL, "split(z, 4)", "There is no loop 'z'; the loops are i_init, j_init, i, j, k, p, q."),
    (MATMUL, "vectorize(q); split(q, 4)",
     "'q' is vectorized already. Divide a loop before saying how it runs."),
    (MATMUL, "unroll(q); chunk(q, 4)", "'q' is unrolled already."),
    (LONG, "parallel(i); partition(i, 8, t)", "'i' is parallel already."),
    (LONG, "bind(i, block.x); cut(i, 1, f)", "'i' is block.x already."),
    (LONG, "parallel(i); fuse(i, j)", "'i' is parallel already."),
    (SHIFTED, "split(j, 4); unroll(j_i); fuse(j_o, j_i)", "'j_i' is unrolled already."),
    # split, chunk, partition, cut
    (MATMUL, "split(p, 0)", "The factor must be at least 1, not 0."),
    (MATMUL, "chunk(p, -2)", "The factor must be at least 1, not -2."),
    (MATMUL, "partition(p, 0, t)", "The factor must be at least 1, not 0."),
    (MATMUL, "cut(p, 2, f)", "'p' is not known to have 2 iterations."),
    (MATMUL, "cut(p, 0, f)", "'p' is not known to have 0 iterations."),
    (MATMUL, "cut(i, 1, init)", "A loop called 'i_init' exists already."),
    (MATMUL, "split(i_init, 4); cut(i, 1, init)", "A loop called 'j_init' exists already."),
    (LONG, "parallel(i); peel(i, t)", "'i' is parallel already."),
    (MATMUL, "enclose(p)", "A loop called 'p' exists already."),
    # reorder, fuse
    (MATMUL, "reorder(i, i)", "Name at least two different loops."),
    (MATMUL, "reorder(p, k)", "The loops p, k are not nested directly in one another."),
    (MATMUL, "chunk(p, 4); reorder(p_i, p_o)",
     "The extent of 'p_i' depends on a loop that would be inside it."),
    (LONG, "parallel(i); reorder(j, i)", "'i' is parallel: it must stay outermost."),
    (MATMUL, "fuse(p, k)", "'k' is not directly inside 'p'."),
    (MATMUL, "reorder(q, p); fuse(q, p)", "The extent m of 'p' is not constant."),
    # how loops run
    (MATMUL, "parallel(i)", "'i' is not the outermost loop of the kernel."),
    (LONG, "unroll(k)", "'k' has more than 64 iterations."),
    (MATMUL, "unroll(p)", "'p' cannot be unrolled: its extent m is not constant."),
    (MATMUL, "vectorize(p)", "'p' cannot be vectorized: its extent m is not constant."),
    (LONG, "bind(i, core.x)",
     "'core.x' is not one of the axes block.x, block.y, block.z, thread.x, thread.y, thread.z."),
    (MATMUL, "bind(p, thread.x)", "'p' cannot be a loop over threads: its extent m is not const"),
    (SHIFTED, "bind(i, thread.x); bind(j, thread.x); synchronize(); synchronize()",
     "The kernel has barriers already."),
    # compute_at
    (MATMUL, "compute_at(mm, heap, p)",
     "The form is compute_at(STAGE, register|workspace|shared, LOOP...)."),
    (MATMUL, "compute_at(mm, register)", "The form is compute_at("),
    (MATMUL, "compute_at(nn, register, p)", "There is no stage 'nn'; the stages are mm, relu."),
    (SOFT, "compute_at(total, register, u)",
     "Stage 'total' of kind 'scan' cannot be placed in a loop."),
    (SHIFTED, "compute_at(exp, register, j)",
     "Stage 'exp' does not write its buffer at its own axes."),
    (MATMUL, "compute_at(relu, register, i)", "Stage 'relu' writes an output of the kernel."),
    (MATMUL, "partition(p, 4, t); compute_at(mm, register, p)",
     "Stage 'mm' is also read outside of p."),
    (SOFT, "compute_at(sum, register, w)", "The body of 'w' does not read stage 'sum'."),
    (MATMUL, "reorder(q, p); compute_at(mm, register, q)",
     "'t' takes [m, 1] cells, but registers are a constant number. Place it in the workspace, or "
     "at an inner loop."),
    # blocks
    (MATMUL, "block_reduction(mm, i, 4)", "Stage 'mm' has no axis 'i' there; it has k."),
    (MATMUL, "block_reduction(mm, k, 0)", "The factor must be at least 1, not 0."),
    (MATMUL, "block_reduction(mm, k, 4, 0)", "The factor must be at least 1, not 0."),
    (MATMUL, "block_reduction(mm, k, 4, 1, i8)", "'i8' is not one of the types f32, f64."),
    (MATMUL, "block_reduction(mm, k, 4, 1, same, k)",
     "'k' cannot be both blocked and inside the blocks."),
    (MATMUL, "block_reduction(relu, p, 4)",
     "Stage 'relu' is not a reduction that starts at the identity of its operation."),
    (SOFT, "block_reduction(sum, c, 4)",
     "Stage 'sum' is not a reduction that starts at the identity of its operation."),
    (MATMUL, "split(p, 4); block_reduction(mm, k, 4)", "Steps on stages come before steps on"),
    (PRODUCT, "block_reduction(mm, k, 4, 1, f64)", "Stage 'mm' writes an output of the kernel."),
    (MATMUL, "split_axis(mm, j, 7)", "The extent 20 of 'j' is not known to be a multiple of 7."),
    (MATMUL, "split_axis(mm, i, 2)", "The extent m of 'i' is not known to be a multiple of 2."),
    (MATMUL, "split_axis(mm, k, 3)", "Stage 'mm' has no axis 'k' there; it has i, j."),
    (SOFT, "split_axis(total, f, 2)", "Stage 'total' of kind 'scan' cannot be split."),
    (SHIFTED, "split_axis(exp, i, 2)", "Stage 'exp' does not write its buffer at its own axes."),
    (MATMUL, "store_order(relu, q, p)", "Stage 'relu' writes an output of the kernel."),
    (MATMUL, "store_order(mm, j)", "Name each axis of stage 'mm' once; it has i, j."),
    (MATMUL, "store_order(mm, j, i, i)", "Name each axis of stage 'mm' once; it has i, j."),
    (SHIFTED, "store_order(exp, i, j)", "Stage 'exp' does not write its buffer at its own axes."),
    (MATMUL, "split(p, 4); store_order(mm, j, i)", "Steps on stages come before steps on loops."),
    # stages
    (MATMUL, "split(p, 4); cache_write(relu)", "Steps on stages come before steps on loops."),
    (MATMUL, "cache_write(nn)", "There is no stage 'nn'; the stages are mm, relu."),
    (MATMUL, "cache_write(relu); cache_write(relu)", "A stage called 'relu_out' exists already."),
    (SHIFTED, "cache_write(exp)", "Stage 'exp' does not write its buffer at its own axes."),
    (SHIFTED, "inline(exp)", "Stage 'exp' does not write its buffer at its own axes."),
    (MATMUL, "split_reduction(mm, i, 4)", "Stage 'mm' has no axis 'i' there; it has k."),
    (MATMUL, "split_reduction(mm, k, 0)", "The factor must be at least 1, not 0."),
    (MATMUL, "split_reduction(mm, k, 4); split_reduction(mm, mm_l4, 4)",
     "A stage called 'mm_p4' exists already."),
    (SOFT, "split_reduction(sum, c, 4)",
     "Stage 'sum' is not a reduction that starts at the identity of its operation."),
    (MATMUL, "cache_read(mm, t)", "Stage 'mm' does not read a buffer 't'."),
    (MATMUL, "pack(mm, a, 2, 8)", "'a' has no plain dim 2 to pack."),
    (MATMUL, "pack(mm, b, 1, 8)", "'b' has no plain dim 1 to pack."),
    (MATMUL, "pack(mm, a, 1, 0)", "The factor must be at least 1, not 0."),
    (MATMUL, "inline(mm)", "Stage 'mm' is not a map into a buffer of the kernel."),
    (MATMUL, "inline(relu)", "Stage 'relu' is not a map into a buffer of the kernel."),
    (MATMUL, "pad_axis(relu, q, 8)", "Stage 'relu' writes an output of the kernel."),
    (MATMUL, "pad_axis(mm, k, 8)", "Stage 'mm' has no axis 'k' there; it has i, j."),
    (MATMUL, "pad_axis(mm, j, 16)", "'b' is not stored in blocks of 16 along that axis."),
    (MATMUL, "pad_axis(mm, j, 0)", "The factor must be at least 1, not 0."),
]  # fmt: skip


@pytest.mark.parametrize(("kernel", "text", "message"), REFUSED, ids=[r[1] for r in REFUSED])
def test_refusals(kernel: Kernel, text: str, message: str) -> None:
    *first, last = parse_schedule(text)
    ready = apply(kernel, first)
    with pytest.raises(ScheduleError, match=re.escape(message)):
        last.apply(ready)
    said = f"Step '{last}' does not apply to kernel '{kernel.name}': {message}"
    with pytest.raises(ScheduleError, match=re.escape(said)):
        apply(kernel, parse_schedule(text))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "splat(i, 4)",
            "'splat(i, 4)' is not a schedule step; the steps are bind, block_reduction,",
        ),
        ("split i 4", "'split i 4' is not a schedule step; the steps are"),
        ("split(i, four)", "Argument 'factor' of 'split(i, four)' must be a number, not 'four'."),
        ("split(i)", "'split(i)' has the wrong arguments; the form is split(loop, factor)."),
        ("fuse(i, j, k)", "'fuse(i, j, k)' has the wrong arguments; the form is fuse(outer, inner"),
        ("synchronize(i)", "'synchronize(i)' has the wrong arguments; the form is synchronize()."),
    ],
)
def test_text_that_is_no_schedule(text: str, message: str) -> None:
    with pytest.raises(ScheduleError, match=re.escape(message)):
        parse_schedule(f"unroll(i); {text}")


def test_text_is_read_by_a_process_that_has_imported_nothing_else() -> None:
    code = (
        "from tilewright.passes.schedule.schedule import parse_schedule, schedule_text\n"
        "print(schedule_text(parse_schedule('split(i, 4); synchronize()')))"
    )
    command = [sys.executable, "-c", code]
    ran = subprocess.run(command, check=True, capture_output=True, text=True)
    assert ran.stdout == "split(i, 4); synchronize()\n"


def test_stored_schedule_may_not_make_endless_code() -> None:
    message = "repeats a statement of kernel 'long' 10000 times. Unroll less: 8192 is the most."
    with pytest.raises(ScheduleError, match=message):
        replay_schedule(LONG, "vectorize(j); vectorize(k)")


# --- random steps ---


def random_step(rng: random.Random, kernel: Kernel) -> Step:
    """A step with arguments that exist, mostly: loops, stages and axes of the kernel."""
    loops, stage = loop_names(kernel.body), rng.choice(kernel.stages)
    buffers = [b.name for s in kernel.stages for b in s.outputs] + [b.name for b in kernel.inputs]
    names = [v.name for v in stage.axes] or ["i"]
    cls = rng.choice(list(Step.registry.values()))
    values: dict[str, object] = {
        "stage": stage.name,
        "axis": rng.choice(GPU_AXES)
        if cls.name == "bind"
        else rng.choice((*stage.axes, *stage.reduce_axes)).name,
        "buffer": rng.choice(buffers),
        "scope": rng.choice(("register", "workspace", "shared")),
        "suffix": rng.choice(("a", "b", "init")),
        "dtype": rng.choice(("same", "f32", "f64")),
        "inside": tuple(v.name for v in stage.reduce_axes[1:] if rng.random() < 0.5),
        "axes": tuple(rng.sample(names, max(1, len(names) - (rng.random() < 0.1)))),
        "loops": tuple(rng.sample(loops, min(len(loops), rng.randint(1, 3)))),
    }
    numbers, places = (-1, 0, 1, 2, 3, 4, 8), ("loop", "outer", "inner")
    return cls(
        *(
            rng.choice(loops) if f.name in places else values.get(f.name, rng.choice(numbers))
            for f in fields(cls)
        )
    )


def random_schedules(seed: int, count: int) -> Iterator[tuple[Kernel, list[Step]]]:
    """Kernels with up to six random steps that apply."""
    rng = random.Random(seed)
    for _ in range(count):
        kernel, steps = rng.choice((MATMUL, SOFT, SHIFTED, LONG)), []
        for _ in range(6):
            step = random_step(rng, kernel)
            try:
                kernel, _ = step.apply(kernel)
            except ScheduleError:
                continue
            steps.append(step)
        yield kernel, steps


@pytest.mark.parametrize("seed", range(4))
def test_random_steps_are_refused_or_give_well_formed_kernels(seed: int) -> None:
    for kernel, steps in random_schedules(seed, 100):
        assert parse_schedule(schedule_text(steps)) == tuple(steps)
        assert parse_schedule(schedule_text(steps, "\n")) == tuple(steps)
        try:
            verify_kernel(kernel)
        except VerifyError as error:
            # What GPU axes mean is the proof's to judge.
            assert any(s.name == "bind" for s in steps), (steps, error)
            with pytest.raises(ScheduleError):
                prove(kernel)
        else:
            assert parse_kernel(str(kernel)) is kernel


def test_every_step_prints_its_arguments() -> None:
    assert str(ComputeAt("mm", "register", ("i_o", "i_t"))) == "compute_at(mm, register, i_o, i_t)"
    assert len(Step.registry) == 23


# --- docstrings ---

DOCUMENTED = (
    "annotate", "bind", "compute_at", "enclose", "fuse", "partition", "peel", "reorder", "split",
)  # fmt: skip
FRAME = """
kernel @k(x: f32[n,64], f: f32[4*n]) -> (y: f32[n,64]) {{
  symbol n in [4, 100] hint 8
  buffer t: f32[4*n] @workspace
  stage map p(p_i in 4*n) -> t[p_i] = f[p_i]
  stage map s(i in n) -> y[i, 0] = x[i, 0]
  {}
}}
"""


def documented(body: str) -> Kernel:
    """The kernel of a docstring's text: ``S(...)`` stands for any statement, ``f(...)`` for any
    value.
    """
    body = re.sub(
        r"\bS\((.*?)\)(?= })", lambda m: f"block s.map({m[1]}) {{ y[0, 0] = f32(0.0) }}", body
    )
    body = re.sub(
        r"block s.map\((\w+\[[^]]*\])\) { y\[0, 0\] = f32\(0\.0\) }", r"y[0, 0] = \1", body
    )
    return parse_kernel(FRAME.format(re.sub(r"\bf\(([^()]*)\)", r"f[\1]", body)))


def examples(module: str) -> Iterator[tuple[str, str, str]]:
    """The schedules in a module's docstring with the loops before and after them."""
    doc = importlib.import_module(f"tilewright.passes.schedule.steps.{module}").__doc__ or ""
    before = ""
    for told, block in re.findall(r"((?:.+\n)*.+)::\n((?:\n+    .*)+)", doc):
        calls = [c for c in re.findall(r"``([^`]+)``", told) if "(" in c]
        *earlier, after = (p for p in re.split(r"\n\n(?=    \S)", block.strip("\n")))
        before = earlier[0] if earlier else before
        yield "; ".join(calls), before, after


def test_each_documented_step_is_found() -> None:
    found = {step.name for m in DOCUMENTED for e in examples(m) for step in parse_schedule(e[0])}
    assert found >= {"split", "chunk", "partition", "cut", "fuse", "reorder", "compute_at", "bind"}


@pytest.mark.parametrize("module", DOCUMENTED)
def test_docstrings_show_what_steps_do(module: str) -> None:
    for steps, before, after in examples(module):
        assert apply(documented(before), parse_schedule(steps)).body is documented(after).body
