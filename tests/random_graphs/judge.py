# SPDX-License-Identifier: Apache-2.0
"""What a graph computes in float64, and how far from that its outputs may be.

The graph is evaluated node by node by the operators of ``onnx.reference``. Exact values are
computed in their own types. All others are in float64: once as they are, and several times with
errors put in as large as the accuracy contract lets each operator make, which is ``(8 + log2 n)
u`` of the sum of the terms' magnitudes, where ``u`` is half the distance from 1 to the next number
of the value's type and ``n`` the number of terms. An output may be as far from the first as a small
multiple of the farthest of the others: so errors grow through a graph as its own operators let them
grow. The signs of the errors are random for each element, or one for a whole tensor, since errors
of equal elements are equal.
"""

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

from tests.random_graphs.spec import BF16, Node, Spec, is_float

# A sum of the magnitudes of the terms is the same operator on magnitudes.
_LINEAR = frozenset(
    ("Add", "AveragePool", "Conv", "ConvTranspose", "CumSum", "Einsum", "Gemm")
    + ("GlobalAveragePool", "MatMul", "Mean", "Mul", "ReduceL1", "ReduceMean", "ReduceSum", "Sum")
)
_SETTINGS = frozenset(("Pow", "Resize"))  # whose further operands no implementation rounds
_SOFTMAX = frozenset(("LogSoftmax", "Softmax"))
_SLACK, _SAMPLES = 4.0, 6
Values = dict[str, np.ndarray]


class Overflow(Exception):
    """A value leaves, or nearly leaves, the range of its type: what follows is not comparable."""


@dataclass(frozen=True)
class Verdict:
    """The values of the outputs, and the largest errors that each element may have; 0 for exact
    ones.
    """

    values: Values
    errors: Values


def judge(spec: Spec, feed: Mapping[str, np.ndarray]) -> Verdict:
    """Raises Overflow, or what the reference raises."""
    evaluator = ReferenceEvaluator(spec.to_onnx())
    runs = list(zip(spec.nodes, evaluator.rt_nodes_, strict=True))
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        clean = _evaluate(spec, runs, feed, None)
        _check_range(spec, clean)
        errors = {n: np.zeros(clean[n].shape) for n in spec.outputs}
        if all(spec.tensors[n].exact for n in spec.outputs):
            return Verdict({n: clean[n] for n in spec.outputs}, errors)
        for number in range(_SAMPLES):
            noise = _Noise(number)
            found = _evaluate(spec, runs, feed, noise)
            for name in spec.outputs:
                if not spec.tensors[name].exact:
                    distance = np.abs(found[name] - clean[name])
                    assert np.isfinite(distance).all(), f"The errors of '{name}' are not finite."
                    errors[name] = np.maximum(errors[name], _SLACK * distance)
    for name in spec.outputs:
        dtype = spec.tensors[name].dtype
        if not spec.tensors[
            name
        ].exact:  # errors of samples may cancel: that of the last step stays
            least = 4 * float(ml_dtypes.finfo(dtype).smallest_subnormal)
            errors[name] += least + 8 * unit(dtype) * np.abs(clean[name])
    return Verdict({n: clean[n] for n in spec.outputs}, errors)


def unit(dtype: np.dtype) -> float:
    """The largest relative error of rounding to the type."""
    return float(ml_dtypes.finfo(dtype).eps) / 2


