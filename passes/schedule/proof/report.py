# SPDX-License-Identifier: Apache-2.0
"""Counter-examples: concrete values for loops and symbols, and sentences that use them."""

from collections.abc import Mapping, Sequence
from typing import Any

import islpy as isl

from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import Expr, Symbol, Var, index
from tilewright.ir.rewrite import substitute
from tilewright.passes.schedule.proof.accesses import Instance
from tilewright.passes.schedule.proof.isl_expr import Domain

Values = Mapping[Expr, int]


def values_of(point: Any, domain: Domain, offset: int = 0) -> dict[Expr, int]:
    """The values of the parameters and dims of ``domain`` at an isl point whose dims start at
    ``offset``.
    """
    found: dict[Expr, int] = {}
    space = point.get_space()
    for name, e in domain.frame.named.items():
        number = space.find_dim_by_name(isl.dim_type.param, name)
        if number >= 0:
            found[e] = point.get_coordinate_val(isl.dim_type.param, number).to_python()
    for number, e in enumerate(domain.dims):
        found[e] = point.get_coordinate_val(isl.dim_type.set, offset + number).to_python()
    return found


def at(items: Sequence[Expr], values: Values) -> str:
    """Index expressions with values put in, as ``3, 0, 7``."""
    return ", ".join(numbers(items, values))


def numbers(items: Sequence[Expr], values: Values) -> list[str]:
    """Index expressions with values put in; a divisor of 0 counts as 1, as in compiled code."""
    known: dict[Expr, Expr] = {e: index(value) for e, value in values.items()}
    return [str(substitute(e, known)) for e in items]


def cell(buffer: Buffer, indices: Sequence[Expr], values: Values) -> str:
    """``'x[3, 7]'``."""
    return f"'{buffer.name}[{at(indices, values)}]'"


def instance(of: Instance, values: Values) -> str:
    """``'mm.update(3, 0, 7)' at io=0, i=3``."""
    return f"'{of.name}({at(of.point, values)})'{where(of.place.variables, values)}"


def where(variables: Sequence[Expr], values: Values) -> str:
    """`` at io=0, i=3`` for the variables that have a value."""
    shown = [f"{v}={values[v]}" for v in variables if v in values]
    return f" at {', '.join(shown)}" if shown else ""


def symbols(values: Values) -> str:
    """`` (n=7)`` for the symbols among the values."""
    shown = [f"{e}={value}" for e, value in values.items() if isinstance(e, Symbol)]
    return f" ({', '.join(shown)})" if shown else ""


def setting(values: Values) -> str:
    """`` at i=3 (n=7)`` for everything that has a name."""
    shown = [f"{e}={value}" for e, value in values.items() if isinstance(e, Var)]
    loops = f" at {', '.join(shown)}" if shown else ""
    return loops + symbols(values)
