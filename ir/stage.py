# SPDX-License-Identifier: Apache-2.0
"""Stages: what a kernel computes, said without loops or order.

A computation is a list of stages, each writing its own buffers at every point of its axes:

* **map**: ``out[axes] = value``;
* **reduce**: a monoid over a tuple. For every point of ``axes`` the accumulators start at ``init``;
  each point of ``reduce_axes`` replaces them by ``combine``, an expression over the accumulators
  (:class:`Scalar` named as in ``accumulators``) and reads; the result is stored. Arg-max,
  mean-and-variance and contractions are all this. Reduction order is the row-major order of
  ``reduce_axes`` unless a schedule that the numeric policy allows says otherwise.
* **scan**: like reduce over one ordered axis, but the accumulators are stored at every step: the
  scanned axis is the last of ``axes``. ``exclusive`` stores before the step.
* **scatter**: for every point of ``reduce_axes``, in row-major order, ``out[targets] = combine``,
  where the accumulators name the old values at ``targets``; ``init`` is the value of every cell
  before.
* **opaque**: loop IR written directly (``body``); nothing but its effects is known. It has no
  accumulators and no values; its text is followed by the body in braces.

Text::

    map relu(n in batch, c in 64) -> relu[n, c] = max(x[n, c], f32(0.0))
    reduce mm(m in 8, n in 64; k in 6) -> mm[m, n] : acc = f32(0.0) then (acc + (a[m, k] * b[k, n]))
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import Expr, Read, Scalar, Var, reads
from tilewright.ir.interning import Term
from tilewright.ir.rewrite import substitute

if TYPE_CHECKING:
    from tilewright.ir.loop import Stmt

KINDS = ("map", "reduce", "scan", "scatter", "opaque")


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Stage(Term):
    """One stage of a computation; see the module docstring for the meaning of each kind.

    ``outputs[i]`` is written at ``targets`` with ``values[i]`` (map) or the i-th accumulator
    (others). ``targets`` are the indices of the written cell in terms of ``axes``: usually the axes
    themselves.
    """

    kind: str
    name: str
    axes: tuple[Var, ...]
    reduce_axes: tuple[Var, ...]
    outputs: tuple[Buffer, ...]
    targets: tuple[Expr, ...]
    accumulators: tuple[Scalar, ...]
    init: tuple[Expr, ...]
    values: tuple[Expr, ...]
    exclusive: bool = False
    body: "Stmt | None" = None

    @property
    def output(self) -> Buffer:
        """The first output."""
        return self.outputs[0]

    def replace(self, **changes: Any) -> "Stage":
        """The stage with some fields changed."""
        return Stage(*(changes.get(f.name, getattr(self, f.name)) for f in fields(self)))

    def reads(self) -> list[Read]:
        """All distinct reads of the stage."""
        found: dict[Read, None] = {}
        for e in (*self.init, *self.values, *self.targets):
            found.update(dict.fromkeys(reads(e)))
        return list(found)

    def __str__(self) -> str:
        def domain(axes: tuple[Var, ...]) -> str:
            return ", ".join(f"{v.name} in {v.extent}" for v in axes)

        inner = f"; {domain(self.reduce_axes)}" if self.reduce_axes else ""
        cell = ", ".join(map(str, self.targets))
        outputs = ", ".join(f"{b.name}[{cell}]" for b in self.outputs)
        head = f"{self.kind} {self.name}({domain(self.axes)}{inner}) -> {outputs}"
        if self.kind == "map":
            return f"{head} = {', '.join(map(str, self.values))}"
        if self.kind == "opaque":
            return head
        inits = ", ".join(
            f"{a.name} = {i}" for a, i in zip(self.accumulators, self.init, strict=True)
        )
        when = " exclusive" if self.exclusive else ""
        return f"{head} : {inits} then{when} {', '.join(map(str, self.values))}"

    __repr__ = __str__


def map_stage(name: str, axes: tuple[Var, ...], output: Buffer, value: Expr) -> Stage:
    """``output[axes] = value`` for every point of ``axes``, whose extents are the shape of
    ``output``.
    """
    return Stage("map", name, axes, (), (output,), axes, (), (), (value,))


def reduce_stage(
    name: str,
    axes: tuple[Var, ...],
    reduce_axes: tuple[Var, ...],
    outputs: tuple[Buffer, ...],
    accumulators: tuple[Scalar, ...],
    init: tuple[Expr, ...],
    combine: tuple[Expr, ...],
) -> Stage:
    """A reduction over ``reduce_axes`` into ``outputs`` at every point of ``axes``."""
    return Stage("reduce", name, axes, reduce_axes, outputs, axes, accumulators, init, combine)


def rename_axes(stage: Stage, replacements: Mapping[Var, Var]) -> Stage:
    """The same stage over other axis variables, with extents as the new variables have them."""
    sub: dict[Expr, Expr] = dict(replacements.items())

    def all_of(items: tuple[Expr, ...]) -> tuple[Expr, ...]:
        return tuple(substitute(e, sub) for e in items)

    return stage.replace(
        axes=tuple(replacements.get(v, v) for v in stage.axes),
        reduce_axes=tuple(replacements.get(v, v) for v in stage.reduce_axes),
        targets=all_of(stage.targets),
        init=all_of(stage.init),
        values=all_of(stage.values),
    )
