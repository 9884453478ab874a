# SPDX-License-Identifier: Apache-2.0
"""The range of the integers in a value, as far as it follows from the ops that make it.

The ends are expressions over the model's dims, so that what counts to ``n`` is known to index ``n``
rows. A range holds whatever the inputs are; where nothing is known it is that of the element type.
"""

from collections.abc import Callable, Sequence

from tilewright.ir.bounds import is_nonnegative, known_le, known_lt
from tilewright.ir.dtypes import BOOL, DType
from tilewright.ir.expr import ONE, ZERO, Expr, IndexOp, add, index, mul, sub
from tilewright.ir.graph import ConstantStore, Node, Value, constant_array
from tilewright.ir.ops.arg_reduce import Argmax, Argmin
from tilewright.ir.ops.dim_values import DimValues
from tilewright.ir.ops.iota import Iota
from tilewright.ir.simplify import maximum, minimum

Range = tuple[Expr, Expr]

# Ranges are followed through as many ops, and read from constants of as many elements.
_DEEPEST = 32
_LARGEST = 1 << 22
_MOVEMENT = frozenset(
    ("broadcast_to", "gather", "gather_elements", "gather_nd", "relayout", "reshape", "slice",
     "transpose")
)  # fmt: skip


class RangeAnalysis:
    """Ranges of the values of one graph."""

    def __init__(self, constants: ConstantStore) -> None:
        self._constants = constants
        self._known: dict[Value, Range] = {}

    def are_indices(self, value: Value, dim: Expr) -> bool:
        """True if every element is known to be from ``-dim`` to ``dim - 1``; so if there is
        none.
        """
        least, greatest = self.of(value)
        return value.type.size is ZERO or (
            all(known_le(ZERO - dim, e) for e in _ends(least, "min"))
            and all(known_lt(e, dim) for e in _ends(greatest, "max"))
        )

    def of(self, value: Value, depth: int = 0) -> Range:
        """The least and the greatest that an element of an integer value can be."""
        if value not in self._known:
            self._known[value] = self._found(value, depth)
        return self._known[value]

    def _found(self, value: Value, depth: int) -> Range:
        widest = _of_type(value.type.dtype)
        array = constant_array(value, self._constants)
        if array is not None:
            plain = value.type.dtype.is_integer and 0 < array.size <= _LARGEST
            return (index(int(array.min())), index(int(array.max()))) if plain else widest
        node = value.producer
        if node is None or depth >= _DEEPEST:
            return widest
        found = self._of_node(node, depth + 1)
        # What may wrap tells nothing.
        return found if found is not None and _lies_in(found, widest) else widest

    def _of_node(self, node: Node, depth: int) -> Range | None:
        match node.op:
            case Iota(shape, axis, _):
                return ZERO, sub(shape[axis], ONE)
            case Argmax(axis, _, _) | Argmin(axis, _, _):
                return ZERO, sub(node.operands[0].type.shape[axis], ONE)
            case DimValues(dims) if dims:
                return _union([(d, d) for d in dims])
        integers = [v.type.dtype.is_integer or v.type.dtype is BOOL for v in node.operands]
        rule = _RULES.get(node.op.name)
        if node.op.name in _MOVEMENT and integers[0]:
            return self.of(node.operands[0], depth)
        if rule is None or not all(integers):
            return None
        return rule([self.of(v, depth) for v in node.operands])


def _lies_in(inner: Range, outer: Range) -> bool:
    """True if one range is known to lie in another."""
    return known_le(outer[0], inner[0]) and known_le(inner[1], outer[1])


def _of_type(dtype: DType) -> Range:
    if dtype is BOOL:
        return ZERO, ONE
    return (index(int(dtype.min)), index(int(dtype.max))) if dtype.is_integer else (ZERO, ZERO)


def _ends(e: Expr, op: str) -> list[Expr]:
    """The expressions that ``e`` is the least or the greatest of: each is compared by itself."""
    if isinstance(e, IndexOp) and e.op == op:
        return [*_ends(e.a, op), *_ends(e.b, op)]
    return [e]


def _union(ranges: Sequence[Range]) -> Range:
    """The least range with all that is in some of these."""
    least, greatest = ranges[0]
    for low, high in ranges[1:]:
        least, greatest = minimum(least, low), maximum(greatest, high)
    return least, greatest


def _difference(x: Range, y: Range) -> Range:
    return sub(x[0], y[1]), sub(x[1], y[0])


def _product(x: Range, y: Range) -> Range | None:
    positive = is_nonnegative(x[0]) and is_nonnegative(y[0])
    return (mul(x[0], y[0]), mul(x[1], y[1])) if positive else None


def _remainder(x: Range, y: Range) -> Range | None:
    """The sign is the divisor's."""
    return (ZERO, sub(y[1], ONE)) if known_le(ONE, y[0]) else None


_RULES: dict[str, Callable[[list[Range]], Range | None]] = {
    "add": lambda r: (add(r[0][0], r[1][0]), add(r[0][1], r[1][1])),
    "cast": lambda r: r[0],
    "concat": _union,
    "maximum": lambda r: (maximum(r[0][0], r[1][0]), maximum(r[0][1], r[1][1])),
    "minimum": lambda r: (minimum(r[0][0], r[1][0]), minimum(r[0][1], r[1][1])),
    "mod": lambda r: _remainder(r[0], r[1]),
    "mul": lambda r: _product(r[0], r[1]),
    "sub": lambda r: _difference(r[0], r[1]),
    "where": lambda r: _union(r[1:]),
}
