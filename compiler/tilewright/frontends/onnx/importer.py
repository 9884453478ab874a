# SPDX-License-Identifier: Apache-2.0
"""The walk over an ONNX graph: each node's handler emits our ops, or its function body is walked in
its place.

Names are resolved through scopes, so inlining a function or a branch needs no renaming. What cannot
be imported (a node, an initialiser, an input without a shape) blocks its results; what depends on
them is skipped, and at the end one message tells what was wrong (:mod:`.refusals`).
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from dataclasses import replace
from functools import partial

import numpy as np
import onnx

from tilewright.frontends.base import Shapes
from tilewright.frontends.dims import Unknown, is_reasonable
from tilewright.frontends.elements import is_number
from tilewright.frontends.names import printable, quoted
from tilewright.frontends.onnx import declared, functions
from tilewright.frontends.onnx.attributes import check_against_schema, schema_of
from tilewright.frontends.onnx.constants import computed_array
from tilewright.frontends.onnx.context import NodeContext, UnsupportedNodeError
from tilewright.frontends.onnx.defaults import Defaults
from tilewright.frontends.onnx.evaluation import evaluated, follows_from_dims, materialise
from tilewright.frontends.onnx.expansion import called, expanded_size
from tilewright.frontends.onnx.limits import Limits
from tilewright.frontends.onnx.load import LoadedModel
from tilewright.frontends.onnx.one_rounding import rounded_once
from tilewright.frontends.onnx.operand import Operand, blocked
from tilewright.frontends.onnx.order import ordered
from tilewright.frontends.onnx.refusals import Refusals, domain_of, node_origin, operator_text
from tilewright.frontends.onnx.registry import (
    NEWEST_OPSET,
    Contents,
    find_handler,
)
from tilewright.frontends.onnx.scope import Scope
from tilewright.frontends.onnx.symbols import Symbols, expected_size
from tilewright.frontends.onnx.tensors import check_rank, dtype_of, sparse_to_array, to_array
from tilewright.frontends.onnx.weights import Bytes
from tilewright.frontends.sizes import dims_text, symbols_in
from tilewright.ir.dtypes import STRING, DType, from_numpy
from tilewright.ir.errors import (
    FrontendError,
    ShapesError,
    TypeInferenceError,
    UnsupportedOperatorError,
)
from tilewright.ir.expr import Const, index
from tilewright.ir.graph import Builder, Graph, Module, Value
from tilewright.ir.op import Array, Op
from tilewright.ir.types import TensorType, tensor


class Importer:
    """The state of one import."""

    def __init__(self, loaded: LoadedModel, limits: Limits, constant: Collection[str] = ()) -> None:
        self.loaded = loaded
        self.limits = limits
        self.module = Module(Graph("main"))
        self.builder = Builder(self.module.graph, self.module.constants)
        self.symbols = Symbols()
        self.defaults = Defaults(loaded.proto, constant)
        self.functions = functions.model_functions(loaded.proto)
        self.refusals = Refusals(self.functions)
        self._walked = 0
        self._where = "the graph"

    def run(self, shapes_given: Shapes) -> Module:
        """Import the main graph; ``shapes_given`` replaces dims of inputs. DecidingDefaults if some
        initialisers must be constants.
        """
        graph = self.loaded.proto.graph
        scope = Scope(self.loaded.opsets)
        # A value that is listed twice is one output: results have names.
        listed = list({o.name: o for o in graph.output}.values())
        results: list[Operand] = []
        try:
            if self.functions:
                self._check_nodes(expanded_size(graph, self.functions))
            self._define_initializers(graph, scope, self.loaded.weights, self.defaults.add)
            self._define_inputs(graph, scope, shapes_given)
            results = self.walk(graph.node, [o.name for o in listed], scope)
        except ShapesError:
            raise
        except FrontendError as error:
            self.refusals.add_error(error)
            self.refusals.search(graph.node, scope.opsets, "")
        self.defaults.finish()
        self.refusals.raise_first(self.inputs)
        self.builder.origin = "outputs"
        module = self.module
        outputs = [self.materialise(r) for r in results]
        for info, value in zip(listed, outputs, strict=True):
            _check_port_name("Output", info.name)
            declared.check_dtype(info, value.type)
            # With shapes given for the inputs, those declared mean nothing.
            if not shapes_given:
                declared.warn_of_shape(info, value.type)
        module.graph.set_outputs(outputs)
        module.output_names = [o.name for o in listed]
        _refuse_strings(module)
        module.files = self.loaded.external.files
        module.symbols = dict(self.symbols.table)
        module.metadata = {p.key: p.value for p in self.loaded.proto.metadata_props}
        return module

    # --- what comes in ---

    def _define_initializers(
        self,
        graph: onnx.GraphProto,
        scope: Scope,
        weights: Mapping[int, Bytes],
        taken: Callable[[str, Array], bool] = lambda name, array: False,
    ) -> None:
        """Define those that are not ``taken`` as inputs."""
        external = self.loaded.external
        for position, proto in enumerate(graph.initializer):
            read = partial(to_array, proto, external, self.limits, weights.get(position))
            self._define_initializer(proto.name, read, scope, taken)
        for sparse in graph.sparse_initializer:
            read = partial(sparse_to_array, sparse, external, self.limits)
            self._define_initializer(sparse.values.name, read, scope, taken)

    def _define_initializer(
        self,
        name: str,
        read: Callable[[], Array],
        scope: Scope,
        taken: Callable[[str, Array], bool],
    ) -> None:
        """Data of the file under its name; one that cannot be read blocks what needs it."""
        try:
            array = read()
        except FrontendError as error:
            self.refusals.add_error(error)
            scope.define(name, blocked(name))
            return
        if not taken(name, array):
            scope.define(name, self.constant_operand(name, array))

    def _define_inputs(self, graph: onnx.GraphProto, scope: Scope, given: Shapes) -> None:
        inputs = [i for i in graph.input if i.name not in scope.names]
        # Those that a call must give come first.
        inputs.sort(key=lambda info: self.defaults.array(info.name) is not None)
        unknown = sorted(set(given) - {i.name for i in inputs})
        if unknown:
            known = ", ".join(quoted(i.name) for i in inputs[:20])
            raise ShapesError(
                f"Shapes are given for {', '.join(map(quoted, unknown))}, but the inputs are "
                f"{known}."
            )
        self.symbols.declare(i for i in inputs if i.name not in given)
        for info in inputs:
            if not info.name:
                raise FrontendError("A graph input has no name. Export the model again.")
            _check_port_name("Input", info.name)
            try:
                type_ = self._input_type(info, given)
                check_rank(0 if type_ is None else type_.rank, f"Input {quoted(info.name)}")
            except ShapesError:
                raise
            except FrontendError as error:
                self.refusals.add_error(error)
                scope.define(info.name, blocked(info.name))
                continue
            if type_ is None:
                self.refusals.add_unshaped(info.name)
                scope.define(info.name, blocked(info.name))
                continue
            value = Value(type_, printable(info.name))
            if self.defaults.array(info.name) is not None:
                self.defaults.define(info.name, value, self.module)
            self.module.graph.inputs.append(value)
            self.module.input_names.append(info.name)
            scope.define(info.name, Operand(info.name, value.type.dtype, value=value))

    def _input_type(self, info: onnx.ValueInfoProto, given: Shapes) -> TensorType | None:
        """The type of an input; None if it has no shape."""
        shown = quoted(info.name)
        if not info.type.HasField("tensor_type"):
            kind = info.type.WhichOneof("value") or "nothing"
            raise FrontendError(
                f"Input {shown} is of kind '{kind}'; only tensors are supported as inputs yet."
            )
        tensor_type = info.type.tensor_type
        dtype = dtype_of(tensor_type.elem_type, f"Input {shown}")
        if info.name in given:
            wanted = list(given[info.name])
            if tensor_type.HasField("shape") and len(tensor_type.shape.dim) != len(wanted):
                raise ShapesError(
                    f"Input {shown} has rank {len(tensor_type.shape.dim)} but the shape given for "
                    f"it, {wanted}, has "
                    f"rank {len(wanted)}. Give one dim for each axis."
                )
            dims = [self.symbols.given(d, a, info.name) for a, d in enumerate(wanted)]
            return tensor(dtype, dims)
        if not tensor_type.HasField("shape"):
            default = self.defaults.array(info.name)
            return None if default is None else tensor(dtype, list(map(index, default.shape)))
        rank = len(tensor_type.shape.dim)
        dims = [
            self.symbols.dim(d, f"{info.name}_d{a}", expected_size(a, rank))
            for a, d in enumerate(tensor_type.shape.dim)
        ]
        return tensor(dtype, dims)

    # --- walking ---

    def walk(
        self, nodes: Sequence[onnx.NodeProto], wanted: Sequence[str], scope: Scope
    ) -> list[Operand]:
        """Import the nodes that the wanted names need; what those names then stand for."""
        self.limits.check("The nesting of sub-graphs and functions", scope.nesting, "nesting")
        known = scope.find if scope.parent is not None else scope.names.get
        own = scope.names
        order, used = ordered(
            nodes, wanted, lambda name: name in own or known(name) is not None, self.limits
        )
        self._walked += len(order)
        self._check_nodes(self._walked)
        for position, node in enumerate(order):
            self._import_node(node, position, scope, used)
        return [self._named(name, scope) for name in wanted]

    def _check_nodes(self, count: int) -> None:
        self.limits.check("The number of nodes, inlined functions included,", count, "nodes")

    def sub_graph(self, graph: onnx.GraphProto, scope: Scope, origin: str) -> list[Operand | None]:
        """Import a branch in place; what its outputs stand for."""
        inner = scope.sub_graph()
        inner.prefix = f"{origin}/"
        self._define_initializers(graph, inner, {})
        return list(self.walk(graph.node, [o.name for o in graph.output], inner))

    def _named(self, name: str, scope: Scope) -> Operand:
        operand = scope.find(name)
        if operand is None:
            raise FrontendError(
                f"The name {quoted(name)} is defined nowhere. Export the model again."
            )
        return operand

    def _import_node(
        self, node: onnx.NodeProto, position: int, scope: Scope, used: Set[str]
    ) -> None:
        origin = node_origin(node, position, scope.prefix)
        operands = [self._named(name, scope) if name else None for name in node.input]
        domain = domain_of(node)
        version = scope.opsets.get(domain, 1 if domain else NEWEST_OPSET)
        context = NodeContext(self, scope, node, operands, version, origin, used)
        self.builder.origin, self._where = origin, context.where
        if any(o is not None and o.blocked for o in operands):
            if not self.refusals.is_known(node, version):
                self._refuse(context, UnsupportedNodeError(""))
            self._block(context)
            return
        try:
            self._define_results(context, self._checked_results(context))
        except UnsupportedNodeError as refusal:
            self._refuse(context, refusal)
            self._block(context)
        except FrontendError as error:
            self.refusals.add_error(error)
            self._block(context)

    def _checked_results(self, context: NodeContext) -> list[Operand | None]:
        """What the node's outputs stand for; FrontendError if the node does not fit its inputs."""
        try:
            return self._results(context)
        except TypeInferenceError as error:
            cause: Exception = error
        except Unknown as error:
            cause = error
            known = [x for o in context.operands if o is not None for x in o.expressions()]
            if dims := symbols_in(known):
                raise UnsupportedNodeError(
                    f"its dims would follow from {dims_text(dims)} in a way that is not understood",
                    dims,
                ) from None
        reason = str(cause) or "its dims cannot be expressed."
        raise FrontendError(
            f"Node {context.where} does not fit its inputs: {reason} "
            "Check the model with onnx.checker, or give other input shapes."
        ) from cause

    def _results(self, context: NodeContext) -> list[Operand | None]:
        """What the node's outputs stand for: evaluated, emitted by its handler, or by walking its
        function body.
        """
        node, domain = context.node, domain_of(context.node)
        function = self.functions.get(called(node))
        if function is not None:
            return functions.inline(context, function)
        if domain not in context.scope.opsets and not domain:
            raise FrontendError(
                f"Node {quoted(node.name or node.op_type)} uses the standard operators, but the "
                "model imports no version of them. Export it again."
            )
        schema = schema_of(domain, node.op_type, context.version)
        if schema is not None:
            check_against_schema(
                schema, context.attributes, len(node.input), len(node.output), context.where
            )
        if (known := evaluated(context, domain)) is not None:
            return known
        if follows_from_dims(context, domain):
            body = functions.standard_body(context, domain)
            if body is not None:
                return functions.inline(context, body, standard=True)
        return self._handled(context)

    def _handled(self, context: NodeContext) -> list[Operand | None]:
        """What the node's outputs stand for, by its handler or the standard's function body."""
        node, domain = context.node, domain_of(context.node)
        found = find_handler(domain, node.op_type, context.version)
        if found is not None:
            return rounded_once(context, lambda c: _as_operands(found(c)))
        return rounded_once(context, lambda c: functions.inline_standard(c, domain))

    def emitted(self, context: NodeContext, position: int) -> Value:
        """A result of a node by ordinary nodes, whatever of it is known at import."""
        saved = self.builder.origin, self._where
        self.builder.origin, self._where = context.origin, context.where
        result = self._handled(context)[position]
        assert result is not None
        value = self.materialise(result)
        self.builder.origin, self._where = saved
        return value

    def _define_results(self, context: NodeContext, results: Sequence[Operand | None]) -> None:
        names = context.node.output
        for position, name in enumerate(names):
            if not context.gives(position):
                continue
            result = results[position] if position < len(results) else None
            if result is None:
                context.fail(
                    f"Result {position} ({quoted(name)}) is not one that this operator gives."
                )
            check_rank(result.rank, f"Result {quoted(name)} of node {context.where}")
            if result.value is not None and not result.value.name:
                result.value.name = printable(name)
            context.scope.define(
                name,
                replace(result, name=name),
            )

    # --- what is not supported ---

    def _block(self, context: NodeContext) -> None:
        """Give a node's results no meaning: what depends on them is skipped."""
        self.refusals.search_inside(context.node, context.scope.opsets, context.origin)
        for name in context.node.output:
            if name and name not in context.scope.names:
                context.scope.define(name, blocked(name))

    def _refuse(self, context: NodeContext, refusal: UnsupportedNodeError) -> None:
        """Note a node that is not supported; one of the standard's own definition of an operator as
        that operator, which stands in the file.
        """
        reason, outer = str(refusal), context.scope.defines
        node, version, origin = context.node, context.version, context.origin
        if outer is not None:
            used = operator_text(node, version) + (f", but {reason}" if reason else "")
            node, version, origin = outer.node, outer.version, outer.origin
            reason = f"its definition uses {used}"
        self.refusals.add_operator(node, version, origin, reason, refusal.dims)

    @property
    def inputs(self) -> list[tuple[str, TensorType]]:
        """The inputs by name, with their types."""
        values = self.module.graph.inputs
        return [(n, v.type) for n, v in zip(self.module.input_names, values, strict=True)]

    # --- emitting and data ---

    def emit(self, op: Op, operands: Sequence[Value]) -> list[Value]:
        """Append a node; its results are checked against the limits."""
        node = self.builder.add(op, *operands)
        for result in node.results:
            self._check_type(result.type)
        return node.results

    def _check_type(self, type_: TensorType) -> None:
        size = type_.size
        if isinstance(size, Const):
            self.limits.check(
                f"The number of elements of a result of node {self._where}",
                int(size.literal),
                "elements",
            )
        elif not all(is_reasonable(d) for d in type_.shape):
            dims = symbols_in(type_.shape)
            raise UnsupportedNodeError(
                f"its dims grow into expressions of unreasonable size over {dims_text(dims)}", dims
            )

    def constant(self, array: Array, dtype: DType) -> Value:
        """A constant node of that dtype."""
        return self.builder.constant(array, dtype)

    def constant_operand(self, name: str, array: Array) -> Operand:
        """An array as an operand; it becomes a node when it is used as a tensor."""
        return Operand(name, from_numpy(array.dtype), array=array)

    def materialise(self, operand: Operand) -> Value:
        """The operand as a tensor of the graph, made once."""
        if operand.blocked:
            raise FrontendError(f"The value {quoted(operand.name)} comes from an unsupported node.")
        return materialise(operand, self)

    def known(self, operand: Operand) -> Contents | None:
        """The contents of an operand, computed from constants where need be; None if they are not
        known at import.
        """
        contents = operand.known(self.limits.contents)
        if contents is None and operand.value is not None and operand.array is None:
            operand.array = computed_array(operand.value, self.module.constants, self.limits)
            contents = operand.known(self.limits.contents)
        return contents

    def decided(self, operand: Operand) -> Contents | None:
        """The contents of an operand that must be known, also where defaults of inputs decide them:
        these cannot be replaced then.
        """
        contents = self.known(operand)
        if contents is None:
            array = self.defaults.decide(operand, self.module, self.limits)
            if array is not None:
                contents = Operand("", operand.dtype, array=array).known(self.limits.contents)
        return contents

    def constant_array(self, operand: Operand) -> Array | None:
        """The array of a constant operand; None if it is not constant."""
        if operand.array is None and operand.contents is not None:
            elements = operand.contents.reshape(-1)
            if all(is_number(x) for x in elements):
                operand.array = np.array(operand.contents.tolist()).astype(operand.dtype.numpy)
        if operand.array is None:
            self.known(operand)
        return operand.array


