# SPDX-License-Identifier: Apache-2.0
"""What a handler sees of the node that it imports: operands, attributes, version, and ways to emit
and to refuse.
"""

from collections.abc import Sequence, Set
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import onnx

from tilewright.frontends.elements import is_finite
from tilewright.frontends.names import printable, quoted
from tilewright.frontends.onnx.attributes import Attributes
from tilewright.frontends.onnx.operand import Operand
from tilewright.frontends.onnx.reasons import why_unknown
from tilewright.frontends.onnx.registry import Contents
from tilewright.frontends.sizes import dims_text, symbols_in
from tilewright.ir.dtypes import DType
from tilewright.ir.errors import FrontendError
from tilewright.ir.expr import Expr
from tilewright.ir.graph import Value
from tilewright.ir.op import Array, Op
from tilewright.ir.rounding import HALVES

if TYPE_CHECKING:
    from tilewright.frontends.onnx.importer import Importer
    from tilewright.frontends.onnx.scope import Scope


class UnsupportedNodeError(FrontendError):
    """A node that is understood but not supported in this form; collected, so that one message
    lists all. ``dims`` are the symbolic ones whose sizes would make it so.
    """

    def __init__(self, reason: str, dims: Sequence[str] = ()) -> None:
        super().__init__(reason)
        self.dims = tuple(dims)


