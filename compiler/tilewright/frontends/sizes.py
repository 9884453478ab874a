# SPDX-License-Identifier: Apache-2.0
"""How a caller gives sizes to symbolic dims, for messages about what needs them to be known."""

from collections.abc import Iterable, Sequence

from tilewright.frontends.names import identifier, printable, quoted
from tilewright.ir.expr import Const, Expr, Symbol, free_variables
from tilewright.ir.rewrite import hinted
from tilewright.ir.types import TensorType

Inputs = Sequence[tuple[str, TensorType]]
_LONGEST = 5  # more inputs or dims than this make no message clearer


def symbols_in(items: Iterable[object]) -> tuple[str, ...]:
    """The names of the symbols in expressions and whatever else is among the items, sorted."""
    found = {v for e in items if isinstance(e, Expr) for v in free_variables(e)}
    return tuple(sorted({v.name for v in found if isinstance(v, Symbol)}))


def dims_text(names: Sequence[str]) -> str:
    """Symbolic dims by their names.

    >>> dims_text(["h", "w"])
    "the symbolic dims 'h' and 'w'"
    """
    shown = [quoted(name) for name in names[:_LONGEST]]
    if len(names) > _LONGEST:
        shown[-1] = f"{len(names) - _LONGEST + 1} more"
    *others, last = shown
    listed = f"{', '.join(others)} and {last}" if others else last
    return f"the symbolic dim{'s' if others else ''} {listed}"


def way_to_fix(names: Sequence[str], inputs: Inputs) -> str:
    """The sentence that says how to give symbolic dims sizes, with those that the compiler expects;
    empty if they are dims of no input.
    """
    fixed = set(names)
    concerned = [(n, t) for n, t in inputs if fixed.intersection(symbols_in(t.shape))]
    if not concerned:
        return ""
    shapes = {name: tuple(_given(d, fixed) for d in t.shape) for name, t in concerned[:_LONGEST]}
    options = " ".join(
        f"--shape {printable(name)}={','.join(map(str, dims))}" for name, dims in shapes.items()
    )
    given = dims_text(names)
    return f"Fix {given}, as {options} on the command line or shapes={shapes!r} in Python."


def _given(dim: Expr, fixed: set[str]) -> int | str:
    """A dim as a caller would give it: a number if it depends on what is to be fixed."""
    if isinstance(dim, Const) or fixed.intersection(symbols_in([dim])):
        return max(1, hinted(dim))
    return dim.name if isinstance(dim, Symbol) else identifier(str(dim))
