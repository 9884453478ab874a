# SPDX-License-Identifier: Apache-2.0
"""docs/operators.md lists the operators that the frontend has."""

import runpy
from pathlib import Path

DOCS = Path(__file__).parent.parent.parent / "docs"


def test_the_page_is_what_the_generator_writes() -> None:
    page = (DOCS / "operators.md").read_text(encoding="utf-8")
    expected = runpy.run_path(str(DOCS / "generate_operators.py"))["page"]()
    assert page == expected, "Run 'python docs/generate_operators.py'."
    assert "| Conv | " in page and "| Softmax | " in page
