# SPDX-License-Identifier: Apache-2.0
"""Searches: what they propose, and that it only depends on the seed."""

from tilewright.autotune.search import RandomSearch, Search
from tilewright.autotune.space import Space
from tilewright.codegen.kernels import CompiledKernel
from tilewright.ir.loop import Kernel
from tilewright.ir.target import Target


def proposals(
    product: Kernel, target: Target, default: CompiledKernel, seed: int, count: int
) -> list[str]:
    space = Space(product, target, default.template)
    search = RandomSearch(space, default.schedule, seed)
    found = []
    for _ in range(count):
        point = search.ask()
        if point is None:
            break
        found.append(point.schedule)
        search.tell(point, 1000.0 if len(found) % 2 else None)
    return found


def test_equal_seeds_propose_the_same(
    product: Kernel, target: Target, default: CompiledKernel
) -> None:
    first = proposals(product, target, default, 7, 10)
    assert first == proposals(product, target, default, 7, 10)
    assert first != proposals(product, target, default, 8, 10)


def test_the_default_is_never_proposed(
    product: Kernel, target: Target, default: CompiledKernel
) -> None:
    found = proposals(product, target, default, 0, 25)
    assert len(found) == 25
    assert len(set(found)) == len(found)
    assert default.schedule not in found


def test_searches_register() -> None:
    assert Search.registry["random"] is RandomSearch
