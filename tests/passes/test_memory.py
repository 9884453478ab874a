# SPDX-License-Identifier: Apache-2.0
import random
import time

import pytest

from tilewright.ir.errors import PassError
from tilewright.ir.expr import ONE, Expr, Symbol, index, mul
from tilewright.ir.rewrite import evaluate
from tilewright.ir.simplify import floordiv, maximum, minimum, mod
from tilewright.passes.memory import (
    Lifetime,
    Plan,
    Slot,
    check_plan,
    lower_bound,
    plan_memory,
)

B = Symbol("b", 1, 64)
S = Symbol("s", 0, 512)


def random_lifetimes(seed: int, sizes: list[Expr], count: int = 40) -> list[Lifetime]:
    generator = random.Random(seed)
    found = []
    for key in range(count):
        first = generator.randrange(count)
        last = min(count - 1, first + generator.choice((1, 1, 2, 3, 10)))
        found.append(Lifetime(key, generator.choice(sizes), first, last))
    return found


def assert_disjoint(buffers: list[Lifetime], plan: Plan, values: dict[str, int]) -> None:
    """The property itself, on numbers."""
    arena = evaluate(plan.size, values)
    for i, one in enumerate(buffers):
        start = evaluate(plan.offset(one.key), values)
        end = start + evaluate(one.size, values)
        assert start % 64 == 0 and end <= arena
        for other in buffers[:i]:
            if one.overlaps(other):
                begin = evaluate(plan.offset(other.key), values)
                assert end <= begin or begin + evaluate(other.size, values) <= start


@pytest.mark.parametrize("seed", range(10))
def test_static_plans_are_disjoint_and_near_the_lower_bound(seed: int) -> None:
    buffers = random_lifetimes(seed, [index(n) for n in (64, 1000, 4096, 100_000, 7)])
    plan = plan_memory(buffers)
    check_plan(buffers, plan)
    assert_disjoint(buffers, plan, {})
    assert evaluate(plan.size, {}) <= 1.2 * lower_bound(buffers)


@pytest.mark.parametrize("seed", range(10))
def test_symbolic_plans_are_disjoint_for_all_values(seed: int) -> None:
    sizes = [index(256), B * 3072, B * S * 4, B * S * S * 48, B * S * 1536 + B * 1536, B * 100]
    buffers = random_lifetimes(seed, sizes)
    plan = plan_memory(buffers)
    check_plan(buffers, plan)
    for b, s in ((1, 0), (1, 1), (3, 7), (64, 512)):
        assert_disjoint(buffers, plan, {"b": b, "s": s})


def test_a_chain_of_proportional_sizes_uses_two_slots() -> None:
    chain = [Lifetime(i, B * 4096 * (1 + i % 2), i, i + 1) for i in range(20)]
    assert plan_memory(chain).size is B * 12288


def test_small_coefficients_cost_little() -> None:
    """The 4 bytes of an element are not rounded up to 64."""
    sizes = [B * S * 4, B * S * 8, B * S * 12, S * 4 + 4, B * 100]
    buffers = [Lifetime(i, size, 0, 1) for i, size in enumerate(sizes)]
    plan = plan_memory(buffers)
    check_plan(buffers, plan)
    for b, s in ((1, 0), (1, 1), (3, 7), (7, 511), (64, 512)):
        values = {"b": b, "s": s}
        assert_disjoint(buffers, plan, values)
        needed = sum(evaluate(size, values) for size in sizes)
        assert needed <= evaluate(plan.size, values) <= needed + 64 * 9


@pytest.mark.parametrize("seed", range(12))
def test_sizes_of_dims_that_are_no_products_are_planned(seed: int) -> None:
    """Differences, quotients and extrema of dims, as slices and strides make them."""
    rng = random.Random(seed)
    dims = [
        B, S, S + 1, floordiv(S + 1, 2), B * 2 - minimum(B, 2), S - minimum(S, 1),
        floordiv(B * S + 3, 4), maximum(S, 3) - 2, mod(S, 7), minimum(B * S, 100),
    ]  # fmt: skip
    sizes = []
    for _ in range(6):
        size: Expr = index(rng.choice((1, 2, 4, 8, 12, 100)))
        for _ in range(rng.randint(1, 3)):
            size = mul(size, rng.choice(dims))
        sizes.append(size)
    buffers = random_lifetimes(seed, sizes, 20)
    plan = plan_memory(buffers)
    check_plan(buffers, plan)
    for b, s in ((1, 0), (2, 1), (3, 7), (64, 512)):
        assert_disjoint(buffers, plan, {"b": b, "s": s})


def test_sizes_beyond_64_bits_are_planned_too() -> None:
    sizes = [index(1 << 70), index(64), index(1 << 62)]
    plan = plan_memory([Lifetime(i, s, 0, 9) for i, s in enumerate(sizes)])
    assert plan.size is index((1 << 70) + 64 + (1 << 62))


def test_thousands_of_buffers_are_planned_and_checked_in_no_time() -> None:
    """All at once, one after another, and with many sizes: a few milliseconds a hundred."""
    shapes = [(lambda i: (0, 1200)), (lambda i: (i, i + 1)), (lambda i: (i, i + i % 700))]
    began = time.process_time()
    for shape in shapes:
        buffers = [Lifetime(i, index(64 + 192 * (i % 37)), *shape(i)) for i in range(1200)]
        check_plan(buffers, plan_memory(buffers))
    assert time.process_time() - began < 8


@pytest.mark.parametrize(
    ("slot", "message"),
    [
        (Slot(ONE, 0, 128), "Buffers 'a' and 'b' both hold data at step 1 and share memory."),
        (Slot(ONE, 100, 128), "Buffer 'b' is not aligned to 64 bytes."),
        (Slot(ONE, 192, 128), "Buffer 'b' lies outside its region of the arena."),
        (Slot(ONE, 128, 64), "Buffer 'b' of 128 bytes exceeds its slot."),
    ],
)
def test_the_checker_refuses_a_faulty_plan(slot: Slot, message: str) -> None:
    buffers = [Lifetime("a", index(128), 0, 1), Lifetime("b", index(128), 1, 2)]
    plan = Plan({"a": Slot(ONE, 0, 128), "b": slot}, ((ONE, 256),))
    with pytest.raises(PassError, match=message):
        check_plan(buffers, plan)


def test_the_checker_compares_symbolic_sizes_with_their_slots() -> None:
    buffers = [Lifetime("a", B * S * 64 + B * 64, 0, 1)]
    plan = Plan({"a": Slot(B * S, 0, 128)}, ((B * S, 128),))
    with pytest.raises(PassError, match="exceeds its slot"):
        check_plan(buffers, plan)
