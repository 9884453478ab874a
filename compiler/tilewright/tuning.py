# SPDX-License-Identifier: Apache-2.0
"""Tuning a model's kernels: what ``tilewright tune`` does."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

from tilewright.autotune.records import ScheduleRecords
from tilewright.autotune.tuner import KernelTask, Tuner
from tilewright.driver import (
    CompileOptions,
    Progress,
    Report,
    compile_cache,
    lower_groups,
    optimize,
)
from tilewright.frontends import import_model
from tilewright.ir.target import Target
from tilewright.version import VERSION


def kernel_tasks(
    source: Any,
    target: Target,
    shapes: Mapping[str, Sequence[int | str]] | None = None,
    options: CompileOptions | None = None,
) -> list[KernelTask]:
    """The kernel forms of a model with the number of their launches.

    They are those that compiling the model with the same arguments makes.
    """
    module = import_model(os.fspath(source) if isinstance(source, os.PathLike) else source, shapes)
    optimize(module, target, options or CompileOptions(), Report())
    lowered = lower_groups(module)
    origins: dict[str, list[str]] = {}
    for low in lowered:
        origins.setdefault(low.kernel.name, []).append(low.origin)
    forms = {low.kernel.name: low.kernel for low in lowered}
    return [KernelTask(k, len(origins[name]), origins[name][0]) for name, k in forms.items()]


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
