# SPDX-License-Identifier: Apache-2.0
"""Random inputs for a compiled model, with sizes for its symbolic dims.

A symbol gets its size from an array that is given, else from ``--size``, else the least size that
its bounds allow, but 1 at least. The last is a guess, so it is told apart: what one measures at it
is seldom what one wants to know.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.ir.dtypes import INDEX
from tilewright.ir.errors import ParseError
from tilewright.ir.expr import UNBOUNDED, Expr, Symbol
from tilewright.ir.expr_parser import ExprParser
from tilewright.ir.rewrite import evaluate
from tilewright.model import CompiledModel
from tilewright.runtime.arrays import Array
from tilewright.runtime.context import Port
from tilewright.runtime.dtypes import BY_NAME
from tilewright.runtime.errors import ArgumentError, OutOfMemoryError


@dataclass(frozen=True)
class Sizes:
    """The sizes of the symbols that random inputs need. ``guessed`` names those that nothing but
    their bounds decides.
    """

    values: dict[str, int]
    guessed: tuple[str, ...]


def random_sizes(
    model: CompiledModel, given: Mapping[str, Array], sizes: Mapping[str, int]
) -> Sizes:
    """The size of each symbol in the shapes of the inputs that are not given.

    ArgumentError for a size that is no symbol's or above what it may have.
    """
    symbols = {row["name"]: row for row in model.manifest["symbols"]}
    unknown = sorted(set(sizes) - set(symbols))
    if unknown:
        known = ", ".join(f"'{name}'" for name in symbols) or "none"
        raise ArgumentError(f"'{unknown[0]}' is no symbolic dim: the model's are {known}.")
    for name, size in sizes.items():
        upper = symbols[name]["hi"]
        largest = UNBOUNDED if upper is None else upper
        if size > largest:
            raise ArgumentError(f"The size of '{name}' is {size}, but may be at most {largest}.")
    decided = _sizes_of(model.inputs, given) | dict(sizes)
    missing = [str(d) for p in _missing(model, given) for d in p.shape]
    needed = {word for dim in missing for word in re.findall(r"[A-Za-z_]\w*", dim)}
    found = {n: decided.get(n, _least(row)) for n, row in symbols.items() if n in needed}
    return Sizes(found, tuple(name for name in found if name not in decided))


def random_inputs(
    model: CompiledModel, given: Mapping[str, Array], sizes: Sizes, seed: int
) -> dict[str, Array]:
    """An array for each input that is not given and has no default.

    Floats are normal, integers 0 or 1: indices of almost any table, and masks. ArgumentError for a
    size below what a shape allows, OutOfMemoryError for arrays that are too large.
    """
    values = sizes.values
    generator = np.random.default_rng(seed)
    found = {}
    for port in _missing(model, given):
        shape = tuple(_extent(dim, values) for dim in port.shape)
        if min(shape, default=0) < 0:
            raise ArgumentError(
                f"The random input '{port.name}' would have the shape {list(shape)}. Give larger "
                "sizes by --size."
            )
        try:
            found[port.name] = _random(generator, port, shape)
        except (MemoryError, ValueError):  # numpy has another word for far too much
            raise OutOfMemoryError(
                f"There is not enough memory for a random input '{port.name}' of shape "
                f"{list(shape)}. Give smaller sizes by --size."
            ) from None
    return found


def _missing(model: CompiledModel, given: Mapping[str, Array]) -> list[Port]:
    """The inputs that are to be made: those with a default need not be."""
    return [port for port in model.inputs if not (port.optional or port.name in given)]


def _least(row: Mapping[str, Any]) -> int:
    """The least size of a symbol that is not zero."""
    multiple = int(row["multiple"])
    return max(1, -(-max(1, int(row["lo"])) // multiple) * multiple)


def _sizes_of(ports: list[Port], given: Mapping[str, Array]) -> dict[str, int]:
    """The sizes that arrays, and defaults, give to the symbols that are dims of their own."""
    shapes = {port.name: port.default for port in ports if port.default is not None}
    shapes.update((name, array.shape) for name, array in given.items())
    return {
        dim: extent
        for port in ports
        for dim, extent in zip(port.shape, shapes.get(port.name, ()))
        if isinstance(dim, str) and dim.isidentifier()
    }


def _extent(dim: int | str, values: Mapping[str, int]) -> int:
    if isinstance(dim, int):
        return dim
    scope: dict[str, Expr] = {name: Symbol(name) for name in values}
    parser = ExprParser(dim)
    parser.scope.update(scope)
    try:
        expression = parser.expr()
    except ParseError as error:
        raise ArgumentError(f"The dim '{dim}' cannot be computed: give the array.") from error
    if expression.dtype is not INDEX:
        raise ArgumentError(f"The dim '{dim}' is no integer: give the array.")
    return evaluate(expression, values)


def _random(generator: np.random.Generator, port: Port, shape: tuple[int, ...]) -> Array:
    dtype = BY_NAME[port.dtype].numpy
    if port.dtype.startswith(("bool", "int", "uint")):
        return generator.integers(0, 2, shape).astype(dtype)
    values = generator.standard_normal(shape)
    if dtype.kind == "c":
        return (values + 1j * generator.standard_normal(shape)).astype(dtype)
    return values.astype(dtype)
