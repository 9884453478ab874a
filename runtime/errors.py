# SPDX-License-Identifier: Apache-2.0
"""The errors of loading and running models, one class for each status of the C runtime.

The runtime stands alone, so these are not the compiler's classes (``tilewright.ir.errors``); both
derive from ``TilewrightError``. Each also derives from the built-in exception that a caller would
expect.
"""

from tilewright.base_error import TilewrightError


class RunError(TilewrightError):
    """Base of all errors of the runtime."""


class LibraryError(RunError, OSError):
    """The C runtime's shared library is missing, or is another version's."""


class ArgumentError(RunError, ValueError):
    """An argument of a call is out of range."""


class InputError(RunError, ValueError):
    """An input, or memory supplied for an output, does not fit the model."""


class CopyError(RunError, TypeError):
    """A model was to be copied or pickled."""


class ArtifactError(RunError, ValueError):
    """The artifact is damaged, or of another format version."""


class TargetMismatchError(RunError):
    """The artifact is for another processor."""


class OutOfMemoryError(RunError, MemoryError):
    """The run needs more memory than there is."""


class ResourceError(RunError, OSError):
    """The system refuses what the work needs; ``errno`` and ``strerror`` say why."""

    def __str__(self) -> str:
        return str(self.args[0])


class ReadError(RunError, OSError):
    """A file cannot be read."""


class WriteError(RunError, OSError):
    """A file cannot be written; ``errno`` and ``strerror`` say why."""

    def __str__(self) -> str:
        return str(self.args[0])


class ModelError(RunError):
    """The model's own code reports a failure."""


class StateError(RunError):
    """A context was used while it is running."""


class CancelledError(RunError):
    """The run was cancelled."""


class UnsupportedError(RunError):
    """The artifact uses what this runtime does not have yet."""


class IndexFaultError(RunError, IndexError):
    """An index that the model reads from data is outside of what it indexes."""


BY_STATUS: dict[int, type[RunError]] = {
    1: ArgumentError,
    2: InputError,
    3: ArtifactError,
    4: TargetMismatchError,
    5: OutOfMemoryError,
    6: ReadError,
    7: ModelError,
    8: StateError,
    9: UnsupportedError,
    10: IndexFaultError,
    11: CancelledError,
}


def from_status(status: int, message: str) -> RunError:
    """The exception for a status of the C runtime (``enum tw_status``) and its message."""
    return BY_STATUS.get(status, RunError)(message)
