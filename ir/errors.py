# SPDX-License-Identifier: Apache-2.0
"""The error classes of the compiler.

Every error message is one sentence with a capital and a full stop, names in single quotes and the
values that matter, followed by a hint on the way out where there is one:
``Axis 3 is out of range for 'x' of rank 2.``
"""

from collections.abc import Mapping, Sequence

from tilewright.base_error import TilewrightError as TilewrightError


class FrontendError(TilewrightError):
    """The model file cannot be imported: damaged, unsafe, or with unsupported operators."""


class ShapesError(FrontendError):
    """The shapes that are given for inputs do not fit the model."""


class UnsupportedOperatorError(FrontendError):
    """The model is valid, but has operators that are not supported.

    ``operators`` counts the nodes of each, all of the model's at once; ``besides`` tells what else
    was wrong, if anything.
    """

    def __init__(
        self, message: str, operators: Mapping[str, int] | None = None, besides: str = ""
    ) -> None:
        super().__init__(message)
        self.operators = dict(operators or {})
        self.besides = besides


class OptionError(TilewrightError, TypeError):
    """An option of a compilation is unknown, or of the wrong type."""


class TypeInferenceError(TilewrightError):
    """The operands or attributes of an op do not fit it."""


class ParseError(TilewrightError):
    """Text of the graph IR or of the loop IR does not parse."""


class VerifyError(TilewrightError):
    """An invariant of the graph IR or of the loop IR does not hold."""


class InterpreterError(TilewrightError):
    """A reference interpreter met a fault: an access out of bounds, memory read before written."""


class PassError(TilewrightError):
    """A pass is unknown, has an unknown option, or cannot handle what it was given."""


class PipelineError(PassError):
    """What is asked for is no pass, no option of the pass, no value of the option, or no policy."""


class SymbolicDimError(PassError):
    """A kernel would need numbers where it has the symbolic ``dims``, by their names."""

    def __init__(self, message: str, dims: Sequence[str]) -> None:
        super().__init__(message)
        self.dims = tuple(dims)


class ScheduleError(TilewrightError):
    """A schedule step does not apply, or the scheduled kernel is not proven legal."""


class CodegenError(TilewrightError):
    """Loop IR cannot be turned into code for the target. ``subject`` is the kernel or program at
    fault, where one is; ``reason`` is what a user of the compiler is told, a sentence without IR.
    """

    def __init__(self, message: str, subject: str = "", reason: str = "") -> None:
        super().__init__(message)
        self.subject = subject
        self.reason = reason


class TargetError(TilewrightError):
    """A target description does not parse or asks for what this machine cannot do."""


class CacheError(TilewrightError):
    """A cache folder cannot be used."""


class InputError(TilewrightError):
    """The inputs given to a model do not fit it: name, rank, shape or dtype."""


class IndexFaultError(TilewrightError, IndexError):
    """An index that a model reads from data is outside of what it indexes."""
