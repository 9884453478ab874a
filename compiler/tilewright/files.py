# SPDX-License-Identifier: Apache-2.0
"""Writing files so that they appear whole or not at all."""

import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from tilewright.runtime.errors import ArgumentError, RunError, WriteError


def _text_of(path: Any) -> str:
    """A path as a text."""
    try:
        text = os.fsdecode(path)
    except TypeError:
        raise ArgumentError(
            f"A file is named by a path, not by something of type '{type(path).__name__}'. Give a "
            "text or a Path."
        ) from None
    if "\0" in text:
        raise ArgumentError("The path holds a NUL character.")
    return text


@contextmanager
def replacing(path: str | os.PathLike[str], durable: bool = True) -> Iterator[IO[Any]]:
    """A binary stream that can seek, whose content takes the place of ``path`` when the block ends
    without error.

    ``durable`` waits until the disk has it, for what cannot be made again. It is a temporary file
    beside the file that ``path`` names, also through symbolic links; a device or a pipe gets the
    content at the end. WriteError if it cannot be written; then nothing is left. ArgumentError for
    what is no path.
    """
    target = Path(os.path.realpath(_text_of(path)))
    special = target.exists() and not target.is_file() and not target.is_dir()
    name = f".{target.name[:100]}.{os.getpid()}.{secrets.token_hex(4)}"
    temporary = target.with_name(name)
    try:
        if special:
            with tempfile.TemporaryFile() as stream:
                yield stream
                stream.seek(0)
                with open(target, "wb") as device:
                    shutil.copyfileobj(stream, device)
            return
        with open(temporary, "xb") as stream:
            yield stream
            stream.flush()
            if durable:
                os.fsync(stream.fileno())
        os.replace(temporary, target)
    except BaseException as error:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        ours = (None, temporary, str(temporary), target)
        if isinstance(error, OSError) and error.filename in ours:
            if isinstance(error, RunError):
                raise
            reason = error.strerror or str(error)
            refusal = WriteError(f"File '{os.fsdecode(path)}' cannot be written: {reason}.")
            refusal.errno, refusal.strerror = error.errno, reason
            raise refusal from error
        raise
