# SPDX-License-Identifier: Apache-2.0
"""Hash-consing: building the same immutable term twice gives the same object.

Terms made of terms can then be compared with ``is``, used as keys of memo tables, and shared
freely; equality of arbitrarily large expressions costs one pointer comparison.
"""

from collections.abc import Callable
from dataclasses import MISSING, fields
from threading import Lock
from typing import Any, TypeVar, cast
from weakref import WeakValueDictionary

T = TypeVar("T")

_terms: "WeakValueDictionary[tuple[Any, ...], Any]" = WeakValueDictionary()
# The references behind the dictionary: looking one up here costs no Python call.
_references: dict[tuple[Any, ...], Any] = cast(Any, _terms).data
_lock = Lock()


class InterningMeta(type):
    """Looks a term up by its class and fields before a new object is made."""

    _defaults: tuple[Any, ...] | None = None

    def __call__(cls: type[T], *args: Any) -> T:
        key = (cls, *args)
        reference = _references.get(key)
        if reference is not None:
            term = reference()
            if term is not None:
                return cast(T, term)
        return cast(T, _make(cls, key))


def _make(cls: Any, key: tuple[Any, ...]) -> Any:
    """The term of a key that was not found: a new one, unless it was only spelled differently."""
    defaults = cls.__dict__.get("_defaults")
    if defaults is None:
        defaults = cls._defaults = tuple(f.default for f in fields(cls))
    if len(key) <= len(defaults):
        rest = defaults[len(key) - 1 :]
        if MISSING not in rest:
            return cls(*key[1:], *rest)
    term = type.__call__(cls, *key[1:])
    object.__setattr__(term, "_memo", {})
    with _lock:
        # Another thread may have been here meanwhile: the first object wins.
        return _terms.setdefault(key, term)


class Term(metaclass=InterningMeta):
    """Base of interned classes; declare them ``@dataclass(frozen=True, eq=False, slots=True)``.

    All fields are positional and hashable, and a default may be left out. ``_memo`` caches what
    functions derive from a term.
    """

    __slots__ = ("__weakref__", "_memo")
    _memo: dict[Any, Any]

    def __reduce__(self) -> tuple[Any, ...]:
        names = (f.name for f in fields(cast(Any, self)))
        return type(self), tuple(getattr(self, name) for name in names)


def memoised(function: Callable[[Any], T]) -> Callable[[Any], T]:
    """Cache the result of a function of one term in that term."""

    def cached(term: Any) -> T:
        memo = term._memo
        try:
            return cast(T, memo[function])
        except KeyError:
            result = memo[function] = function(term)
            return result

    cached.__doc__ = function.__doc__
    cached.__name__ = function.__name__
    return cached
