# SPDX-License-Identifier: Apache-2.0
"""Bounds on what an import may cost. Each has a generous default and its own sentence when it is
passed.
"""

from dataclasses import dataclass

from tilewright.ir.errors import FrontendError


@dataclass(frozen=True)
class Limits:
    """``model_bytes``: the protobuf; ``nodes``: nodes walked, inlined functions included;
    ``nesting``: sub-graphs and functions within each other; ``elements``: of one tensor of known
    shape; ``contents``: elements of an integer tensor whose contents are followed; ``folded``:
    elements computed at import where a shape depends on them; ``terms``: of one symbolic dim.
    """

    model_bytes: int = (1 << 31) - 1
    nodes: int = 1_000_000
    nesting: int = 64
    elements: int = 1 << 36
    contents: int = 4096
    folded: int = 1 << 22
    terms: int = 256

    def check(self, what: str, size: int, limit: str) -> None:
        """FrontendError if ``size`` passes the limit of that name."""
        allowed = getattr(self, limit)
        if size > allowed:
            raise FrontendError(
                f"{what} is {size}, more than the limit of {allowed}. "
                f"Raise it with Limits({limit}=...) if the model is trusted."
            )
