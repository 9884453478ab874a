# SPDX-License-Identifier: Apache-2.0
"""The mutation run's own tests; and, in the long suite, that tests notice nine of ten mutants."""

import ast
from pathlib import Path

import pytest

from tests.mutation.__main__ import run
from tests.mutation.mutants import mutants
from tests.mutation.selection import AREAS, ROOT, draw_mutants, sources, stages
from tests.mutation.trial import Copy

PYTHON = b'''"""Words: 1 < 2."""

def limit(x: int = 3) -> bool:
    """Not 4."""
    if x < 0 and done:
        _logger.info("x is %d", x + 1)
        raise ValueError(f"{x + 1} is less than 0.")
    assert x != 5
    kept.append(min(x, 7))
    return not (x == 8)
'''
C = b"""/* 1 < 2 */
int limit(int x) {
  if (x < 3 && x != 4) return tw_fail(5, "less than 6");
  return x + 7; // 8
}
"""
SMALL = Path("autotune/search.py")


def changes(name: str, source: bytes) -> list[tuple[str, str]]:
    found = mutants(Path(name), source)
    return [(source[m.begin : m.end].decode(), m.after) for m in found]


def test_what_is_changed_in_python() -> None:
    assert sorted(changes("x.py", PYTHON)) == sorted(
        [
            ("3", "4"), ("x < 0 and done", "not (x < 0 and done)"), ("<", "<="), ("0", "1"),
            ("and", "or"), ("kept.append(min(x, 7))", "pass"), ("min", "max"), ("7", "8"),
            ("not (x == 8)", "bool(x == 8)"), ("==", "!="), ("8", "9"),
        ]
    )  # fmt: skip


def test_what_is_changed_in_c() -> None:
    assert changes("x.c", C) == [("+", "-"), ("7", "8")]
    without = C.replace(b'tw_fail(5, "less than 6")', b"2")
    expected = [("<", "<="), ("3", "4"), ("&&", "||"), ("!=", "=="), ("4", "5"), ("2", "3")]
    assert changes("x.c", without)[:6] == expected


def test_mutants_of_all_sources_are_sources() -> None:
    for paths in sources().values():
        for path in paths:
            source = (ROOT / path).read_bytes()
            for mutant in mutants(path, source)[::7]:
                changed = mutant.applied(source)
                assert changed != source
                if path.suffix == ".py":
                    ast.parse(changed)
                minus, plus = mutant.difference(source).split("\n+", 1)
                assert minus.startswith("- ") and minus[1:] != plus


def test_mutants_follow_the_seed_and_come_from_everywhere() -> None:
    drawn = draw_mutants(60, 5)
    assert drawn == draw_mutants(60, 5) != draw_mutants(60, 6)
    assert len(set(drawn)) == 60
    assert {m.path.parts[0] for m in drawn} == {
        pattern.split("/")[0] for pattern, _ in AREAS.values()
    }
    assert any(m.path.suffix == ".c" for m in drawn)


def test_tests_are_found_for_all_sources() -> None:
    assert stages(Path("autotune/tuner.py"))[0] == ["tests/autotune/test_tuner.py"]
    assert "tests/passes/graph/fuse.ir" in stages(Path("passes/graph/fuse.py"))[0]
    assert ["tests/runtime"] in stages(Path("runtime/src/run.c"))
    for paths in sources().values():
        for path in paths:
            groups = stages(path)
            assert groups and all((ROOT / test).exists() for group in groups for test in group)


def test_a_mutant_is_noticed_in_a_copy() -> None:
    """And what fails without the mutant too does not count."""
    before = (ROOT / SMALL).read_bytes()
    mutant = next(m for m in mutants(SMALL, before) if m.after.startswith("not "))
    with Copy(timeout=300) as copy:
        assert (copy.folder / "compiler/tilewright/autotune").is_symlink()
        verdict = copy.try_one(mutant)
        assert verdict.killed and verdict.by.startswith("FAILED tests/autotune/test_search.py")
        assert (copy.folder / SMALL).read_bytes() == (ROOT / SMALL).read_bytes() == before
        assert copy._run([verdict.by.split(" ")[1]], []) == ""


@pytest.mark.slow
def test_nine_of_ten_mutants_are_noticed() -> None:
    verdicts = run(draw_mutants(60, 0))
    survivors = [
        f"{v.mutant.path}:{v.mutant.line}\n{v.difference}" for v in verdicts if not v.killed
    ]
    assert len(survivors) <= 6, "\n".join(survivors)
