# SPDX-License-Identifier: Apache-2.0
"""Which mutants are drawn, and which tests hold each of them, the quickest first."""

import random
from functools import cache
from pathlib import Path

from tests.mutation.mutants import Mutant, mutants

ROOT = Path(__file__).parent.parent.parent
# Folders with how many of a hundred mutants they get.
AREAS = {
    "passes": ("passes/**/*.py", 24),
    "codegen": ("codegen/**/*.py", 24),
    "runtime": ("runtime/*.py", 14),
    "runtime in C": ("runtime/src/*.c", 14),
    "autotune": ("autotune/*.py", 14),
    "benchmarks": ("benchmarks/*.py", 10),
}
# What uses nearly everything of its area.
_BROAD = {
    "passes": [
        "tests/codegen/test_op_samples.py",
        "tests/passes",
        "tests/codegen/gpu/test_gpu_schedules.py",
        "tests/random_graphs",
    ],
    "codegen": ["tests/codegen/test_op_samples.py", "tests/compiler/test_small_models.py"],
    "runtime": ["tests/compiler/test_large_sizes.py", "tests/compiler/test_api.py"],
    "autotune": ["tests/compiler/test_tuned.py", "tests/compiler/cli"],
    "benchmarks": ["tests/benchmarks"],
}
# It makes what ships as data, which tests hold; the data stays when the script changes.
_ONCE = frozenset((Path("benchmarks/train_digits.py"),))
_MOST_IMPORTERS = 12


def sources() -> dict[str, list[Path]]:
    """The files of each area. Scripts that need packages of the extra 'export' have no tests."""
    return {
        area: [
            path
            for path in (p.relative_to(ROOT) for p in sorted(ROOT.glob(pattern)))
            if path not in _ONCE and "import torch" not in (ROOT / path).read_text(encoding="utf-8")
        ]
        for area, (pattern, _) in AREAS.items()
    }


def draw_mutants(count: int, seed: int) -> list[Mutant]:
    """Mutants at random, each area as often as its weight says, no two at one place."""
    rng = random.Random(seed)
    pools: dict[str, list[Mutant]] = {}
    for area, paths in sources().items():
        pools[area] = [m for path in paths for m in mutants(path, (ROOT / path).read_bytes())]
        rng.shuffle(pools[area])
    total = sum(weight for _, weight in AREAS.values())
    drawn = [
        mutant
        for area, (_, weight) in AREAS.items()
        for mutant in pools[area][: -(-count * weight // total)]
    ]
    rng.shuffle(drawn)
    return drawn[:count]


def stages(path: Path) -> list[list[str]]:
    """Groups of tests for a file of ours, to be run one after another up to the first failure."""
    area = path.parts[0]
    groups = [_named_after(path), _importing(path), _BROAD.get(area, []), [_mirror(path)]]
    seen: set[str] = set()
    result = []
    for group in groups:
        new = [test for test in group if test not in seen]
        seen.update(new)
        if new:
            result.append(new)
    return result


def _named_after(path: Path) -> list[str]:
    patterns = (f"tests/**/{path.stem}.ir", f"tests/**/test_{path.stem}*.py")
    return [str(p.relative_to(ROOT)) for pattern in patterns for p in sorted(ROOT.glob(pattern))]


def _importing(path: Path) -> list[str]:
    """Test files that import the module itself; few, for a module that all import is no guide."""
    if path.suffix != ".py":
        return []
    dotted = ".".join(path.with_suffix("").parts)
    name = dotted if dotted.startswith("benchmarks") else f"tilewright.{dotted}"
    name = name.removesuffix(".__init__")
    found = [test for test, text in _test_texts().items() if f"from {name} import" in text]
    return found if len(found) <= _MOST_IMPORTERS else []


@cache
def _test_texts() -> dict[str, str]:
    files = sorted(ROOT.glob("tests/**/test_*.py"))
    return {str(p.relative_to(ROOT)): p.read_text(encoding="utf-8") for p in files}


def _mirror(path: Path) -> str:
    """The innermost test folder of the same name."""
    folder = path.parent
    while not (ROOT / "tests" / folder).is_dir():
        folder = folder.parent
    return str("tests" / folder)
