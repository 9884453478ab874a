# SPDX-License-Identifier: Apache-2.0
"""Op definitions: the base class and the registry.

An op is defined in one place: a frozen dataclass whose fields are its typed attributes, in a file
of ``tilewright.ir.ops``. Subclassing registers it under its ``name``. It gives

* ``infer``: the result types from the operand types, or one clear TypeInferenceError;
* ``reference``: the same computation in numpy, the oracle of the tests;
* ``stages``: the computation as stages (:mod:`tilewright.ir.stage`), or ``decompose``: the op said
  in other ops;
* ``samples``: operand types and attributes for the generic tests, which hold ``stages`` to
  ``reference`` and compiled code to both.

Attributes are ints, floats, strings, bools, DTypes, index expressions (symbolic dims), constants'
handles, None, or tuples of these: what the text form can carry.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar

import numpy.typing as npt

from tilewright.ir.buffer import Buffer
from tilewright.ir.errors import TypeInferenceError
from tilewright.ir.expr import Expr
from tilewright.ir.stage import Stage
from tilewright.ir.types import TensorType

if TYPE_CHECKING:
    from tilewright.ir.graph import Builder, Value

Array = npt.NDArray[Any]
MAX_ARRAY_RANK = 64  # numpy has no arrays of more dims

# A condition on dims, a message with {0}, {1}, ... in it, and the expressions to put there.
Requirement = tuple[Expr, str, tuple[Expr, ...]]


@dataclass(frozen=True)
class Sample:
    """One case for the generic tests: an op, its operand types, and how to fill them.

    ``fill`` names a filling of the test's table: ``normal``, ``positive``, ``integers`` (small
    integers: contractions are exact), ``unit`` (within -1 and 1), ``special`` (NaN, infinities,
    signed zeros, subnormals among normal numbers), ``bool``, or ``indices:N`` (integers from -N to
    N-1); one for all operands or one for each.
    """

    op: "Op"
    operands: tuple[TensorType, ...]
    fill: str | tuple[str, ...] = "normal"


@dataclass(frozen=True)
class Op:
    """Base of all ops. ``name`` is the op's word in the text form.

    ``effects`` is true for an op that must stay even if nothing uses its results. ``regions`` is
    how many sub-graphs a node of this op holds.
    """

    name: ClassVar[str] = ""
    effects: ClassVar[bool] = False
    regions: ClassVar[int] = 0
    registry: ClassVar[dict[str, type["Op"]]] = {}

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "name" not in cls.__dict__:
            return
        if not re.fullmatch(r"[a-z][a-z0-9_.]*", cls.name):
            raise TypeError(f"'{cls.name}' is not a name for an op.")
        known = Op.registry.setdefault(cls.name, cls)
        if known.__qualname__ != cls.__qualname__:
            raise TypeError(
                f"Two ops are called '{cls.name}': {known.__qualname__} and {cls.__qualname__}."
            )

    def attributes(self) -> dict[str, Any]:
        """The attributes by name, in order of declaration."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    def infer(self, operands: Sequence[TensorType]) -> tuple[TensorType, ...]:
        """The result types; layouts of the results are row-major.

        TypeInferenceError if the operands do not fit.
        """
        raise NotImplementedError(self.name)

    def requirements(self, operands: Sequence[TensorType]) -> tuple[Requirement, ...]:
        """What ``infer`` could not decide about dims and must hold at run time, as the host
        program's ``require``.
        """
        return ()

    def indexed_axes(self, operands: Sequence[TensorType]) -> tuple[int, ...]:
        """The axes of operand 0 that operand 1 holds indices into: one, or one for each part of its
        index tuples; none for an op without indices in its data.

        ``reference`` and ``stages`` clamp such an index; that it is in range is checked apart.
        """
        return ()

    def reference(self, *operands: Array) -> tuple[Array, ...]:
        """The results in numpy; shapes and dtypes as ``infer`` says."""
        raise NotImplementedError(self.name)

    def stages(self, operands: Sequence[Buffer], results: Sequence[Buffer]) -> tuple[Stage, ...]:
        """The computation of ``results`` from ``operands``; stages may add buffers of their own.

        Names of axes, buffers and stages need to be unique only within the op: lowering renames.
        """
        raise NotImplementedError(self.name)

    def decompose(
        self, builder: "Builder", operands: "Sequence[Value]"
    ) -> "tuple[Value, ...] | None":
        """The same in other ops, or None for an op that has stages."""
        return None

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """Cases for the generic tests."""
        return iter(())

    # --- checks for ``infer`` ---

    def require(self, condition: bool, message: str) -> None:
        """Raise TypeInferenceError with ``message`` unless ``condition`` holds."""
        if not condition:
            raise TypeInferenceError(f"'{self.name}': {message}")

    def expect_operands(
        self, operands: Sequence[TensorType], least: int, most: int | None = None
    ) -> None:
        """Check how many operands there are."""
        most = least if most is None else most
        wanted = str(least) if least == most else f"{least} to {most}"
        self.require(
            least <= len(operands) <= most, f"Expected {wanted} operands, got {len(operands)}."
        )
