# SPDX-License-Identifier: Apache-2.0
"""Initialisers that are inputs of the graph too: defaults, which a caller may replace.

From IR version 4 on, a file says by this which of its tensors are no constants; before, every
initialiser had to be listed as an input, so that nothing follows from it and all are constants, as
for ONNX Runtime. What may be replaced is an input of the module, with the tensor as its default:
nothing is folded or packed from it. (The driver makes a second program, in which it is constant.)

A default that decides shapes cannot be replaced, since shapes are known when a model is compiled.
Only the walk tells which do. It reads such a default and notes it, and is done once more with those
as constants.
"""

import logging
from collections.abc import Collection

import onnx

from tilewright.frontends.names import quoted
from tilewright.frontends.onnx.constants import computed_array
from tilewright.frontends.onnx.limits import Limits
from tilewright.frontends.onnx.operand import Operand
from tilewright.frontends.onnx.reasons import sources
from tilewright.ir.errors import FrontendError
from tilewright.ir.graph import Module, Value, fits
from tilewright.ir.op import Array
from tilewright.ir.types import tensor

_OLDEST_WITH_DEFAULTS = 4
_MOST_NAMED = 5
_logger = logging.getLogger("tilewright")


class DecidingDefaults(Exception):
    """Defaults whose values decided shapes during a walk: they must be constants in the next."""

    def __init__(self, names: set[str]) -> None:
        super().__init__()
        self.names = names


class Defaults:
    """The defaults of one walk; ``constant`` are those known to decide shapes."""

    def __init__(self, model: onnx.ModelProto, constant: Collection[str]) -> None:
        listed = {info.name for info in model.graph.input}
        current = model.ir_version >= _OLDEST_WITH_DEFAULTS
        self._replaceable = listed - set(constant) if current else set()
        self._arrays: dict[str, Array] = {}
        self._values: dict[Value, str] = {}
        self._deciding: set[str] = set()

    def add(self, name: str, array: Array) -> bool:
        """Note an initialiser; False if it is a constant."""
        if name not in self._replaceable:
            return False
        self._arrays[name] = array
        return True

    def array(self, name: str) -> Array | None:
        """The default of an input; None if it has none."""
        return self._arrays.get(name)

    def define(self, name: str, value: Value, module: Module) -> None:
        """Give an input of the module its default; FrontendError if that is not of its type."""
        ref = module.constants.add(self._arrays[name])
        if not fits(ref, value.type):
            raise FrontendError(
                f"Input {quoted(name)} is {value.type}, but its initialiser is "
                f"{tensor(ref.dtype, ref.shape)}. Declare, or give, the shape that it has."
            )
        self._values[value] = name
        module.defaults[name] = ref

    def decide(self, operand: Operand, module: Module, limits: Limits) -> Array | None:
        """What an operand holds if defaults and constants alone decide it, which makes these
        defaults constants; None if it does not follow from them.
        """
        if operand.value is None or not self._values:
            return None
        read = sources(operand.value)[0]
        if not read or not all(value in self._values for value in read):
            return None
        self._deciding.update(self._values[value] for value in read)
        known = {value: self._arrays[self._values[value]] for value in read}
        array = computed_array(operand.value, module.constants, limits, known)
        if array is None:
            self.finish()  # what is between follows dims, which the next walk can do
        return array

    def finish(self) -> None:
        """The end of a walk: DecidingDefaults if it must be done anew."""
        if self._deciding:
            raise DecidingDefaults(self._deciding)


def tell_of_deciding(constant: Collection[str]) -> None:
    """Warn of tensors that might have been replaced."""
    if constant:
        _logger.warning(
            "The initialisers %s are inputs of the graph too, but decide shapes, so that a call "
            "cannot replace them.",
            _listed(constant),
        )


def _listed(names: Collection[str]) -> str:
    shown = [quoted(name) for name in sorted(names)[:_MOST_NAMED]]
    if len(names) > _MOST_NAMED:
        shown.append(f"{len(names) - _MOST_NAMED} more")
    return ", ".join(shown)
