# SPDX-License-Identifier: Apache-2.0
"""Errors that are found while the command line is read, before any command runs: as sentences, and
as JSON where that is asked for.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer
from typer.core import TyperGroup

from tilewright.cli.terminal import say_error, settings

_UsageError: Any = typer.BadParameter.__mro__[1]  # typer exports only its subclasses
_WORDINGS = (
    (r"Value error, ", ""),
    (r"Input should be greater than or equal to ([\d.-]+)", r"It must be at least \1."),
    (r"Input should be less than or equal to ([\d.-]+)", r"It must be at most \1."),
    (r"Input should be (.*?)(, unable to parse .*)?$", r"It must be \1."),
)


class Commands(TyperGroup):
    """The group of all commands."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any
    ) -> Any:
        settings.json = "--json" in args
        with _told():
            return super().make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: Any) -> Any:
        with _told():
            return super().invoke(ctx)


@contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except _UsageError as error:
        if error.message:
            error.message = plain(error.message)
        say_error(error.format_message(), "UsageError")
        raise


def plain(message: str) -> str:
    """What the parsing library says, in plain words.

    >>> plain("Input should be a valid integer, unable to parse string as an integer")
    'It must be a valid integer.'
    >>> plain("Value error, 'loose' is not one of 'strict', 'default'.")
    "'loose' is not one of 'strict', 'default'."
    """
    for pattern, wording in _WORDINGS:
        message = re.sub(pattern, wording, message)
    return message
