# SPDX-License-Identifier: Apache-2.0
"""``python -m tests.random_graphs --count 3000 --seed 0``: checks random graphs, and writes each
one with a fault, made smaller, to a folder.
"""

import argparse
import itertools
import sys
import time
from pathlib import Path

from tests.random_graphs.check import Outcome
from tests.random_graphs.hunt import hunt, save, smallest


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=3000, help="how many graphs to compare")
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--output", type=Path, default=Path("random_graphs"), metavar="FOLDER")
    options = parser.parse_args()
    start = time.monotonic()

    def told(seed: int, outcome: Outcome) -> None:
        if outcome.is_fault:
            print(f"seed {seed}: {outcome.kind}: {outcome.message}", flush=True)

    summary = hunt(itertools.count(options.seed), options.count, told)
    seconds = time.monotonic() - start
    print(f"{summary.compared} graphs compared in {seconds:.0f} s: {dict(summary.kinds)}")
    print("operators:", ", ".join(f"{n} {c}" for n, c in summary.operators.most_common()))
    for message, count in summary.refusals.most_common():
        print(f"refused {count} times: {message}")
    for seed, outcome in summary.faults.items():
        small, found = smallest(seed, outcome.kind)
        print(f"\n{save(small, found, options.output)}: {found.kind}: {found.message}")
    return 1 if summary.faults else 0


if __name__ == "__main__":
    sys.exit(main())
