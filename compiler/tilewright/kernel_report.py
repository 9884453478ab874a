# SPDX-License-Identifier: Apache-2.0
"""What a compilation says of its kernels: the report's rows, and warnings of those that are slow.

A warning is kept in the artifact, so that it is told again where nothing is compiled: when an
artifact comes out of the cache, and by ``tilewright inspect``.
"""

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tilewright.passes.schedule.findings import Refusal, log_refusals

if TYPE_CHECKING:
    from tilewright.codegen.kernels import CompiledKernel

_logger = logging.getLogger("tilewright")
_SHOWN_ORIGINS = 3


@dataclass(frozen=True)
class KernelRow:
    """One form of kernel: how often it is launched, the schedule it got, those that were refused,
    and what the proof cost in milliseconds.
    """

    name: str
    launches: int
    template: str
    schedule: str
    proof_ms: float
    origin: str
    refused: tuple[Refusal, ...]
    cached: bool


@dataclass(frozen=True)
class KernelWarning:
    """A reduction of one form of kernel that does not run on full vectors, and why.

    ``origins`` are the nodes of all launches of the kernel, ``steps`` those of one launch.
    """

    kernel: str
    origins: tuple[str, ...]
    template: str
    stage: str
    steps: int
    reason: str

    def __str__(self) -> str:
        return (
            f"Kernel '{self.kernel}' of {brief(self.origins)} is slow: '{self.stage}', of "
            f"{self.steps:,} steps, is scheduled by '{self.template}' and does not run on full "
            f"vectors. {self.reason}"
        )


def brief(origins: Sequence[str]) -> str:
    """Some nodes by name, and how many others there are.

    >>> brief(["a", "b", "a", "c", "d", "e"])
    "'a', 'b', 'c' and 2 others"
    """
    distinct = list(dict.fromkeys(origins))
    more = len(distinct) - _SHOWN_ORIGINS
    shown = ", ".join(f"'{origin}'" for origin in distinct[:_SHOWN_ORIGINS])
    return shown if more <= 0 else f"{shown} and {more} other{'s' if more > 1 else ''}"


def launch_origins(*programs: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """The origins of each form's launches, which are given as (kernel, origin) for each program.

    One run launches the kernels of one program: a form counts in the first that has it.
    """
    found: dict[str, list[str]] = {}
    for launches in programs:
        origins: dict[str, list[str]] = {}
        for name, origin in launches:
            origins.setdefault(name, []).append(origin)
        found |= {name: of for name, of in origins.items() if name not in found}
    return found


def split_launches(
    manifest: Mapping[str, Any],
) -> tuple[list[dict[str, str]], list[dict[str, str]]]:
    """The launches of a run by an artifact's manifest: of one that replaces no default, and of one
    that does, which are none where there is one program.
    """
    rows: list[dict[str, str]] = manifest["kernels"]
    if "defaults_entry" not in manifest:
        return rows, []
    first = manifest["defaults_entry"]["first_kernel"]
    return rows[first:], rows[:first]


def kernel_rows(
    origins: Mapping[str, Sequence[str]], kernels: Mapping[str, "CompiledKernel"]
) -> list[KernelRow]:
    """A row for each form of kernel, with the first of its origins; they are logged."""
    rows = [
        KernelRow(
            name, len(origins[name]), k.template, k.schedule, k.proof_ms, origins[name][0],
            k.refused, k.cached,
        )
        for name, k in kernels.items()
    ]  # fmt: skip
    _logger.info(
        "Kernels: %d launches, %d forms, %d of them from the cache.",
        sum(row.launches for row in rows),
        len(rows),
        sum(row.cached for row in rows),
    )
    for row in rows:
        log_refusals(row.name, row.origin, row.refused)
        _logger.debug(
            "Kernel '%s' of '%s' is scheduled by '%s': %s",
            row.name,
            row.origin,
            row.template,
            row.schedule or "as it is",
        )
    return rows


def kernel_warnings(
    origins: Mapping[str, Sequence[str]],
    kernels: Mapping[str, "CompiledKernel"],
    usual: Collection[str],
) -> list[KernelWarning]:
    """The warnings of all forms of kernels. Of the forms that are not ``usual``, since a model has
    a second program, only what is not told of a usual one for the same nodes.
    """
    found = [
        KernelWarning(name, tuple(origins[name]), k.template, s.stage, s.steps, s.reason)
        for name, k in kernels.items()
        for s in k.slow
    ]
    told = {(origin, w.stage) for w in found if w.kernel in usual for origin in w.origins}
    return [
        w
        for w in found
        if w.kernel in usual or not told.issuperset((origin, w.stage) for origin in w.origins)
    ]


def log_warnings(warnings: Iterable[KernelWarning]) -> None:
    """Tell each warning once."""
    for warning in warnings:
        _logger.warning("%s", warning)


def warning_notes(warnings: Sequence[KernelWarning]) -> dict[str, Any]:
    """What the manifest keeps of the warnings; the origins are there already."""
    if not warnings:
        return {}
    fields = ("kernel", "template", "stage", "steps", "reason")
    return {"warnings": [{name: getattr(w, name) for name in fields} for w in warnings]}


def noted_warnings(manifest: Mapping[str, Any]) -> list[KernelWarning]:
    """The warnings that an artifact's manifest keeps."""
    programs = split_launches(manifest)
    origins = launch_origins(*([(r["name"], r["origin"]) for r in rows] for rows in programs))
    return [
        KernelWarning(origins=tuple(origins.get(row["kernel"], ())), **row)
        for row in manifest.get("notes", {}).get("warnings", ())
    ]
