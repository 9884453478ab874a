# SPDX-License-Identifier: Apache-2.0
"""Passes over modules: the base class, the text of pipelines, and the function that runs them.

A pass is a frozen dataclass: its class has the name, its fields are its options, and subclassing
registers it. A pipeline is a list of passes, written ``canonicalize,fold-constants{cap=1048576}``.
What watches a pipeline (verification, dumps, times) is an :class:`Instrument`; what a pass may ask
about its surroundings (target, numeric policy) is in the :class:`PassContext`. Nothing is global
but the registry of classes.

>>> [p.name for p in parse_pipeline("canonicalize, fold-constants{cap=4096}")]
['canonicalize', 'fold-constants']
"""

import difflib
import importlib
import pkgutil
import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar, get_type_hints

from tilewright.ir.errors import PipelineError
from tilewright.ir.graph import Module
from tilewright.ir.target import Target

NUMERICS = ("strict", "default")
_ITEM = re.compile(r"\s*(?P<name>[a-z][a-z0-9-]*)\s*(\{(?P<options>[^{}]*)\})?\s*(,|$)")


@dataclass(frozen=True)
class PassContext:
    """What passes may ask: the target, the numeric policy (one of ``NUMERICS``), which passes are
    switched off, and whether indices that are out of range are clamped instead of being an error.
    The target has no default, so that no result follows from the machine in use.
    """

    target: Target
    numerics: str = "default"
    disabled: frozenset[str] = frozenset()
    unchecked_indices: bool = False

    def __post_init__(self) -> None:
        if self.numerics not in NUMERICS:
            raise PipelineError(
                f"Numeric policy '{self.numerics}' is unknown. Choose one of {_listed(NUMERICS)}."
            )


@dataclass(frozen=True)
class Pass:
    """Base of all passes; the fields of a subclass are its options (int, bool, float or str, with
    defaults). Compilations can leave out an ``optional`` one.
    """

    name: ClassVar[str] = ""
    optional: ClassVar[bool] = True
    registry: ClassVar[dict[str, type["Pass"]]] = {}

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        known = Pass.registry.setdefault(cls.name, cls)
        if known.__qualname__ != cls.__qualname__:
            raise TypeError(
                f"Two passes are called '{cls.name}': {known.__qualname__} and {cls.__qualname__}."
            )

    def run(self, module: Module, context: PassContext) -> bool:
        """Change the module in place; True if anything changed."""
        raise NotImplementedError(self.name)

    def __str__(self) -> str:
        shown = [(f.name, getattr(self, f.name)) for f in fields(self)]
        options = ",".join(f"{n.replace('_', '-')}={_option_text(v)}" for n, v in shown)
        return f"{self.name}{{{options}}}" if options else self.name


class Instrument:
    """Watches a pipeline. ``number`` counts the passes that ran, from 1."""

    def after(self, number: int, ran: Pass, module: Module, changed: bool, seconds: float) -> None:
        """Called when a pass has run."""
        raise NotImplementedError


@dataclass(frozen=True)
class Verify(Instrument):
    """Checks the module after each pass; ``check`` raises VerifyError."""

    check: Callable[[Module], None]

    def after(self, number: int, ran: Pass, module: Module, changed: bool, seconds: float) -> None:
        try:
            self.check(module)
        except Exception as error:
            error.add_note(f"The pass '{ran.name}' ran last.")
            raise


@dataclass(frozen=True)
class Dump(Instrument):
    """Writes the text of the module after each pass to ``folder/NN-name.ir``."""

    folder: Path

    def after(self, number: int, ran: Pass, module: Module, changed: bool, seconds: float) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        state = "" if changed else " (unchanged)"
        text = f"// after {ran}{state}\n{module}\n"
        (self.folder / f"{number:02d}-{ran.name}.ir").write_text(text, encoding="utf-8")


@dataclass(frozen=True)
class PassTime:
    """One row of the time table: ``nodes`` is how many nodes the graph had afterwards."""

    name: str
    seconds: float
    changed: bool
    nodes: int


