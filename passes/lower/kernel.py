# SPDX-License-Identifier: Apache-2.0
"""Lower a fusion group to a kernel: the pipeline of this package, in order."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

from tilewright.ir.buffer import Buffer
from tilewright.ir.errors import SymbolicDimError
from tilewright.ir.expr import Expr, Symbol
from tilewright.ir.graph import ConstantStore, Node, Value
from tilewright.ir.loop import Alloc, Kernel, Stmt, seq
from tilewright.ir.op import Op
from tilewright.ir.rewrite import substitute
from tilewright.ir.stage import Stage
from tilewright.passes.lower.abstract import abstract_dims
from tilewright.passes.lower.collapse import collapse_axes
from tilewright.passes.lower.collect import Computation, collect
from tilewright.passes.lower.inline import inline_maps
from tilewright.passes.lower.nests import stage_nest


@dataclass(frozen=True)
class Lowered:
    """A kernel with what the host program needs to call it.

    ``arguments`` are the graph values behind ``kernel.inputs``; ``scalars`` the expressions over
    the model's dims for ``kernel.symbols``.
    """

    kernel: Kernel
    arguments: tuple[Value, ...]
    results: tuple[Value, ...]
    scalars: tuple[Expr, ...]
    origin: str


@dataclass(frozen=True)
class Freed:
    """What a kernel takes as arguments though its group has numbers there: ops with symbols in
    place of them, and the ``values`` of these symbols. Constants are buffers, all of them.
    """

    ops: Mapping[Node, Op]
    values: Mapping[Expr, Expr]


def lower_group(node: Node, constants: ConstantStore, freed: Freed | None = None) -> Lowered:
    """The kernel of a group node, unscheduled; equal forms give identical kernels.

    SymbolicDimError, naming the node, if an index of its stages is not affine.
    """
    try:
        ops = None if freed is None else freed.ops
        computation = collapse_axes(inline_maps(collect(node, constants, ops)))
        computation, symbols = abstract_dims(computation)
    except SymbolicDimError as error:
        raise SymbolicDimError(
            f"Node '{node.origin}' has no kernel for symbolic sizes: {error}", error.dims
        ) from error
    kernel = build_kernel(computation, tuple(symbols))
    values = {} if freed is None else freed.values
    scalars = tuple(substitute(e, values) for e in symbols.values())
    return Lowered(kernel, computation.arguments, tuple(node.results), scalars, node.origin)


def build_kernel(c: Computation, symbols: tuple[Symbol, ...]) -> Kernel:
    """A kernel with the plain nests of all stages; its name is the hash of its form."""
    return named(
        Kernel("", c.inputs, c.outputs, symbols, c.stages, plain_body(c.stages, c.outputs))
    )


def plain_body(stages: tuple[Stage, ...], outputs: tuple[Buffer, ...]) -> Stmt:
    """The nests of all stages in sequence, inside the allocations of what is not an output."""
    body: Stmt = seq(stage_nest(s) for s in stages)
    for b in dict.fromkeys(b for s in stages for b in s.outputs if b not in outputs):
        body = Alloc(b, body)
    return body


def named(kernel: Kernel) -> Kernel:
    """The kernel under the name of its form."""
    digest = hashlib.sha256(str(kernel).encode()).hexdigest()[:16]
    return Kernel(
        f"k{digest}", kernel.inputs, kernel.outputs, kernel.symbols, kernel.stages, kernel.body
    )
