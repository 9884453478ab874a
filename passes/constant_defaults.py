# SPDX-License-Identifier: Apache-2.0
"""A module whose defaults are constants: what a call that replaces none of them computes.

An input with a default becomes a constant, so that all passes see its values. A symbol that is a
dim of a default is a number then, which the other inputs must agree with.

Before ``default "w" = f32[2] #..`` and ``add(x: f32[n], w: f32[n])``, after ``w = constant()`` and
``add(x: f32[2], w: f32[2])``.
"""

from tilewright.ir.errors import PassError, TypeInferenceError
from tilewright.ir.expr import Expr, Symbol, index
from tilewright.ir.graph import Constant, ConstantRef, Module, Node, Value, clone_graph
from tilewright.passes.graph.narrow_symbols import substitute_module


def with_constant_defaults(module: Module) -> Module:
    """A copy of a module in which defaults are constants, and no inputs.

    The inputs that are left come in the same order. PassError if the defaults do not fit together,
    so that no call could leave out all of them.
    """
    sizes = _sizes(module)
    graph, _ = clone_graph(module.graph)
    named = list(zip(module.input_names, graph.inputs, strict=True))
    twin = Module(
        graph,
        dict(module.symbols),
        module.constants.copy(),
        [name for name, _ in named if name not in module.defaults],
        list(module.output_names),
        dict(module.metadata),
        module.files,
    )
    made: list[Node] = []
    for name, value in named:
        if name in module.defaults:
            made.append(_constant(module.defaults[name], value))
            graph.replace(value, made[-1].result)
    graph.nodes[:0] = made
    graph.inputs = [value for name, value in named if name not in module.defaults]
    if sizes:
        try:
            substitute_module(twin, sizes)
        except TypeInferenceError as error:
            raise PassError(f"The defaults of the inputs do not fit together. {error}") from error
    return twin


def _constant(ref: ConstantRef, replaced: Value) -> Node:
    """The node that stands for an input; the value keeps its type until symbols are replaced."""
    node = Node(Constant(ref), [], [], origin=replaced.name)
    node.results = [Value(replaced.type, replaced.name, node)]
    return node


def _sizes(module: Module) -> dict[Expr, Expr]:
    """The numbers that symbols are where all defaults hold."""
    known: dict[Expr, Expr] = {}
    for name, value in zip(module.input_names, module.graph.inputs, strict=True):
        ref = module.defaults.get(name)
        if ref is None:
            continue
        for dim, extent in zip(value.type.shape, ref.shape, strict=True):
            size = index(extent)
            if isinstance(dim, Symbol) and _allows(dim, extent):
                dim = known.setdefault(dim, size)
            if dim != size:
                raise PassError(
                    f"The default of input '{name}' has a dim of {extent} where the model expects "
                    f"{dim}."
                )
    return known


def _allows(symbol: Symbol, extent: int) -> bool:
    return symbol.lo <= extent <= symbol.hi and extent % symbol.multiple == 0