@dataclass
class Time(Instrument):
    """Collects one :class:`PassTime` for each pass."""

    rows: list[PassTime] = field(default_factory=list)

    def after(self, number: int, ran: Pass, module: Module, changed: bool, seconds: float) -> None:
        self.rows.append(PassTime(ran.name, seconds, changed, len(module.graph.nodes)))


def run_passes(
    module: Module,
    passes: Iterable[Pass],
    context: PassContext,
    instruments: Sequence[Instrument] = (),
) -> bool:
    """Run passes in order, except those switched off; True if any changed the module."""
    _check_disabled(context.disabled)
    any_changed = False
    number = 0
    for each in passes:
        if each.name in context.disabled:
            continue
        start = time.perf_counter()
        changed = each.run(module, context)
        seconds = time.perf_counter() - start
        any_changed |= changed
        number += 1
        for instrument in instruments:
            instrument.after(number, each, module, changed, seconds)
    return any_changed


def _check_disabled(names: Iterable[str]) -> None:
    """PipelineError for the name of no pass, or of one that no compilation can do without."""
    known = registered_passes()
    optional = [name for name, each in known.items() if each.optional]
    for name in sorted(set(names) - set(optional)):
        if name in known:
            raise PipelineError(
                f"Pass '{name}' cannot be left out. Those that can are {_listed(sorted(optional))}."
            )
        raise PipelineError(_unknown("pass", name, optional))


def parse_pipeline(text: str) -> list[Pass]:
    """The passes that a text names; PipelineError, with the nearest name, for an unknown pass or
    option.
    """
    result: list[Pass] = []
    position = 0
    while position < len(text):
        match = _ITEM.match(text, position)
        if match is None:
            rest = text[position:].strip()
            raise PipelineError(
                f"Pipeline text '{rest}' is not understood. Write names and options as in "
                "'canonicalize,fold-constants{cap=4096}'."
            )
        result.append(_make(match["name"], match["options"] or ""))
        position = match.end()
    return result


def _make(name: str, options: str) -> Pass:
    cls = registered_passes().get(name)
    if cls is None:
        raise PipelineError(_unknown("pass", name, registered_passes()))
    types = {f.name.replace("_", "-"): f.name for f in fields(cls)}
    hints = get_type_hints(cls)
    values: dict[str, Any] = {}
    for item in filter(None, (o.strip() for o in options.split(","))):
        key, separator, value = (part.strip() for part in item.partition("="))
        if key not in types:
            raise PipelineError(_unknown(f"option of pass '{name}'", key, types))
        values[types[key]] = _value(name, key, value if separator else "true", hints[types[key]])
    return cls(**values)


def _value(name: str, key: str, text: str, kind: type) -> int | bool | float | str:
    if kind is bool:
        if text not in ("true", "false"):
            raise PipelineError(
                f"Option '{key}' of pass '{name}' is '{text}'. Write 'true' or 'false'."
            )
        return text == "true"
    if kind is str:
        return text
    try:
        return int(text, 0) if kind is int else float(text)
    except ValueError:
        wanted = "an integer" if kind is int else "a number"
        raise PipelineError(
            f"Option '{key}' of pass '{name}' is '{text}'. Write {wanted}."
        ) from None


def _option_text(value: Any) -> str:
    return ("false", "true")[value] if isinstance(value, bool) else str(value)


def _unknown(what: str, name: str, known: Iterable[str]) -> str:
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1)
    if near:
        return f"There is no {what} called '{name}'. Did you mean '{near[0]}'?"
    listed = f"Choose one of {_listed(names)}." if names else "There is none."
    return f"There is no {what} called '{name}'. {listed}"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"'{n}'" for n in names)


def registered_passes() -> dict[str, type[Pass]]:
    """The registry, with every graph pass of this package loaded."""
    package = importlib.import_module("tilewright.passes.graph")
    for entry in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{entry.name}")
    return Pass.registry
