# SPDX-License-Identifier: Apache-2.0
"""How the command line is read and explained: errors that are found before any command runs are
sentences, and JSON where that is asked for; help names arguments plainly.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

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


class PlainCommand(TyperCommand):
    """A command whose help names arguments as its examples do: ``MODEL``, nothing about types."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return [re.sub(r"^\{(.*)\}$", r"\1", piece) for piece in super().collect_usage_pieces(ctx)]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        for head, kind in (("Arguments", "argument"), ("Options", "option")):
            params = [p for p in self.get_params(ctx) if p.param_type_name == kind]
            records = [r for r in (p.get_help_record(ctx) for p in params) if r is not None]
            if records:
                with formatter.section(head):
                    formatter.write_dl([(re.sub(r" <path>$", "", n), text) for n, text in records])


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
