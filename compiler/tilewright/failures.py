# SPDX-License-Identifier: Apache-2.0
"""Errors of kernels as a user is told them: the node of the model, the reason, and the way out.

What a pass, the proof or LLVM says is about loops and schedules, which mean nothing to who has a
model. It goes to the log; the loops themselves are in a dump of the IR.
"""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tilewright.frontends.sizes import symbols_in, way_to_fix
from tilewright.ir.errors import CodegenError, SymbolicDimError
from tilewright.ir.graph import Module
from tilewright.passes.lower.kernel import Lowered

_logger = logging.getLogger("tilewright")
_REPORT = (
    "Please report it: 'tilewright --log debug compile' tells what went wrong, and "
    "--dump-ir writes the loops."
)


@contextmanager
def placed_errors(module: Module, lowered: Sequence[Lowered] = ()) -> Iterator[None]:
    """Errors of kernels inside name the node that each stands for; ``lowered`` are those that could
    be at fault.
    """
    try:
        yield
    except SymbolicDimError as error:
        hint = _way_to_fix(module, error.dims)
        raise SymbolicDimError(f"{error} {hint}".rstrip(), error.dims) from error
    except CodegenError as error:
        _logger.debug("%s", error)
        raise CodegenError(_told(error, module, lowered), error.subject, error.reason) from error


def _told(error: CodegenError, module: Module, lowered: Sequence[Lowered]) -> str:
    reason = error.reason or "No code could be generated for it."
    for low in lowered:
        if low.kernel.name == error.subject:
            hint = _way_to_fix(module, symbols_in(low.scalars))
            sentences = [f"Node '{low.origin}' cannot be compiled: {reason}"]
            sentences += [f"Its sizes are symbolic. {hint}"] if hint else []
            return " ".join([*sentences, _REPORT])
    return f"The model cannot be compiled: {reason} {_REPORT}"


def _way_to_fix(module: Module, dims: Sequence[str]) -> str:
    named = zip(module.input_names, module.graph.inputs, strict=True)
    return way_to_fix(dims, [(name, value.type) for name, value in named])
