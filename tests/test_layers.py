# SPDX-License-Identifier: Apache-2.0
"""The layers: which part of the package imports which."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ALLOWED: dict[str, set[str]] = {
    "ir": {"ir"},
    "passes": {"ir", "passes"},
    "codegen": {"ir", "passes", "codegen"},
    "runtime": {"runtime"},
    "autotune": {"ir", "passes", "codegen", "runtime", "autotune"},
}
# Below all parts: it imports nothing itself.
BELOW_ALL = "tilewright.base_error"
# What a saved model may need to be loaded and run: besides these, only Python's own library.
RUNTIME_PACKAGES = {"numpy", "ml_dtypes", "tilewright"}


def imported(path: Path) -> Iterator[str]:
    """The modules that a file imports, wherever in the file, with the names taken from them."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"'{path}' has a relative import."
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def part(module: str) -> str | None:
    """The part of the package that a module belongs to; None for modules of others."""
    names = module.split(".")
    if names[0] != "tilewright":
        return None
    return names[1] if len(names) > 1 and names[1] in ALLOWED else "compiler"


@pytest.mark.parametrize("folder", ALLOWED)
def test_imports_go_down(folder: str) -> None:
    files = sorted((ROOT / folder).rglob("*.py"))
    assert files
    wrong = [
        f"{path.relative_to(ROOT)} imports {module}"
        for path in files
        for module in imported(path)
        if (found := part(module)) is not None
        and found not in ALLOWED[folder]
        and not module.startswith(f"{BELOW_ALL}.")
    ]
    assert not wrong


def test_what_is_below_all_imports_nothing() -> None:
    assert not list(imported(ROOT / "compiler" / f"{BELOW_ALL.replace('.', '/')}.py"))


def test_the_walk_sees_wrong_imports(tmp_path: Path) -> None:
    file = tmp_path / "x.py"
    file.write_text("def f():\n    from tilewright import codegen\n    import tilewright.driver\n")
    assert [part(module) for module in imported(file)] == ["codegen", "compiler"]


def test_root_folders_are_linked() -> None:
    for folder in ALLOWED:
        link = ROOT / "compiler" / "tilewright" / folder
        assert link.is_symlink() and link.readlink() == Path("../..") / folder


def test_the_runtime_needs_numpy_alone() -> None:
    import sys

    for path in (ROOT / "runtime").rglob("*.py"):
        for module in imported(path):
            top = module.split(".")[0]
            assert top in RUNTIME_PACKAGES or top in sys.stdlib_module_names, (path, module)
