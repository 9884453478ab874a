# SPDX-License-Identifier: Apache-2.0
"""Makes a graph with a fault smaller, as long as the fault stays of its kind: one output, inputs in
place of what computes them, nodes left out, one feed.
"""

import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
from onnx.reference import ReferenceEvaluator

from tests.random_graphs.spec import Node, Spec

Fails = Callable[[Spec], bool]
_MOST_TRIALS = 60


def minimise(spec: Spec, fails: Fails) -> Spec:
    """The smallest graph that was found to fail."""
    trials = 0
    while True:
        for smaller in _smaller(spec):
            trials += 1
            if trials > _MOST_TRIALS:
                return spec
            if fails(smaller):
                spec = smaller
                break
        else:
            return spec


def _smaller(spec: Spec) -> Iterator[Spec]:
    if len(spec.feeds) > 1:
        for feed in spec.feeds:
            yield replace(spec, feeds=(feed,))
    made = [n for node in spec.nodes for n in node.outputs]
    if len(spec.outputs) > 1:
        for name in spec.outputs:
            yield spec.with_outputs((name,))
    for name in made[:-1]:
        if name not in spec.outputs:
            yield spec.with_outputs((name,))
    for name in reversed(made):
        cut = _with_input(spec, name)
        if cut is not None:
            yield cut
    for node in reversed(spec.nodes):
        left_out = _without(spec, node)
        if left_out is not None:
            yield left_out


def _with_input(spec: Spec, name: str) -> Spec | None:
    """The graph with a value as an input; only where its dims are those of inputs."""
    symbols = {d for n in spec.inputs for d in spec.tensors[n].dims if isinstance(d, str)}
    dims = {d for d in spec.tensors[name].dims if isinstance(d, str)}
    if name in spec.outputs or not dims <= symbols:
        return None
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            evaluator = ReferenceEvaluator(spec.with_outputs((name,)).to_onnx())
            arrays = tuple(
                np.asarray(evaluator.run(None, {n: feed[n] for n in evaluator.input_names})[0])
                for feed in spec.feeds
            )
    except Exception:  # the reference's errors share no class: this value stays computed
        return None
    return spec.with_input(name, arrays).with_outputs(spec.outputs)


def _without(spec: Spec, node: Node) -> Spec | None:
    """The graph in which users of a node read its first operand of the same type."""
    if len(node.outputs) != 1 or node.outputs[0] in spec.outputs:
        return None
    result = spec.tensors[node.outputs[0]]
    for name in filter(None, node.inputs):
        given = spec.tensors[name]
        if (given.dtype, given.dims) == (result.dtype, result.dims):
            nodes = tuple(
                replace(n, inputs=tuple(name if i == result.name else i for i in n.inputs))
                for n in spec.nodes
                if n is not node
            )
            return replace(spec, nodes=nodes).with_outputs(spec.outputs)
    return None
