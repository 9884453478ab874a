# SPDX-License-Identifier: Apache-2.0
"""What the system refuses, a file, memory or a process, as typed errors.

The parts of the compiler let such exceptions pass; the functions that users call turn them into
classes of ours here, which still derive from the built-in ones.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from tilewright.base_error import TilewrightError
from tilewright.runtime.errors import OutOfMemoryError, ResourceError


def typed(error: OSError | MemoryError, work: str) -> TilewrightError:
    """The typed error for what the system refused; ``work`` says while what."""
    if isinstance(error, MemoryError):
        return OutOfMemoryError(f"There is not enough memory to {work}.")
    reason = error.strerror or str(error) or type(error).__name__
    name = error.filename2 or error.filename
    about = f" (file '{os.fsdecode(name)}')" if isinstance(name, str | bytes) else ""
    refusal = ResourceError(
        f"The system refuses what is needed to {work}: {reason}{about}. See to its limits, its "
        "disks and the permissions of its files."
    )
    refusal.errno, refusal.strerror = error.errno, reason
    return refusal


@contextmanager
def typed_refusals(work: str) -> Iterator[None]:
    """Exceptions of the system that leave the block are typed; ``work``: ``compile the model``."""
    try:
        yield
    except (OSError, MemoryError) as error:
        if isinstance(error, TilewrightError):
            raise
        raise typed(error, work) from error