class _Noise:
    """Errors of one sample."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._rng = np.random.default_rng(number)

    def signs(self, shape: tuple[int, ...]) -> np.ndarray | float:
        if self._number < 2:
            return 1.0 if self._number else -1.0
        return self._rng.choice((-1.0, 1.0), shape)

    def on(self, value: np.ndarray, size: np.ndarray) -> np.ndarray:
        return value + self.signs(value.shape) * size


def _evaluate(
    spec: Spec,
    runs: Sequence[tuple[Node, OpRun]],
    feed: Mapping[str, np.ndarray],
    noise: _Noise | None,
) -> Values:
    values: Values = {"": None, **spec.constants, **feed}  # type: ignore[dict-item]
    for node, run in runs:
        exact = all(spec.tensors[n].exact for n in node.outputs)
        given = [values[n] for n in node.inputs]
        if not exact:
            given = [_wide(array) for array in given]
        results = [np.asarray(r) for r in _run(node, run, given, exact)]
        if not exact and noise is not None:
            results = _perturbed(spec, node, run, given, results, noise)
        values.update(zip(node.outputs, results))
    return values


def _wide(array: Any) -> Any:
    return array.astype(np.float64) if array is not None and is_float(array.dtype) else array


def _run(node: Node, run: OpRun, given: list[Any], exact: bool) -> Sequence[np.ndarray]:
    if node.op == "Cast" and not exact:
        return given  # to another float type: rounding is an error as others are
    if node.op in _OWN:
        return [_OWN[node.op](node, *given)]
    results: Sequence[np.ndarray] = run.run(*given)
    return results


def _layer_norm(
    node: Node, x: np.ndarray, scale: np.ndarray, shift: np.ndarray | None = None
) -> np.ndarray:
    axes = tuple(range(node.attributes["axis"] % x.ndim, x.ndim))
    centered = x - x.mean(axes, keepdims=True)
    variance = (centered**2).mean(axes, keepdims=True)
    result: np.ndarray = (
        centered / np.sqrt(variance + float(np.float32(node.attributes["epsilon"]))) * scale
    )
    return result if shift is None else result + shift


def _erf(node: Node | None, x: np.ndarray) -> np.ndarray:
    return np.array([math.erf(v) for v in x.reshape(-1)]).reshape(x.shape)


def _gelu(node: Node, x: np.ndarray) -> np.ndarray:
    if node.attributes.get("approximate") == "tanh":
        gate = np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))
    else:
        gate = _erf(None, x * np.sqrt(0.5))
    result: np.ndarray = 0.5 * x * (1 + gate)
    return result


def _group_norm(node: Node, x: np.ndarray, scale: np.ndarray, shift: np.ndarray) -> np.ndarray:
    grouped = x.reshape(x.shape[0], node.attributes["num_groups"], -1)
    centered = grouped - grouped.mean(2, keepdims=True)
    variance = (centered**2).mean(2, keepdims=True)
    epsilon = float(np.float32(node.attributes["epsilon"]))
    normal = (centered / np.sqrt(variance + epsilon)).reshape(x.shape)
    channels = (-1, *[1] * (x.ndim - 2))
    result: np.ndarray = normal * scale.reshape(channels) + shift.reshape(channels)
    return result


def _hard_swish(node: Node, x: np.ndarray) -> np.ndarray:
    return x * np.clip(x / 6 + 0.5, 0, 1)


def _lrn(node: Node, x: np.ndarray) -> np.ndarray:
    size, alpha = node.attributes["size"], float(np.float32(node.attributes["alpha"]))
    padded = np.pad(x**2, [(0, 0), ((size - 1) // 2, size // 2), (0, 0), (0, 0)])
    squares = sum(padded[:, i : i + x.shape[1]] for i in range(size))
    result: np.ndarray = x / (node.attributes["bias"] + alpha / size * squares) ** 0.75
    return result


def _global_max_pool(node: Node, x: np.ndarray) -> np.ndarray:
    result: np.ndarray = x.max(axis=tuple(range(2, x.ndim)), keepdims=True)
    return result


def _softmax(node: Node, x: np.ndarray) -> np.ndarray:
    """In extended precision: in float64 numpy's sum along an axis is a chain, worse than ours."""
    axis = node.attributes.get("axis", -1)
    wide = x.astype(np.longdouble)
    shifted = wide - wide.max(axis, keepdims=True, initial=-np.inf)
    total = np.exp(shifted).sum(axis, keepdims=True)
    logarithm = node.op == "LogSoftmax"
    result = shifted - np.log(total) if logarithm else np.exp(shifted) / total
    return result.astype(np.float64)


# Where the reference rounds to float32 on its way, or does not know all shapes.
_OWN: dict[str, Callable[..., np.ndarray]] = {
    "Erf": _erf,
    "Gelu": _gelu,
    "GlobalMaxPool": _global_max_pool,
    "GroupNormalization": _group_norm,
    "HardSwish": _hard_swish,
    "LRN": _lrn,
    "LayerNormalization": _layer_norm,
    "LogSoftmax": _softmax,
    "Softmax": _softmax,
}


def _perturbed(
    spec: Spec,
    node: Node,
    run: OpRun,
    given: list[Any],
    results: list[np.ndarray],
    noise: _Noise,
) -> list[np.ndarray]:
    """The results with as much error as the contract lets the operator make."""
    u = unit(spec.tensors[node.outputs[0]].dtype)
    terms = max([1, *(a.size for a in given if a is not None)]) / max(1, results[0].size)
    if node.op in _SOFTMAX:  # which sums along an axis and has results for all of it
        terms = max(terms, given[0].shape[node.attributes.get("axis", -1)])
    factor = u * (8 + math.log2(max(2.0, terms)))
    if node.op in _LINEAR:
        sizes = [np.abs(np.asarray(r)) for r in _run(node, run, [*map(_magnitude, given)], False)]
        return [noise.on(r, factor * s) for r, s in zip(results, sizes)]
    if node.op == "Gelu":
        return [noise.on(results[0], factor * np.abs(given[0]))]  # x / 2 + x / 2 * erf(...)
    # Operators of several steps may make the errors of their first steps, which are as errors of
    # what they are given.
    moved = [
        noise.on(a, factor * np.abs(a)) if a is not None and is_float(a.dtype) else a for a in given
    ]
    if node.op in _SETTINGS:
        moved[1:] = given[1:]
    # The logarithm of a sum has the sum's relative error as an absolute one.
    least = 1.0 if node.op == "LogSoftmax" else 0.0
    return [
        noise.on(np.asarray(r), factor * (np.abs(np.asarray(r)) + least))
        for r in _run(node, run, moved, False)
    ]


def _magnitude(array: Any) -> Any:
    return np.abs(array) if array is not None and is_float(array.dtype) else array


def _check_range(spec: Spec, values: Values) -> None:
    for node in spec.nodes:
        for name in node.outputs:
            tensor, value = spec.tensors[name], values[name]
            if any(isinstance(d, int) and d != s for d, s in zip(tensor.dims, value.shape)):
                raise ValueError(f"'{node.name}' is of shape {value.shape}, not {tensor.dims}.")
            if not is_float(tensor.dtype) or not value.size:
                continue
            if not tensor.exact and value.dtype != np.float64:
                raise AssertionError(f"'{node.name}' computes in {value.dtype}, not in float64.")
            wide = value.astype(np.float64)
            if not np.abs(wide).max() < float(ml_dtypes.finfo(tensor.dtype).max) / 8:
                raise Overflow(node.name)


__all__ = ["BF16", "Overflow", "Verdict", "judge", "unit"]
