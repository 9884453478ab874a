# SPDX-License-Identifier: Apache-2.0
"""The interpreter of graphs: every node by the numpy reference of its op.

Symbols take their values from the shapes of the feeds; a symbol that only a result defines (the
count of non-zero elements) takes it from that result. Symbolic dims in attributes are replaced by
their values. Each result is held to its type, each index that is read from data to its dim.
"""

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np

from tilewright.ir.dtypes import INDEX
from tilewright.ir.errors import InputError, InterpreterError
from tilewright.ir.expr import Expr, Symbol, index
from tilewright.ir.graph import Constant, ConstantStore, Graph, Module, Node, Value
from tilewright.ir.op import Array, Op
from tilewright.ir.ops.index_fault import check_in_range
from tilewright.ir.rewrite import evaluate


def interpret_graph(
    source: Module | Graph,
    feeds: Mapping[str, Array] | Sequence[Array],
    constants: ConstantStore | None = None,
    unchecked_indices: bool = False,
) -> dict[str, Array]:
    """The outputs of a model by name, or of a bare graph by the names of its values (else their
    numbers).

    ``feeds`` are the inputs in order, or by name, where those left out have their defaults;
    ``unchecked_indices`` clamps indices that are out of range. InputError if the feeds do not fit,
    IndexFaultError for an index out of range, InterpreterError if a result is not of its type.
    """
    graph = source.graph if isinstance(source, Module) else source
    if isinstance(source, Module):
        constants = source.constants if constants is None else constants
        input_names, output_names = source.input_names, source.output_names
    else:
        input_names = output_names = []
    names = input_names or [v.name or str(i) for i, v in enumerate(graph.inputs)]
    if isinstance(feeds, Mapping):
        if isinstance(source, Module) and source.defaults:
            held = {name: source.constants[ref] for name, ref in source.defaults.items()}
            feeds = {**held, **feeds}
        missing = [n for n in names if n not in feeds]
        if missing:
            raise InputError(f"There is no array for input '{missing[0]}'.")
        feeds = [feeds[n] for n in names]
    run = _Run(ConstantStore() if constants is None else constants, unchecked_indices)
    arrays = [np.asarray(f) for f in feeds]
    run.bind_inputs(graph, names, arrays)
    results = run.graph(graph, arrays)
    labels = output_names or [v.name or str(i) for i, v in enumerate(graph.outputs)]
    return dict(zip(labels, results, strict=True))


def with_dims(op: Op, symbols: Mapping[str, int]) -> Op:
    """The op with every symbolic dim among its attributes replaced by its value."""
    changes: dict[str, Any] = {}
    for f in fields(op):
        value = getattr(op, f.name)
        known = _known(value, symbols)
        if known is not value:
            changes[f.name] = known
    return replace(op, **changes) if changes else op


def _known(value: Any, symbols: Mapping[str, int]) -> Any:
    if isinstance(value, Expr) and value.dtype is INDEX:
        return index(evaluate(value, symbols))
    if isinstance(value, tuple):
        parts = tuple(_known(v, symbols) for v in value)
        return parts if any(a is not b for a, b in zip(parts, value, strict=True)) else value
    return value


class _Run:
    """Values of symbols, and the constants, during one run."""

    def __init__(self, constants: ConstantStore, unchecked_indices: bool) -> None:
        self.constants = constants
        self.unchecked_indices = unchecked_indices
        self.symbols: dict[str, int] = {}

    def bind_inputs(self, graph: Graph, names: Sequence[str], arrays: Sequence[Array]) -> None:
        """Symbols from the shapes of the feeds, which must fit the types of the inputs."""
        if len(arrays) != len(graph.inputs):
            raise InputError(f"The graph has {len(graph.inputs)} inputs, got {len(arrays)} arrays.")
        for value, array in zip(graph.inputs, arrays, strict=True):
            self.bind(value, array)
        for value, name, array in zip(graph.inputs, names, arrays, strict=True):
            problem = self.mismatch(value, array)
            if problem:
                raise InputError(f"Input '{name}' is {problem}.")

    def bind(self, value: Value, array: Array) -> None:
        """Take symbols that stand alone as a dim from an array, if they have no value yet."""
        if array.ndim != value.type.rank:
            return
        for dim, extent in zip(value.type.shape, array.shape, strict=True):
            if isinstance(dim, Symbol):
                self.symbols.setdefault(dim.name, int(extent))

    def mismatch(self, value: Value, array: Array) -> str | None:
        """How an array differs from the type of a value; None if it does not."""
        kind = value.type
        found = f"{array.dtype}{list(array.shape)}"
        if array.dtype != kind.dtype.numpy or array.ndim != kind.rank:
            return f"{found}, not '{kind}'"
        for dim, extent in zip(kind.shape, array.shape, strict=True):
            try:
                wanted = evaluate(dim, self.symbols)
            except KeyError:
                return f"{found}, and nothing gives '{dim}' of '{kind}' a value"
            if wanted != extent:
                return f"{found}, not '{kind}' with '{dim}' being {wanted}"
        return None

    def graph(self, graph: Graph, inputs: Sequence[Array]) -> list[Array]:
        """The outputs of a graph for given inputs."""
        known: dict[Value, Array] = dict(zip(graph.inputs, inputs, strict=True))
        remaining = {v: v.use_count for v in graph.inputs}
        for node in graph.nodes:
            operands = [known[v] for v in node.operands]
            results = self.node(node, operands)
            self._check(node, results)
            for v, array in zip(node.results, results, strict=True):
                known[v] = array
                remaining[v] = v.use_count
            # Arrays that nothing needs any more are let go.
            for v in node.operands:
                remaining[v] -= 1
                if remaining[v] == 0:
                    known.pop(v, None)
        return [known[v] for v in graph.outputs]

    def node(self, node: Node, operands: Sequence[Array]) -> tuple[Array, ...]:
        """The results of one node."""
        if isinstance(node.op, Constant):
            return (self.constants[node.op.data],)
        if len(node.regions) == 1 and node.op.name == "group":
            return tuple(self.graph(node.regions[0], operands))
        op = with_dims(node.op, self.symbols)
        if node.regions:
            raise InterpreterError(
                f"The interpreter does not run '{op.name}', which has sub-graphs."
            )
        if not self.unchecked_indices:
            check_in_range(op, operands, node.origin)
        with np.errstate(all="ignore"):
            return tuple(np.asarray(r) for r in op.reference(*operands))

    def _check(self, node: Node, results: Sequence[Array]) -> None:
        origin = f" ('{node.origin}')" if node.origin else ""
        if len(results) != len(node.results):
            raise InterpreterError(
                f"'{node.op.name}'{origin} gave {len(results)} results, not {len(node.results)}."
            )
        for value, array in zip(node.results, results, strict=True):
            self.bind(value, array)
            problem = self.mismatch(value, array)
            if problem:
                raise InterpreterError(f"The result of '{node.op.name}'{origin} is {problem}.")
