# SPDX-License-Identifier: Apache-2.0
"""A schedule is data: a list of named steps on named loops, with a text form that parses back.

Each step is a frozen dataclass whose fields are its arguments and whose ``apply`` maps a kernel to
a kernel and the handles of what it made there (:mod:`tilewright.passes.schedule.handles`);
subclassing :class:`Step` registers it. Steps refuse what they cannot do with a ScheduleError that
names the loop, but they do not prove that the result computes the same: that is the work of
:mod:`tilewright.passes.schedule.legality`, which reads the result.

Text: steps separated by ``;`` or newlines: ``split(e_m, 6); vectorize(e_n); compute_at(mm, e_m_o,
register)``.
"""

import importlib
import re
from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Generic, TypeVar

from tilewright.ir.errors import ScheduleError
from tilewright.ir.loop import Kernel

Schedule = tuple["Step[Any]", ...]

Made = TypeVar("Made", covariant=True)

_CALL = re.compile(r"\s*([a-z_]+)\s*\(([^()]*)\)\s*")


@dataclass(frozen=True)
class Step(Generic[Made]):
    """Base of schedule steps, each of which hands back a ``Made``. Fields are loop and stage names
    (str), factors (int) or tuples of names (last field).
    """

    name: ClassVar[str] = ""
    registry: ClassVar[dict[str, type["Step[Any]"]]] = {}

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "name" in cls.__dict__:
            Step.registry[cls.name] = cls

    def apply(self, kernel: Kernel) -> tuple[Kernel, Made]:
        """The kernel with this step done, and what it made; ScheduleError if it does not apply."""
        raise NotImplementedError(self.name)

    def arguments(self) -> list[str]:
        """The arguments as text; trailing defaults are left out."""
        values = [(getattr(self, f.name), f.default) for f in fields(self)]
        while values and values[-1][0] == values[-1][1]:
            values.pop()
        flat: list[str] = []
        for value, _ in values:
            flat.extend(value if isinstance(value, tuple) else [str(value)])
        return flat

    def __str__(self) -> str:
        return f"{self.name}({', '.join(self.arguments())})"


def apply(kernel: Kernel, schedule: Iterable[Step[Any]]) -> Kernel:
    """Apply the steps in order; a ScheduleError says which step failed and why."""
    for step in schedule:
        try:
            kernel, _ = step.apply(kernel)
        except ScheduleError as error:
            raise ScheduleError(
                f"Step '{step}' does not apply to kernel '{kernel.name}': {error}"
            ) from error
    return kernel


def check_factor(factor: int) -> None:
    """Refuse a number of iterations or lanes that is not positive."""
    if factor < 1:
        raise ScheduleError(f"The factor must be at least 1, not {factor}.")


def schedule_text(schedule: Iterable[Step[Any]], separator: str = "; ") -> str:
    """The text form of a schedule."""
    return separator.join(map(str, schedule))


def parse_schedule(text: str) -> Schedule:
    """Read a schedule back; ScheduleError names the step that does not parse."""
    known = registered_steps()
    steps: list[Step[Any]] = []
    for part in re.split(r"[;\n]", text):
        if not part.strip():
            continue
        match = _CALL.fullmatch(part)
        if match is None or match[1] not in known:
            names = ", ".join(sorted(known))
            raise ScheduleError(f"'{part.strip()}' is not a schedule step; the steps are {names}.")
        words = [a.strip() for a in match[2].split(",") if a.strip()]
        steps.append(_build(known[match[1]], words, part))
    return tuple(steps)


def registered_steps() -> dict[str, type[Step[Any]]]:
    """The registry, with every step of this package loaded."""
    importlib.import_module("tilewright.passes.schedule.steps")
    return Step.registry


def _build(step: type[Step[Any]], words: list[str], text: str) -> Step[Any]:
    arguments: dict[str, Any] = {}
    for f in fields(step):
        if f.type in ("tuple[str, ...]", tuple[str, ...]):
            arguments[f.name] = tuple(words)
            words = []
        elif words:
            word = words.pop(0)
            is_number = f.type in ("int", int)
            if is_number and not re.fullmatch(r"-?\d+", word):
                raise ScheduleError(
                    f"Argument '{f.name}' of '{text.strip()}' must be a number, not '{word}'."
                )
            arguments[f.name] = int(word) if is_number else word
    try:
        if words:
            raise TypeError
        return step(**arguments)
    except TypeError:
        wanted = ", ".join(f.name for f in fields(step))
        raise ScheduleError(
            f"'{text.strip()}' has the wrong arguments; the form is {step.name}({wanted})."
        ) from None
