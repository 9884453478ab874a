# SPDX-License-Identifier: Apache-2.0
"""What all commands share: where text goes, how errors end the process, what a table looks like.

Results go to standard output, everything else to standard error. Exit status: 0 done, 1 the work
failed, 2 wrong usage, 130 interrupted. Where JSON is asked for, standard output has one object also
for an error. Without a terminal there are plain lines and no colours (rich decides, by NO_COLOR,
FORCE_COLOR and TERM).
"""

import functools
import json
import logging
import os
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn, ParamSpec, TypeVar

import typer

from tilewright.requirements import explain_missing

if TYPE_CHECKING:
    from rich.console import Console

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

FAILED, USAGE, INTERRUPTED = 1, 2, 130


@dataclass
class Settings:
    """What options say that concern every command: ``json`` as long as a JSON object is owed."""

    debug: bool = False
    json: bool = False


settings = Settings()


class Terminated(BaseException):
    """SIGTERM arrived."""


def clean(text: str) -> str:
    """The text without control characters, which names in model files could bring to a terminal."""
    return "".join(
        c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape", "replace").decode()
        for c in text
    )


def console(error: bool = False) -> "Console":
    """A console on standard output or standard error."""
    from rich.console import Console

    return Console(stderr=error, highlight=False, markup=False, emoji=False, soft_wrap=True)


def say(text: str) -> None:
    """Prints one piece of the result."""
    sys.stdout.write(f"{clean(text)}\n")


def note(text: str) -> None:
    """Prints a remark to standard error."""
    console(error=True).print(clean(text))


def say_json(value: Any) -> None:
    """Prints the result as JSON; nothing else may follow on standard output."""
    settings.json = False
    sys.stdout.write(f"{json.dumps(value, indent=1, allow_nan=False)}\n")


def say_table(heads: Sequence[str], rows: Sequence[Sequence[str]], right: str = "") -> None:
    """Prints a table; ``right`` names the heads of columns of numbers.

    Columns are as wide as they need to be, so that lines can be cut and searched by other programs.
    """
    cells = [[clean(c).replace("\n", " ") for c in row] for row in (heads, *rows)]
    widths = [max(map(len, column)) for column in zip(*cells)]
    numbers = right.split(",")
    lines = [
        "  ".join(
            cell.rjust(width) if head in numbers else cell.ljust(width)
            for head, cell, width in zip(heads, row, widths)
        ).rstrip()
        for row in cells
    ]
    out = console()
    out.print(lines[0], style="bold")
    for line in lines[1:]:
        out.print(line)


def counted(count: int, word: str, plural: str = "") -> str:
    """A number with its word: ``1 record``, ``2 records``."""
    return f"{count:,} {word if count == 1 else plural or word + 's'}"


def size_text(count: int) -> str:
    """A number of bytes for people: ``1.4 MB``."""
    size = float(count)
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} GB"


def port_text(dtype: str, shape: Sequence[int | str]) -> str:
    """A type for people: ``float32[batch, 3, 224, 224]``."""
    return f"{dtype}[{', '.join(map(str, shape))}]"


def sizes_text(sizes: Mapping[str, int]) -> str:
    """Sizes of symbolic dims for people: ``batch=4, length=128``."""
    return ", ".join(f"{name}={size}" for name, size in sizes.items())


_KINDS = {FAILED: "Failed", USAGE: "UsageError", INTERRUPTED: "Interrupted"}


def fail(message: str, status: int = FAILED, kind: str = "") -> NoReturn:
    """Ends the command with a sentence on standard error; where JSON is asked for, also there, with
    the ``kind`` of error.
    """
    from rich.text import Text

    say_error(message, kind or _KINDS[status])
    text = Text.assemble(("Error: ", "bold red"), clean(message))
    console(error=True).print(text)
    raise typer.Exit(status)


def say_error(message: str, kind: str) -> None:
    """Prints an error as JSON, if that is asked for and no result was printed."""
    if settings.json:
        say_json({"error": {"kind": kind, "message": clean(message)}})


def wrong_usage(message: str) -> NoReturn:
    """Ends the command for an option that makes no sense, with status 2."""
    fail(message, USAGE)


class _LogHandler(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        from rich.text import Text

        word = record.levelname.capitalize()
        style = "bold yellow" if record.levelno >= logging.WARNING else "dim"
        text = Text.assemble((f"{word}: ", style), clean(record.getMessage()))
        console(error=True).print(text)


def start_logging(level: str) -> None:
    """Sends the package's log from that level on to standard error."""
    logger = logging.getLogger("tilewright")
    if not any(isinstance(h, _LogHandler) for h in logger.handlers):
        logger.addHandler(_LogHandler())
    logger.propagate = False
    logger.setLevel(level.upper())


def start_debugging() -> None:
    """Shows the whole log, and a trace with errors."""
    settings.debug = True
    start_logging("debug")


def command(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Ends a command with the right exit status and one sentence, whatever it raises."""

    @functools.wraps(function)
    def guarded(*arguments: Parameters.args, **options: Parameters.kwargs) -> Result:
        try:
            return function(*arguments, **options)
        except (typer.Exit, typer.Abort, typer.BadParameter, BrokenPipeError):
            raise
        except KeyboardInterrupt:
            fail("Interrupted.", INTERRUPTED)
        except Exception as error:
            if settings.debug:
                traceback.print_exc()
            fail(explain(error), status_of(error), kind_of(error))

    return guarded


def status_of(error: Exception) -> int:
    """The exit status for an exception: that of wrong usage if an option's value is at fault."""
    from tilewright.errors import ArgumentError, PipelineError, ShapesError, TargetError

    wrong = isinstance(error, ArgumentError | PipelineError | ShapesError | TargetError)
    return USAGE if wrong else FAILED


def kind_of(error: Exception) -> str:
    """The word for programs: the class of an error that is foreseen."""
    from tilewright.errors import RunError, TilewrightError

    foreseen = isinstance(error, TilewrightError | RunError | OSError | MemoryError)
    return type(error).__name__ if foreseen else "InternalError"


def explain(error: Exception) -> str:
    """The sentence for an exception."""
    from tilewright.errors import RunError, TilewrightError

    if isinstance(error, TilewrightError | RunError):
        notes = getattr(error, "__notes__", [])
        return " ".join([str(error) or type(error).__name__, *notes])
    if isinstance(error, OSError):
        name = error.filename2 or error.filename
        subject = f"File '{os.fsdecode(name)}'" if isinstance(name, str | bytes) else "A file"
        reason = error.strerror or str(error) or type(error).__name__
        return f"{subject} cannot be used: {reason.removesuffix('.')}."
    if isinstance(error, ModuleNotFoundError) and (sentence := explain_missing(error)):
        return sentence
    if isinstance(error, MemoryError):
        return "There is not enough memory."
    return (
        f"Internal fault, {type(error).__name__}: {error}. Please report it with the trace that "
        "'tilewright --debug ...' prints."
    )
