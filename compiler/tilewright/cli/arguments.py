# SPDX-License-Identifier: Apache-2.0
"""Options whose text has a form of its own: ``NAME=DIMS``, ``NAME=FILE``, ``SYMBOL=SIZE``."""

import os
import re
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tilewright.cli.terminal import fail, start_debugging, wrong_usage

if TYPE_CHECKING:
    from tilewright.runtime.arrays import Array


class Numerics(StrEnum):
    """The numeric policies."""

    strict = "strict"
    default = "default"


DEBUG_HELP = "Show all of the log, with the schedules that were refused, and a trace with errors."


def _debug(given: bool) -> bool:
    if given:
        start_debugging()
    return given


DebugOption = Annotated[bool, typer.Option("--debug", callback=_debug, help=DEBUG_HELP)]
ShapeOption = Annotated[
    list[str] | None,
    typer.Option(
        "--shape",
        metavar="NAME=DIMS",
        help="Dims of an input, as x=1,3,224,224; a word keeps a dim symbolic. Repeatable.",
    ),
]
SizeOption = Annotated[
    list[str] | None,
    typer.Option(
        "--size",
        metavar="SYMBOL=N",
        help="The size of a symbolic dim in made-up inputs. Repeatable.",
    ),
]
NumericsOption = Annotated[
    Numerics,
    typer.Option("--numerics", help="'strict' forgoes rewrites that change rounding much."),
]
UncheckedIndicesOption = Annotated[
    bool,
    typer.Option(
        "--unchecked-indices",
        help="Clamp indices among the data that are out of range; else they are errors of a run.",
    ),
]
ConstantDefaultsOption = Annotated[
    bool,
    typer.Option(
        "--constant-defaults",
        help="Initialisers that are inputs too are constants, which no call replaces.",
    ),
]
NoCacheOption = Annotated[
    bool, typer.Option("--no-cache", help="Neither read nor write the compile cache.")
]
CacheDirOption = Annotated[
    Path | None,
    typer.Option(
        "--cache-dir",
        metavar="DIR",
        help="Where compiled kernels are kept; else TILEWRIGHT_CACHE_DIR, else the user's cache.",
    ),
]
RecordsOption = Annotated[
    Path | None,
    typer.Option(
        "--records",
        metavar="FILE",
        help="Where tuned schedules are kept; else in TILEWRIGHT_CACHE_DIR, else the user's data.",
    ),
]
ThreadsOption = Annotated[
    int | None,
    typer.Option(
        "--threads",
        metavar="N",
        min=1,
        max=256,
        help="Threads of a run; else TILEWRIGHT_NUM_THREADS, else what the machine grants.",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")]


def parse_shapes(texts: list[str] | None) -> dict[str, list[int | str]] | None:
    """The dims of inputs from ``x=1,3,h,w``; exit status 2 for another form."""
    shapes: dict[str, list[int | str]] = {}
    for text in texts or []:
        name, separator, dims = text.rpartition("=")
        items = [item.strip() for item in dims.split(",")] if dims.strip() else []
        good = all(re.fullmatch(r"\d+|[A-Za-z_]\w*", item) for item in items)
        if not separator or not name or not good:
            wrong_usage(
                f"Shape '{text}' is not understood. Write it as --shape x=1,3,224,224; a word, as "
                "in x=n,16, keeps a dim symbolic."
            )
        if name in shapes:
            wrong_usage(f"The shape of '{name}' is given twice.")
        shapes[name] = [int(item) if item.isdigit() else item for item in items]
    return shapes or None


def parse_sizes(texts: list[str] | None) -> dict[str, int]:
    """The sizes of symbols from ``batch=4``; exit status 2 for another form."""
    sizes: dict[str, int] = {}
    for text in texts or []:
        name, separator, value = text.rpartition("=")
        if not separator or not name or "=" in name or not re.fullmatch(r"\d{1,18}", value):
            wrong_usage(
                f"Size '{text}' is not understood. Write it as --size batch=4, and the option once "
                "for each dim."
            )
        sizes[name] = int(value)
    return sizes


def read_inputs(texts: list[str] | None) -> "dict[str, Array]":
    """Arrays from ``x=file.npy``, or all those of ``file.npz``.

    Exit status 2 for another form, 1 for a file that cannot be read.
    """
    arrays: dict[str, Array] = {}
    for text in texts or []:
        if "=" not in text and text.endswith(".npz"):
            found = _read(text, archive=True)
        else:
            name, separator, path = text.partition("=")
            if not separator or not name or not path:
                wrong_usage(
                    f"Input '{text}' is not understood. Write it as --input x=x.npy, or as the "
                    "name of an .npz file."
                )
            found = {name: _read(path, archive=False)[""]}
        for name, array in found.items():
            if name in arrays:
                wrong_usage(f"Input '{name}' is given twice.")
            arrays[name] = array
    return arrays


def _read(path: str, archive: bool) -> "dict[str, Array]":
    """The arrays of an .npz file, or that of an .npy file under an empty name.

    ReadError for whatever numpy raises: a damaged header ends in errors of many parsers.
    """
    import numpy as np

    from tilewright.errors import ReadError

    kind = ".npz" if archive else ".npy"
    try:
        content = np.load(path, allow_pickle=False)
        is_archive = isinstance(content, np.lib.npyio.NpzFile)
        if is_archive and not archive:
            raise ReadError(
                f"File '{path}' is an archive of several arrays, not one array. Give it without a "
                f"name, as '{path}': its arrays have theirs."
            )
        if archive != is_archive:
            raise ValueError
        return dict(content) if archive else {"": content}
    except ReadError:
        raise
    except OSError as error:
        reason = error.strerror or str(error)
        raise ReadError(f"File '{path}' cannot be read: {reason}.") from error
    except MemoryError as error:
        raise ReadError(
            f"File '{path}' does not fit into the memory, or is damaged. Write it again, or give "
            "smaller arrays."
        ) from error
    except Exception as error:
        raise ReadError(
            f"File '{path}' is no {kind} file of plain arrays, or is damaged. Write it with "
            f"numpy.{'savez' if archive else 'save'}."
        ) from error


def check_no_artifact(model: Path) -> None:
    """Ends the command, with status 2, for an artifact in the place of a model to compile."""
    if model.suffix == ".tw":
        wrong_usage(
            f"'{model}' is an artifact: it is compiled already. 'tilewright run' runs it, "
            "'tilewright inspect' shows what it holds."
        )


def check_writable(path: Path, *inputs: Path | None) -> None:
    """Ends the command early, with status 1, if a file cannot be written, since long work comes
    after; with status 2 if it is one of the ``inputs``.
    """
    if str(path) == "-":
        wrong_usage("The output is a file, not standard output. Give its name; './-' for a '-'.")
    check_no_input(path, *inputs)
    folder = path.parent
    if path.is_dir():
        fail(f"'{path}' is a folder. Give the name of a file.")
    if not folder.is_dir():
        fail(f"Folder '{folder}' does not exist. Create it, or choose another output.")
    if not os.access(folder, os.W_OK | os.X_OK):
        fail(f"Folder '{folder}' cannot be written to. Choose another output.")


def check_no_input(path: Path | None, *inputs: Path | None) -> None:
    """Ends the command, with status 2, if what it would write is one of the files that it reads."""
    for source in inputs:
        if path is not None and source is not None and is_same_file(path, source):
            wrong_usage(f"File '{path}' would be written over the input '{source}'. Name another.")


def is_same_file(first: Path, second: Path) -> bool:
    """Whether two paths name one file, by links too; a file need not be there yet."""
    try:
        return os.path.samefile(first, second)
    except FileNotFoundError:
        return os.path.realpath(first) == os.path.realpath(second)
    except OSError:
        return False
