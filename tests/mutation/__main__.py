# SPDX-License-Identifier: Apache-2.0
"""``python -m tests.mutation --count 60 --seed 0``: puts small faults into the sources, one at a
time, and tells which of them no test notices.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue

from tests.mutation.mutants import Mutant
from tests.mutation.selection import draw_mutants
from tests.mutation.trial import Copy, Verdict


def run(chosen: Sequence[Mutant], jobs: int = 1, timeout: float = 600.0) -> list[Verdict]:
    """The verdicts on mutants, told one by one as they come."""
    copies: SimpleQueue[Copy] = SimpleQueue()
    for _ in range(jobs):
        copies.put(Copy(timeout))

    def judge(mutant: Mutant) -> Verdict:
        copy, start = copies.get(), time.monotonic()
        try:
            verdict = copy.try_one(mutant)
        finally:
            copies.put(copy)
        seconds = time.monotonic() - start
        word = "killed" if verdict.killed else "UNDECIDED" if verdict.unfinished else "SURVIVED"
        told = verdict.by or ", ".join(verdict.unfinished)
        place = f"{mutant.path}:{mutant.line}"
        print(f"{word} {place} in {seconds:.0f} s {told}\n{verdict.difference}", flush=True)
        return verdict

    try:
        with ThreadPoolExecutor(jobs) as pool:
            return list(pool.map(judge, chosen))
    finally:
        for _ in range(jobs):
            copies.get().__exit__()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=60, help="how many mutants")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1, help="how many at a time")
    parser.add_argument("--only", default="", help="only files whose path begins so")
    parser.add_argument("--skip", type=int, default=0, help="leave out as many, of an earlier run")
    parser.add_argument("--timeout", type=float, default=600, help="seconds for a group of tests")
    options = parser.parse_args()
    drawn = draw_mutants(options.count, options.seed)[options.skip :]
    chosen = [m for m in drawn if str(m.path).startswith(options.only)]
    verdicts = run(chosen, options.jobs, options.timeout)
    survivors = [v for v in verdicts if not v.killed]
    print(f"\n{len(verdicts) - len(survivors)} of {len(verdicts)} mutants killed")
    for v in survivors:
        word = "undecided" if v.unfinished else "survived"
        print(f"{word}: {v.mutant.path}:{v.mutant.line}\n{v.difference}")
    return 1 if len(survivors) * 10 > len(verdicts) else 0


if __name__ == "__main__":
    sys.exit(main())
