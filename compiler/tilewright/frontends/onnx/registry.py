# SPDX-License-Identifier: Apache-2.0
"""The tables of what each ONNX operator means: handlers and evaluators, keyed by domain, name and
version.

A *handler* emits our ops for a node. It is registered for the operator set version from which it
holds, up to the next registered one, so that an operator that changed has one row for each form. An
*evaluator* computes what a node's small integer results hold at import, where that can be told:
shapes are followed through it (:mod:`.shapes`).
"""

import difflib
from bisect import insort
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import onnx

if TYPE_CHECKING:
    from tilewright.frontends.onnx.context import NodeContext

OLDEST_OPSET = 1
NEWEST_OPSET = 28

Contents = npt.NDArray[np.object_]
Handler = Callable[["NodeContext"], Any]
Evaluator = Callable[["NodeContext", list[Any]], Any]

_handlers: dict[tuple[str, str], list[tuple[int, Handler]]] = {}
_evaluators: dict[tuple[str, str], Evaluator] = {}


def handler(*names: str, since: int = 1, domain: str = "") -> Callable[[Handler], Handler]:
    """Register a function as the handler of the operators of these names from that version on."""

    def register(function: Handler) -> Handler:
        for name in names:
            register_handler(name, function, since, domain)
        return function

    return register


def register_handler(name: str, function: Handler, since: int = 1, domain: str = "") -> None:
    """Register one handler; a second one for the same version is a mistake."""
    rows = _handlers.setdefault((domain, name), [])
    if any(version == since for version, _ in rows):
        raise TypeError(f"'{name}' has two handlers for version {since}.")
    insort(rows, (since, function), key=lambda row: row[0])


def evaluator(*names: str, domain: str = "") -> Callable[[Evaluator], Evaluator]:
    """Register a function that tells the contents of a node's first result from those of its
    inputs.
    """

    def register(function: Evaluator) -> Evaluator:
        for name in names:
            _evaluators[(domain, name)] = function
        return function

    return register


def find_handler(domain: str, name: str, version: int) -> Handler | None:
    """The handler in force at a version of the operator set; None if there is none."""
    fitting = [
        function for since, function in _handlers.get((domain, name), ()) if since <= version
    ]
    return fitting[-1] if fitting else None


def find_evaluator(domain: str, name: str) -> Evaluator | None:
    """The evaluator of an operator; None if its results are never followed."""
    return _evaluators.get((domain, name))


def supported_operators() -> dict[tuple[str, str], list[int]]:
    """The operators with a handler and the versions at which their rows begin."""
    return {key: [since for since, _ in rows] for key, rows in sorted(_handlers.items())}


def nearest_operator(domain: str, name: str) -> str:
    """The standard operator that a misspelled name probably stands for; empty for another domain, a
    name that is right, or one that is like none.
    """
    if domain not in ("", "ai.onnx") or onnx.defs.has(name):
        return ""
    known = [known for of, known in _handlers if not of]
    return next(iter(difflib.get_close_matches(name, sorted(known), n=1)), "")