def _check_port_name(what: str, name: str) -> None:
    """FrontendError for the name of an input or output that no text of C can hold."""
    if "\0" in name:
        raise FrontendError(f"{what} {quoted(name)} has a NUL character in its name. Rename it.")


def _refuse_strings(module: Module) -> None:
    """UnsupportedOperatorError if values of a graph hold strings: no target has them."""
    named = list(zip(module.graph.inputs, module.input_names))
    named += [(v, v.name) for node in module.graph.nodes for v in node.results]
    found = list(dict.fromkeys(name for v, name in named if v.type.dtype is STRING))
    if found:
        more = f" and {len(found) - 10} more" if len(found) > 10 else ""
        raise UnsupportedOperatorError(
            "The model uses strings, which are not supported: the values "
            f"{', '.join(map(quoted, found[:10]))}{more}. Encode them as integers beforehand.",
            {"tensor(string)": len(found)},
        )


def _as_operands(results: object) -> list[Operand | None]:
    """A handler's answer as a list: values become operands."""
    items: Iterable[object] = results if isinstance(results, list | tuple) else (results,)
    found: list[Operand | None] = []
    for item in items:
        if isinstance(item, Value):
            found.append(Operand("", item.type.dtype, value=item))
        elif item is None or isinstance(item, Operand):
            found.append(item)
        else:
            raise TypeError(f"A handler returned {type(item).__name__}.")
    return found
