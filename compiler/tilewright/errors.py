# SPDX-License-Identifier: Apache-2.0
"""All errors that Tilewright raises on purpose.

All are subclasses of :class:`TilewrightError`; those of loading, saving and running also of
:class:`RunError`, since the runtime stands alone and has a table of its own. ``InputError`` and
``IndexFaultError`` here are those of running.
"""

from tilewright.ir.errors import (
    CacheError,
    CodegenError,
    FrontendError,
    InterpreterError,
    OptionError,
    ParseError,
    PassError,
    PipelineError,
    ScheduleError,
    ShapesError,
    SymbolicDimError,
    TargetError,
    TilewrightError,
    TypeInferenceError,
    UnsupportedOperatorError,
    VerifyError,
)
from tilewright.runtime.errors import (
    ArgumentError,
    ArtifactError,
    CancelledError,
    CopyError,
    IndexFaultError,
    InputError,
    LibraryError,
    ModelError,
    OutOfMemoryError,
    ReadError,
    ResourceError,
    RunError,
    StateError,
    TargetMismatchError,
    UnsupportedError,
    WriteError,
)

__all__ = [
    "ArgumentError",
    "ArtifactError",
    "CacheError",
    "CancelledError",
    "CodegenError",
    "CopyError",
    "FrontendError",
    "IndexFaultError",
    "InputError",
    "InterpreterError",
    "LibraryError",
    "ModelError",
    "OptionError",
    "OutOfMemoryError",
    "ParseError",
    "PassError",
    "PipelineError",
    "ReadError",
    "ResourceError",
    "RunError",
    "ScheduleError",
    "ShapesError",
    "StateError",
    "SymbolicDimError",
    "TargetError",
    "TargetMismatchError",
    "TilewrightError",
    "TypeInferenceError",
    "UnsupportedError",
    "UnsupportedOperatorError",
    "VerifyError",
    "WriteError",
]
