# SPDX-License-Identifier: Apache-2.0
"""Tuning a model's kernels: what ``tilewright tune`` does."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.autotune.measure import typical_size
from tilewright.autotune.records import ScheduleRecords
from tilewright.autotune.tuner import KernelTask, Tuner
from tilewright.driver import (
    CompileOptions,
    Progress,
    Report,
    compile_cache,
    lower_groups,
    optimized,
)
from tilewright.frontends import import_model
from tilewright.ir.errors import InputError
from tilewright.ir.expr import Symbol
from tilewright.ir.graph import Module
from tilewright.ir.rewrite import evaluate
from tilewright.ir.target import Target
from tilewright.passes.lower.kernel import Lowered
from tilewright.version import VERSION


@dataclass(frozen=True)
class TuningJob:
    """The kernels of a model to tune, and the sizes of its symbols at which they are measured."""

    tasks: list[KernelTask]
    sizes: dict[str, int]


def tuning_job(
    source: Any,
    target: Target,
    shapes: Mapping[str, Sequence[int | str]] | None = None,
    options: CompileOptions | None = None,
    sizes: Mapping[str, int] | None = None,
) -> TuningJob:
    """The kernel forms of a model with the number of their launches.

    They are those that compiling the model with the same arguments makes. ``sizes`` are of the
    model's symbols by name; the others get their hint. A kernel that is launched at several sizes
    is measured at those of its first launch. InputError for a size that the model does not allow.
    """
    module = import_model(os.fspath(source) if isinstance(source, os.PathLike) else source, shapes)
    module, fixed = optimized(module, target, options or CompileOptions(), Report())
    chosen = _chosen_sizes(module.symbols, sizes or {})
    launches: dict[str, list[Lowered]] = {}
    for program in (fixed, module):  # first what calls that replace no default run
        if program is not None:
            others = _launches(program)
            launches |= {name: same for name, same in others.items() if name not in launches}
    return TuningJob(
        [
            KernelTask(same[0].kernel, len(same), same[0].origin, _kernel_sizes(same[0], chosen))
            for same in launches.values()
        ],
        chosen,
    )


def _launches(module: Module) -> dict[str, list[Lowered]]:
    """The launches of each kernel form of a program."""
    found: dict[str, list[Lowered]] = {}
    for low in lower_groups(module):
        found.setdefault(low.kernel.name, []).append(low)
    return found


def kernel_tasks(
    source: Any,
    target: Target,
    shapes: Mapping[str, Sequence[int | str]] | None = None,
    options: CompileOptions | None = None,
) -> list[KernelTask]:
    """The tasks of :func:`tuning_job` at typical sizes."""
    return tuning_job(source, target, shapes, options).tasks


def _chosen_sizes(symbols: Mapping[str, Symbol], given: Mapping[str, int]) -> dict[str, int]:
    """A size for each symbol of a model."""
    for name, size in given.items():
        s = symbols.get(name)
        if s is None:
            known = ", ".join(f"'{other}'" for other in symbols) or "none"
            raise InputError(f"'{name}' is no symbolic dim: the model's are {known}.")
        if not max(1, s.lo) <= size <= s.hi or size % s.multiple:
            multiple = f", a multiple of {s.multiple}" if s.multiple > 1 else ""
            raise InputError(
                f"Size {size} of '{name}' is not one to measure at: give one from "
                f"{max(1, s.lo)} to {s.hi}{multiple}."
            )
    return {name: given.get(name, typical_size(s)) for name, s in symbols.items()}


def _kernel_sizes(low: Lowered, sizes: Mapping[str, int]) -> dict[str, int]:
    """The sizes of a kernel's symbols at a launch; a launch over nothing would tell nothing."""
    return {
        s.name: evaluate(scalar, sizes) or typical_size(s)
        for s, scalar in zip(low.kernel.symbols, low.scalars, strict=True)
    }


def make_tuner(
    target: Target,
    records: ScheduleRecords,
    options: CompileOptions | None = None,
    *,
    seed: int = 0,
    progress: Progress | None = None,
) -> Tuner:
    """The tuner for a target that keeps what it finds in ``records``."""
    cache = compile_cache(options or CompileOptions())
    return Tuner(target, VERSION, records, seed=seed, cache=cache, progress=progress)
