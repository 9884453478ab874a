# SPDX-License-Identifier: Apache-2.0
"""docs/operators.md lists the operators that the frontend has, and what samples of them compile."""

import runpy
from pathlib import Path
from typing import Any

import pytest

DOCS = Path(__file__).parent.parent.parent / "docs"
ADVICE = "Run 'python docs/generate_operators.py'."


@pytest.fixture
def generator(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.syspath_prepend(DOCS)
    return runpy.run_path(str(DOCS / "generate_operators.py"))


def bare(page: str) -> list[list[str]]:
    """The lines of a page, of tables only the cells that need no samples: the operator and, where
    there are five cells, the versions.
    """
    found = []
    for line in page.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        found.append(cells[: 2 if len(cells) == 5 else 1] if line.startswith("|") else [line])
    return found


def test_the_page_has_the_operators_of_the_frontend(generator: dict[str, Any]) -> None:
    page = (DOCS / "operators.md").read_text(encoding="utf-8")
    assert bare(page) == bare(generator["page"]({})), ADVICE
    assert "| Conv | " in page and "| Softmax | " in page


@pytest.mark.slow
def test_the_page_is_what_samples_compile_to(generator: dict[str, Any]) -> None:
    page = (DOCS / "operators.md").read_text(encoding="utf-8")
    assert page == generator["page"](generator["probe"]()), ADVICE
    assert "| MaxPool | " in page and "positions of the maxima" in page