class NodeContext:
    """One node during its import. ``attributes`` is typed access, ``version`` that of the node's
    operator set; ``used`` are the names that other nodes or the graph's outputs read. ``inexact``
    is set once a number of the node was rounded to a 16-bit float. ``original`` is the node with
    the model's own operands, whose types decide what sizes follow from them.
    """

    def __init__(
        self,
        importer: "Importer",
        scope: "Scope",
        node: onnx.NodeProto,
        operands: Sequence[Operand | None],
        version: int,
        origin: str,
        used: Set[str],
    ) -> None:
        self.importer = importer
        self.scope = scope
        self.node = node
        self.operands = list(operands)
        self.version = version
        self.origin = origin
        self._used = used
        self.inexact = False
        self.original = self
        self.attributes = Attributes(node.attribute, scope.bindings, self.where)

    def on(self, operands: Sequence[Operand | None]) -> "NodeContext":
        """The node with other operands."""
        other = NodeContext(
            self.importer, self.scope, self.node, operands, self.version, self.origin, self._used
        )
        other.original = self.original
        return other

    # --- refusing ---

    @property
    def where(self) -> str:
        """The node for messages: its name and operator."""
        domain = f"{printable(self.node.domain)}." if self.node.domain else ""
        return f"{quoted(self.origin)} ({domain}{printable(self.node.op_type)})"

    def fail(self, message: str) -> NoReturn:
        """Raise FrontendError: the node is wrong. ``message`` begins with a capital and ends in a
        full stop.
        """
        raise FrontendError(f"Node {self.where} is not valid: {message}")

    def unsupported(self, reason: str) -> NoReturn:
        """Refuse the node as not supported; ``reason`` is a clause such as ``its axes are computed
        at run time``.
        """
        raise UnsupportedNodeError(reason)

    def needs_sizes(self, what: str, *items: object) -> NoReturn:
        """Refuse the node, since ``what`` (such as ``step``) would have to be a number but follows
        from symbolic dims, those in the expressions among ``items``.
        """
        dims = symbols_in(items)
        raise UnsupportedNodeError(
            f"its {what} depend{'' if _verb(what) == 'are' else 's'} on {dims_text(dims)}", dims
        )

    def require(self, condition: bool, message: str) -> None:
        """Fail with ``message`` unless ``condition`` holds."""
        if not condition:
            self.fail(message)

    # --- operands ---

    @property
    def count(self) -> int:
        """How many inputs the node lists, missing optional ones included."""
        return len(self.operands)

    def has(self, position: int) -> bool:
        """True if the input is given."""
        return position < len(self.operands) and self.operands[position] is not None

    def operand(self, position: int) -> Operand:
        """A required input."""
        operand = self.operands[position] if position < len(self.operands) else None
        if operand is None:
            self.fail(f"Input {position} is missing.")
        return operand

    def value(self, position: int) -> Value:
        """A required input as a tensor of the graph."""
        return self.importer.materialise(self.operand(position))

    def optional(self, position: int) -> Value | None:
        """An optional input as a tensor of the graph."""
        return self.value(position) if self.has(position) else None

    def values(self) -> list[Value]:
        """All inputs as tensors."""
        return [self.value(i) for i in range(self.count)]

    def contents(self, position: int, what: str) -> Contents:
        """The elements of an input that must be known at import; refused as unsupported if they are
        not.
        """
        operand = self.operand(position)
        contents = self.importer.decided(operand)
        if contents is None:
            reason, dims = why_unknown(operand, self.importer.limits)
            raise UnsupportedNodeError(
                f"its {what} ('{printable(operand.name, 60)}') {_verb(what)} {reason}", dims
            )
        return contents

    def integers(self, position: int, what: str) -> list[int | Expr]:
        """Integers, symbolic ones included, from an input; a scalar gives a list of one."""
        contents = self.contents(position, what)
        operand = self.operand(position)
        self.require(
            operand.dtype.is_integer and contents.ndim <= 1,
            f"Its {what} must be a list of integers but are of type "
            f"{operand.dtype}{list(contents.shape)}.",
        )
        return [x if isinstance(x, Expr) else int(x) for x in contents.reshape(-1)]

    def static_integers(self, position: int, what: str) -> list[int]:
        """A list of plain integers from an input."""
        found = self.integers(position, what)
        if any(isinstance(x, Expr) for x in found):
            self.needs_sizes(what, *found)
        return [x for x in found if isinstance(x, int)]

    def element(self, position: int, what: str) -> Any:
        """The only element of an input: a finite number, or an expression over dims."""
        contents = self.contents(position, what)
        self.require(contents.size == 1, f"Its {what} must be one number, not {contents.size}.")
        element = contents.reshape(-1)[0]
        self.require(is_finite(element), f"Its {what} is {element}, but must be finite.")
        return element

    def scalar_number(self, position: int, what: str) -> float | int | bool:
        """The only element of an input, a plain number."""
        number = self.element(position, what)
        if not isinstance(number, int | float):
            self.needs_sizes(what, number)
        return number

    def array(self, position: int) -> Array | None:
        """The array of a constant input; None if it is not constant."""
        return self.importer.constant_array(self.operand(position))

    def axis(self, axis: int, rank: int) -> int:
        """A non-negative axis."""
        way_out = f": it must be from {-rank} to {rank - 1}" if rank else ""
        self.require(
            -rank <= axis < rank,
            f"Axis {axis} is out of range for rank {rank}{way_out}.",
        )
        return axis % rank

    def axes(self, axes: Sequence[int], rank: int) -> tuple[int, ...]:
        """Distinct non-negative axes, sorted."""
        found = sorted(self.axis(a, rank) for a in axes)
        self.require(len(set(found)) == len(found), f"Axes {list(axes)} name one axis twice.")
        return tuple(found)

    def gives(self, position: int) -> bool:
        """True if the result is named and something reads it."""
        names = self.node.output
        return position < len(names) and bool(names[position]) and names[position] in self._used

    @property
    def named(self) -> int:
        """How many results the node names, read or not."""
        return max((p + 1 for p, name in enumerate(self.node.output) if name), default=0)

    @property
    def outputs(self) -> int:
        """How many results the node gives, unused ones at the end left out."""
        return max((p + 1 for p in range(len(self.node.output)) if self.gives(p)), default=0)

    # --- emitting ---

    def emit(self, op: Op, *operands: Value) -> Value:
        """Append a node of ours and return its only result."""
        (result,) = self.importer.emit(op, operands)
        return result

    def constant(self, data: object, dtype: DType) -> Value:
        """A constant of that dtype."""
        array = np.asarray(data)
        if dtype in HALVES:
            narrow = array.astype(dtype.numpy).astype(np.float64)
            self.inexact |= not np.array_equal(narrow, array.astype(np.float64), equal_nan=True)
        return self.importer.constant(array, dtype)

    def known_result(self, contents: Contents, dtype: DType) -> Operand:
        """A result whose elements are known; it becomes a tensor only if it is used as one."""
        return Operand("", dtype, contents=contents)


def _verb(what: str) -> str:
    """``is`` or ``are``, as fits a word such as ``condition`` or ``axes``."""
    return "are" if what.endswith("s") and what != "axis" else "is"
