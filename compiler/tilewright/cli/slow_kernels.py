# SPDX-License-Identifier: Apache-2.0
"""The table of slow kernels, which ``compile --time-passes`` and ``inspect`` end with."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tilewright.cli.terminal import say, say_table

if TYPE_CHECKING:
    from tilewright.kernel_report import KernelWarning


def say_slow_kernels(warnings: "Sequence[KernelWarning]") -> None:
    """Prints a row for each reduction that does not run on full vectors; nothing without one."""
    from tilewright.kernel_report import brief

    if not warnings:
        return
    say("")
    say_table(
        ("slow kernel", "stage", "steps", "schedule", "origin", "reason"),
        [
            (w.kernel, w.stage, f"{w.steps:,}", w.template, brief(w.origins), w.reason)
            for w in warnings
        ],
        right="steps",
    )
