# SPDX-License-Identifier: Apache-2.0
"""docs/architecture.md shows what the compiler does now."""

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

DOCS = Path(__file__).parent.parent.parent / "docs"


@pytest.fixture(scope="module")
def generator() -> Iterator[ModuleType]:
    """docs/generate_architecture.py as a module."""
    spec = importlib.util.spec_from_file_location(
        "generate_architecture", DOCS / "generate_architecture.py"
    )
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


def test_the_page_is_what_the_generator_writes(generator: ModuleType, tmp_path: Path) -> None:
    page = (DOCS / "architecture.md").read_text(encoding="utf-8")
    found = generator.blocks(tmp_path)
    assert all(len(text.splitlines()) > 5 for text in found.values())
    expected = generator.render(page, found)
    assert page == expected, "Run 'python docs/generate_architecture.py'."


def test_a_block_that_is_missing_is_an_error(generator: ModuleType) -> None:
    with pytest.raises(LookupError, match="The page has the blocks"):
        generator.render("", {"fused": "text"})


def test_excerpts(generator: ModuleType) -> None:
    text = "a\n  b\n  c\nd"
    assert generator.excerpt(text, lambda line: line in "ad") == "a\n  ...\nd"
    assert generator.cut(f"x #{'0123456789abcdef' * 4} y") == "x #01234567 y"
    assert len(generator.cut("x" * 500)) == generator.WIDTH
