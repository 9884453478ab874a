# SPDX-License-Identifier: Apache-2.0
"""Names from model files are untrusted text: they are shown escaped and cut, and never become code.

``quoted`` is how a name appears in a message; ``identifier`` turns a name into one that the text
form of the IR accepts; ``printable`` keeps a name readable in dumps and profiles.
"""

import re

LONGEST_SHOWN = 80
LONGEST_KEPT = 200
# Words that mean something else where the text form expects a symbol.
_RESERVED = frozenset(
    {"min", "max", "bcast", "select", "guard", "cast", "for", "while", "if", "let", "store"}
    | {"alloc", "barrier", "call", "in", "hint", "multiple", "index", "true", "false"}
)


def printable(name: str, longest: int = LONGEST_KEPT) -> str:
    """The name with control characters and unpaired surrogates escaped, cut to ``longest``
    characters.
    """
    if len(name) > longest:
        name = name[: longest - 3] + "..."
    if name.isprintable():
        return name
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape", "backslashreplace").decode()
        for c in name
    )


def quoted(name: str) -> str:
    """The name in single quotes, for a message."""
    return f"'{printable(name, LONGEST_SHOWN)}'"


def identifier(name: str, default: str = "dim") -> str:
    """An ASCII identifier made from a name; ``default`` if nothing of it remains."""
    cleaned = re.sub(r"[^A-Za-z0-9_]+", "_", name[:LONGEST_SHOWN]).strip("_")
    if not cleaned:
        return default
    if cleaned[0].isdigit():
        cleaned = f"{default}_{cleaned}"
    return f"{cleaned}_{default}" if cleaned in _RESERVED else cleaned


def unique(name: str, taken: "set[str] | frozenset[str]") -> str:
    """The name itself, or with a number appended if it is taken."""
    if name not in taken:
        return name
    number = 1
    while f"{name}_{number}" in taken:
        number += 1
    return f"{name}_{number}"
