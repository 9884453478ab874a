# SPDX-License-Identifier: Apache-2.0
"""Progress of a compilation on standard error: a bar on a terminal, else lines now and then."""

import time
from typing import Any

from tilewright.cli.terminal import console, note

_SECONDS_BETWEEN_LINES = 5.0


class Silent:
    """Shows nothing."""

    def __enter__(self) -> "Silent":
        return self

    def __exit__(self, *raised: object) -> None:
        pass

    def __call__(self, phase: str, done: int, of: int) -> None:
        pass


class Lines(Silent):
    """Prints a line for a phase that takes long."""

    def __init__(self) -> None:
        self._last = time.monotonic()

    def __call__(self, phase: str, done: int, of: int) -> None:
        now = time.monotonic()
        if now - self._last >= _SECONDS_BETWEEN_LINES:
            self._last = now
            note(f"{phase}: {done} of {of}")


class Bar(Silent):
    """A bar that vanishes at the end."""

    def __init__(self, shown: Any) -> None:
        from rich import progress

        self._bar = progress.Progress(
            progress.SpinnerColumn(),
            progress.TextColumn("{task.description}"),
            progress.BarColumn(),
            progress.MofNCompleteColumn(),
            progress.TimeElapsedColumn(),
            console=shown,
            transient=True,
        )
        self._task = self._bar.add_task("reading the model", total=None)

    def __enter__(self) -> "Bar":
        self._bar.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._bar.stop()

    def __call__(self, phase: str, done: int, of: int) -> None:
        self._bar.update(self._task, description=phase, completed=done, total=of)


def progress_display(quiet: bool) -> Silent:
    """The display that fits standard error."""
    if quiet:
        return Silent()
    shown = console(error=True)
    return Bar(shown) if shown.is_terminal and not shown.is_dumb_terminal else Lines()
