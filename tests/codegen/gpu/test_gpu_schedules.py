# SPDX-License-Identifier: Apache-2.0
"""The GPU templates: every schedule is proven, fits the target, and computes its stages."""

import numpy as np
import pytest
from gpu_kernels import ARGMAX, GELU, MATMUL, OPENCL, OUTER_PRODUCT, SOFTMAX, digit_model, plain

from tilewright.ir.interpreter.loops import interpret_kernel
from tilewright.ir.loop import Barrier, Kernel, walk
from tilewright.ir.target import parse_target
from tilewright.ir.verify_loop import verify_kernel
from tilewright.passes.loop.threads import launch_shape, shared_bytes
from tilewright.passes.schedule.schedule import apply, parse_schedule, schedule_text
from tilewright.passes.schedule.select import Scheduled, schedule_kernel

RNG = np.random.default_rng(0)
SYMBOLS = {"m": 5, "k": 70, "n": 20}


def scheduled(text: str) -> Scheduled:
    return schedule_kernel(plain(text), OPENCL)


def inputs(kernel: Kernel) -> dict[str, np.ndarray]:
    shapes = {b.name: [SYMBOLS[str(e)] for e in b.shape] for b in kernel.inputs}
    return {n: RNG.standard_normal(s).astype(np.float32) for n, s in shapes.items()}


@pytest.mark.parametrize(
    ("text", "template"),
    [(MATMUL, "gputiled"), (SOFTMAX, "gpurows"), (GELU, "gpurows"), (ARGMAX, "gpurows")],
)
@pytest.mark.parametrize("reverse", [False, True])
def test_schedules_compute_their_stages(text: str, template: str, reverse: bool) -> None:
    result = scheduled(text)
    kernel, symbols = result.kernel, {s.name: SYMBOLS[s.name] for s in result.kernel.symbols}
    assert result.template == template
    verify_kernel(kernel)
    feeds = inputs(kernel)
    wanted = interpret_kernel(plain(text), feeds, symbols)["y"]
    found = interpret_kernel(kernel, feeds, symbols, reverse=reverse)["y"]
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


def test_products_without_a_sum_are_rows() -> None:
    """A contraction of length 1 has no reduce axis, so there are no chunks to step through."""
    kernel = plain(OUTER_PRODUCT)
    result = schedule_kernel(kernel, OPENCL)
    assert result.template == "gpurows"
    feeds = inputs(kernel)
    symbols = {"m": 5, "n": 20}
    wanted = interpret_kernel(kernel, feeds, symbols)["y"]
    np.testing.assert_array_equal(wanted, np.outer(feeds["a"], feeds["b"]))
    np.testing.assert_array_equal(interpret_kernel(result.kernel, feeds, symbols)["y"], wanted)


def test_schedules_replay_from_text() -> None:
    result = scheduled(MATMUL)
    again = apply(plain(MATMUL), parse_schedule(schedule_text(result.schedule)))
    assert again is result.kernel


def test_digit_model_is_tiled_and_fits() -> None:
    _, lowered = digit_model()
    kernels = {low.kernel.name: low.kernel for low in lowered}
    templates = []
    for kernel in kernels.values():
        result = schedule_kernel(kernel, OPENCL)
        templates.append(result.template)
        used, shape = shared_bytes(result.kernel), launch_shape(result.kernel)
        assert used is not None and used <= OPENCL.shared_bytes
        assert np.prod(shape.block) <= OPENCL.block_threads
        barriers = sum(isinstance(s, Barrier) for s in walk(result.kernel.body))
        assert barriers == (2 if result.template == "gputiled" else 0)
    assert templates.count("gputiled") == 6 and templates.count("gpurows") == 2


def test_targets_of_gpus_have_a_text() -> None:
    for text in ("opencl", "cuda-sm80", "cuda-sm90a"):
        target = parse_target(text)
        assert str(target) == text and target.kind == "gpu"
    assert parse_target("x86-64-v3").kind == "cpu"
