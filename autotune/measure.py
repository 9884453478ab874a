# SPDX-License-Identifier: Apache-2.0
"""Measure candidates: compiled schedules of a kernel against its default one, in a worker process.

A candidate that crashes, hangs or computes something else costs its own trial only. Kernels run at
the sizes that the caller says, else at the hints of their symbols. All tasks run on one thread;
what several cores would take follows from the number of tasks, since the tasks of a kernel are
alike.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from tilewright.codegen.kernels import CompiledKernel
from tilewright.codegen.llvm.host import DIRECT_WORK
from tilewright.codegen.processes import WorkerPool, module_command
from tilewright.ir.errors import TargetError
from tilewright.ir.expr import Symbol
from tilewright.ir.loop import Kernel
from tilewright.ir.rewrite import evaluate
from tilewright.ir.target import Target, parse_target

ROUNDS, CONFIRM_ROUNDS = 7, 25
"""Samples of each schedule: for a trial, and for one that is about to be kept."""

_TIMEOUT = 20.0
_RUNS_IN_TIME = 400


@dataclass(frozen=True)
class Measurement:
    """What a candidate and the default schedule took, in nanoseconds on the target's cores."""

    nanoseconds: float
    baseline_nanoseconds: float

    @property
    def gain(self) -> float:
        """How many times faster than the default schedule."""
        return self.baseline_nanoseconds / self.nanoseconds


def check_runnable(target: Target) -> None:
    """TargetError unless code for the target runs on this machine."""
    here = parse_target("native")
    missing = sorted(set(target.features) - set(here.features))
    if target.arch != here.arch or missing:
        lacks = f" without {', '.join(missing)}" if missing and target.arch == here.arch else ""
        raise TargetError(
            f"Code for '{target.arch}' cannot be measured on this machine, '{here.arch}'{lacks}. "
            "Tune on a machine of that kind and carry the records over."
        )


def typical_size(s: Symbol) -> int:
    """The size at which a kernel is measured: the hint, or the least one that is not zero."""
    size = s.hint or max(s.lo, 1)
    return min(-(-size // s.multiple) * s.multiple, s.hi)


def typical_sizes(kernel: Kernel) -> dict[str, int]:
    """The sizes of a kernel's symbols by name."""
    return {s.name: typical_size(s) for s in kernel.symbols}


def on_cores(nanoseconds: float, tasks: int, work: int, cores: int) -> float:
    """What a kernel takes on several cores, from what all its tasks take on one.

    The core with the most tasks decides. A kernel of little work runs on the calling thread.
    """
    if tasks <= 1 or work <= DIRECT_WORK:
        return nanoseconds
    return nanoseconds * -(-tasks // min(cores, tasks)) / tasks


class Measurer:
    """Runs candidates in a worker process, one at a time."""

    def __init__(self, target: Target, seed: int = 0, timeout: float = _TIMEOUT) -> None:
        self._target = target
        self._seed = seed
        self._timeout = timeout
        command = module_command("tilewright.autotune.measure_worker")
        self._pool = WorkerPool(command, 1, "Measuring")

    def __enter__(self) -> "Measurer":
        return self

    def __exit__(self, *raised: object) -> None:
        self._pool.close()

    def compare(
        self,
        kernel: Kernel,
        baseline: CompiledKernel,
        candidate: CompiledKernel,
        rounds: int = ROUNDS,
        expected_nanoseconds: float = 0.0,
        sizes: Mapping[str, int] | None = None,
    ) -> Measurement:
        """Check the candidate's outputs against the baseline's, and time both in turn.

        ``sizes`` are those of the kernel's symbols by name; the typical ones by default.
        CodegenError if it computes something else, crashes, or takes far longer than expected.
        """
        sizes = typical_sizes(kernel) if sizes is None else dict(sizes)
        both = (baseline, candidate)
        tasks = [max(1, evaluate(c.tasks, sizes)) for c in both]
        parts = [str(kernel).encode(), *(c.code for c in both)]
        header = {
            "triple": self._target.triple,
            "sizes": sizes,
            "seed": self._seed,
            "rounds": rounds,
            "tasks": tasks,
            "workspace": [max(0, evaluate(c.workspace, sizes)) for c in both],
            "lengths": [len(p) for p in parts],
        }
        timeout = self._timeout + _RUNS_IN_TIME * expected_nanoseconds * 1e-9
        answer, _ = self._pool.result(kernel.name, header, b"".join(parts), timeout)
        work = evaluate(baseline.work, sizes)
        baseline_ns, candidate_ns = (
            on_cores(float(answer[key]), count, work, self._target.cores)
            for key, count in zip(("baseline", "candidate"), tasks, strict=True)
        )
        return Measurement(candidate_ns, baseline_ns)
