# SPDX-License-Identifier: Apache-2.0
"""Hash-consing: building the same immutable term twice gives the same object.

Terms made of terms can then be compared with ``is``, used as keys of memo tables, and shared freely;
equality of arbitrarily large expressions costs one pointer comparison.
"""

from collections.abc import Callable
from typing import Any, TypeVar, cast
from weakref import WeakValueDictionary

T = TypeVar("T")

_terms: "WeakValueDictionary[tuple[Any, ...], Any]" = WeakValueDictionary()


class InterningMeta(type):
    """Looks a term up by its class and fields before a new object is made."""

    def __call__(cls: type[T], *args: Any) -> T:
        key = (cls, *args)
        term = _terms.get(key)
        if term is None:
            term = cast(Any, super()).__call__(*args)
            object.__setattr__(term, "_memo", {})
            # Another thread may have been here meanwhile: the first object wins.
            term = _terms.setdefault(key, term)
        return cast(T, term)


class Term(metaclass=InterningMeta):
    """Base of interned classes; declare them ``@dataclass(frozen=True, eq=False, slots=True)``.

    All fields are positional and hashable. ``_memo`` caches what functions derive from a term.
    """

    __slots__ = ("__weakref__", "_memo")
    _memo: dict[Any, Any]

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), tuple(getattr(self, name) for name in self.__dataclass_fields__)  # type: ignore[attr-defined]


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
