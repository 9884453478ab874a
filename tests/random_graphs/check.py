# SPDX-License-Identifier: Apache-2.0
"""One graph: compiled, run, and held to the judge and to both references."""

import traceback
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tests.random_graphs.judge import Overflow, Verdict, judge
from tests.random_graphs.references import by_evaluator, by_onnxruntime
from tests.random_graphs.spec import Spec
from tilewright.base_error import TilewrightError
from tilewright.driver import CompileOptions, build
from tilewright.ir.target import Target
from tilewright.runtime import load

Values = Mapping[str, np.ndarray]
_OPTIONS = CompileOptions(cache=False, tuned=False)
FAULTS = ("differs", "untyped", "unnamed", "unstable", "crash", "hang")


@dataclass(frozen=True)
class Outcome:
    """``kind`` is ``same``, ``refused`` (a typed error), ``skipped`` (no reference evaluates it, or
    numbers leave the range), or one of the FAULTS.
    """

    kind: str
    message: str = ""

    @property
    def is_fault(self) -> bool:
        return self.kind in FAULTS


def check(spec: Spec, target: Target) -> Outcome:
    """What became of a graph."""
    model = spec.to_onnx()
    references = [r for r in (by_onnxruntime(spec, model), by_evaluator(spec, model)) if r]
    try:
        verdicts = [judge(spec, feed) for feed in spec.feeds]
    except Overflow as error:
        return Outcome("skipped", f"overflow at {error}")
    except AssertionError:
        raise
    except Exception as error:  # the reference's errors share no class
        return Outcome("skipped", f"the judge: {type(error).__name__}: {error}")
    try:
        artifact = build(model, target, None, _OPTIONS).to_bytes()
        loaded = load(artifact, threads=1)
        found = [loaded.run(dict(feed)) for feed in spec.feeds]
        again = load(artifact, threads=2).run(dict(spec.feeds[0]))
    except TilewrightError as error:
        named = any(f"'{n.name}'" in str(error) for n in spec.nodes)
        about_input = any(f"'{name}'" in str(error) for name in (*spec.inputs, "n", "m"))
        kind = "refused" if named or about_input else "unnamed"
        return Outcome(kind, f"{type(error).__name__}: {error}")
    except Exception:
        return Outcome("untyped", traceback.format_exc(limit=-4))
    if any(again[n].tobytes() != found[0][n].tobytes() for n in spec.outputs):
        return Outcome("unstable", "Two threads give other bits than one.")
    for number, (ours, verdict) in enumerate(zip(found, verdicts)):
        others = [r[number] for r in references]
        for name in spec.outputs:
            message = difference(spec, name, ours, verdict, others)
            if message:
                return Outcome("differs", f"feed {number}, output '{name}': {message}")
    return Outcome("same")


def difference(spec: Spec, name: str, ours: Values, verdict: Verdict, others: list[Values]) -> str:
    """How an output differs, or nothing."""
    tensor, got, wanted = spec.tensors[name], ours[name], verdict.values[name]
    if got.dtype != tensor.dtype or got.shape != wanted.shape:
        return f"{got.dtype}{list(got.shape)} instead of {tensor.dtype}{list(wanted.shape)}"
    if tensor.exact:
        if any(_equal(got, other[name]) for other in others) or _equal(got, wanted):
            return ""
        (at,) = np.argwhere(_unequal(got, wanted))[:1]
        place = tuple(int(i) for i in at)
        return f"{got[place]} instead of {wanted[place]} at {place}"
    error = _error(got, wanted)
    beyond = error > verdict.errors[name]
    # The evaluator gets the shape of some results wrong.
    judged = [o[name] for o in others if o[name].shape == wanted.shape and wanted.size]
    worst = max([_error(array, wanted).max() for array in judged], default=0.0)
    beyond &= error > 4 * worst
    if not beyond.any():
        return ""
    place = tuple(
        int(i) for i in np.unravel_index(np.argmax(np.where(beyond, error, 0)), got.shape)
    )
    return (
        f"{got[place]} instead of {wanted[place]} at {place}, which may be off by "
        f"{verdict.errors[name][place]:.3g}; the references are off by {worst:.3g}"
    )


def _error(got: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        error = np.abs(got.astype(np.float64) - wanted)
    return np.where(np.isnan(error), np.inf, error)


def _unequal(got: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    if got.dtype.kind in "biu":
        return got != wanted
    left, right = got.astype(np.float64), wanted.astype(np.float64)
    return ~((left == right) | (np.isnan(left) & np.isnan(right)))


def _equal(got: np.ndarray, wanted: np.ndarray) -> bool:
    return got.shape == wanted.shape and not _unequal(got, wanted).any()
